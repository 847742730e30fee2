"""`/diff`, `/land`, `/context`, `/init`: changes, branches, what fills the context window, instructions for agents."""

from typing import TYPE_CHECKING

from rich.console import Group
from rich.table import Table
from rich.text import Text

from retinue.core.figures import format_tokens
from retinue.ui.formats import clean
from retinue.ui.widgets.welcome import RULES

if TYPE_CHECKING:
    from retinue.core.messages import Message
    from retinue.ui.app import RetinueApp
    from retinue.views.context_use import ContextUse

_COLORS = {"+": "success", "-": "error", "@": "primary"}
_HEADS = ("diff ", "index ", "--- ", "+++ ", "new file", "deleted file", "old mode", "new mode")
_PARTS = {
    "system prompt": "primary",
    "tools": "secondary",
    "context files": "accent",
    "skills": "foreground",
    "summaries": "warning",
    "messages": "success",
    "tool results": "error",
}
BAR = 60
INIT = """Look at this project and write the file AGENTS.md in its top directory: instructions for coding agents that \
will work here. If it exists, improve it: keep what is right, correct what is wrong, add what is missing.

Find out by reading, not by guessing: the README, build files, CI, the source tree and some of the tests. Then write \
down, in at most about 60 lines:
- what the project is, in one or two sentences;
- the exact commands to build it, to check it, and to run all tests and one test;
- how the source is organised: which directories matter and what depends on what;
- conventions that a newcomer would not guess from one file, with an example path.

Leave out what every developer knows, what can be seen by listing a directory, and anything that you have not \
verified. If there are other files for agents (CLAUDE.md, .cursorrules, .github/copilot-instructions.md), include \
what is important in them."""
OFFLINE = "What does this project do? How do I build it? How do I run the tests?"


async def show_diff(app: "RetinueApp", words: str) -> None:
    """Show what has changed in the working tree since the session began."""
    crew = app.link.crew
    messages: list[Message] = [*crew.history.list_messages()]
    for run in crew.session_runs.runs:
        messages += crew.session_runs.read_messages(run.id)
    changes = await crew.working_tree.compare(messages)
    title, patch = changes.title, changes.patch
    title = f"{title} ({changes.note})" if changes.note else title
    app.show_panel(title, draw_patch(app, patch) if patch.strip() else "Nothing has changed.")


def draw_patch(app: "RetinueApp", patch: str) -> Text:
    """Colour a unified diff."""
    text, colors = Text(), app.theme_variables
    for line in clean(patch).split("\n"):
        is_head = line.startswith(_HEADS)
        text.append(f"{line}\n", style="bold" if is_head else colors.get(_COLORS.get(line[:1], ""), ""))
    return text


async def show_branches(app: "RetinueApp", words: str) -> None:
    """Show the branches of agents, and land them on request."""
    from retinue.ui.screens.panel import LandingPanel

    await app.ask(LandingPanel())


async def show_context(app: "RetinueApp", words: str) -> None:
    """Show what fills the context window."""
    use = app.link.crew.history.measure()
    app.show_panel(f"Context of {app.link.crew.model.ref}", draw_context(app, use))


def draw_context(app: "RetinueApp", use: "ContextUse") -> Group:
    """A bar with one colour per part, and a table."""
    colors = app.theme_variables
    size = max(use.window, use.used, 1)
    bar, table = Text(no_wrap=True), Table.grid(padding=(0, 2))
    table.add_column()
    table.add_column(justify="right")
    table.add_column(justify="right")
    length = max(10, min(BAR, app.size.width - 12))
    for name, tokens in use.parts.items():
        color = colors.get(_PARTS.get(name, ""), "")
        bar.append("█" * min(length - len(bar), round(length * tokens / size) or bool(tokens)), style=color)
        share = f"{100 * tokens / size:.1f}%"
        table.add_row(Text.assemble(("█ ", color), name), format_tokens(tokens), share if use.window else "")
    bar.append("░" * (length - len(bar)), style="dim")
    rest = "The window of this model is not known."
    if use.window:
        table.add_row(Text("░ free"), format_tokens(use.free), f"{100 * use.free / size:.1f}%")
        rest = f"{format_tokens(use.used)} of {format_tokens(use.window)} tokens are used; the parts are estimates."
    if use.window and use.compacts_at:
        rest += f" The conversation is summarised at {format_tokens(use.compacts_at)}; /compact does it now."
    return Group(bar, Text(), table, Text(), Text(rest))


async def write_instructions(app: "RetinueApp", words: str) -> None:
    """Let the agent write AGENTS.md; `words` say what else to add."""
    if app.link.crew.model.ref == RULES:
        text = f"{RULES} cannot write files, so it shows what it finds about this project"
        app.link.note(f"{text}; for AGENTS.md choose a language model with /model or /login", "warning")
        app.speech.say(OFFLINE)
        return
    app.speech.say(f"{INIT}\n\n{words}" if words else INIT)
