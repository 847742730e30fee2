"""`/help`, `/theme`, `/export`, `/trust`, `/copy`, `/quit`."""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from retinue.app import open_folder
from retinue.core.errors import UsageError, quote
from retinue.ui.commands.base import Command
from retinue.ui.formats import clean_line
from retinue.ui.screens.picker import Choice, Picker
from retinue.ui.themes import THEMES

if TYPE_CHECKING:
    from retinue.ui.app import RetinueApp

_KEYS = (
    ("enter", "send; while the agent works: say it before its next reply"),
    ("alt+enter", "say it when the agent would stop"),
    ("shift+enter, ctrl+j", "new line"),
    ("esc", "stop the agent and all it started"),
    ("f9", "stop it and say at once what waits"),
    ("alt+up", "take back what waits to be said"),
    ("ctrl+o", "show everything in full, or folded"),
    ("ctrl+p, shift+tab", "next model, next thinking level"),
    ("↓ or ← in an empty editor", "choose an agent below; enter looks at it"),
    ("@", "a file or an agent"),
    ("/", "a command"),
    ("!command, !!command", "run a command; with two signs the agent does not see it"),
    ("ctrl+c", "empty the editor; twice: leave"),
    ("ctrl+d", "leave"),
)


async def show_help(app: "RetinueApp", words: str) -> None:
    """Commands and keys."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True)
    table.add_column()
    for command in app.commands.list():
        table.add_row(Text(f"/{command.name} {command.hint}".strip()), Text(clean_line(command.help, 120)))
    table.add_row("", "")
    for key, text in _KEYS:
        table.add_row(Text(key), Text(text))
    app.show_panel("Help", table)


async def choose_theme(app: "RetinueApp", words: str) -> None:
    """By name, or out of a list."""
    names = [*THEMES, *(name for name in sorted(app.available_themes) if name not in THEMES)]
    chosen: str | None = words
    if not words:
        rows = [Choice(name, name, mark="●" if name == app.theme else "") for name in names]
        chosen = await app.ask(Picker("Theme", rows, chosen=app.theme))
    if chosen:
        if chosen not in names:
            raise UsageError(f"{quote(chosen)} is no theme; there are: {', '.join(names[:6])}, …")
        app.choose_theme(chosen)


async def export_session(app: "RetinueApp", words: str) -> None:
    """One HTML file, beside the work."""
    file = app.link.crew.chronicle.file
    if file is None:
        raise UsageError("this session is not kept, so there is nothing to export")
    target = Path(words or f"{Path(file).stem}.html")
    from retinue.app.export.file import export_session as write_page

    await asyncio.to_thread(write_page, file, target, is_asked=bool(words))
    app.link.note(f"exported to {target}")


async def decide_trust(app: "RetinueApp", words: str) -> None:
    """Whether this folder's own configuration is used, from the next start on."""
    folder = open_folder(None)
    project, trust = folder.read(approve=None)
    now = "trusted" if trust.trusted else "not trusted"
    rows = [
        Choice("yes", "trust it", "its agents, settings, servers and hooks are used"),
        Choice("no", "do not trust it", "none of them are"),
        Choice("forget", "forget the decision", "it is asked again"),
    ]
    listed = ", ".join(trust.protected[:6]) or "nothing that needs trust"
    chosen = await app.ask(Picker(f"{project} is {now} ({trust.reason}); it has {listed}", rows))
    if chosen:
        folder.decide({"yes": True, "no": False, "forget": None}[chosen])
        app.link.note("saved; it counts from the next start on")


async def copy_reply(app: "RetinueApp", words: str) -> None:
    """The last reply into the clipboard."""
    reply = app.link.state.talk.last_reply
    if reply is None:
        raise UsageError("nothing has been said yet")
    app.copy_to_clipboard(reply.text)
    app.link.note("copied the last reply")


async def leave(app: "RetinueApp", words: str) -> None:
    """Go, without a question."""
    app.leave()


HELP = Command("help", "commands and keys", show_help)
THEME = Command("theme", "choose another theme", choose_theme, "[name]")
EXPORT = Command("export", "write this session as one HTML file", export_session, "[file]")
TRUST = Command("trust", "whether this folder's own configuration is used", decide_trust)
COPY = Command("copy", "copy the last reply", copy_reply)
QUIT = Command("quit", "leave; what works is stopped and can be resumed", leave)
