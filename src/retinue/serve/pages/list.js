// The list of sessions: shows what the server sends, and sends what the user wants. Text is only ever set as text.
const one = (selector, root = document) => root.querySelector(selector);
const STATES = { starting: "starting", running: "running", waiting: "waiting for an answer", finished: "finished", lost: "lost" };
const shown = new Map();
let socket = null, file = null;

const tell = (text) => (one("#message").textContent = text);
// Returns whether it could be sent; if not, a text stays where it was written.
const send = (...words) => {
  if (socket?.readyState !== 1) return tell("Nothing was sent: this page is not connected to the server."), false;
  if (words.some((word) => word.length > 100000)) {
    return tell("Nothing was sent: the text is longer than 100,000 characters. Save it as a file and name the file."), false;
  }
  socket.send(JSON.stringify(words));
  return true;
};

const describeAge = (since) => {
  const minutes = Math.max(0, Math.floor((Date.now() - since) / 60000));
  if (minutes < 1) return "just now";
  if (minutes < 60) return `${minutes} min`;
  return minutes < 2880 ? `${Math.floor(minutes / 60)} h` : `${Math.floor(minutes / 1440)} days`;
};

const describe = (row) => {
  const figures = [`$${row.cost.toFixed(row.cost < 1 ? 4 : 2)}`, describeAge(row.startedMs)];
  if (row.agents) figures.push(row.agents === 1 ? "1 agent" : `${row.agents} agents`);
  if (row.windows) figures.push(row.windows === 1 ? "1 window" : `${row.windows} windows`);
  if (row.model) figures.push(row.model);
  if (!row.isOpen) figures.push("closed");
  return figures.map((each) => `· ${each}`).join(" ");
};

const makeQuestion = (row, question) => {
  const form = one("#question").content.cloneNode(true).firstElementChild;
  one("h3", form).textContent = `${question.agent ? `${question.agent}: ` : ""}${question.title}`;
  one("pre", form).textContent = question.text;
  const answer = (text) => send("answer", row.id, question.id, text);
  for (const option of question.options) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = option;
    button.addEventListener("click", () => answer(option));
    one(".options", form).append(button);
  }
  if (["ask", "input"].includes(question.kind)) {
    const input = document.createElement("input"), button = document.createElement("button");
    input.setAttribute("aria-label", "Answer");
    button.textContent = "Answer";
    one(".options", form).append(input, button);
    form.addEventListener("submit", (event) => (event.preventDefault(), answer(input.value)));
  }
  return form;
};

const makeCard = (row) => {
  const card = one("#session").content.cloneNode(true).firstElementChild;
  card.dataset.id = row.id;
  one(".title", card).href = one(".open", card).href = `/s/${row.id}`;
  for (const button of card.querySelectorAll("[data-verb]")) {
    button.addEventListener("click", () => {
      if (send("command", button.dataset.verb, row.id)) tell(button.dataset.verb === "export" ? "exporting …" : "");
    });
  }
  one(".say", card).addEventListener("submit", (event) => {
    event.preventDefault();
    const input = one(".say input", card);
    if (input.value.trim() && send("say", row.id, input.value)) input.value = "";
  });
  return card;
};

// A card stays the same element, so that what is being typed into it stays.
const update = (card, row) => {
  card.className = row.state;
  one(".title", card).textContent = row.title || `session ${row.id}`;
  one(".state", card).textContent = STATES[row.state];
  one(".figures", card).textContent = describe(row);
  one(".place", card).textContent = row.cwd;
  one(".note", card).textContent = row.note;
  one(".open", card).textContent = row.isOpen ? "Open" : "Resume";
  one(".say", card).hidden = !row.isOpen || row.state === "starting";
  for (const button of card.querySelectorAll("[data-verb]")) {
    const verb = button.dataset.verb;
    button.hidden = verb === "stop" ? !row.isOpen : verb === "forget" ? row.isOpen : !row.file;
  }
  const questions = JSON.stringify(row.questions);
  if (card.dataset.questions !== questions) {
    card.dataset.questions = questions;
    one(".questions", card).replaceChildren(...row.questions.map((question) => makeQuestion(row, question)));
  }
};

const show = (folder, rows) => {
  one("#folder").textContent = folder;
  for (const [id, card] of shown) {
    if (!rows.some((row) => row.id === id)) (card.remove(), shown.delete(id));
  }
  rows.forEach((row, index) => {
    if (!shown.has(row.id)) shown.set(row.id, makeCard(row));
    const card = shown.get(row.id), list = one("#sessions");
    update(card, row);
    if (list.children[index] !== card) list.insertBefore(card, list.children[index] || null);
  });
  document.body.classList.toggle("-empty", !rows.length);
  document.body.classList.add("-loaded");
};

const take = (data) => {
  if (typeof data !== "string") {
    return file.parts.push(data);
  }
  const [kind, ...words] = JSON.parse(data);
  if (kind === "sessions") show(...words);
  else if (kind === "started") location.assign(`/s/${words[0]}`);
  else if (kind === "error") tell(words[0]);
  else if (kind === "file") file = { name: words[0], parts: [] };
  else if (kind === "saved") save(file);
  if (kind === "error") one("#new button").disabled = false;
};

const save = ({ name, parts }) => {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob(parts, { type: "application/octet-stream" }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60000);
  tell(`saved as ${name}`);
};

one("#new").addEventListener("submit", (event) => {
  event.preventDefault();
  if (!send("start", one("#task").value)) return;
  one("#new button").disabled = true;
  tell("starting …");
});
one("#task").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) (event.preventDefault(), one("#new").requestSubmit());
});
window.addEventListener("pageshow", () => (one("#new button").disabled = false));

const connect = () => {
  let wasOpen = false;
  socket = new TokenSocket(`${location.origin.replace("http", "ws")}/ws`);
  socket.binaryType = "arraybuffer";
  socket.addEventListener("open", () => (wasOpen = true, tell("")));
  socket.addEventListener("message", ({ data }) => take(data));
  socket.addEventListener("close", () => {
    one("#new button").disabled = false;
    explainLoss(wasOpen, tell, connect);
  });
};
known.then(connect);
