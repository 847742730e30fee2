// The token is in the fragment, which browsers do not send; it is stored for this window and this port only.
if (location.hash) {
  sessionStorage.setItem("token", location.hash.slice(1).replace(/[^\w-]/g, ""));
  history.replaceState(null, "", location.pathname + location.search);
}
window.addEventListener("hashchange", () => location.reload());

// textual opens the websocket; a page can send the token with it only as a subprotocol.
window.WebSocket = class extends WebSocket {
  constructor(address) {
    super(address, ["retinue", sessionStorage.getItem("token") || "none"]);
  }
};

// Focus the terminal when the page is opened and when the user returns to the window.
const focus = () => document.querySelector(".xterm-helper-textarea")?.focus();
window.addEventListener("load", focus);
window.addEventListener("focus", focus);
