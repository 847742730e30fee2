"""`/help`, `/hotkeys`, `/theme`, `/approvals`, `/export`, `/trust`, `/copy`, `/quit`, `/toolkit`."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from retinue.core.errors import UsageError, quote
from retinue.ui.default_keys import Hotkey, show_key
from retinue.ui.formats import clean, clean_line
from retinue.ui.screens.picker import Picker, PickerRow
from retinue.ui.themes import AUTO, THEMES, to_setting

if TYPE_CHECKING:
    from retinue.ui.app import RetinueApp

_SIGNS = (
    ("@", "a file, an image or an agent"),
    ("/", "a command"),
    ("!command, !!command", "run a shell command; with !! the agent does not see it"),
    ("↓ or ← in an empty editor", "select an agent in the list below; enter opens it"),
)
_FIRST = ("Conversation", "Models and display")
"""Sections of keys that `/help` shows; `/hotkeys` shows all."""
_WIDE, _NARROW = 110, 44
"""Screen width for three table columns, and the width below which there is only one."""


async def show_help(app: "RetinueApp", words: str) -> None:
    """Show commands and the most important keys."""
    rows = [
        *(
            (f"/{command.name} {command.hint}".strip(), clean_line(command.help, 120))
            for command in app.commands.list()
        ),
        ("", ""),
        *_SIGNS,
        *((_list_keys(each), each.help) for each in app.keys.list() if each.section in _FIRST and each.keys),
    ]
    app.show_panel("Help", _lay_out([(Text(key), Text(text)) for key, text in rows], app.size.width))


async def show_hotkeys(app: "RetinueApp", words: str) -> None:
    """Show all keys with their action names in keybindings.json."""
    is_wide, hotkeys = app.size.width >= _WIDE, app.keys.list()
    rows: list[tuple[Text, ...]] = []
    for section in dict.fromkeys(hotkey.section for hotkey in hotkeys):
        rows.append((Text(section, style="bold underline"), Text()))
        for each in (hotkey for hotkey in hotkeys if hotkey.section == section):
            name = Text(each.action, style="dim")
            about = (Text(each.help), name) if is_wide else (Text("\n").join([Text(each.help), name]),)
            rows.append((Text(_list_keys(each)), *about))
        rows.append((Text(), Text()))
    title = "Keys; change them in keybindings.json of the agent directory" if is_wide else "Keys; see keybindings.json"
    app.show_panel(title, _lay_out(rows, app.size.width))


def _lay_out(rows: Sequence[tuple[Text, ...]], width: int) -> Table:
    """Lay out rows in columns; on a narrow screen, cells are stacked."""
    is_narrow = width < _NARROW
    table = Table.grid(padding=(0, 0) if is_narrow else (0, 2))
    table.add_column(style="bold", max_width=None if is_narrow else 28)
    for row in rows:
        if is_narrow:
            table.add_row(row[0])
            for cell in row[1:]:
                if cell.plain:
                    table.add_row(Padding(Text(cell.plain, style="not bold dim"), (0, 0, 0, 2)))
        else:
            table.add_row(*row)
    return table


def _list_keys(hotkey: Hotkey) -> str:
    return ", ".join(show_key(key) for key in hotkey.keys) or "no key"


async def choose_theme(app: "RetinueApp", words: str) -> None:
    """Choose a theme by name or from a list."""
    names = [AUTO, *THEMES, *(name for name in sorted(app.available_themes) if name not in THEMES)]
    chosen: str | None = words
    if not words:
        now = next((name for name in names if to_setting(name) == app.kept.theme), AUTO)
        notes = {AUTO: "follows the background of the terminal"}
        rows = [PickerRow(name, name, notes.get(name, ""), mark="●" if name == now else "") for name in names]
        chosen = await app.ask(Picker("Theme", rows, chosen=now))
    if chosen:
        if chosen not in names:
            raise UsageError(f"Unknown theme {quote(chosen)}. Choose one of: {', '.join(names[:6])}, …")
        app.choose_theme(chosen)


async def export_session(app: "RetinueApp", words: str) -> None:
    """Write the session as an HTML file; by default into the working directory."""
    file = app.link.crew.history.file
    if file is None:
        raise UsageError("this session is not saved, so it cannot be exported")
    target = Path(words or f"{Path(file).stem}.html")
    from retinue.views.export.page import export_session as write_page

    await asyncio.to_thread(write_page, file, target, is_asked=bool(words))
    app.link.note(f"exported to {target}")


_MODES = {
    "never": "no questions; only your approvalRules apply",
    "ask": "ask about calls that may change something",
    "acceptEdits": "like ask, but allow edits of files",
    "plan": "allow only reading",
    "bypass": "no questions, not even for agents of dispatch_agent",
}


async def choose_approvals(app: "RetinueApp", words: str) -> None:
    """Choose the approval mode of this session."""
    crew, link = app.link.crew, app.link
    now = crew.approvals
    rows = [PickerRow(mode, mode, note, mark="●" if mode == now else "") for mode, note in _MODES.items()]
    chosen: str | None = words
    if not words:
        chosen = await app.ask(Picker("Approvals in this session", rows, chosen=now))
    if not chosen:
        return
    crew.approvals = chosen
    is_late = now == "never" != chosen and link.working
    link.note(f"approvals: {chosen}" + ("; agents that already run continue without questions" if is_late else ""))


async def decide_trust(app: "RetinueApp", words: str) -> None:
    """Decide whether this folder's own configuration is used, from the next start on."""
    from retinue.app import DecidedFolder

    folder = DecidedFolder()
    project, trust = folder.read(approve=None)
    now = "trusted" if trust.trusted else "not trusted"
    rows = [
        PickerRow("yes", "trust it", "use its agents, settings, servers and hooks"),
        PickerRow("no", "do not trust it", "use none of them"),
        PickerRow("forget", "forget the decision", "you are asked again at the next start"),
    ]
    listed = ", ".join(trust.protected[:6]) or "nothing that needs trust"
    chosen = await app.ask(Picker(f"{project} is {now} ({trust.reason}); it has {listed}", rows))
    if chosen:
        folder.decide({"yes": True, "no": False, "forget": None}[chosen])
        app.link.note("saved; it takes effect at the next start")


async def copy_reply(app: "RetinueApp", words: str) -> None:
    """Copy the last reply to the clipboard."""
    reply = app.link.state.talk.last_reply
    if reply is None:
        raise UsageError("there is no reply to copy yet")
    app.copy_to_clipboard(reply.text)
    app.link.note("copied the last reply")


async def leave(app: "RetinueApp", words: str) -> None:
    app.leave()


async def show_toolkit(app: "RetinueApp", words: str) -> None:
    """Show the report named by the first word, or the list of reports."""
    from retinue.app import run_checkup
    from retinue.views.toolkit import Toolkit

    toolkit = Toolkit(app.request, run_checkup)
    if words.lower().split()[:1] == ["activity"]:
        from retinue.ui.screens.panel import ActivityPanel

        await app.ask(ActivityPanel(toolkit))
        app.notify("Activity panel closed")
        return
    answer = await asyncio.to_thread(toolkit.answer, words)
    if answer.notice:
        app.notify(clean(answer.notice), markup=False)
    app.show_panel(answer.title, answer.text.removeprefix(f"{answer.title}\n\n"))
