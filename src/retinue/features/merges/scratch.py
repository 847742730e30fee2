"""Checks a commit by running commands in a fresh copy of it, which is thrown away."""

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from pathlib import Path

from msgspec import structs
from msgspec.structs import replace

from retinue.core.errors import IsolationFailed
from retinue.core.receipt import CommandResult
from retinue.features.merges.queue import Verdict
from retinue.features.merges.target import GitFailed
from retinue.features.worktree.copies import CopyRequest, create_copy, discard_copy
from retinue.features.worktree.preparation import WorktreeOptions
from retinue.features.worktree.records import Records

_PREFIX = "landing-"


class Scratch:
    """Makes one copy per check. Close it."""

    def __init__(
        self,
        directory: Path,
        place: Path,
        options: WorktreeOptions,
        run: Callable[[Path], Awaitable[list[CommandResult]]],
    ) -> None:
        """`directory` has the records of copies, `place` is the folder to copy; `run` runs the commands in a copy."""
        self._records = Records(directory)
        self._place = place
        self._options = options
        self._run = run

    async def clear(self) -> None:
        """Remove the copies of queues that were killed."""
        for record in await asyncio.to_thread(self._records.list_all):
            if record.run_id.startswith(_PREFIX):
                with self._records.take_over(record.owner) as is_dead:
                    if is_dead:
                        await asyncio.to_thread(discard_copy, record, self._records)
                        self._records.forget_owner(record.owner)

    async def check(self, commit: str) -> Verdict:
        """Return whether the commands succeed on a commit. Raises GitFailed if there can be no copy."""
        name = f"{_PREFIX}{secrets.token_hex(6)}"
        options = replace(self._options, base=commit)
        request = CopyRequest(name, self._place, keeps_place=True, options=options, is_whole=True)
        try:
            copy = await create_copy(request, self._records)
        except IsolationFailed as error:
            raise GitFailed(f"there can be no copy of {commit[:12]} for its check: {error}") from None
        try:
            # Whoever finds it after a crash just removes it.
            self._records.save(structs.replace(copy.record, state="removing"))
            results = await self._run(copy.cwd)
        finally:
            await asyncio.to_thread(discard_copy, copy.record, self._records)
        last = results[-1]
        return Verdict(last.is_good, "" if last.is_good else last.command, "" if last.is_good else last.output)

    def close(self) -> None:
        self._records.close()
