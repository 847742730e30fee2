"""The copies of one process: its records, what earlier processes left behind, and the feature that gives a run one.

Nothing is read, locked or imported before somebody wants a copy or somebody has left one. Must not know the crew.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from retinue.core.run import Outcome
from retinue.engine.run_config import RunPlan
from retinue.engine.setup import Feature, RunSetup

if TYPE_CHECKING:  # git and all around it is loaded when it is needed
    from retinue.features.worktree.leftovers import Leftover
    from retinue.features.worktree.records import Records


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
        from retinue.features.worktree.copies import BRANCH_PREFIX
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
        from retinue.features.worktree.leftovers import recover_leftovers

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
