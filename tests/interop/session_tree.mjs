// Opens a session with pi's own SessionManager: node session_tree.mjs MANAGER FILE
// Prints where its leaf is, the entries on the way to it, how many roots there are, and what the model would see.
import { pathToFileURL } from "node:url";

const [manager, file] = process.argv.slice(2);
const { SessionManager } = await import(pathToFileURL(manager).href);
const session = SessionManager.open(file);
console.log(
  JSON.stringify({
    leaf: session.getLeafId(),
    way: session.getBranch().map((entry) => entry.id),
    roots: session.getTree().length,
    roles: session.buildSessionContext().messages.map((message) => message.role),
  }),
);
