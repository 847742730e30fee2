"""A session as a tree to choose an entry from: filters, folded branches, marks; all with pi's keys."""

from typing import TYPE_CHECKING

from retinue.core.errors import RetinueError
from retinue.ui.bindings import bind
from retinue.ui.formats import clean
from retinue.ui.lineage import FILTERS, Leaf, list_leaves
from retinue.ui.screens.picker import Choice, Picker
from retinue.ui.screens.prompt import Asking

if TYPE_CHECKING:
    from retinue.ui.app import RetinueApp

_NAMES = {
    "default": "what was said and done",
    "noTools": "without tools",
    "userOnly": "only what you said",
    "labeledOnly": "only what is marked",
    "all": "everything",
}


class TreePicker(Picker):
    """Gives back the id of an entry, or None."""

    FROM_END = True
    LETTERS = ("app.tree.editLabel", "app.tree.toggleLabelTimestamp")
    BINDINGS = [
        *(bind(f"app.tree.filter.{name}", f"filter('{name}')", is_first=True) for name in FILTERS),
        bind("app.tree.filter.cycleForward", "cycle(1)", is_first=True),
        bind("app.tree.filter.cycleBackward", "cycle(-1)", is_first=True),
        bind("app.tree.foldOrUp", "fold", is_first=True),
        bind("app.tree.unfoldOrDown", "unfold", is_first=True),
        bind("app.tree.editLabel", "edit_label", is_first=True),
        bind("app.tree.toggleLabelTimestamp", "toggle_times", is_first=True),
        bind("app.message.copy", "copy_lit", is_first=True),
    ]
    app: "RetinueApp"

    def __init__(self, app: "RetinueApp", wanted: str = "default", chosen: str = "") -> None:
        """`chosen` is lit, else where one is."""
        self._chronicle = app.link.crew.chronicle
        self._roots = self._chronicle.build_tree()
        self._wanted = wanted
        self._folded: set[str] = set()
        self._has_times = False
        self._leaves: list[Leaf] = []
        super().__init__("Go back to", self._make_rows())
        present = [leaf.entry_id for leaf in self._leaves if leaf.is_present]
        self._chosen = chosen or (present[-1] if present else "")

    def on_mount(self) -> None:
        """Say which keys there are."""
        self.tell(self._describe())

    def is_user(self, entry_id: str) -> bool:
        """Whether an entry is something that the user has said."""
        return any(leaf.is_user for leaf in self._leaves if leaf.entry_id == entry_id)

    def _make_rows(self) -> list[Choice]:
        self._leaves = list_leaves(
            self._roots, self._chronicle.leaf_id, wanted=self._wanted, folded=frozenset(self._folded)
        )
        return [self._to_choice(leaf) for leaf in self._leaves]

    def _to_choice(self, leaf: Leaf) -> Choice:
        label = f"[{leaf.label}{f' {leaf.labelled}' if self._has_times else ''}] " if leaf.label else ""
        fork = "⑂ " if leaf.begins and leaf.indent else ""
        note = f"+{leaf.folded} folded" if leaf.folded else "" if leaf.is_present else "another way"
        mark = "❯" if leaf.is_user else " "
        return Choice(leaf.entry_id, f"{'  ' * leaf.indent}{fork}{label}{leaf.text}", note, mark, not leaf.is_user)

    def _describe(self) -> str:
        show = self.app.keys.show
        return (
            f"enter goes there · {show('app.tree.filter.cycleForward')} shows: {_NAMES[self._wanted]} · "
            f"{show('app.tree.editLabel')} marks · esc leaves"
        )

    def _renew(self, chosen: str = "") -> None:
        self.put(self._make_rows(), chosen=chosen, hint=self._describe())

    def action_filter(self, name: str) -> None:
        """Show this much; the same key again shows what is usual."""
        self._wanted = "default" if name == self._wanted else name
        self._renew()

    def action_cycle(self, step: int) -> None:
        """Show the next amount, or the one before."""
        self._wanted = FILTERS[(FILTERS.index(self._wanted) + step) % len(FILTERS)]
        self._renew()

    def action_toggle_times(self) -> None:
        """Show when entries were marked, or not."""
        self._has_times = not self._has_times
        self._renew()

    def action_fold(self) -> None:
        """Fold the branch that begins here, or go up to where it begins."""
        place = self._find_place()
        if place is None:
            return
        leaf = self._leaves[place]
        if leaf.begins and not leaf.folded and leaf.entry_id not in self._folded:
            self._folded.add(leaf.entry_id)
            self._renew(leaf.entry_id)
            return
        above = [each.entry_id for each in self._leaves[:place] if each.begins]
        self._light(above[-1] if above else leaf.entry_id)

    def action_unfold(self) -> None:
        """Unfold the branch that begins here, or go down to the next one, or to the end."""
        place = self._find_place()
        if place is None:
            return
        leaf = self._leaves[place]
        if leaf.entry_id in self._folded:
            self._folded.discard(leaf.entry_id)
            self._renew(leaf.entry_id)
            return
        below = [each.entry_id for each in self._leaves[place + 1 :] if each.begins]
        self._light(below[0] if below else self._leaves[-1].entry_id)

    def action_edit_label(self) -> None:
        """Ask for the words that mark the lit entry."""
        self.run_worker(self._edit_label(), exclusive=True)

    async def _edit_label(self) -> None:
        lit = self.lit
        if lit is None:
            return
        now = next((leaf.label for leaf in self._leaves if leaf.entry_id == lit.key), "")
        words = await self.app.push_screen_wait(Asking("Mark it with (nothing takes the mark away)", value=now))
        if words is None:
            return
        try:
            self._chronicle.label(lit.key, words.strip())
        except RetinueError as error:
            self.notify(clean(str(error)), severity="error", markup=False)
        self._roots = self._chronicle.build_tree()
        self._renew(lit.key)

    def action_copy_lit(self) -> None:
        """Copy what the lit entry says."""
        lit = self.lit
        if lit is not None:
            text = next((leaf.text for leaf in self._leaves if leaf.entry_id == lit.key), "")
            self.app.copy_to_clipboard(text)
            self.tell("copied")

    def _find_place(self) -> int | None:
        lit = self.lit
        ids = [leaf.entry_id for leaf in self._leaves]
        return ids.index(lit.key) if lit is not None and lit.key in ids else None

    def _light(self, entry_id: str) -> None:
        self.put(self._choices, chosen=entry_id)
