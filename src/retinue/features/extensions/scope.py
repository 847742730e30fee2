"""Which extensions a run gets, decided before any of their code is run. Pure.

`extensions: false` and `isolated` mean none, an exclusion wins over every list, and what the user always exposes is
added to a list. `ext:` selectors choose among *tools* and are `tools.policy`'s business: they load and unload nothing.
"""

from collections.abc import Iterable
from typing import Literal, TypeAlias

from msgspec import Struct

from retinue.core.definition import Definition, Selection
from retinue.tools.selectors import list_extensions, to_extension_name

Source: TypeAlias = Literal["path", "project", "user", "installed"]


class Candidate(Struct, frozen=True):
    """An extension that exists; nothing of it has run."""

    name: str
    """The file's stem or the entry point's name; its case does not matter."""
    source: Source
    path: str = ""
    """The file; empty for an installed one."""
    entry: str = ""
    """What an installed one's entry point leads to: `module` or `module:function`."""

    @property
    def place(self) -> str:
        """Where it is, for people."""
        return self.path or self.entry


class Wanted(Struct, frozen=True):
    """What one run asks for."""

    selection: Selection = True
    """All, none, or these: names, paths, and `*` for all that are found."""
    excluded: tuple[str, ...] = ()
    isolated: bool = False
    always: tuple[str, ...] = ()
    """Extensions the user exposes to every agent that has extensions at all."""

    @property
    def is_none(self) -> bool:
        """Whether no extension can be meant."""
        return self.isolated or self.selection is False

    @property
    def paths(self) -> tuple[str, ...]:
        """The entries that name a file, less those that are excluded."""
        if self.is_none or isinstance(self.selection, bool):
            return ()
        banned = to_names(self.excluded)
        return tuple(entry for entry in self.selection if is_path(entry) and to_extension_name(entry) not in banned)


def to_wanted(definition: Definition, *, isolated: bool = False, always: Iterable[str] = ()) -> Wanted:
    """What a run of a definition asks for; `isolated` is the caller's wish beside the file's own."""
    return Wanted(
        definition.extensions,
        definition.exclude_extensions,
        isolated or bool(definition.isolated),
        tuple(always),
    )


def choose_extensions(candidates: Iterable[Candidate], wanted: Wanted) -> tuple[Candidate, ...]:
    """The candidates a run gets, in their order; of one name only the first."""
    if wanted.is_none:
        return ()
    listed = list_extensions(wanted.selection)
    exposed, banned = {name.lower() for name in wanted.always}, to_names(wanted.excluded)
    chosen: dict[str, Candidate] = {}
    for candidate in candidates:
        name = candidate.name.lower()
        if name not in banned and (listed is None or name in listed or name in exposed):
            chosen.setdefault(name, candidate)
    return tuple(chosen.values())


def to_names(entries: Iterable[str]) -> frozenset[str]:
    """The lower-case names that entries of a list stand for."""
    return frozenset(to_extension_name(entry) for entry in entries)


def is_path(entry: str) -> bool:
    """Whether an entry of a list names a file instead of an extension."""
    return "/" in entry or "\\" in entry or entry.startswith("~")
