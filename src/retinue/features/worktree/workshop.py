"""The copies of one process: makes them for runs, and saves or continues those of processes that died.

Nothing is read, locked or imported before somebody wants a copy or somebody has left one. Must not know the crew.
"""

import asyncio
import os
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from retinue.core.errors import quote
from retinue.core.run import BRANCH_PREFIX, Outcome
from retinue.engine.run_config import RunPlan
from retinue.engine.setup import Feature, RunSetup
from retinue.features.worktree.copies import Copy, CopyRequest, adopt_copy, create_copy, is_directory, refuse
from retinue.features.worktree.records import CopyRecord, Records, check_name
from retinue.features.worktree.saved_work import KeptCopy, keep_work
from retinue.sandbox.open_beneath import remove_file

if TYPE_CHECKING:
    from retinue.features.worktree.records import Records

_AT_ONCE = 4
_DYING_S = 2.0


@dataclass(frozen=True, slots=True)
class Leftover:
    """A copy that was left behind, and what became of it."""

    run_id: str
    repository: str
    kept: KeptCopy

    @property
    def branch(self) -> str:
        """Where its changes are; empty for nowhere."""
        return self.kept.branch

    @property
    def notes(self) -> str:
        """Where the work is, as it is said behind a run's report."""
        from retinue.features.worktree.feature import render_kept

        lines = render_kept(self.kept, self.repository)
        return "\n".join(("\n\n---", *lines)) if lines else ""


async def recover_leftovers(records: Records, spared: Collection[str] = ()) -> list[Leftover]:
    """Save and remove every copy whose owner is dead; those that had to stay are told again at each start.

    The runs in `spared` go on in theirs.
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
    """A copy for a run that may have had one: that one when it is still there, else one of its branch.

    Raises IsolationFailed when its branch is gone, or a living process works in it.
    """
    found = records.find(check_name(request.run_id))
    if found is None:
        return await create_copy(request, records, tmp=tmp)
    await _wait_dying(found.owner, records)
    with records.take_over(found.owner) as is_dead:
        if not is_dead and not records.is_own(found):
            refuse(f"run {quote(request.run_id)} is at work in {quote(found.path, 200)}, by process {found.pid}")
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
    """Give the git calls of an owner that was just killed a moment to die too."""
    for _ in range(round(_DYING_S / 0.01)):
        if not records.is_dying(owner):
            return
        await asyncio.sleep(0.01)


async def _recover_all(dead: list[CopyRecord], records: Records) -> list[Leftover]:
    gate = asyncio.Semaphore(_AT_ONCE)
    found: list[Leftover] = []

    async def recover(record: CopyRecord) -> None:
        async with gate:
            # Another process may have been faster, and its run may have a new copy by now.
            if records.find(record.run_id) != record:
                return
            _unlock(record, records)
            found.append(Leftover(record.run_id, record.top, await keep_work(record, records)))

    # First those that git may have been making: it dies of a half-made one, whatever it is asked about worktrees.
    for record in dead:
        if record.state != "live":
            await recover(record)
    async with asyncio.TaskGroup() as group:
        for record in dead:
            if record.state == "live":
                group.create_task(recover(record))
    return sorted(found, key=lambda leftover: leftover.run_id)


def _unlock(record: CopyRecord, records: Records) -> None:
    """Remove the locks of git calls that died with the owner: nobody else writes these files."""
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


class Workshop:
    """Makes copies for the runs of one process. Close it when no run works any more."""

    def __init__(self, directory: Path, warn: Callable[[str], None]) -> None:
        """`directory` is where the records lie; `warn` is told of what an earlier process has left."""
        self._directory = directory
        self._warn = warn
        self._records: Records | None = None
        self._left: dict[str, Leftover] | None = None
        self._lock = asyncio.Lock()

    async def tidy(self, spared: Collection[str] = ()) -> "Mapping[str, Leftover]":
        """Save and remove the copies of processes that died, once; gives what became of them, by run.

        Those of the runs in `spared` stay as they are: these go on in them.
        """
        async with self._lock:
            if self._left is None:
                self._left = await self._recover(spared)
        return self._left

    def isolate(self, plan: RunPlan) -> Feature:
        """The feature that lets a run work in a copy."""
        from retinue.features.worktree.feature import Worktree

        request = plan.request
        return Worktree(
            self._open_records(),
            description=request.description,
            keeps_place=request.cwd is not None,
            branch=plan.branch,
        )

    async def check(self, cwd: Path) -> None:
        """Raises IsolationFailed when no copy can be made of the repository around a directory."""
        from retinue.features.worktree.copies import check_place

        await check_place(cwd)

    async def find_branch(self, run_id: str, cwd: Path) -> str:
        """The branch that somebody has saved the work of a run to; empty when there is none."""
        from retinue.tools.git import run_git

        name = f"{BRANCH_PREFIX}{run_id}"
        found = await run_git(["rev-parse", "--verify", "--quiet", f"refs/heads/{name}"], cwd)
        return name if found.ok else ""

    def close(self) -> None:
        """Give up what this process holds; what is still recorded is a leftover then."""
        if self._records is not None:
            self._records.close()

    async def _recover(self, spared: Collection[str]) -> "dict[str, Leftover]":
        if not self._directory.is_dir():
            return {}
        from retinue.features.worktree.feature import render_kept

        found = await recover_leftovers(self._open_records(), spared)
        for leftover in found:
            if told := render_kept(leftover.kept, leftover.repository):
                self._warn(f"run {leftover.run_id} ended with its process: {'; '.join(told)}")
        return {leftover.run_id: leftover for leftover in found}

    def _open_records(self) -> "Records":
        if self._records is None:
            from retinue.features.worktree.records import Records

            self._records = Records(self._directory)
        return self._records


class Leftovers:
    """The feature that clears up after dead processes before the first run works."""

    name = "worktree leftovers"

    def __init__(self, workshop: Workshop) -> None:
        self._workshop = workshop

    async def enter(self, setup: RunSetup) -> RunSetup:
        """Tidy once for all runs."""
        await self._workshop.tidy()
        return setup

    async def leave(self, outcome: Outcome) -> Outcome:
        """Nothing to undo."""
        return outcome
