"""Manages the worktrees of one process: creates them for runs, and recovers those of processes that died.

Reads, locks and imports nothing until a worktree is requested or was left behind.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from retinue.core.run import BRANCH_PREFIX
from retinue.engine.run_config import REMOTE, RunPlan
from retinue.engine.setup import Feature, RunSetup

if TYPE_CHECKING:
    from retinue.features.worktree.feature import Leftover
    from retinue.features.worktree.preparation import WorktreeOptions
    from retinue.features.worktree.records import Records


class WorktreeFactory:
    """Creates worktrees for the runs of one process. Close it after the last run."""

    def __init__(
        self,
        directory: Path,
        warn: Callable[[str], None],
        read_options: "Callable[[], WorktreeOptions] | None" = None,
    ) -> None:
        """`directory` contains the records; `warn` receives messages for the user."""
        self._directory = directory
        self._warn = warn
        self._read_options = read_options
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

    def prepare(self, plan: RunPlan) -> Feature | None:
        """Return the feature that runs the setup command after the sandbox is entered; None without a command."""
        if self._read_options is None or plan.runner == REMOTE:
            return None
        from retinue.features.worktree.preparation import WorktreeSetup

        options = self._read_options()
        if options.refusal:
            self._warn(options.refusal)
        return WorktreeSetup(options, plan.tools["bash"]) if options.setup and "bash" in plan.tools else None

    def isolate(self, plan: RunPlan) -> Feature:
        from retinue.features.worktree.feature import Worktree

        request = plan.request
        return Worktree(
            self._open_records(),
            description=request.description,
            keeps_place=request.cwd is not None,
            branch=plan.branch,
            options=None if self._read_options is None else self._read_options(),
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
        from retinue.features.worktree.feature import recover_leftovers, render_kept

        found = await recover_leftovers(self._open_records(), spared)
        for leftover in found:
            if lines := render_kept(leftover.kept, leftover.repository):
                self._warn(f"run {leftover.run_id} ended with its process: {'; '.join(lines)}")
        return {leftover.run_id: leftover for leftover in found}

    def _open_records(self) -> "Records":
        if self._records is None:
            from retinue.features.worktree.records import Records

            self._records = Records(self._directory)
        return self._records


class Leftovers(Feature):
    """Cleans up after dead processes before the first run works."""

    name = "worktree leftovers"

    def __init__(self, worktree_factory: WorktreeFactory) -> None:
        self._worktree_factory = worktree_factory

    async def enter(self, setup: RunSetup) -> RunSetup:
        await self._worktree_factory.tidy()
        return setup
