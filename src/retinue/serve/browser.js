// The token comes in the fragment, which browsers send to nobody, and is kept for this window and this port alone.
if (location.hash) {
  sessionStorage.setItem("token", location.hash.slice(1).replace(/[^\w-]/g, ""));
  history.replaceState(null, "", location.pathname + location.search);
}
window.addEventListener("hashchange", () => location.reload());

// textual opens the websocket; a page can send the token with it only as a protocol it asks for.
window.WebSocket = class extends WebSocket {
  constructor(address) {
    super(address, ["retinue", sessionStorage.getItem("token") || "none"]);
  }
};

// Whoever opens the page can write at once, also after looking at another window.
const focus = () => document.querySelector(".xterm-helper-textarea")?.focus();
window.addEventListener("load", focus);
window.addEventListener("focus", focus);
