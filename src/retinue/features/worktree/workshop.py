"""Manages the worktrees of one process: creates them for runs, and recovers those of processes that died.

Reads, locks and imports nothing until a worktree is requested or was left behind.
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
    """A worktree that was left behind, and how it was saved."""

    run_id: str
    repository: str
    kept: KeptCopy

    @property
    def branch(self) -> str:
        """The branch with its changes; empty if there is none."""
        return self.kept.branch

    @property
    def notes(self) -> str:
        from retinue.features.worktree.feature import render_kept

        lines = render_kept(self.kept, self.repository)
        return "\n".join(("\n\n---", *lines)) if lines else ""


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


class Workshop:
    """Creates worktrees for the runs of one process. Close it after the last run."""

    def __init__(self, directory: Path, warn: Callable[[str], None]) -> None:
        """`directory` contains the records; `warn` receives messages about leftovers of earlier processes."""
        self._directory = directory
        self._warn = warn
        self._records: Records | None = None
        self._left: dict[str, Leftover] | None = None
        self._lock = asyncio.Lock()

    async def tidy(self, spared: Collection[str] = ()) -> "Mapping[str, Leftover]":
        """Save and remove the worktrees of dead processes, once; returns the results by run id.

        The runs in `spared` keep theirs, because they continue.
        """
        async with self._lock:
            if self._left is None:
                self._left = await self._recover(spared)
        return self._left

    def isolate(self, plan: RunPlan) -> Feature:
        from retinue.features.worktree.feature import Worktree

        request = plan.request
        return Worktree(
            self._open_records(),
            description=request.description,
            keeps_place=request.cwd is not None,
            branch=plan.branch,
        )

    async def check(self, cwd: Path) -> None:
        """Raise IsolationFailed if no worktree can be created for a directory."""
        from retinue.features.worktree.copies import check_place

        await check_place(cwd)

    async def find_branch(self, run_id: str, cwd: Path) -> str:
        """Return the branch with the saved work of a run; empty if there is none."""
        from retinue.tools.git import run_git

        name = f"{BRANCH_PREFIX}{run_id}"
        found = await run_git(["rev-parse", "--verify", "--quiet", f"refs/heads/{name}"], cwd)
        return name if found.ok else ""

    def close(self) -> None:
        """Release the lock; worktrees that are still recorded become leftovers."""
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
    """Cleans up after dead processes before the first run works."""

    name = "worktree leftovers"

    def __init__(self, workshop: Workshop) -> None:
        self._workshop = workshop

    async def enter(self, setup: RunSetup) -> RunSetup:
        await self._workshop.tidy()
        return setup

    async def leave(self, outcome: Outcome) -> Outcome:
        return outcome
