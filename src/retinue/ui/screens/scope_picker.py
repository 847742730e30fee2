"""`/scoped-models`: choose the models that keys cycle through, and their order."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from textual.widgets import OptionList

from retinue.core.errors import RetinueError
from retinue.core.messages import THINKING_LEVELS
from retinue.core.model import ModelInfo
from retinue.ui.default_keys import bind_all
from retinue.ui.formats import clean, clean_line
from retinue.ui.screens.picker import Picker, PickerRow

if TYPE_CHECKING:
    from retinue.ui.app import RetinueApp


@dataclass(frozen=True, slots=True)
class ModelDraft:
    """An immutable choice of models; each change returns a new one."""

    known: tuple[str, ...]
    """All available models as `provider/id`."""
    chosen: tuple[str, ...] | None = None
    """The chosen models in cycling order; None for all.

    May include unavailable models and thinking levels (`provider/id:high`).
    """

    @property
    def names(self) -> tuple[str, ...]:
        """The choice in `enabledModels` notation; empty for all models, and for none, which also cycles through all."""
        return self.chosen or ()

    @property
    def rows(self) -> tuple[str, ...]:
        """The rows to show: chosen models in their order, then the others."""
        chosen = self.chosen or ()
        inside = {self.find_ref(name) for name in chosen}
        return (*map(self.find_ref, chosen), *(ref for ref in self.known if ref not in inside))

    def find_ref(self, name: str) -> str:
        """The model that a chosen name refers to, without its thinking level."""
        ref, _, level = name.rpartition(":")
        return ref if name not in self.known and level in THINKING_LEVELS and ref in self.known else name

    def find_level(self, ref: str) -> str:
        """The thinking level of a chosen model; empty if the choice has none."""
        named = next((name for name in self.chosen or () if self.find_ref(name) == ref), ref)
        return named[len(ref) + 1 :]

    def has(self, ref: str) -> bool:
        """Whether a model is chosen."""
        return self.chosen is None or ref in map(self.find_ref, self.chosen)

    def count(self) -> int:
        """The number of available models that are chosen."""
        return sum(self.has(ref) for ref in self.known)

    def toggle(self, ref: str) -> "ModelDraft":
        return self.drop((ref,)) if self.has(ref) else self.add((ref,))

    def toggle_provider(self, ref: str) -> "ModelDraft":
        """Add all models of a model's provider; if all are chosen already, remove them."""
        provider = ref.partition("/")[0]
        theirs = [other for other in self.known if other.partition("/")[0] == provider]
        return self.drop(theirs) if all(map(self.has, theirs)) else self.add(theirs)

    def add(self, refs: Sequence[str]) -> "ModelDraft":
        """Add models at the end."""
        if self.chosen is None:
            return self
        chosen = (*self.chosen, *(ref for ref in refs if not self.has(ref)))
        # If all models are chosen, store None whatever their order, so that models added later are included.
        return replace(self, chosen=None if set(chosen) == set(self.known) else chosen)

    def drop(self, refs: Collection[str]) -> "ModelDraft":
        chosen = self.known if self.chosen is None else self.chosen
        return replace(self, chosen=tuple(name for name in chosen if self.find_ref(name) not in refs))

    def move(self, ref: str, step: int) -> "ModelDraft":
        """Move a model up or down in the order."""
        names = list(self.chosen or ())
        places = [place for place, name in enumerate(names) if self.find_ref(name) == ref]
        if not places or not 0 <= places[0] + step < len(names):
            return self
        here, there = places[0], places[0] + step
        names[here], names[there] = names[there], names[here]
        return replace(self, chosen=tuple(names))


class ScopePicker(Picker):
    """Has no result: each change is applied immediately."""

    BINDINGS = bind_all(
        {
            "enable_all": "app.models.enableAll",
            "clear_all": "app.models.clearAll",
            "toggle_provider": "app.models.toggleProvider",
            "reorder(-1)": "app.models.reorderUp",
            "reorder(1)": "app.models.reorderDown",
            "save": "app.models.save",
        },
        is_first=True,
    )

    def __init__(self, app: "RetinueApp") -> None:
        self._selection = app.link.crew.selection
        self._infos: Mapping[str, ModelInfo] = {info.ref: info for info in self._selection.list_models()}
        scope = tuple(self._selection.scope)
        self._draft = ModelDraft(tuple(self._infos), scope or None)
        self._state = ""
        """A note about saving for the hint; empty if there is none."""
        about = "Changes apply to this session at once. Saved changes also apply to other sessions and to pi."
        super().__init__("Models to cycle through", self._make_rows(), chosen=self._selection.model.ref, about=about)

    def on_mount(self) -> None:
        self.tell(self._describe())

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        event.prevent_default()
        self.action_take()

    def action_take(self) -> None:
        """Toggle the highlighted model; the highlight stays at the same position."""
        rows = self.query_one(OptionList)
        if self.lit is not None:
            place = rows.highlighted
            self._change(self._draft.toggle(self.lit.key))
            rows.highlighted = place

    def action_enable_all(self) -> None:
        """Add all models, or those that match the search."""
        self._change(self._draft.add(self._list_meant()))

    def action_clear_all(self) -> None:
        """Remove all models, or those that match the search."""
        self._change(self._draft.drop(self._list_meant()))

    def action_toggle_provider(self) -> None:
        """Toggle all models of the highlighted model's provider."""
        if self.lit is not None and self.lit.key in self._infos:
            self._change(self._draft.toggle_provider(self.lit.key))

    def action_reorder(self, step: int) -> None:
        """Move the highlighted model up or down."""
        if self.lit is not None:
            self._change(self._draft.move(self.lit.key, step))

    def action_save(self) -> None:
        """Save the choice in the user's settings."""
        try:
            other = self.app.link.crew.defaults.keep_scope(self._draft.names)
        except RetinueError as error:
            self.notify(clean(str(error)), severity="error", markup=False)
            return
        self._state = f", saved{f', but {clean_line(other, 100)} overrides it here' if other else ''}"
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
        note = "not available" if info is None else f"{info.name}{f' · thinking: {level}' if level else ''}"
        return PickerRow(ref, ref, note, "✓" if is_in else "", is_quiet=not is_in)

    def _describe(self) -> str:
        show, draft = self.app.keys.show, self._draft
        figure = "all enabled" if draft.chosen is None else f"{draft.count()} of {len(draft.known)} enabled"
        figure = "none enabled, which means all" if draft.chosen == () else figure
        parts = [
            "enter: toggle",
            f"{show('app.models.enableAll')}: all",
            f"{show('app.models.clearAll')}: none",
            f"{show('app.models.toggleProvider')}: provider",
            f"{show('app.models.reorderUp')}/{show('app.models.reorderDown').rpartition('+')[2]}: reorder",
            f"{show('app.models.save')}: save",
            "esc: close",
            figure + self._state,
        ]
        return " · ".join(parts)
