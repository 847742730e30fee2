// Drives a program with pi's own RpcClient: node rpc_steps.mjs CLIENT CLI '[["method", argument, ...], ...]' FLAG...
// Prints one JSON line a step: what came back, or the error. `settle` prompts and gives the kinds of the events.
import { pathToFileURL } from "node:url";

const [client, cliPath, steps, ...args] = process.argv.slice(2);
const { RpcClient } = await import(pathToFileURL(client).href);
const rpc = new RpcClient({ cliPath, args });
const print = (record) => console.log(JSON.stringify(record));
const known = {};

await rpc.start();
for (const [method, ...given] of JSON.parse(steps)) {
  // "$name" stands for what an earlier step has kept.
  const values = given.map((value) => (typeof value === "string" && value.startsWith("$") ? known[value] : value));
  try {
    if (method === "settle") {
      const events = await rpc.promptAndWait(...values);
      print({ method, result: events.map((event) => event.type) });
      continue;
    }
    const result = await rpc[method](...values);
    if (method === "getState") known.$file = result.sessionFile;
    if (method === "getForkMessages") known.$entry = result.at(-1)?.entryId;
    print({ method, result: result ?? null });
  } catch (error) {
    print({ method, error: error.message });
  }
}
const begun = performance.now();
await rpc.stop();
print({ method: "stop", fast: performance.now() - begun < 1000 });
