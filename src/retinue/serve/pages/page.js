// The token is in the fragment, which browsers do not send; it is stored for this window and this port only. Another
// window of this server gets it from the first one: only pages of the same origin hear this channel.
const channel = new BroadcastChannel("token");
const stored = () => sessionStorage.getItem("token") || "";
const store = (token) => sessionStorage.setItem("token", token.replace(/[^\w-]/g, ""));

if (location.hash) {
  store(location.hash.slice(1));
  history.replaceState(null, "", location.pathname + location.search);
}
window.addEventListener("hashchange", () => location.reload());

let isAdmitted = false, admit = null;
const share = () => isAdmitted && channel.postMessage({ token: stored() });
const ask = (then) => {
  admit = then;
  channel.postMessage({ wanted: true });
};
const known = new Promise((done) => {
  if (stored()) return done();
  ask(done);
  setTimeout(done, 500);
});
channel.addEventListener("message", ({ data }) => {
  if (data.wanted) share();
  if (data.token && !stored()) (store(data.token), admit());
});

// A page can send the token with a websocket only as a subprotocol.
const PlainSocket = window.WebSocket;
class TokenSocket extends PlainSocket {
  constructor(address) {
    super(address, ["retinue", stored() || "none"]);
    this.addEventListener("open", () => ((isAdmitted = true), share()));
    this.addEventListener("close", () => (isAdmitted = false));
  }
  send(data) {
    if (this.readyState === PlainSocket.OPEN) super.send(data);
  }
}

// Connect again when the server can be reached, ever more slowly.
const reach = async () => (await fetch("/page.js", { cache: "no-store" }).catch(() => null))?.ok;
const retry = (again, pause) => setTimeout(async () => ((await reach()) ? again() : retry(again, Math.min(pause * 1.5, 15000))), pause);
const explainLoss = async (wasOpen, tell, again) => {
  if (!wasOpen && (await reach())) {
    sessionStorage.removeItem("token");
    ask(again);
    return tell("The server does not accept this window. Open the address that retinue serve printed.");
  }
  tell("The connection to the server is lost; sessions continue. Trying again …");
  retry(again, 750);
};
