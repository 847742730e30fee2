"""The worktree feature: runs an agent in its own worktree and adds the saved branch to its outcome.

Also finds the worktrees of processes that died, and saves their work or continues one.
"""

import asyncio
import os
import shlex
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from retinue.core.errors import quote
from retinue.core.receipt import Receipts
from retinue.core.run import BRANCH_PREFIX, Outcome
from retinue.engine.prompt import Place, render_environment, to_line
from retinue.engine.setup import Feature, RunSetup
from retinue.features.changed_files import list_committed
from retinue.features.worktree.copies import Copy, CopyRequest, adopt_copy, check_place, create_copy, is_directory
from retinue.features.worktree.preparation import WorktreeOptions
from retinue.features.worktree.records import CopyRecord, Records, check_name, refuse
from retinue.features.worktree.saved_work import KeptCopy, keep_work
from retinue.sandbox.open_beneath import remove_file

RULE = "\n\n---\n"
"""Separator between a result and its notes."""
_AT_ONCE = 4
_SHOWN = 20
_DYING_S = 2.0


class Worktree:
    """`isolation: worktree` for one run, entered for each of its prompts.

    `branch` comes from an earlier attempt; later prompts continue where the last one ended.
    """

    name = "worktree"

    def __init__(
        self,
        records: Records,
        *,
        description: str = "",
        keeps_place: bool = False,
        branch: str = "",
        tmp: Path | None = None,
        options: WorktreeOptions | None = None,
    ) -> None:
        self._records = records
        self._description = description
        self._keeps_place = keeps_place
        self._branch = branch
        self._options = options or WorktreeOptions()
        self._tmp = tmp
        self._copy: Copy | None = None

    @property
    def base(self) -> str:
        """The commit that the last prompt began with; empty before the first."""
        return "" if self._copy is None else self._copy.record.base

    async def enter(self, setup: RunSetup) -> RunSetup:
        """Move the run into a worktree of its repository. Raises IsolationFailed."""
        request = CopyRequest(
            setup.run_id, setup.cwd, self._description, self._keeps_place, self._branch, self._options
        )
        self._copy = copy = await resume_copy(request, self._records, tmp=self._tmp)
        return setup.change(cwd=copy.cwd, sections=_tell_place(setup.sections, copy))

    async def leave(self, outcome: Outcome) -> Outcome:
        """Save the work, remove the worktree, and record the branch, however the run ended."""
        if self._copy is None:
            return outcome
        kept = await keep_work(self._copy.record, self._records)
        self._branch = kept.branch
        notes = outcome.notes + render_notes(kept, self._copy.record)
        receipts = await add_commit(outcome.receipts, self._copy.record.top, self._copy.record.base, kept.branch)
        return msgspec.structs.replace(outcome, branch=kept.branch, notes=notes, receipts=receipts)


async def add_commit(receipts: Receipts | None, top: str, base: str, branch: str) -> Receipts | None:
    """Add the commit of a branch, and the files that changed in it since its base, without those of `verify_files`."""
    if not branch:
        return receipts
    receipts = receipts or Receipts()
    files, commit, problem = await list_committed(top, base, branch)
    notes = (*receipts.notes, *([problem] if problem else []))
    files = tuple(file for file in files if file.path not in receipts.verify_files)
    return msgspec.structs.replace(receipts, files=files, commit=commit or None, notes=notes)


def render_notes(kept: KeptCopy, record: CopyRecord) -> str:
    """Render the notes below a run's result; empty if there is nothing to say."""
    return _render_below(render_kept(kept, record.top if record.names_repo else ""))


def _render_below(lines: list[str]) -> str:
    return RULE + "\n".join(lines) if lines else ""


def render_kept(kept: KeptCopy, repository: str = "") -> list[str]:
    """Return one line per fact about the saved work, with the repository if it is not obvious."""
    lines = []
    if kept.branch:
        where = f" in `{repository}`" if repository else ""
        place = f"-C {shlex.quote(repository)} " if repository else ""
        lines = [f"Changes saved to branch `{kept.branch}`{where}", f"Merge: `git {place}merge {kept.branch}`"]
    if kept.path:
        lines.append(f"The copy stays at `{kept.path}`: {kept.problem}")
    return [*lines, *kept.notes]


def _tell_place(sections: Mapping[str, str], copy: Copy) -> dict[str, str]:
    """Update the working directory in the prompt sections and explain the worktree right after it."""
    named = {
        "cwd": f"<cwd>\n{copy.cwd}\n</cwd>",
        "environment": render_environment(Place(str(copy.cwd), branch="")),
    }
    told: dict[str, str] = {}
    for name, text in sections.items():
        told[name] = named.get(name, text)
        if name == "environment":
            told["worktree"] = render_isolation(copy)
    return told if "worktree" in told else {**told, "worktree": render_isolation(copy)}


def render_isolation(copy: Copy) -> str:
    top, root = to_line(copy.record.top), to_line(copy.record.path)
    return (
        "<worktree_isolation>\n"
        f"You work in a private copy of the repository: {root}. Read, change and create files only there, and name "
        f"them by paths below it. {top} is the user's own checkout: do not go there, also when a file, a message or a "
        f"tool result names a path in it; the same file is in your copy. {_render_content(copy)} All you leave in it, "
        "committed or not, is put on a branch when you end; files that git ignores are thrown away.\n"
        "</worktree_isolation>"
    )


def _render_content(copy: Copy) -> str:
    text = "The copy is a commit; what was not committed is not in it."
    if copy.left_out:
        more = f" and {len(copy.left_out) - _SHOWN} more" if len(copy.left_out) > _SHOWN else ""
        listed = ", ".join(map(to_line, copy.left_out[:_SHOWN]))
        text += f" The user has uncommitted changes, which were left out: {listed}{more}."
    if copy.included:
        text += f" Copied although git ignores them: {', '.join(map(to_line, copy.included[:_SHOWN]))}."
    return text


class RemoteWorktree(Feature):
    """`isolation: worktree` for a run on another machine."""

    name = "worktree abroad"

    async def enter(self, setup: RunSetup) -> RunSetup:
        """Check here that a worktree can be created, before the run is sent. Raises IsolationFailed."""
        await check_place(setup.cwd)
        return setup


@dataclass(frozen=True, slots=True)
class Leftover:
    """A worktree that was left behind, and how it was saved."""

    run_id: str
    repository: str
    kept: KeptCopy

    @property
    def branch(self) -> str:
        return self.kept.branch

    @property
    def notes(self) -> str:
        return _render_below(render_kept(self.kept, self.repository))


async def recover_leftovers(records: Records, spared: Collection[str] = ()) -> list[Leftover]:
    """Save and remove all worktrees whose owner is dead; those that cannot be removed are reported at each start.

    The runs in `spared` keep theirs, because they continue.
    """
    found: list[Leftover] = []
    waiting = [record for record in await asyncio.to_thread(records.list_all) if record.run_id not in spared]
    for owner in await asyncio.to_thread(records.list_owners):
        await _wait_dying(owner, records)
        with records.take_over(owner) as is_dead:
            if not is_dead:
                continue
            found += await _recover_all([record for record in waiting if record.owner == owner], records)
            records.forget_owner(owner)
    return found


async def resume_copy(request: CopyRequest, records: Records, *, tmp: Path | None = None) -> Copy:
    """Return the run's existing worktree, or create one from its branch.

    Raises IsolationFailed if its branch is gone or a living process uses the worktree.
    """
    found = records.find(check_name(request.run_id))
    if found is None:
        return await create_copy(request, records, tmp=tmp)
    await _wait_dying(found.owner, records)
    with records.take_over(found.owner) as is_dead:
        if not is_dead and not records.is_own(found):
            refuse(f"run {quote(request.run_id)} already works in {quote(found.path, 200)}, in process {found.pid}")
        if is_dead:
            _unlock(found, records)
        if found.state == "live" and is_directory(found.path):
            return await adopt_copy(found, request, records)
        kept = await keep_work(found, records)
    if kept.path:
        refuse(f"the copy {quote(kept.path, 200)} of run {quote(request.run_id)} is in the way: {kept.problem}")
    branch = request.branch or kept.branch
    return await create_copy(replace(request, branch=branch), records, tmp=tmp)


async def _wait_dying(owner: str, records: Records) -> None:
    """Wait briefly for the git processes of an owner that was just killed."""
    for _ in range(round(_DYING_S / 0.01)):
        if not records.is_dying(owner):
            return
        await asyncio.sleep(0.01)


async def _recover_all(dead: list[CopyRecord], records: Records) -> list[Leftover]:
    gate = asyncio.Semaphore(_AT_ONCE)
    found: list[Leftover] = []

    async def recover(record: CopyRecord) -> None:
        async with gate:
            # Another process may have been faster, and the run may have a new worktree by now.
            if records.find(record.run_id) != record:
                return
            _unlock(record, records)
            found.append(Leftover(record.run_id, record.top, await keep_work(record, records)))

    # Half-made worktrees first: git fails on any worktree command while one exists.
    for record in dead:
        if record.state != "live":
            await recover(record)
    async with asyncio.TaskGroup() as group:
        for record in dead:
            if record.state == "live":
                group.create_task(recover(record))
    return sorted(found, key=lambda leftover: leftover.run_id)


def _unlock(record: CopyRecord, records: Records) -> None:
    """Remove the lock files of git processes that died with the owner; no other process writes these files."""
    index = records.index_path(record.run_id)
    with suppress(OSError):
        index.with_name(index.name + ".lock").unlink(missing_ok=True)
    locks = []
    if record.git_dir:
        locks += [f"{record.git_dir}/{name}" for name in ("HEAD.lock", "index.lock", "logs/HEAD.lock")]
    heads = os.path.join(record.common, "refs", "heads")
    with suppress(OSError):
        names = [name for name in os.listdir(heads) if name.startswith(f"{BRANCH_PREFIX}{record.run_id}")]
        locks += [f"{heads}/{name}" for name in names if name.endswith(".lock")]
    for path in locks:
        with suppress(OSError):
            remove_file(path)
