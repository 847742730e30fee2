"""The records of one workspace: what is in its log, and what they say about who changed what. Pure."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Literal, TypeAlias

from msgspec import Struct, structs

from retinue.core.jsonline import clean_text
from retinue.core.receipt import FileReceipt, Receipts, list_paths

SOMEBODY = ""
"""In a list of runs: a person or another program."""
EDITED, GIT_LINK, LINK = "100644", "160000", "120000"
"""Modes of git: a regular file, another repository, a symbolic link."""


class FileVersion(Struct, frozen=True, array_like=True):
    """A file at one moment."""

    mode: str
    """As in git: 100644, 100755 (executable), 120000 (a symbolic link)."""
    id: str
    """The name that git gives to the content."""


Versions: TypeAlias = tuple[FileVersion | None, FileVersion | None]
"""A file before and after; None: it does not exist."""


class _Record(Struct, frozen=True, kw_only=True, tag_field="type", rename="camel", omit_defaults=True):
    at: int
    """In nanoseconds; orders the records of one path."""


CheckpointKind: TypeAlias = Literal["prompt", "begin", "end", "call", "restore"]
"""Before a prompt, before and after a run, around a call, around what a person does."""


class Checkpoint(_Record, frozen=True, tag="checkpoint"):
    """The state of the workspace at one moment."""

    kind: CheckpointKind
    asked: int = 0
    """When it was asked for; `at` is when it was complete."""
    session: str = ""
    run: str = ""
    tree: str = ""
    """Empty without a repository."""
    head: str = ""
    """The commit that was checked out."""
    left_out: list[str] = []
    """Files that are not in the tree, because they are too large or cannot be read."""
    opens: str = ""
    """The call that begins now."""
    closes: str = ""
    """The call that has ended; of a run that has ended, all its calls are."""
    process: str = ""
    """Of the run."""


class RunNote(_Record, frozen=True, tag="run"):
    """A run has begun."""

    session: str
    run: str
    agent: str = ""
    """Empty for a main agent."""
    process: str = ""
    """Empty if it changes nothing in the workspace."""


class FileWrite(_Record, frozen=True, tag="write"):
    """A file that `edit` or `write` is about to change."""

    run: str
    path: str
    """Below the workspace; absolute if it is outside, and then without versions."""
    before: FileVersion | None = None
    after: FileVersion | None = None


class VoidWrite(_Record, frozen=True, tag="void"):
    """The last write of a run to a path did not happen."""

    run: str
    path: str


class FoundChange(_Record, frozen=True, tag="change"):
    """A change found by comparing two checkpoints."""

    path: str
    before: FileVersion | None = None
    after: FileVersion | None = None
    by: list[str] = []
    """The runs of which one did it; none: somebody else did."""


class SavedBranch(_Record, frozen=True, tag="branch"):
    """What a run in a worktree left on a branch."""

    run: str
    session: str
    branch: str
    tip: str
    """Its last commit."""
    before: str
    """The tree the run began with."""
    after: str
    """The tree of its last commit."""
    is_whole: bool = False
    """Whether it has all that the run has left on branches: it began with the merge of that into the tree `before`."""


class Restoration(_Record, frozen=True, tag="restore"):
    """Files that are about to be restored."""

    id: str
    title: str
    session: str = ""
    files: list[tuple[str, FileVersion | None, FileVersion | None]] = []
    """Path, version now, version afterwards."""
    leaf: str | None = None
    """The entry at which the conversation was; None if it is not changed."""


class RestorationEnd(_Record, frozen=True, tag="restored"):
    """All files were restored; `undone`: brought back."""

    id: str
    undone: bool = False


Record: TypeAlias = (
    Checkpoint | RunNote | FileWrite | VoidWrite | FoundChange | SavedBranch | Restoration | RestorationEnd
)


class FileStep(Struct, frozen=True):
    """One change of a file."""

    before: FileVersion | None
    after: FileVersion | None
    is_own: bool
    """Whether the run in question made it."""
    by: list[str] = []
    """Who made it, if not the run; none: somebody else."""


class RunChanges(Struct, frozen=True):
    """What one run changed in the workspace."""

    files: dict[str, list[FileStep]]
    """By path: its first change, and all changes since, oldest first."""
    unclear: dict[str, list[str]]
    """Paths that the run or one of these others may have changed."""
    outside: list[str]
    """Files outside of the workspace that it changed."""


def find_changes(records: Iterable[Record], run: str, *, with_unclear: bool = False) -> RunChanges:
    """Return what a run changed; `with_unclear` counts what it may have changed as its own."""
    steps: dict[str, list[FileWrite | FoundChange]] = {}
    files: dict[str, list[FileStep]] = {}
    unclear: dict[str, list[str]] = {}
    records = drop_void(records)
    undone = {each.id for each in records if isinstance(each, RestorationEnd) and each.undone}
    taken_back = [row for each in records if isinstance(each, Restoration) and each.id in undone for row in each.files]
    ignored = {(path, *pair) for path, one, two in taken_back for pair in ((one, two), (two, one))}
    for record in records:
        if isinstance(record, FileWrite | FoundChange):
            steps.setdefault(record.path, []).append(record)
    for path, found in steps.items():
        row: list[FileStep] = []
        for record in sorted(found, key=lambda each: each.at):
            by = [record.run] if isinstance(record, FileWrite) else record.by
            if not by and (path, record.before, record.after) in ignored:
                continue  # it was restored, and that was taken back
            is_unclear = run in by and len(by) > 1
            is_own = run in by and (with_unclear or not is_unclear)
            if is_unclear:
                unclear.setdefault(path, []).extend(name for name in by if name != run)
            if row or is_own:
                row.append(FileStep(record.before, record.after, is_own, by))
        if row:
            files[path] = row
    outside = [path for path in files if path.startswith("/")]
    for path in outside:
        del files[path]
    return RunChanges(files, {path: list(dict.fromkeys(names)) for path, names in unclear.items()}, outside)


def drop_void(records: Iterable[Record]) -> list[Record]:
    """Return the records without writes that did not happen."""
    kept: list[Record] = []
    for record in records:
        if not isinstance(record, VoidWrite):
            kept.append(record)
            continue
        for place in reversed(range(len(kept))):
            each = kept[place]
            if isinstance(each, FileWrite) and (each.run, each.path) == (record.run, record.path):
                del kept[place]
                break
    return kept


def attribute(
    changed: Mapping[str, Versions], writes: Collection[FileWrite], by: Sequence[str], at: int
) -> list[FoundChange]:
    """Return the part of what changed between two checkpoints that `writes` do not explain."""
    found, runs = [], list(by)
    chains: dict[str, list[FileWrite]] = {}
    for write in writes:
        if not write.path.startswith("/"):
            chains.setdefault(write.path, []).append(write)
    for path in {**changed, **chains}:
        chain = chains.get(path, [])
        before, after = changed[path] if path in changed else (chain[0].before, chain[-1].after)
        for write in chain:
            if write.before != before:
                found.append(FoundChange(at=write.at - 1, path=path, before=before, after=write.before, by=runs))
            before = write.after
        if before != after:
            found.append(FoundChange(at=at, path=path, before=before, after=after, by=runs))
    return found


def attribute_files(receipts: Receipts, records: Sequence[Record], run: str, *, has_trees: bool) -> Receipts:
    """Leave out the files that others changed while a run worked, and mark those of which it is not known.

    Without trees only what `edit` and `write` changed is recorded.
    """
    records = _find_last(records, run)
    by: dict[str, list[list[str]]] = {}
    for record in drop_void(records):
        if isinstance(record, FileWrite | FoundChange):
            names = [record.run] if isinstance(record, FileWrite) else record.by
            by.setdefault(clean_text(record.path, None), []).append(names)
    others = {each.run for each in records if isinstance(each, Checkpoint | FileWrite)} - {run, SOMEBODY}
    files, notes, foreign = list[FileReceipt](), list(receipts.notes), list[str]()
    for file in receipts.files:
        steps = by.get(file.path, [])
        unclear = [names for names in steps if run in names]
        if steps and not unclear and has_trees:
            foreign += [] if any(map(any, steps)) else [file.path]
            continue
        maybe = others if not steps else {name for names in unclear or steps for name in names} - {run}
        files.append(structs.replace(file, maybe_by=() if [run] in steps else tuple(sorted(maybe))))
    if marked := [file.path for file in files if file.maybe_by]:
        notes.append(f"Changed by this agent or by another one at the same time: {list_paths(marked)}.")
    if foreign:
        notes.append(f"Changed meanwhile by somebody else, not by this agent: {list_paths(foreign)}.")
    if receipts.commit and others:
        notes.append("Other agents worked here, too: the commit may be one of theirs.")
    known = {
        path for path, steps in by.items() if has_trees and all(names and SOMEBODY not in names for names in steps)
    }
    verify_files = tuple(path for path in receipts.verify_files if path not in known)
    return structs.replace(receipts, files=tuple(files), verify_files=verify_files, notes=tuple(notes))


def _find_last(records: Sequence[Record], run: str) -> Sequence[Record]:
    """Return the records since a run began that has just ended, also if a killed process began it."""
    begun, is_over = 0, True
    for index, record in enumerate(records):
        if isinstance(record, RunNote) and record.run == run and is_over:
            begun, is_over = index, False
        elif isinstance(record, Checkpoint) and (record.kind, record.run) == ("end", run):
            is_over = True
    return records[begun:]


class Interval:
    """What has happened since the last checkpoint, folded from the log."""

    def __init__(self) -> None:
        self.last: Checkpoint | None = None
        self.calls: dict[str, Checkpoint] = {}
        """The calls that are open."""
        self.runs: dict[str, str] = {}
        """The processes of runs that have not ended."""
        self.writes: list[FileWrite] = []

    def apply(self, record: Record) -> None:
        if isinstance(record, FileWrite | VoidWrite):
            self.writes = [each for each in drop_void([*self.writes, record]) if isinstance(each, FileWrite)]
        elif isinstance(record, RunNote) and record.process:
            self.runs[record.run] = record.process
        elif isinstance(record, Checkpoint):
            if record.tree or self.last is None or not self.last.tree:
                self.last, self.writes = record, []
            self.calls.pop(record.closes, None)
            if record.kind == "end":
                self.calls = {name: call for name, call in self.calls.items() if call.run != record.run}
                self.runs.pop(record.run, None)
            elif record.kind in ("prompt", "begin"):
                self.runs[record.run] = record.process
            if record.opens:
                self.calls[record.opens] = record

    def list_runs(self, is_alive: Callable[[str], bool]) -> list[str]:
        """Return the runs that may have changed something; after a crash, somebody else may have, too."""
        runs = {call.run for call in self.calls.values()}
        is_sure = all(is_alive(call.process) for call in self.calls.values())
        return sorted(runs if is_sure else {*runs, SOMEBODY})
