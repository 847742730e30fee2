"""A list to choose from: type to narrow it, Enter to select, Escape to cancel; models and thinking levels."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.text import Text
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from retinue.ui.completion import rank_matches
from retinue.ui.formats import clean, clean_line, fit_parts
from retinue.ui.keys import bind
from retinue.ui.widgets.line import TextLine

if TYPE_CHECKING:
    from retinue.ui.app import RetinueApp

_MOST = 500
_MOST_ROWS = 20
_LOW, _TINY = 20, 9
"""Rows of a screen below which the list leaves out what is not needed to choose."""
_WIDEST = 30
"""Columns of labels beyond which their notes follow where they end."""

_DEEPEST = 24
"""Columns by which a row is moved to the right at most."""


@dataclass(frozen=True, slots=True)
class PickerRow:
    """One row."""

    key: str
    """What is given back."""
    label: str
    note: str = ""
    mark: str = ""
    """A sign before the label, such as the one that is in use."""
    is_quiet: bool = False
    """One that matters less than others."""


class Needle(TextLine):
    """What is searched for; some letters may be keys of the list instead."""

    spared: frozenset[str] = frozenset()

    def check_consume_key(self, key: str, character: str | None) -> bool:
        """Whether a key is a letter of what is searched."""
        return key not in self.spared and super().check_consume_key(key, character)


class Picker(ModalScreen[str | None]):
    """Gives back the key of the chosen row, or None."""

    FROM_END = False
    """Whether the last rows are shown where there are too many."""
    LETTERS: tuple[str, ...] = ()
    """Actions whose keys are letters, which therefore cannot be searched for."""
    app: "RetinueApp"
    DEFAULT_CSS = """
    Picker { align: center bottom; background: $background 50%; }
    Picker > #frame {
        width: 100%; max-width: 110; height: auto; max-height: 85%; border: round $accent; background: $background;
        padding: 0 1; margin: 0 1 1 1;
    }
    Picker #title { height: auto; text-style: bold; }
    Picker #about { height: auto; max-height: 30vh; color: $text-muted; }
    Picker Input, Picker Input:focus { border: none; height: 1; padding: 0; background: $boost; }
    Picker Input > .input--placeholder { color: $text-muted; }
    Picker OptionList {
        height: auto; max-height: 20; border: none; background: transparent; padding: 0;
        text-wrap: nowrap; text-overflow: ellipsis; scrollbar-size-vertical: 1;
    }
    Picker #hint { height: auto; max-height: 2; color: $text-muted; }
    Picker.-low > #frame { max-height: 100%; margin: 0; }
    Picker.-low #title { max-height: 3; }
    Picker.-tiny #about, Picker.-tiny #hint, Picker.-tiny #title { display: none; }
    Picker.-tiny > #frame { border: none; }
    """
    BINDINGS = [
        bind("tui.select.cancel", "leave", is_first=True),
        bind("tui.select.up", "move(-1)", is_first=True),
        bind("tui.select.down", "move(1)", is_first=True),
        bind("tui.select.pageUp", "move(-10)", is_first=True),
        bind("tui.select.pageDown", "move(10)", is_first=True),
        bind("tui.select.confirm", "take", is_first=True),
        bind("app.menu.enter", "take", is_first=True),
        bind("app.menu.back", "leave_empty", is_first=True),
    ]

    def __init__(
        self, title: str, choices: Sequence[PickerRow], *, hint: str = "", chosen: str = "", about: str = ""
    ) -> None:
        """`about` is what one should know to choose, in some lines."""
        super().__init__()
        self._title = title
        self._about = about
        self._choices = list(choices)
        self._shown: list[PickerRow] = []
        self._hint = hint or "enter takes · esc leaves"
        self._chosen = chosen
        self._is_ready = False
        """Whether there are rows yet; keys may come before them."""

    @property
    def title_text(self) -> str:
        """What is chosen here."""
        return self._title

    @property
    def shown(self) -> list[PickerRow]:
        """The rows that match what was typed."""
        return list(self._shown)

    @property
    def lit(self) -> PickerRow | None:
        """The row that Enter would take."""
        place = self.query_one(OptionList).highlighted if self._is_ready else None
        return self._shown[place] if place is not None and place < len(self._shown) else None

    @property
    def needle(self) -> str:
        """What was typed."""
        return self.query_one(Input).value if self._is_ready else ""

    def put(self, choices: Sequence[PickerRow], *, chosen: str = "", hint: str = "") -> None:
        """Other rows, or the same in another form; `chosen` is lit, else the one that was."""
        was = self.lit
        self._choices = list(choices)
        if not self._is_ready:
            return
        self._fill(self.needle)
        keys, wanted = [choice.key for choice in self._shown], chosen or ("" if was is None else was.key)
        if wanted in keys:
            self.query_one(OptionList).highlighted = keys.index(wanted)
        if hint:
            self.tell(hint)

    def tell(self, hint: str) -> None:
        """Another hint."""
        self._hint = hint
        self.call_after_refresh(self._fit)

    def compose(self) -> ComposeResult:
        """Title, search, rows, hint."""
        with Vertical(id="frame"):
            yield Static(clean_line(self._title), id="title", markup=False)
            if self._about:
                yield Static(clean(self._about), id="about", markup=False)
            yield Needle(id="search", placeholder="type to search")
            yield OptionList(id="rows")
            yield Static(self._hint, id="hint", markup=False)

    def on_mount(self) -> None:
        """Show all rows, with the present choice lit."""
        self._is_ready = True
        self.query_one(Needle).spared = frozenset(key for each in self.LETTERS for key in self.app.keys.find(each))
        self._fill("")
        keys = [choice.key for choice in self._shown]
        if self._chosen in keys:
            self.query_one(OptionList).highlighted = keys.index(self._chosen)
        self.query_one(Input).focus()

    def on_resize(self) -> None:
        """On a low screen the rows come first."""
        self.set_class(self.size.height < _LOW, "-low")
        self.set_class(self.size.height < _TINY, "-tiny")
        self.call_after_refresh(self._fit)

    def _fit(self) -> None:
        """Give the rows what the rest leaves, so that the lit one is always in sight."""
        rest = sum(each.outer_size.height for each in self.query("#title, #about, #search, #hint") if each.display)
        if not self.query("#rows"):
            return  # it was left before this came to be done
        frame, hint = self.query_one("#frame"), self.query_one("#hint", Static)
        # Two lines, in which words do not end where the lines do.
        hint.update(fit_parts(self._hint.split(" · "), 2 * hint.size.width - 12 if hint.size.width else 999))
        share = 1 if self.has_class("-low") else 0.85
        room = int(self.size.height * share) - frame.gutter.height - frame.styles.margin.height - rest
        rows = self.query_one(OptionList)
        rows.styles.max_height = max(1, min(_MOST_ROWS, room))
        rows.call_after_refresh(rows.scroll_to_highlight)

    def on_input_changed(self, event: Input.Changed) -> None:
        """Narrow the rows."""
        event.stop()
        self._fill(event.value)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """A click takes a row."""
        event.stop()
        self.dismiss(self._shown[event.option_index].key)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """In words that are searched for, the key that goes back moves the cursor."""
        return not (self._is_ready and self.query_one(Input).value) if action == "leave_empty" else True

    def action_leave_empty(self) -> None:
        """Back, as in a menu."""
        self.dismiss(None)

    def action_leave(self) -> None:
        """Choose nothing."""
        self.dismiss(None)

    def action_move(self, step: int) -> None:
        """Light another row."""
        if not self._is_ready:
            self.call_later(self.action_move, step)  # somebody is faster than the list
            return
        rows = self.query_one(OptionList)
        if not self._shown:
            return
        place = (rows.highlighted or 0) + step
        wraps = abs(step) == 1
        rows.highlighted = place % len(self._shown) if wraps else max(0, min(place, len(self._shown) - 1))

    def action_take(self) -> None:
        """Choose the lit row."""
        if not self._is_ready:
            self.call_later(self.action_take)
            return
        place = self.query_one(OptionList).highlighted
        if place is not None and place < len(self._shown):
            self.dismiss(self._shown[place].key)

    def _fill(self, needle: str) -> None:
        texts = [f"{choice.label} {choice.note}" for choice in self._choices]
        order = rank_matches(needle, texts)
        self._shown = [
            self._choices[index] for index in (order[-_MOST:] if self.FROM_END and not needle else order[:_MOST])
        ]
        rows = self.query_one(OptionList)
        rows.clear_options()
        width = min(_WIDEST, max((len(choice.label) for choice in self._shown if choice.note), default=0))
        rows.add_options([Option(_draw(choice, width)) for choice in self._shown])
        rows.highlighted = 0 if self._shown else None


def _draw(choice: PickerRow, width: int) -> Text:
    """The notes begin below each other where the labels are not too long for that."""
    line = Text(no_wrap=True, overflow="ellipsis")
    line.append(f"{choice.mark or ' '} ")
    indent = len(choice.label) - len(choice.label.lstrip(" "))
    label = " " * min(indent, _DEEPEST) + clean_line(choice.label, 200)
    line.append(label, style="" if choice.is_quiet else "bold")
    if choice.note:
        gap = " " * max(0, width - cell_len(label))
        line.append(f"{gap}  {clean_line(choice.note, 300)}", style="dim")
    return line


class KeepingPicker(Picker):
    """Gives back what was chosen; `is_kept` says whether for other sessions too."""

    is_kept = False

    def action_keep(self) -> None:
        """Take the lit row, from now on and next time."""
        self.is_kept = True
        self.action_take()


class ModelPicker(KeepingPicker):
    """Of models: first those that keys turn through, where not all are, and with a key all."""

    BINDINGS = [
        bind("app.models.save", "keep", is_first=True),
        bind("tui.input.tab", "widen", is_first=True),
    ]

    def __init__(
        self, models: Sequence[PickerRow], scope: Collection[str], *, chosen: str, save: str, tab: str
    ) -> None:
        """`scope` are those that are turned through, none for all; `save` and `tab` are keys as they are shown."""
        self._models = models
        self._scoped = [choice for choice in models if choice.key in scope]
        self._now = chosen
        self._is_wide = not self._scoped
        self._save, self._tab = save, tab
        super().__init__(self._render_title(), self._list_rows(), chosen=chosen, hint=self._describe())

    def action_widen(self) -> None:
        """Show all, or those that are turned through only."""
        if not self._scoped or not self._is_ready:
            return
        self._is_wide = not self._is_wide
        self._title = self._render_title()
        self.query_one("#title", Static).update(self._title)
        self.put(self._list_rows(), chosen=self._now, hint=self._describe())

    def _render_title(self) -> str:
        return "Model" if not self._scoped else f"Model: {'all' if self._is_wide else 'scoped'}"

    def _list_rows(self) -> Sequence[PickerRow]:
        return self._models if self._is_wide else self._scoped

    def _describe(self) -> str:
        others = "scoped ones" if self._is_wide else "all"
        parts = [
            "enter takes",
            f"{self._save} takes it for all sessions" if self._save else "",
            f"{self._tab} shows {others}" if self._scoped and self._tab else "",
            "esc leaves",
        ]
        return " · ".join(filter(None, parts))


class ThinkingPicker(KeepingPicker):
    """Of thinking levels."""

    BINDINGS = [bind("app.thinking.save", "keep", is_first=True)]
