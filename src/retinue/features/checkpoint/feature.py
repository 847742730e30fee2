"""Takes checkpoints around prompts, runs and calls. What fails here never stops a run: the person is told once."""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from msgspec import structs

from retinue.core.errors import RetinueError
from retinue.core.messages import ToolCall
from retinue.core.receipt import Receipts
from retinue.core.run import Outcome, Status
from retinue.core.tool import Effect, Tool, ToolResult
from retinue.engine.calls import Answer
from retinue.engine.scope import start_beside
from retinue.engine.setup import Feature, RunSetup
from retinue.features.checkpoint.records import (
    SOMEBODY,
    Checkpoint,
    CheckpointKind,
    RunNote,
    attribute_files,
)
from retinue.features.checkpoint.store import CheckpointStore
from retinue.tools.file_changes import FileChanges

LEAVE_S = 4.0
_STOP_S = 0.3
"""Time to end a checkpoint that is being taken when a person stops the main agent."""
_UNSURE = "Others may have changed some of these files: finding out took too long."
_CHANGING = (Effect.WRITE, Effect.EXECUTE)
_HARMLESS = frozenset((
    "approvals", "call checkpoints", "deferred tools", "delegation", "finalising", "lsp-diagnostics", "sandbox",
    "skills", "verification", "worktree leftovers",
))  # fmt: skip
"""Features that change no files of the workspace before the first call of a tool."""


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
        self._places: dict[str, bool] = {}
        self._notes: list[RunNote] = []

    def surround(
        self, features: Sequence[Feature], *, agent: str = "", is_elsewhere: bool = False, is_readonly: bool = False
    ) -> list[Feature]:
        """Return the features of a run with those for its checkpoints.

        A run in a process of its own counts as one call; a read-only run is noted only.
        """
        worktree = next((each for each in features if each.name == "worktree"), None)
        outer = RunCheckpoints(self, agent, worktree, is_elsewhere=is_elsewhere, is_readonly=is_readonly)
        outer.is_beside = not is_elsewhere and all(each.name in _HARMLESS for each in features)
        is_apart = worktree is not None or is_elsewhere or is_readonly
        return [outer, *features, *([] if is_apart else [CallCheckpoints(self)])]

    def is_main(self, run: str) -> bool:
        return run == self._main

    def has_place(self, setup: RunSetup) -> bool:
        """Return whether a run works in the workspace; others are not recorded."""
        cwd = str(setup.cwd)
        if cwd not in self._places:  # most runs have the same
            self._places[cwd] = Path(os.path.realpath(cwd)).is_relative_to(self.store.top)
        return self._places[cwd]

    async def note_run(self, run: str, agent: str, *, is_here: bool, may_change: bool) -> None:
        """Record that a run begins. What it does elsewhere is not recorded, except for its branch."""
        (self._elsewhere.discard if is_here else self._elsewhere.add)(run)
        process = self.store.process if may_change and not self._is_broken else ""
        note = RunNote(at=time.time_ns(), session=self._session, run=run, agent=agent, process=process)
        self._notes.append(note)
        try:
            await asyncio.sleep(0)
        finally:
            # The first of the runs that start together writes the notes of all, before any of them goes on.
            notes, self._notes = self._notes, []
            if notes:
                with suppress(OSError):
                    self.store.append(*notes)

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

    async def take(self, kind: CheckpointKind, run: str, **facts: Any) -> None:
        if not self._is_broken:
            try:
                await self.store.take(kind, session=self._session, run=run, **facts)
                return
            except (RetinueError, OSError, ValueError) as error:
                self._tell(error)
        if kind == "end":
            self.end_run(run)

    @asynccontextmanager
    async def open_verification(self, run: str, *, is_elsewhere: bool) -> AsyncIterator[None]:
        """In the body, commands verify the result of a run: what they change was not changed by the run."""
        call = f"{run}/verify"
        await self.take("call", SOMEBODY, opens=call, closes=run if is_elsewhere else "")
        try:
            yield
        except BaseException:
            with suppress(OSError):  # a person may wait
                self.store.append(Checkpoint(at=time.time_ns(), kind="call", closes=call))
            raise
        await self.take("call", SOMEBODY, closes=call)
        if is_elsewhere:
            await self.take("call", run, opens=run)

    async def attribute(self, run: str, receipts: Receipts | None) -> Receipts | None:
        """Leave out files that others changed while a run worked, and mark those of which it is not known."""
        if self._is_broken or receipts is None or not receipts.files:
            return receipts
        records = await asyncio.to_thread(self.store.read_records)
        return attribute_files(receipts, records, run, has_trees=self.store.has_trees)

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
        """Record the branch that a run in a worktree or on another machine left."""
        with suppress(OSError):
            await self.store.note_branch(run, self._session, branch, base)

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
        self.base = ""
        """The commit with which a run on another machine began."""
        self.is_beside = False
        """Whether the first checkpoint may be taken beside the first request."""
        self._run = ""
        self._is_taken = False
        self._begun: asyncio.Task[None] | None = None

    async def enter(self, setup: RunSetup) -> RunSetup:
        """Begin the checkpoint; the first call that can change files waits for it, the first request need not."""
        checkpoints, self._run, self._begun = self._checkpoints, setup.run_id, None
        is_main = checkpoints.is_main(self._run)
        is_here = self._worktree is None and checkpoints.has_place(setup)
        can_write = not self._is_readonly and any(tool.effect in _CHANGING for tool in setup.tools.values())
        self._is_taken = is_main or (is_here and can_write)
        await checkpoints.note_run(self._run, self._agent, is_here=is_here, may_change=self._is_taken)
        if not self._is_taken:
            return setup
        opens = self._run if self._is_elsewhere else ""
        kind: CheckpointKind = "prompt" if is_main else "begin"
        taking = checkpoints.take(kind, self._run, opens=opens, asked=time.time_ns())
        if self.is_beside:
            self._begun = start_beside(taking)
            return setup.change(hooks=(self, *setup.hooks))
        with setup.pause_idle():
            await taking
        return setup

    async def before(self, call: ToolCall, tool: Tool) -> Answer:
        if self._begun is not None and tool.effect in _CHANGING:
            await asyncio.shield(self._begun)
        return None

    async def after(self, call: ToolCall, tool: Tool, result: ToolResult) -> ToolResult:
        return result

    async def leave(self, outcome: Outcome) -> Outcome:
        """Take the last checkpoint. If there is no time for it, the next one of the session has what is missing."""
        is_stopped = outcome.status in (Status.STOPPED, Status.INTERRUPTED) and self._checkpoints.is_main(self._run)
        try:
            async with asyncio.timeout(_STOP_S if is_stopped else LEAVE_S):
                if self._begun is not None:
                    await self._begun
                if is_stopped:
                    self._checkpoints.end_run(self._run)  # a person waits
                else:
                    outcome = await self._finish(outcome)
        except TimeoutError:
            self._checkpoints.end_run(self._run)
            if self._is_taken and outcome.receipts is not None and outcome.receipts.files:
                notes = (*outcome.receipts.notes, _UNSURE)
                outcome = structs.replace(outcome, receipts=structs.replace(outcome.receipts, notes=notes))
        return outcome

    async def _finish(self, outcome: Outcome) -> Outcome:
        base = self.base or getattr(self._worktree, "base", "")
        if outcome.branch and base:
            await self._checkpoints.note_branch(self._run, outcome.branch, base)
        if self._is_taken:
            await self._checkpoints.take("end", self._run)
        if self._is_taken and self._worktree is None:
            receipts = await self._checkpoints.attribute(self._run, outcome.receipts)
            outcome = structs.replace(outcome, receipts=receipts)
        await self._checkpoints.keep()
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
