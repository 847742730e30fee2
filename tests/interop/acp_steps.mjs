// Drives an ACP agent with the protocol's TypeScript library: node acp_steps.mjs SDK CWD COMMAND ARGUMENT...
// Asks before changes, allows them, then lists and loads the session. Prints one JSON line with what was seen.
import { spawn } from "node:child_process";
import { Readable, Writable } from "node:stream";
import { pathToFileURL } from "node:url";

const [sdk, cwd, command, ...args] = process.argv.slice(2);
const { client, methods, ndJsonStream } = await import(pathToFileURL(sdk).href);
const agent = spawn(command, args, { cwd, stdio: ["pipe", "pipe", "inherit"] });
const seen = { updates: [], asked: [] };
const app = client({ name: "steps" })
  .onRequest(methods.client.session.requestPermission, ({ params }) => {
    seen.asked.push({ kinds: params.options.map((option) => option.kind), content: params.toolCall.content });
    const option = params.options.find((each) => each.kind === "allow_once");
    return { outcome: { outcome: "selected", optionId: option.optionId } };
  })
  .onNotification(methods.client.session.update, ({ params }) => {
    seen.updates.push(params.update);
  });
await app.connectWith(ndJsonStream(Writable.toWeb(agent.stdin), Readable.toWeb(agent.stdout)), async (ctx) => {
  const hello = await ctx.request(methods.agent.initialize, { protocolVersion: 1, clientCapabilities: {} });
  seen.hello = hello.agentInfo.name;
  const opened = await ctx.request(methods.agent.session.new, { cwd, mcpServers: [] });
  const sessionId = opened.sessionId;
  await ctx.request(methods.agent.session.setMode, { sessionId, modeId: "ask" });
  const prompt = [{ type: "text", text: "write it" }];
  seen.stop = (await ctx.request(methods.agent.session.prompt, { sessionId, prompt })).stopReason;
  seen.listed = (await ctx.request(methods.agent.session.list, { cwd })).sessions.map((each) => each.sessionId);
  seen.sessionId = sessionId;
  seen.live = seen.updates.length;
  await ctx.request(methods.agent.session.load, { sessionId, cwd, mcpServers: [] });
});
agent.stdin.end();
console.log(JSON.stringify(seen));
