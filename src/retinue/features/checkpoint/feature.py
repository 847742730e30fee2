"""Takes checkpoints around prompts, runs and calls. What fails here never stops a run: the person is told once."""

import asyncio
import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from retinue.core.errors import RetinueError
from retinue.core.messages import ToolCall
from retinue.core.run import Outcome, Status
from retinue.core.tool import Effect, Tool, ToolResult
from retinue.engine.calls import Answer
from retinue.engine.setup import Feature, RunSetup
from retinue.features.checkpoint.records import Checkpoint, CheckpointKind, RunNote, SavedBranch
from retinue.features.checkpoint.store import CheckpointStore
from retinue.tools.file_changes import FileChanges

LEAVE_S = 4.0
_CHANGING = (Effect.WRITE, Effect.EXECUTE)


class Checkpoints:
    """Takes the checkpoints of one session."""

    def __init__(self, store: CheckpointStore, session: str, main: str, warn: Callable[[str], None]) -> None:
        """`main` is the run of the main agent; `warn` gets a message for the person."""
        self.store = store
        self._session = session
        self._main = main
        self._warn = warn
        self._is_broken = False
        self._elsewhere: set[str] = set()

    def surround(
        self, features: Sequence[Feature], *, agent: str = "", is_elsewhere: bool = False, is_readonly: bool = False
    ) -> list[Feature]:
        """Return the features of a run with those for its checkpoints.

        A run in a process of its own counts as one call; a read-only run is noted only.
        """
        worktree = next((each for each in features if each.name == "worktree"), None)
        outer = RunCheckpoints(self, agent, worktree, is_elsewhere=is_elsewhere, is_readonly=is_readonly)
        is_apart = worktree is not None or is_elsewhere or is_readonly
        return [outer, *features, *([] if is_apart else [CallCheckpoints(self)])]

    def is_main(self, run: str) -> bool:
        return run == self._main

    def has_place(self, setup: RunSetup) -> bool:
        """Return whether a run works in the workspace; others are not recorded."""
        return Path(os.path.realpath(setup.cwd)).is_relative_to(self.store.top)

    def note_run(self, run: str, agent: str, *, is_here: bool) -> None:
        """Record that a run begins. What it does elsewhere is not recorded, except for its branch."""
        (self._elsewhere.discard if is_here else self._elsewhere.add)(run)
        with suppress(OSError):
            self.store.append(RunNote(at=time.time_ns(), session=self._session, run=run, agent=agent))

    def record(self, changes: FileChanges) -> None:
        """Record what tools write from now on."""
        changes.recorder = self._note_write

    def _note_write(self, run: str, path: str, content: bytes) -> Callable[[], None] | None:
        if self._is_broken or run in self._elsewhere:
            return None
        try:
            withdraw = self.store.note_write(run, path, content)
        except OSError as error:
            self._tell(error)
            return None

        def try_withdraw() -> None:
            with suppress(OSError):
                withdraw()

        return try_withdraw

    async def take(self, kind: CheckpointKind, run: str, **facts: str) -> None:
        if not self._is_broken:
            try:
                await self.store.take(kind, session=self._session, run=run, **facts)
            except (RetinueError, OSError, ValueError) as error:
                self._tell(error)

    def end_run(self, run: str) -> None:
        """Record that a run has ended, without looking at the files."""
        with suppress(OSError):
            self.store.append(Checkpoint(at=time.time_ns(), kind="end", session=self._session, run=run))

    async def keep(self) -> None:
        """Protect the trees taken so far, and drop old records if there are many."""
        if not self._is_broken:
            try:
                await self.store.keep(self._session)
                await self.store.prune()
            except (RetinueError, OSError, ValueError) as error:
                self._tell(error)

    async def note_branch(self, run: str, branch: str, base: str) -> None:
        """Record the branch that a run in a worktree left."""
        ref = f"refs/heads/{branch}"
        names = (f"{ref}^{{commit}}", f"{base}^{{tree}}", f"{ref}^{{tree}}")
        found = [await self.store.trees.ask("rev-parse", "--verify", name) for name in names]
        if all(each.ok for each in found):
            tip, before, after = (each.text for each in found)
            saved = SavedBranch(
                at=time.time_ns(), run=run, session=self._session, branch=branch, tip=tip, before=before, after=after
            )
            with suppress(OSError):
                self.store.append(saved)

    def _tell(self, error: Exception) -> None:
        self._is_broken = True
        self._warn(f"no further checkpoints are taken, so rewind and undo will lack what follows: {error}")


class RunCheckpoints(Feature):
    """Takes a checkpoint before and after a run; for a main agent, before and after each prompt."""

    name = "checkpoints"

    def __init__(
        self, checkpoints: Checkpoints, agent: str, worktree: Feature | None, *, is_elsewhere: bool, is_readonly: bool
    ) -> None:
        self._checkpoints = checkpoints
        self._agent = agent
        self._worktree = worktree
        self._is_elsewhere = is_elsewhere
        self._is_readonly = is_readonly
        self._run = ""
        self._is_taken = False

    async def enter(self, setup: RunSetup) -> RunSetup:
        checkpoints, self._run = self._checkpoints, setup.run_id
        is_main = checkpoints.is_main(self._run)
        is_here = self._worktree is None and checkpoints.has_place(setup)
        can_write = not self._is_readonly and any(tool.effect in _CHANGING for tool in setup.tools.values())
        self._is_taken = is_main or (is_here and can_write)
        checkpoints.note_run(self._run, self._agent, is_here=is_here)
        if self._is_taken:
            with setup.pause_idle():
                opens = self._run if self._is_elsewhere else ""
                await checkpoints.take("prompt" if is_main else "begin", self._run, opens=opens)
        return setup

    async def leave(self, outcome: Outcome) -> Outcome:
        """Take the last checkpoint. If there is no time for it, the next one of the session has what is missing."""
        if outcome.status in (Status.STOPPED, Status.INTERRUPTED) and self._checkpoints.is_main(self._run):
            self._checkpoints.end_run(self._run)  # a person waits
            return outcome
        base = getattr(self._worktree, "base", "")
        try:
            async with asyncio.timeout(LEAVE_S):
                if outcome.branch and base:
                    await self._checkpoints.note_branch(self._run, outcome.branch, base)
                if self._is_taken:
                    await self._checkpoints.take("end", self._run)
                await self._checkpoints.keep()
        except TimeoutError:
            self._checkpoints.end_run(self._run)
        return outcome


class CallCheckpoints(Feature):
    """Takes a checkpoint before and after each call that may change files. Entered last: its hook is the last one."""

    name = "call checkpoints"

    def __init__(self, checkpoints: Checkpoints) -> None:
        self._checkpoints = checkpoints
        self._run = ""

    async def enter(self, setup: RunSetup) -> RunSetup:
        self._run = setup.run_id
        return setup.change(hooks=[*setup.hooks, self]) if self._checkpoints.has_place(setup) else setup

    async def before(self, call: ToolCall, tool: Tool) -> Answer:
        if _may_change(tool):
            await self._checkpoints.take("call", self._run, opens=f"{self._run}/{call.id}")
        return None

    async def after(self, call: ToolCall, tool: Tool, result: ToolResult) -> ToolResult:
        if _may_change(tool):
            await self._checkpoints.take("call", self._run, closes=f"{self._run}/{call.id}")
        return result


def _may_change(tool: Tool) -> bool:
    """Return whether a tool may change files without recording it."""
    return tool.effect in _CHANGING and not getattr(tool, "records_changes", False)
