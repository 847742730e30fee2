// Drives an ACP agent with the protocol's TypeScript library: node acp_steps.mjs SDK CWD COMMAND ARGUMENT...
// The same steps as acp_steps.py; prints one JSON line with what was seen.
import { spawn } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { Readable, Writable } from "node:stream";
import { pathToFileURL } from "node:url";

const [sdk, cwd, command, ...args] = process.argv.slice(2);
const { client, methods, ndJsonStream } = await import(pathToFileURL(sdk).href);
const { session: sessions } = methods.agent;
const agent = spawn(command, args, { cwd, stdio: ["pipe", "pipe", "inherit"] });
const seen = { updates: [], asked: [], files: [] };
let begun = () => {};
const app = client({ name: "steps" })
  .onRequest(methods.client.session.requestPermission, ({ params }) => {
    seen.asked.push({ kinds: params.options.map((option) => option.kind), content: params.toolCall.content });
    const option = params.options.find((each) => each.kind === "allow_once");
    return { outcome: { outcome: "selected", optionId: option.optionId } };
  })
  .onRequest(methods.client.fs.readTextFile, ({ params }) => {
    seen.files.push(["read", params.path]);
    return { content: params.path.endsWith("a.txt") ? "unsaved\n" : readFileSync(params.path, "utf8") };
  })
  .onRequest(methods.client.fs.writeTextFile, ({ params }) => {
    seen.files.push(["write", params.path]);
    writeFileSync(params.path, params.content);
    return {};
  })
  .onNotification(methods.client.session.update, ({ params }) => {
    seen.updates.push(params.update);
    if (params.update.content?.text === "slow") begun();
  });
await app.connectWith(ndJsonStream(Writable.toWeb(agent.stdin), Readable.toWeb(agent.stdout)), async (ctx) => {
  const fs = { readTextFile: true, writeTextFile: true };
  const hello = await ctx.request(methods.agent.initialize, { protocolVersion: 1, clientCapabilities: { fs } });
  seen.hello = hello.agentInfo.name;
  const opened = await ctx.request(sessions.new, { cwd, mcpServers: [] });
  const sessionId = opened.sessionId;
  seen.options = opened.configOptions.map((each) => each.category);
  seen.modes = opened.modes.availableModes.map((each) => each.id);
  await ctx.request(sessions.setMode, { sessionId, modeId: "ask" });
  const resource = { uri: "file:///x/notes.md", text: "the notes" };
  const image = { type: "image", data: "iVBORw0KGgo=", mimeType: "image/png" };
  const prompt = [{ type: "text", text: "work" }, image, { type: "resource", resource }];
  seen.stop = (await ctx.request(sessions.prompt, { sessionId, prompt })).stopReason;
  seen.listed = (await ctx.request(sessions.list, { cwd })).sessions.map((each) => each.sessionId);
  seen.sessionId = sessionId;
  seen.live = seen.updates.length;
  await ctx.request(sessions.load, { sessionId, cwd, mcpServers: [] });
  seen.replayed = seen.updates.splice(seen.live).map((each) => each.sessionUpdate);
  const started = new Promise((resolve) => (begun = resolve));
  const waiting = ctx.request(sessions.prompt, { sessionId, prompt: [{ type: "text", text: "wait" }] });
  await started;
  await ctx.notify(sessions.cancel, { sessionId });
  seen.cancelled = (await waiting).stopReason;
  const unknown = { sessionId: "gone", cwd, mcpServers: [] };
  seen.unknown = await ctx.request(sessions.resume, unknown).catch((error) => error.code);
  seen.updates.length = seen.live;
});
agent.stdin.end();
console.log(JSON.stringify(seen));
