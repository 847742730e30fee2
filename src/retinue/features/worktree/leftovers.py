"""Finds the copies of processes that died: saves what is in them, or goes on with one. Never touches a living one's."""

import asyncio
import os
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from retinue.core.errors import quote
from retinue.features.worktree.copies import Copy, CopyRequest, adopt_copy, create_copy, is_directory, refuse
from retinue.features.worktree.records import Record, Records, check_name
from retinue.features.worktree.saved_work import Kept, keep_work
from retinue.sandbox.open_beneath import remove_file

_AT_ONCE = 4
_DYING_S = 2.0


@dataclass(frozen=True, slots=True)
class Leftover:
    """A copy that was left behind, and what became of it."""

    run_id: str
    repository: str
    kept: Kept

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


async def _recover_all(dead: list[Record], records: Records) -> list[Leftover]:
    gate = asyncio.Semaphore(_AT_ONCE)
    found: list[Leftover] = []

    async def recover(record: Record) -> None:
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


def _unlock(record: Record, records: Records) -> None:
    """Remove the locks of git calls that died with the owner: nobody else writes these files."""
    index = records.index_path(record.run_id)
    with suppress(OSError):
        index.with_name(index.name + ".lock").unlink(missing_ok=True)
    locks = []
    if record.git_dir:
        locks += [f"{record.git_dir}/{name}" for name in ("HEAD.lock", "index.lock", "logs/HEAD.lock")]
    heads = os.path.join(record.common, "refs", "heads")
    with suppress(OSError):
        names = [name for name in os.listdir(heads) if name.startswith(f"pi-agent-{record.run_id}")]
        locks += [f"{heads}/{name}" for name in names if name.endswith(".lock")]
    for path in locks:
        with suppress(OSError):
            remove_file(path)
