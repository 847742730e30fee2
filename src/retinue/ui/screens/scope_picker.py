"""The models that keys cycle through: which are in, and in which order."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from textual.widgets import OptionList

from retinue.core.errors import RetinueError
from retinue.core.messages import THINKING_LEVELS
from retinue.core.model import ModelInfo
from retinue.ui.formats import clean, clean_line
from retinue.ui.keys import bind
from retinue.ui.screens.picker import Picker, PickerRow

if TYPE_CHECKING:
    from retinue.ui.app import RetinueApp


@dataclass(frozen=True, slots=True)
class ModelDraft:
    """A choice that can still be changed. Each change gives another one."""

    known: tuple[str, ...]
    """All models that can be asked, by `provider/id`."""
    chosen: tuple[str, ...] | None = None
    """Those that are in, in the order they are turned through; None for all.

    It may name some that cannot be asked now, and say how hard one thinks (`provider/id:high`)."""

    @property
    def names(self) -> tuple[str, ...]:
        """The choice as `enabledModels` spells it; empty for all, and where none is in, which turns through all."""
        return self.chosen or ()

    @property
    def rows(self) -> tuple[str, ...]:
        """What to show: those that are in, in their order, then the others."""
        chosen = self.chosen or ()
        inside = {self.find_ref(name) for name in chosen}
        return (*map(self.find_ref, chosen), *(ref for ref in self.known if ref not in inside))

    def find_ref(self, name: str) -> str:
        """The model that a chosen name means."""
        ref, _, level = name.rpartition(":")
        return ref if name not in self.known and level in THINKING_LEVELS and ref in self.known else name

    def find_level(self, ref: str) -> str:
        """How hard a chosen model thinks; empty where the choice does not say."""
        named = next((name for name in self.chosen or () if self.find_ref(name) == ref), ref)
        return named[len(ref) + 1 :]

    def has(self, ref: str) -> bool:
        """Whether a model is in."""
        return self.chosen is None or ref in map(self.find_ref, self.chosen)

    def count(self) -> int:
        """How many are in that can be asked."""
        return sum(self.has(ref) for ref in self.known)

    def toggle(self, ref: str) -> "ModelDraft":
        """Take one in, or out."""
        return self.drop((ref,)) if self.has(ref) else self.add((ref,))

    def toggle_provider(self, ref: str) -> "ModelDraft":
        """Take all models of one's provider in, or out when they are in."""
        provider = ref.partition("/")[0]
        theirs = [other for other in self.known if other.partition("/")[0] == provider]
        return self.drop(theirs) if all(map(self.has, theirs)) else self.add(theirs)

    def add(self, refs: Sequence[str]) -> "ModelDraft":
        """Take some in, behind those that are."""
        if self.chosen is None:
            return self
        chosen = (*self.chosen, *(ref for ref in refs if not self.has(ref)))
        # All of them are simply all, whatever their order: models that come later are in, too.
        return replace(self, chosen=None if set(chosen) == set(self.known) else chosen)

    def drop(self, refs: Collection[str]) -> "ModelDraft":
        """Take some out."""
        chosen = self.known if self.chosen is None else self.chosen
        return replace(self, chosen=tuple(name for name in chosen if self.find_ref(name) not in refs))

    def move(self, ref: str, step: int) -> "ModelDraft":
        """Let one come earlier or later."""
        names = list(self.chosen or ())
        places = [place for place, name in enumerate(names) if self.find_ref(name) == ref]
        if not places or not 0 <= places[0] + step < len(names):
            return self
        here, there = places[0], places[0] + step
        names[here], names[there] = names[there], names[here]
        return replace(self, chosen=tuple(names))


class ScopePicker(Picker):
    """Gives back nothing: what is chosen in it counts already."""

    BINDINGS = [
        bind("app.models.enableAll", "enable_all", is_first=True),
        bind("app.models.clearAll", "clear_all", is_first=True),
        bind("app.models.toggleProvider", "toggle_provider", is_first=True),
        bind("app.models.reorderUp", "reorder(-1)", is_first=True),
        bind("app.models.reorderDown", "reorder(1)", is_first=True),
        bind("app.models.save", "save", is_first=True),
    ]
    app: "RetinueApp"

    def __init__(self, app: "RetinueApp") -> None:
        self._selection = app.link.crew.selection
        self._infos: Mapping[str, ModelInfo] = {info.ref: info for info in self._selection.list_models()}
        scope = tuple(self._selection.scope)
        self._draft = ModelDraft(tuple(self._infos), scope or None)
        self._state = ""
        """Whether it is saved, where that is worth a word."""
        about = "It counts at once, in this program. What is saved counts for all others, too, also for pi."
        super().__init__("Models to turn through", self._make_rows(), chosen=self._selection.model.ref, about=about)

    def on_mount(self) -> None:
        """Say which keys there are."""
        self.tell(self._describe())

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """A click does what Enter does."""
        event.stop()
        event.prevent_default()
        self.action_take()

    def action_take(self) -> None:
        """Take the lit model in, or out; the one that comes into its place is lit, so that one can go on."""
        rows = self.query_one(OptionList)
        if self.lit is not None:
            place = rows.highlighted
            self._change(self._draft.toggle(self.lit.key))
            rows.highlighted = place

    def action_enable_all(self) -> None:
        """Take all in, or all that are shown while somebody searches."""
        self._change(self._draft.add(self._list_meant()))

    def action_clear_all(self) -> None:
        """Take all out, or all that are shown while somebody searches."""
        self._change(self._draft.drop(self._list_meant()))

    def action_toggle_provider(self) -> None:
        """Take all of the lit model's provider in, or out."""
        if self.lit is not None and self.lit.key in self._infos:
            self._change(self._draft.toggle_provider(self.lit.key))

    def action_reorder(self, step: int) -> None:
        """Let the lit model come earlier or later."""
        if self.lit is not None:
            self._change(self._draft.move(self.lit.key, step))

    def action_save(self) -> None:
        """Keep the choice in the user's settings."""
        try:
            other = self.app.link.crew.defaults.keep_scope(self._draft.names)
        except RetinueError as error:
            self.notify(clean(str(error)), severity="error", markup=False)
            return
        self._state = f", saved{f', but {clean_line(other, 100)} decides here' if other else ''}"
        self.tell(self._describe())

    def _change(self, draft: ModelDraft) -> None:
        if draft == self._draft:
            return
        self._draft, self._state = draft, ", not saved"
        self._selection.limit(draft.names)
        self.put(self._make_rows(), hint=self._describe())

    def _list_meant(self) -> tuple[str, ...]:
        return tuple(choice.key for choice in self.shown) if self.needle else self._draft.rows

    def _make_rows(self) -> list[PickerRow]:
        return [self._to_choice(ref) for ref in self._draft.rows]

    def _to_choice(self, ref: str) -> PickerRow:
        is_in, info = self._draft.has(ref), self._infos.get(ref)
        level = self._draft.find_level(ref)
        note = "cannot be asked now" if info is None else f"{info.name}{f' · thinks: {level}' if level else ''}"
        return PickerRow(ref, ref, note, "✓" if is_in else "", is_quiet=not is_in)

    def _describe(self) -> str:
        show, draft = self.app.keys.show, self._draft
        figure = "all are in" if draft.chosen is None else f"{draft.count()} of {len(draft.known)} in"
        figure = "none is in, which means all" if draft.chosen == () else figure
        parts = [
            "enter takes in or out",
            f"{show('app.models.enableAll')} all",
            f"{show('app.models.clearAll')} none",
            f"{show('app.models.toggleProvider')} provider",
            f"{show('app.models.reorderUp')}/{show('app.models.reorderDown').rpartition('+')[2]} order",
            f"{show('app.models.save')} saves",
            "esc leaves",
            figure + self._state,
        ]
        return " · ".join(parts)
