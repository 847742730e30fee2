"""Rewinds the files of a workspace to a checkpoint."""

import os
from collections.abc import Sequence

from msgspec import Struct

from retinue.core.errors import RetinueError, quote
from retinue.features.checkpoint.records import Checkpoint, FileVersion, FileWrite, FoundChange, Record, drop_void
from retinue.features.checkpoint.restore import end_restoration, restore_files
from retinue.features.checkpoint.store import CheckpointStore

_PASSES = 4
_SHOWN = 10


class RewoundFiles(Struct, frozen=True):
    paths: list[str] = []
    """Files that were changed."""
    notes: list[str] = []
    """What was not restored, and what else the person should know."""


async def rewind_files(
    store: CheckpointStore, point: Checkpoint, *, title: str, session: str, leaf: str | None = None
) -> RewoundFiles:
    """Restore the files of a checkpoint, and of those that git does not store what tools changed since.

    Raises RetinueError.
    """
    check_idle(store)
    records = _read_later(store, point)
    changed: dict[str, None] = {}
    problems: dict[str, str] = {}
    kept: list[str] = []
    sparse: dict[str, None] = {}
    for number in range(_PASSES):
        now = await store.take("restore", session=session)
        targets: dict[str, FileVersion | None] = {}
        if point.tree and now.tree:
            targets = {path: new for path, (_, new) in (await store.trees.compare(now.tree, point.tree)).items()}
        left_out = sorted({*point.left_out, *now.left_out})
        rules = {path: version for path, version in targets.items() if os.path.basename(path) == ".gitignore"}
        is_first = number == 0 and bool(rules)
        if is_first:
            # The rules of that time say which files it could not know.
            targets = rules
        else:
            gone = [path for path, version in targets.items() if version is None]
            kept = sorted(await store.trees.list_ignored(gone)) if gone else []
            targets |= await _find_written(store, records, point, targets)
        if point.tree:
            targets, spared = await store.trees.spare(targets, point.head)
            sparse |= dict.fromkeys(spared)
        for path in (*left_out, *kept, *problems):
            targets.pop(path, None)
        if number and not targets:
            break
        done = await restore_files(store, targets, title=title, session=session, leaf=leaf, ends=False)
        changed |= dict.fromkeys(done.paths)
        problems |= {text.partition(": ")[0]: text for text in done.problems}
    end_restoration(store)
    left = [path for path in sparse if path not in changed]
    return RewoundFiles(sorted(changed), _describe(store, point, now, records, kept, left_out, left, problems))


def check_idle(store: CheckpointStore) -> None:
    """Raise RetinueError while agents change the workspace."""
    if busy := store.list_busy():
        names = ", ".join(run[:8] for run in busy)
        raise RetinueError(f"agents are working in {quote(store.top, 200)} ({names}); stop them or wait for them")


def _read_later(store: CheckpointStore, point: Checkpoint) -> list[Record]:
    records = drop_void(store.read_records())
    return records[records.index(point) + 1 :]


async def _find_written(
    store: CheckpointStore, records: Sequence[Record], point: Checkpoint, known: dict[str, FileVersion | None]
) -> dict[str, FileVersion | None]:
    """Return the versions that files had which are in no tree, before tools changed them."""
    first: dict[str, FileVersion | None] = {}
    for record in records:
        if isinstance(record, FileWrite) and not record.path.startswith("/") and record.path not in known:
            first.setdefault(record.path, record.before)
    first = {path: version for path, version in first.items() if store.read_file(path).version != version}
    if not first or not point.tree:
        return first
    return {path: first[path] for path in first.keys() - await store.trees.list_files(point.tree, list(first))}


def _describe(
    store: CheckpointStore,
    point: Checkpoint,
    now: Checkpoint,
    records: Sequence[Record],
    kept: Sequence[str],
    left_out: Sequence[str],
    sparse: Sequence[str],
    problems: dict[str, str],
) -> list[str]:
    notes = [f"not restored: {each}" for each in problems.values()]
    if kept:
        notes.append(f"not removed, because git ignored them then: {name_paths(kept)}")
    if left_out:
        notes.append(f"not stored and so not restored, because hidden, unreadable or too large: {name_paths(left_out)}")
    if sparse:
        notes.append(f"left as they are, because the sparse checkout was changed since: {name_paths(sparse)}")
    outside = dict.fromkeys(each.path for each in records if isinstance(each, FileWrite) and each.path.startswith("/"))
    if outside:
        notes.append(f"outside of {store.top}, so not restored: {name_paths(list(outside))}")
    count = sum(isinstance(each, Checkpoint) and bool(each.opens) for each in records)
    if count:
        scope = "changes outside of the folder, and in files that git ignores, are not restored"
        if not point.tree:
            scope = "their changes are not restored, because this folder is not in a git repository"
        notes.append(f"{count} {'command was' if count == 1 else 'commands were'} run since; {scope}")
    if point.head != now.head:
        notes.append(f"the checked-out commit stays {now.head[:10] or 'none'}; it was {point.head[:10] or 'none'}")
    by_others = dict.fromkeys(each.path for each in records if isinstance(each, FoundChange) and not each.by)
    if by_others:
        notes.append(f"also changed since by you or another program: {name_paths(list(by_others))}")
    return notes


def name_paths(paths: Sequence[str]) -> str:
    more = f" and {len(paths) - _SHOWN} more" if len(paths) > _SHOWN else ""
    return ", ".join(quote(path, 200)[1:-1] for path in paths[:_SHOWN]) + more
