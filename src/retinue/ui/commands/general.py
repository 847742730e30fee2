"""`/help`, `/hotkeys`, `/theme`, `/export`, `/trust`, `/copy`, `/quit`."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from retinue.app import open_folder
from retinue.core.errors import UsageError, quote
from retinue.ui.commands.base import Command
from retinue.ui.formats import clean_line
from retinue.ui.keys import Hotkey, show_key
from retinue.ui.screens.picker import Choice, Picker
from retinue.ui.themes import THEMES

if TYPE_CHECKING:
    from retinue.ui.app import RetinueApp

_SIGNS = (
    ("@", "a file, an image or an agent"),
    ("/", "a command"),
    ("!command, !!command", "run a command; with two signs the agent does not see it"),
    ("↓ or ← in an empty editor", "choose an agent below; enter looks at it"),
)
_FIRST = ("Talking", "Choosing")
"""The keys that `/help` has; `/hotkeys` has all."""


async def show_help(app: "RetinueApp", words: str) -> None:
    """Commands and the keys that matter most."""
    table = _open_table()
    for command in app.commands.list():
        table.add_row(Text(f"/{command.name} {command.hint}".strip()), Text(clean_line(command.help, 120)))
    table.add_row("", "")
    for key, text in _SIGNS:
        table.add_row(Text(key), Text(text))
    _add_keys(table, [hotkey for hotkey in app.keys.list() if hotkey.section in _FIRST and hotkey.keys])
    app.show_panel("Help", table)


async def show_hotkeys(app: "RetinueApp", words: str) -> None:
    """All keys as they are now, with the names they have in keybindings.json."""
    table = _open_table()
    table.add_column(style="dim", no_wrap=True)
    hotkeys = app.keys.list()
    for section in dict.fromkeys(hotkey.section for hotkey in hotkeys):
        table.add_row(Text(section, style="bold underline"))
        _add_keys(table, [hotkey for hotkey in hotkeys if hotkey.section == section], with_names=True)
        table.add_row("")
    app.show_panel("Keys; change them in keybindings.json of the agent directory", table)


def _open_table() -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold", max_width=28)
    table.add_column()
    return table


def _add_keys(table: Table, hotkeys: Sequence[Hotkey], *, with_names: bool = False) -> None:
    for hotkey in hotkeys:
        keys = ", ".join(show_key(key) for key in hotkey.keys) or "no key"
        table.add_row(Text(keys), Text(hotkey.help), *([Text(hotkey.action)] if with_names else []))


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
HOTKEYS = Command("hotkeys", "all keys as they are now", show_hotkeys)
THEME = Command("theme", "choose another theme", choose_theme, "[name]")
EXPORT = Command("export", "write this session as one HTML file", export_session, "[file]")
TRUST = Command("trust", "whether this folder's own configuration is used", decide_trust)
COPY = Command("copy", "copy the last reply", copy_reply)
QUIT = Command("quit", "leave; what works is stopped and can be resumed", leave)
