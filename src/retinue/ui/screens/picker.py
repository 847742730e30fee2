"""A list to choose from: type to filter, Enter to select, Escape to cancel; also for models and thinking levels."""

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
from retinue.ui.default_keys import bind_all
from retinue.ui.formats import clean, clean_line, fit_parts
from retinue.ui.widgets.line import TextLine

if TYPE_CHECKING:
    from retinue.ui.app import RetinueApp

_MOST = 500
_MOST_ROWS = 20
_LOW, _TINY = 20, 9
"""Screen heights in rows below which the list hides less important parts."""
_WIDEST = 30
"""Maximum width of the label column; notes follow longer labels directly."""

_DEEPEST = 24
"""Maximum indent of a row in columns."""


@dataclass(frozen=True, slots=True)
class PickerRow:
    """One row of a picker."""

    key: str
    """The result if this row is chosen."""
    label: str
    note: str = ""
    mark: str = ""
    """A sign before the label, for example for the value in use."""
    is_quiet: bool = False
    """The row is less important than others."""
    is_off: bool = False
    """It needs something first: greyed out, below all others."""
    ends_group: bool = False
    """A line follows, unless the rows are filtered."""


class SearchField(TextLine):
    """The search field; keys in `spared` are commands of the list instead of letters."""

    spared: frozenset[str] = frozenset()

    def check_consume_key(self, key: str, character: str | None) -> bool:
        return key not in self.spared and super().check_consume_key(key, character)


class Picker(ModalScreen[str | None]):
    """Shows a list; the result is the key of the chosen row, or None."""

    FROM_END = False
    """Whether the last rows are shown if there are too many."""
    LETTERS: tuple[str, ...] = ()
    """Actions whose keys are letters, which therefore cannot be typed into the search."""
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
    BINDINGS = bind_all(
        {
            "leave": "tui.select.cancel",
            "leave_empty": "app.menu.back",
            "move(-1)": "tui.select.up",
            "move(1)": "tui.select.down",
            "move(-10)": "tui.select.pageUp",
            "move(10)": "tui.select.pageDown",
            "take": "tui.select.confirm app.menu.enter",
        },
        is_first=True,
    )

    def __init__(
        self, title: str, choices: Sequence[PickerRow], *, hint: str = "", chosen: str = "", about: str = ""
    ) -> None:
        """`about` is a text of a few lines above the list."""
        super().__init__()
        self.title_text = title
        self._about = about
        self._choices = list(choices)
        self.shown: list[PickerRow] = []
        """The rows that match the search."""
        self._filled = ""
        """The search that they match."""
        self._hint = hint or "enter: select · esc: cancel"
        self._chosen = chosen
        self._is_ready = False
        """Whether the rows exist; keys may arrive before them."""

    @property
    def lit(self) -> PickerRow | None:
        """The highlighted row."""
        place = self.query_one(OptionList).highlighted if self._is_ready else None
        return self.shown[place] if place is not None and place < len(self.shown) else None

    @property
    def needle(self) -> str:
        """The search text."""
        return self.query_one(Input).value if self._is_ready else ""

    def put(self, choices: Sequence[PickerRow], *, chosen: str = "", hint: str = "") -> None:
        """Replace the rows; highlights `chosen`, or else the row that was highlighted before."""
        was = self.lit
        self._choices = list(choices)
        if not self._is_ready:
            return
        self._fill(self.needle)
        self._light(chosen or ("" if was is None else was.key))
        if hint:
            self.tell(hint)

    def _light(self, key: str) -> None:
        """Highlight the row with a key, if it is shown."""
        keys = [choice.key for choice in self.shown]
        if key in keys:
            self.query_one(OptionList).highlighted = keys.index(key)

    def tell(self, hint: str) -> None:
        """Show another hint."""
        self._hint = hint
        self.call_after_refresh(self._fit)

    def compose(self) -> ComposeResult:
        with Vertical(id="frame"):
            yield Static(clean_line(self.title_text), id="title", markup=False)
            if self._about:
                yield Static(clean(self._about), id="about", markup=False)
            yield SearchField(id="search", placeholder="type to search")
            yield OptionList(id="rows")
            yield Static(self._hint, id="hint", markup=False)

    def on_mount(self) -> None:
        """Show all rows with the current choice highlighted."""
        self._is_ready = True
        self.query_one(SearchField).spared = frozenset(key for each in self.LETTERS for key in self.app.keys.find(each))
        self._fill("")
        self._light(self._chosen)
        self.query_one(Input).focus()

    def on_resize(self) -> None:
        """On a low screen, less important parts are hidden."""
        self.set_class(self.size.height < _LOW, "-low")
        self.set_class(self.size.height < _TINY, "-tiny")
        self.call_after_refresh(self._fit)

    def _fit(self) -> None:
        """Limit the height of the list so that the highlighted row stays visible."""
        rest = sum(each.outer_size.height for each in self.query("#title, #about, #search, #hint") if each.display)
        if not self.query("#rows"):
            return  # the picker was closed before this call
        frame, hint = self.query_one("#frame"), self.query_one("#hint", Static)
        # Two lines; the 12 columns are lost to word wrapping.
        hint.update(fit_parts(self._hint.split(" · "), 2 * hint.size.width - 12 if hint.size.width else 999))
        share = 1 if self.has_class("-low") else 0.85
        room = int(self.size.height * share) - frame.gutter.height - frame.styles.margin.height - rest
        rows = self.query_one(OptionList)
        rows.styles.max_height = max(1, min(_MOST_ROWS, room))
        rows.call_after_refresh(rows.scroll_to_highlight)

    def on_input_changed(self, event: Input.Changed) -> None:
        """Filter the rows."""
        event.stop()
        self._fill(event.value)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Choose a row on click."""
        event.stop()
        self.dismiss(self.shown[event.option_index].key)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """While there is a search text, the key that goes back moves the cursor in it."""
        return action != "leave_empty" or not self.needle

    def action_leave_empty(self) -> None:
        """Go back, as in a menu."""
        self.dismiss(None)

    def action_leave(self) -> None:
        self.dismiss(None)

    def action_move(self, step: int) -> None:
        """Highlight another row."""
        if not self._is_ready:
            self.call_later(self.action_move, step)  # keys can arrive before the list is ready
            return
        rows = self.query_one(OptionList)
        if not self.shown:
            return
        place = (rows.highlighted or 0) + step
        wraps = abs(step) == 1
        rows.highlighted = place % len(self.shown) if wraps else max(0, min(place, len(self.shown) - 1))

    def action_take(self) -> None:
        """Choose the highlighted row."""
        if not self._is_ready:
            self.call_later(self.action_take)
            return
        self.query_one(Input).call_later(self._take)  # after the letters that were typed before this key

    def _take(self) -> None:
        if self.needle != self._filled:
            self._fill(self.needle)
        if self.is_current and self.lit is not None:
            self.dismiss(self.lit.key)

    def _fill(self, needle: str) -> None:
        self._filled = needle
        texts = [f"{choice.label} {choice.note}" for choice in self._choices]
        order = sorted(rank_matches(needle, texts), key=lambda index: _rank(self._choices[index], needle))
        order = order[-_MOST:] if self.FROM_END and not needle else order[:_MOST]
        self.shown = [self._choices[index] for index in order]
        rows = self.query_one(OptionList)
        rows.clear_options()
        width = min(_WIDEST, max((len(choice.label) for choice in self.shown if choice.note), default=0))
        for choice in self.shown:
            rows.add_options([Option(_draw(choice, width)), *([None] if choice.ends_group and not needle else [])])
        rows.highlighted = 0 if self.shown else None


def _rank(choice: PickerRow, needle: str) -> tuple[bool, int]:
    """Sort key: the row that is named exactly so comes first, then labels that begin with it or contain it."""
    label, word = choice.label.strip().lower(), needle.strip().lower()
    return choice.is_off, 0 if label == word else 1 if label.startswith(word) else 2 if word in label else 3


def _draw(choice: PickerRow, width: int) -> Text:
    """Notes are aligned in a column unless the label is too long."""
    line = Text(no_wrap=True, overflow="ellipsis")
    line.append(f"{choice.mark or ' '} ")
    indent = len(choice.label) - len(choice.label.lstrip(" "))
    label = " " * min(indent, _DEEPEST) + clean_line(choice.label, 200)
    line.append(label, style="dim" if choice.is_off else "" if choice.is_quiet else "bold")
    if choice.note:
        gap = " " * max(0, width - cell_len(label))
        line.append(f"{gap}  {clean_line(choice.note, 300)}", style="dim")
    return line


class KeepingPicker(Picker):
    """A picker with a key to save the choice for other sessions too, see `is_kept`."""

    is_kept = False

    def action_keep(self) -> None:
        """Choose the highlighted row and save it for later sessions."""
        self.is_kept = True
        self.action_take()


class ModelPicker(KeepingPicker):
    """Shows the models that keys cycle through if they are limited; a key switches to all models."""

    BINDINGS = bind_all({"keep": "app.models.save", "widen": "tui.input.tab"}, is_first=True)

    def __init__(
        self, models: Sequence[PickerRow], scope: Collection[str], *, chosen: str, save: str, tab: str
    ) -> None:
        """`scope` are the models that keys cycle through, empty for all; `save` and `tab` are key names to show."""
        self._models = models
        self._scoped = [choice for choice in models if choice.key in scope]
        self._now = chosen
        self._is_wide = not self._scoped
        self._save, self._tab = save, tab
        super().__init__(self._render_title(), self._list_rows(), chosen=chosen, hint=self._describe())

    def action_widen(self) -> None:
        """Switch between all models and those that keys cycle through."""
        if not self._scoped or not self._is_ready:
            return
        self._is_wide = not self._is_wide
        self.title_text = self._render_title()
        self.query_one("#title", Static).update(self.title_text)
        self.put(self._list_rows(), chosen=self._now, hint=self._describe())

    def _render_title(self) -> str:
        return "Model" if not self._scoped else f"Model: {'all' if self._is_wide else 'scoped'}"

    def _list_rows(self) -> Sequence[PickerRow]:
        return self._models if self._is_wide else self._scoped

    def _describe(self) -> str:
        others = "scoped ones" if self._is_wide else "all"
        parts = [
            "enter: select",
            f"{self._save}: save for all sessions" if self._save else "",
            f"{self._tab}: show {others}" if self._scoped and self._tab else "",
            "esc: cancel",
        ]
        return " · ".join(filter(None, parts))


class TargetPicker(Picker):
    """A key switches between two texts above the list, such as two files to save in; see `is_other`."""

    BINDINGS = bind_all({"switch": "tui.input.tab"}, is_first=True)

    def __init__(
        self, title: str, choices: Sequence[PickerRow], *, abouts: Sequence[str], hint: str, chosen: str, is_other: bool
    ) -> None:
        """`abouts` are the texts; with only one there is nothing to switch."""
        self._abouts = abouts
        self.is_other = is_other and len(abouts) > 1
        super().__init__(title, choices, hint=hint, chosen=chosen, about=abouts[self.is_other])

    def action_switch(self) -> None:
        if len(self._abouts) > 1 and self._is_ready:
            self.is_other = not self.is_other
            self.query_one("#about", Static).update(clean(self._abouts[self.is_other]))


class ThinkingPicker(KeepingPicker):
    BINDINGS = bind_all({"keep": "app.thinking.save"}, is_first=True)
