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

const known = new Promise((done) => {
  if (stored()) return done();
  channel.addEventListener("message", ({ data }) => {
    if (!stored() && data.token) store(data.token);
    if (stored()) done();
  });
  channel.postMessage({ wanted: true });
  setTimeout(done, 500);
});
channel.addEventListener("message", ({ data }) => {
  if (data.wanted && stored()) channel.postMessage({ token: stored() });
});

// A page can send the token with a websocket only as a subprotocol.
const PlainSocket = window.WebSocket;
class TokenSocket extends PlainSocket {
  constructor(address) {
    super(address, ["retinue", stored() || "none"]);
  }
  send(data) {
    if (this.readyState === PlainSocket.OPEN) super.send(data);
  }
}

// Reload when the server can be reached again, ever more slowly.
let pause = 500;
const reach = async () => (await fetch("/page.js", { cache: "no-store" }).catch(() => null))?.ok;
const retry = () => {
  pause = Math.min(pause * 1.5, 15000);
  setTimeout(async () => ((await reach()) ? location.reload() : retry()), pause);
};
const explainLoss = async (wasOpen, tell) => {
  if (!wasOpen && (await reach())) {
    return tell("The server does not accept this window. Open the address that retinue serve printed.");
  }
  tell("The connection to the server is lost; sessions continue. Trying again …");
  retry();
};
