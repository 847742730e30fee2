"""Takes the changes of one run out of the workspace, by a three-way merge of each file."""

from collections.abc import Mapping, Sequence

from msgspec import Struct

from retinue.core.errors import UsageError, quote
from retinue.features.checkpoint.merge import Side, merge_lines
from retinue.features.checkpoint.records import (
    LINK,
    SOMEBODY,
    FileVersion,
    Record,
    RunChanges,
    RunNote,
    SavedBranch,
    Versions,
    find_changes,
)
from retinue.features.checkpoint.restore import restore_files
from retinue.features.checkpoint.rewind import check_idle, name_paths
from retinue.features.checkpoint.store import CheckpointStore

ASIDE = "refs/retinue/undone"


class UndoReport(Struct, frozen=True):
    run: str
    agent: str
    paths: list[str] = []
    """Files that were changed, or would be."""
    conflicts: dict[str, str] = {}
    """Files that could not be merged, and why; then nothing was changed."""
    notes: list[str] = []


def find_run(records: Sequence[Record], text: str) -> RunNote:
    """Return the run with this id or beginning of an id. Raises UsageError."""
    runs = {record.run: record for record in records if isinstance(record, RunNote)}
    found = [runs[text]] if text in runs else [note for run, note in runs.items() if text and run.startswith(text)]
    if len(found) == 1:
        return found[0]
    if not found:
        raise UsageError(f"no run {quote(text)} is recorded in this folder; `retinue export` and /agents show run ids")
    raise UsageError(f"run {quote(text)} is not unique: {', '.join(sorted(each.run for each in found)[:5])}")


async def undo_run(
    store: CheckpointStore, text: str, *, prefer: Side | None = None, dry_run: bool = False
) -> UndoReport:
    """Take out what a run changed; nothing is changed on a conflict, unless `prefer` decides it. Raises RetinueError.

    `ours` is the file as it is now, `theirs` as it was before the run.
    """
    records = store.read_records()
    note = find_run(records, text)
    if not dry_run:
        check_idle(store)
        await store.take("restore", session=note.session)
        records = store.read_records()
    changes = find_changes(records, note.run, with_unclear=prefer == "theirs")
    branches = [record for record in records if isinstance(record, SavedBranch) and record.run == note.run]
    targets, contents, conflicts = await _merge_all(store, changes.files, changes, prefer)
    if prefer is None:
        for path, others in changes.unclear.items():
            conflicts[path] = f"changed by this run or by {_name_runs(records, others)}: it cannot be told which"
    notes = [f"outside of {store.top}, so not undone: {name_paths(changes.outside)}"] if changes.outside else []
    aside: list[SavedBranch] = []
    if branches:
        found = await _merge_branches(store, branches, prefer)
        if found is None:
            aside = branches[-1:]
        else:
            targets, contents, conflicts = {**targets, **found[0]}, {**contents, **found[1]}, {**conflicts, **found[2]}
    conflicts = {path: _explain(why, changes.later.get(path, []), records) for path, why in conflicts.items()}
    if conflicts and prefer is None:
        return UndoReport(note.run, note.agent, sorted(targets), conflicts, notes)
    paths = sorted(path for path, version in targets.items() if store.read_file(path).version != version)
    if not dry_run:
        done = await restore_files(
            store, targets, title=f"the undo of {note.run[:8]}", session=note.session, contents=contents
        )
        paths, notes = done.paths, [*notes, *(f"not undone: {problem}" for problem in done.problems)]
    for branch in aside:
        notes.append(await _put_aside(store, branch, dry_run=dry_run))
    return UndoReport(note.run, note.agent, paths, {}, notes)


async def _merge_all(
    store: CheckpointStore, files: Mapping[str, Sequence[Versions]], changes: RunChanges, prefer: Side | None
) -> tuple[dict[str, FileVersion | None], dict[str, bytes], dict[str, str]]:
    """Return the new versions, their contents by name, and the conflicts."""
    targets: dict[str, FileVersion | None] = {}
    conflicts: dict[str, str] = {}
    contents = await store.load(version for steps in files.values() for step in steps for version in step)
    for path, steps in files.items():
        if path.startswith("/"):
            continue
        found = store.read_file(path)
        if found.version is not None:
            contents[found.version.id] = found.content
        why = found.problem
        version = found.version
        for before, after in reversed(steps):
            if why:
                break
            version, why = _take_out(store, version, before, after, contents, prefer)
        if why:
            conflicts[path] = why
        if not why or prefer is not None:
            targets[path] = version
    return targets, contents, conflicts


def _take_out(
    store: CheckpointStore,
    now: FileVersion | None,
    before: FileVersion | None,
    after: FileVersion | None,
    contents: dict[str, bytes],
    prefer: Side | None,
) -> tuple[FileVersion | None, str]:
    """Return a file without one change, and why that is not possible; `contents` gets the new content."""
    if now == after:
        return before, ""
    if now == before:
        return now, ""
    chosen = before if prefer == "theirs" else now
    if now is None or before is None or after is None:
        why = "deleted" if now is None else "created" if before is None else "deleted"
        why = f"{why} later" if now is None else f"{why} by this run and changed later"
        return chosen, "" if prefer else why
    if missing := {before.id, after.id} - contents.keys():
        return now, f"its stored content {min(missing)[:10]} is lost"
    base, ours, theirs = (contents[each.id] for each in (after, now, before))
    if LINK in (now.mode, before.mode, after.mode) or any(b"\0" in text for text in (base, ours, theirs)):
        return chosen, "" if prefer else "changed later, and it is not a text"
    if b"\r\n" in ours and b"\r\n" not in base:
        # Git checks files out with other line ends than it stores.
        base, theirs = base.replace(b"\n", b"\r\n"), theirs.replace(b"\n", b"\r\n")
    merged = merge_lines(base, ours, theirs, prefer)
    if merged.conflicts and prefer is None:
        lines = ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in merged.conflicts)
        return now, f"line{'s' if '-' in lines or ',' in lines else ''} {lines} changed later"
    name = store.trees.name(merged.content)
    contents[name] = merged.content
    return FileVersion(before.mode if now.mode == after.mode else now.mode, name), ""


async def _merge_branches(
    store: CheckpointStore, branches: Sequence[SavedBranch], prefer: Side | None
) -> tuple[dict[str, FileVersion | None], dict[str, bytes], dict[str, str]] | None:
    """Take out what a run left on a branch; None if the branch is not merged."""
    files: dict[str, list[Versions]] = {}
    for branch in branches:
        for path, step in (await store.trees.compare(branch.before, branch.after)).items():
            files.setdefault(path, []).append(step)
    nothing = RunChanges({}, {}, [], {})
    if (await store.trees.ask("merge-base", "--is-ancestor", branches[-1].tip, "HEAD")).ok:
        return await _merge_all(store, files, nothing, prefer)
    # The commits may have been merged as other ones.
    found = await _merge_all(store, files, nothing, None)
    is_there = not found[2] and any(store.read_file(path).version != each for path, each in found[0].items())
    return found if is_there else None


async def _put_aside(store: CheckpointStore, branch: SavedBranch, *, dry_run: bool) -> str:
    """Rename a branch that is not merged, so that nothing merges it by mistake; return what to tell."""
    name, ref = branch.branch, f"{ASIDE}/{branch.branch}"
    told = f"its branch {name} is not merged into what is checked out"
    now = await store.trees.ask("rev-parse", "--verify", "--quiet", f"refs/heads/{name}")
    if not now.ok:
        return f"{told} and does not exist any more"
    if dry_run:
        return f"{told}; it would be put aside as {ref}"
    made = await store.trees.ask("update-ref", ref, now.text)
    gone = await store.trees.ask("update-ref", "-d", f"refs/heads/{name}", now.text) if made.ok else made
    if not gone.ok:
        return f"{told} and could not be put aside: {gone.problem}"
    return f"{told}; it was put aside as {ref} (to bring it back: git branch {name} {ref})"


def _explain(why: str, later: Sequence[str], records: Sequence[Record]) -> str:
    return f"{why} by {_name_runs(records, later)}" if later and why.endswith("later") else why


def _name_runs(records: Sequence[Record], runs: Sequence[str]) -> str:
    agents = {record.run: record.agent or "the main agent" for record in records if isinstance(record, RunNote)}
    return " or ".join(
        "somebody else" if run == SOMEBODY else f"{agents.get(run, '')} {run[:8]}".strip() for run in runs
    )
