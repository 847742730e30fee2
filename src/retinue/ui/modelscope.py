"""Which models are turned through, while somebody chooses them: what is in, in which order, what is out. Pure."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from retinue.core.messages import THINKING_LEVELS


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
