"""Finds the worktrees of processes that died, and saves their work or continues one. Leaves those of live processes."""

import asyncio
import os
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from retinue.core.errors import quote
from retinue.core.run import BRANCH_PREFIX
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
