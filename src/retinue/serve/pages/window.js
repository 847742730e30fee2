// Shows a session with textual's terminal, which opens the websocket when the page is loaded.
const terminal = document.querySelector(".textual-terminal");
if (window.innerWidth < 700) terminal.dataset.fontSize = window.innerWidth < 360 ? "10" : "11";

// With this, xterm.js resizes and so empties its canvas where a browser only pretends to be a phone.
delete ResizeObserverEntry.prototype.devicePixelContentBoxSize;

const ENDED = 4000, DETACHED = 4001, UNKNOWN = 4004, FAILED = 4005, REFUSED = 1008;
const TEXTS = {
  [ENDED]: "This session has ended.",
  [UNKNOWN]: "There is no such session.",
  [FAILED]: "This session cannot be opened.",
  [REFUSED]: "The connection was closed because of an unexpected message.",
};

let current = null;
window.WebSocket = class extends TokenSocket {
  constructor(address) {
    super(address);
    current = this;
    let wasOpen = false;
    this.addEventListener("open", () => (wasOpen = true));
    this.addEventListener("message", ({ data }) => {
      const [kind, text] = typeof data === "string" ? JSON.parse(data) : [];
      if (kind === "title") document.title = text ? `${text} · retinue` : "retinue";
    });
    this.addEventListener("close", ({ code, reason }) => {
      if (code === DETACHED) return location.assign("/");
      const tell = (text) => (document.querySelector("#why").textContent = text);
      document.querySelector("#reason").textContent = reason;
      const isOver = code in TEXTS; // else a click would leave this page for one that cannot be reached
      document.querySelector("#resume").hidden = !isOver || code === UNKNOWN;
      document.querySelector(".ended a").hidden = !isOver;
      isOver ? tell(TEXTS[code]) : explainLoss(wasOpen, tell, () => location.reload());
    });
  }
  // Takes what textual's terminal sends; a long paste becomes several messages.
  send(data) {
    const [kind, value] = JSON.parse(data), tell = (message) => super.send(JSON.stringify(message));
    if (kind === "stdin") (value.match(/[^]{1,100000}/gu) || []).forEach((text) => tell({ type: "keys", text }));
    else if (kind === "resize") tell({ type: "resize", ...value });
    else if (kind === "focus" || kind === "blur") tell({ type: "focus", is_focused: kind === "focus" });
  }
};

// textual starts in window.onload; a new window has to get the token first.
const begin = window.onload;
window.onload = null;
window.addEventListener("load", async () => {
  await Promise.all([known, document.fonts.load('16px "Roboto Mono"'), document.fonts.load('16px "Roboto Mono"', "─⠋")]);
  begin();
  focus();
});

// Focus the terminal when the page is opened and when the user returns to the window.
const focus = () => document.querySelector(".xterm-helper-textarea")?.focus();
window.addEventListener("focus", focus);

// Keys that a phone does not have.
for (const button of document.querySelectorAll("#keys button")) {
  button.addEventListener("pointerdown", (event) => event.preventDefault()); // the keyboard stays as it is
  button.addEventListener("click", () => {
    const keys = button.dataset.keys.replace("ESC", "\x1b").replace("CR", "\r").replace("TAB", "\t").replace("ETX", "\x03");
    current?.send(JSON.stringify(["stdin", keys]));
  });
}
document.querySelector("#resume").addEventListener("click", () => location.reload());

// A finger scrolls, as a wheel does.
let last = null;
terminal.addEventListener("touchstart", (event) => (last = event.touches[0].clientY), { passive: true });
terminal.addEventListener("touchmove", (event) => {
  const y = event.touches[0].clientY;
  if (Math.abs(y - last) < 24) return;
  const code = y > last ? 64 : 65;
  last = y;
  current?.send(JSON.stringify(["stdin", `\x1b[<${code};2;2M`]));
}, { passive: true });
