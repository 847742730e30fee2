"""The welcome text of an empty conversation; on the first start without a key it offers ways to begin."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from rich.console import Group
from rich.table import Table
from rich.text import Text
from textual.message import Message
from textual.widgets import Static

from retinue.ui.formats import clean_line

if TYPE_CHECKING:
    from retinue.ui.app import RetinueApp

RULES = "offline/rules"
_NARROW = 60
"""Columns below which the notes of the choices are left out."""
Start = Literal["login", "local", "offline"]


@dataclass(frozen=True, slots=True)
class StartChoice:
    """One way to begin."""

    key: Start
    label: str
    note: str
    is_off: bool = False
    """It is not available now."""


def list_choices(app: "RetinueApp") -> tuple[StartChoice, ...]:
    """The ways to begin if the user has yet to choose one, else nothing."""
    request, selection = app.request, app.link.crew.selection
    if app.kept.start or request.model or request.provider or not selection.is_unset:
        return ()
    local = selection.find_local()
    found = "none found (Ollama, LM Studio, llama.cpp)" if local is None else clean_line(local.name, 60)
    return (
        StartChoice("login", "Enter an API key", "of Anthropic, OpenAI, Google or another provider"),
        StartChoice("local", "Use a local server", found, local is None),
        StartChoice("offline", "Try it offline", "fixed rules search this folder; no language model"),
    )


class Welcome(Static):
    """Shown until the first message is sent, with a warning if there is one."""

    DEFAULT_CSS = """
    Welcome { height: auto; padding: 0 2 1 2; color: $text-muted; display: none; }
    Welcome.-shown { display: block; }
    """
    app: "RetinueApp"

    @dataclass
    class Chosen(Message):
        """The user has chosen how to begin."""

        start: Start

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id, markup=False)
        self._remark = ""
        self._choices: Sequence[StartChoice] = ()
        self._lit = 0

    def show(self, model: str, choices: Sequence[StartChoice] = ()) -> None:
        remark = f"{RULES} is not a language model: it answers by fixed rules. Add a key with /login."
        remark = remark if model == RULES and not choices else ""
        if (remark, choices) != (self._remark, self._choices) or not self.has_class("-shown"):
            self._remark, self._choices, self._lit = remark, choices, 0
            self.redraw()
        self.add_class("-shown")

    def hide(self) -> None:
        self.remove_class("-shown")

    def take_key(self, key: str) -> bool:
        """Choose with the arrow keys and enter, or by number; False leaves the key to the editor."""
        if not (self._choices and self.display):
            return False
        keys = self.app.keys
        if step := keys.step(key, "tui.select.up", "tui.select.down"):
            self._move(step)
        elif keys.means(key, "tui.select.confirm"):
            self._choose(self._lit)
        elif key.isdecimal() and 0 < int(key) <= len(self._choices):
            self._choose(int(key) - 1)
        else:
            return False
        return True

    def _choose(self, place: int) -> None:
        if not self._choices[place].is_off:
            self.post_message(self.Chosen(self._choices[place].key))

    def _move(self, step: int) -> None:
        """Highlight the next way that is available."""
        self._lit = (self._lit + step) % len(self._choices)
        if self._choices[self._lit].is_off:
            self._lit = (self._lit + step) % len(self._choices)
        self.redraw()

    def redraw(self) -> None:
        """Redraw because the choice or the theme has changed."""
        colors = self.app.theme_variables
        title = Text()
        title.append("retinue", style=f"bold {colors.get('accent', '')}")
        title.append("  How do you want to start?" if self._choices else "  What should I work on?")
        if self._remark:
            title.append(f"\n\n{self._remark}", style=colors.get("text-warning", ""))
        self.update(Group(title, Text(), self._draw_choices(), Text(), self._draw_keys()) if self._choices else title)

    def on_resize(self) -> None:
        if self._choices:
            self.redraw()

    def _draw_choices(self) -> Table:
        table = Table.grid(padding=(0, 2, 0, 0))
        accent, is_narrow = self.app.theme_variables.get("accent", ""), self.app.size.width < _NARROW
        for number, choice in enumerate(self._choices):
            is_lit, tone = number == self._lit, "dim" if choice.is_off else ""
            label = Text(f"{'▸' if is_lit else ' '} {number + 1}  {choice.label}", style=tone or "bold")
            if is_lit:
                label.stylize(accent)
            table.add_row(label, Text("" if is_narrow else choice.note, style=tone))
        return table

    def _draw_keys(self) -> Text:
        show = self.app.keys.show
        first = f"↑↓ {show('tui.select.confirm')} or 1 2 3: choose · or type what you want to do"
        stop, leave = f"{show('app.interrupt')}: stop", f"{show('app.exit')}: exit"
        return Text(f"{first}\n{stop} · {leave} · /: commands · @: files · /help: all keys")
