"""Takes the changes of one run out of the workspace, by a three-way merge of each file."""

from collections.abc import Mapping, Sequence

from msgspec import Struct, structs

from retinue.core.errors import UsageError, quote
from retinue.features.checkpoint.merge import Side, merge_lines
from retinue.features.checkpoint.records import (
    LINK,
    SOMEBODY,
    Checkpoint,
    FileStep,
    FileVersion,
    Record,
    RunNote,
    SavedBranch,
    find_changes,
)
from retinue.features.checkpoint.restore import restore_files
from retinue.features.checkpoint.rewind import check_idle, name_paths
from retinue.features.checkpoint.store import CheckpointStore
from retinue.features.worktree.pointers import find_filtered
from retinue.tools.git import GitGuard, load_guard

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
        raise UsageError(f"no run {quote(text)} is recorded in this folder; `retinue logs` and /agents show run ids")
    raise UsageError(f"run {quote(text)} is not unique: {', '.join(sorted(each.run for each in found)[:5])}")


class _Result(Struct):
    """The files without the changes of a run."""

    versions: dict[str, FileVersion | None] = {}
    contents: dict[str, bytes] = {}
    """By the name of the content."""
    conflicts: dict[str, str] = {}


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
    found = await _leave_out(store, changes.files, records, prefer)
    if prefer is None:
        for path, others in changes.unclear.items():
            found.conflicts[path] = f"changed by this run or by {_name_runs(records, others)}: it is not known by which"
    notes = [f"outside of {store.top}, so not undone: {name_paths(changes.outside)}"] if changes.outside else []
    heads = [each.head for each in records if isinstance(each, Checkpoint) and each.run == note.run and each.head]
    if heads and store.has_trees:
        found.versions, sparse = await store.trees.spare(found.versions, heads[0])
        notes += (
            [f"left as they are, because the sparse checkout was changed since: {name_paths(sparse)}"] if sparse else []
        )
    branches = [record for record in records if isinstance(record, SavedBranch) and record.run == note.run]
    landed = await _find_landed(store, branches)
    merged = await _leave_out_branches(store, landed or branches, records, prefer, is_landed=bool(landed))
    if merged is not None:
        for whole, part in zip(structs.astuple(found), structs.astuple(merged), strict=True):
            whole.update(part)
    if not (branches or changes.files or note.process):
        notes.append(f"no branch of it is here; if it worked in a cluster, first run: retinue cluster fetch {note.run}")
    if found.conflicts:
        return UndoReport(note.run, note.agent, sorted(found.versions), found.conflicts, notes)
    paths = sorted(path for path, version in found.versions.items() if store.read_file(path).version != version)
    if paths and not dry_run:
        title = f"the undo of {note.run[:8]}"
        done = await restore_files(store, found.versions, title=title, session=note.session, contents=found.contents)
        paths, notes = done.paths, [*notes, *(f"not undone: {problem}" for problem in done.problems)]
    if branches and (merged is None or 0 < len(landed) < len(branches)):
        notes += await _put_aside(store, branches[-1], landed, dry_run=dry_run)
    return UndoReport(note.run, note.agent, paths, {}, notes)


async def _leave_out(
    store: CheckpointStore, files: Mapping[str, Sequence[FileStep]], records: Sequence[Record], prefer: Side | None
) -> _Result:
    """Make the changes of all others again, without those of the run."""
    result = _Result()
    known = [version for steps in files.values() for step in steps for version in (step.before, step.after)]
    contents = result.contents = await store.load(known)
    for path, steps in files.items():
        now = store.read_file(path)
        if now.version is not None:
            contents[now.version.id] = now.content
        present = without = steps[0].before
        why = now.problem
        for step in [*steps, FileStep(now.version, now.version, is_own=False)]:
            # What is between two steps was changed by somebody who is not recorded.
            for after, is_own, by in ((step.before, False, []), (step.after, step.is_own, step.by)):
                if not is_own and not why:
                    without, why = _merge_versions(store, present, after, without, contents, prefer)
                    why = why and f"{why} by {_name_runs(records, by or [SOMEBODY])}"
                present = after
        if why:
            result.conflicts[path] = why
        else:
            result.versions[path] = without
    return result


def _merge_versions(
    store: CheckpointStore,
    before: FileVersion | None,
    after: FileVersion | None,
    without: FileVersion | None,
    contents: dict[str, bytes],
    prefer: Side | None,
) -> tuple[FileVersion | None, str]:
    """Make a change in a file that lacks the run's changes. Returns the result, or why that is not possible."""
    if without == before:
        return after, ""
    if after in (before, without):
        return without, ""
    chosen = without if prefer == "theirs" else after
    if before is None or after is None or without is None:
        what = "created again later" if before is None else "removed later" if after is None else "changed later"
        return chosen, "" if prefer else what
    if lost := [each for each in (before, after, without) if each.id not in contents]:
        return chosen, f"the stored content {lost[0].id[:10]} is lost; changed later"
    base, ours, theirs = (contents[each.id] for each in (before, after, without))
    if LINK in (before.mode, after.mode, without.mode) or any(b"\0" in text for text in (base, ours, theirs)):
        return chosen, "" if prefer else "it is not a text, and was changed later"
    if b"\r\n" in ours and b"\r\n" not in base:
        # Git checks files out with other line ends than it stores.
        base, theirs = base.replace(b"\n", b"\r\n"), theirs.replace(b"\n", b"\r\n")
    merged = merge_lines(base, ours, theirs, prefer)
    if merged.conflicts and prefer is None:
        lines = [str(first) if first == last else f"{first} to {last}" for first, last in merged.conflicts]
        return (
            chosen,
            f"{'line' if lines[0].isdigit() and len(lines) == 1 else 'lines'} {', '.join(lines)} changed later",
        )
    name = store.trees.name(merged.content)
    contents[name] = merged.content
    return FileVersion(without.mode if after.mode == before.mode else after.mode, name), ""


async def _find_landed(store: CheckpointStore, branches: Sequence[SavedBranch]) -> Sequence[SavedBranch]:
    """Return what is merged of what a run left: all up to the last one that is."""
    for count in range(len(branches), 0, -1):
        if (await store.trees.ask("merge-base", "--is-ancestor", branches[count - 1].tip, "HEAD")).ok:
            return branches[:count]
    return []


async def _leave_out_branches(
    store: CheckpointStore,
    branches: Sequence[SavedBranch],
    records: Sequence[Record],
    prefer: Side | None,
    *,
    is_landed: bool,
) -> _Result | None:
    """Leave out what a run left on its branch; None if that is not merged."""
    if not branches:
        return None
    branches = branches[max(number for number, each in enumerate(branches) if each.is_whole or not number) :]
    files: dict[str, list[FileStep]] = {}
    for branch in branches:
        for path, (before, after) in (await store.trees.compare(branch.before, branch.after)).items():
            files.setdefault(path, []).append(FileStep(before, after, is_own=True))
    blocked = await _find_blocked(store, files, branches[0].before)
    files = {path: steps for path, steps in files.items() if path not in blocked}
    if is_landed:
        found = await _leave_out(store, files, records, prefer)
        found.conflicts |= {} if prefer == "ours" else blocked
        return found
    # The commits may have been merged as other ones.
    found = await _leave_out(store, files, records, None)
    is_there = any(store.read_file(path).version != each for path, each in found.versions.items())
    return found if is_there and not found.conflicts and not blocked else None


async def _find_blocked(store: CheckpointStore, files: Mapping[str, Sequence[FileStep]], before: str) -> dict[str, str]:
    """Return the files of a branch whose content here is not what git stores, and what the person can do."""
    skipped = await store.trees.list_skipped()
    blocked = {path: "the sparse checkout leaves it out: first add its folder" for path in files if path in skipped}
    guard = await load_guard(store.top)
    if isinstance(guard, GitGuard):
        for path in await find_filtered(store.trees.ask, guard.filters, list(files)):
            now = store.read_file(path)
            if (now.version or now.problem) and now.version != files[path][-1].after:
                how = (
                    f"git checkout {before[:12]} -- {quote(path)}" if files[path][0].before else f"git rm {quote(path)}"
                )
                blocked[path] = f"its git filter is not run here: first {how}, then use --ours"
    return blocked


async def _put_aside(
    store: CheckpointStore, branch: SavedBranch, landed: Sequence[SavedBranch], *, dry_run: bool
) -> list[str]:
    """Rename a branch that is not merged, so that nothing merges it by mistake; return what to tell."""
    name, ref = branch.branch, f"{ASIDE}/{branch.branch}"
    told = f"its branch {name} is not merged into what is checked out"
    now = await store.trees.ask("rev-parse", "--verify", "--quiet", f"refs/heads/{name}")
    if now.text in [each.tip for each in landed]:
        return []  # it was set back
    if not now.ok:
        return [f"{told} and does not exist any more"]
    if dry_run:
        return [f"{told}; it would be moved to {ref}"]
    made = await store.trees.ask("update-ref", ref, now.text)
    gone = await store.trees.ask("update-ref", "-d", f"refs/heads/{name}", now.text) if made.ok else made
    if not gone.ok:
        return [f"{told} and could not be moved to {ref}: {gone.problem}"]
    return [f"{told}; it was moved to {ref} (to bring it back: git branch {name} {ref})"]


def _name_runs(records: Sequence[Record], runs: Sequence[str]) -> str:
    agents = {record.run: record.agent or "the main agent" for record in records if isinstance(record, RunNote)}
    return " or ".join(
        "somebody else" if run == SOMEBODY else f"{agents.get(run, '')} {run[:8]}".strip() for run in runs
    )
