"""The feature of a durable run: its record is in a database before the model is called and before a tool acts.

Wraps only the Model and Tool ports. A call with a recorded reply but no recorded result may have happened: when the run
is resumed, the model is informed, and the call is never repeated automatically. Must not know the database.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from retinue.core.errors import RetinueError
from retinue.core.model import Draft, Failure, Model, ModelInfo, ModelRequest, Reply
from retinue.core.tool import Effect, Tool, ToolContext, ToolResult, WrappedTool
from retinue.durable.session_files import RecordError, RecordPart, SessionFolder, StoreParts
from retinue.engine.model_choice import LastingWrapper
from retinue.engine.setup import Feature, RunSetup

SNAPSHOT = "snapshot"
_CHANGING = (Effect.WRITE, Effect.EXECUTE)
Snapshot = Callable[[], Awaitable[tuple[bytes | None, tuple[str, ...]]]]
"""Returns the state of the workspace (None if unchanged since the last call), and what cannot be stored."""


@dataclass(slots=True)
class WorkspaceSnapshots:
    """Snapshots of a workspace that does not outlive its worker."""

    snapshot: Snapshot
    attempt: str
    taken: int
    """Number of recorded snapshots."""


class RunRecorder:
    """Writes new session content and snapshots of one run to its record."""

    def __init__(self, store: StoreParts, mirror: SessionFolder, states: WorkspaceSnapshots | None = None) -> None:
        """Without `states` the workspace is not recorded."""
        self._store = store
        self._mirror = mirror
        self._states = states
        self._new: list[RecordPart] = []
        """Snapshots and notes that are not recorded yet."""
        self._turn = asyncio.Lock()
        self.notes: dict[str, None] = {}
        """What could not be stored, to be shown with the outcome."""

    async def keep(self) -> None:
        """Write everything new. Raises RetinueError if that is impossible or no longer allowed."""
        async with self._turn:
            pieces, states = self._mirror.collect(), list(self._new)
            # A result and the workspace after it are stored together or not at all.
            await self._store([*pieces, *states])
            self._mirror.settle(pieces)
            del self._new[: len(states)]

    def note(self, piece: RecordPart) -> None:
        """Store a piece together with the next write."""
        self._new.append(piece)

    async def look(self) -> None:
        """Take a snapshot of the workspace after a call that may have changed it."""
        if self._states is None:
            return
        async with self._turn:
            try:
                data, notes = await self._states.snapshot()
            except RetinueError as error:
                # The run continues; the next successful snapshot includes these changes.
                data, notes = None, (f"the workspace could not be recorded: {error}",)
            self.notes.update(dict.fromkeys(notes))
            if data is not None:
                self._new.append(RecordPart(SNAPSHOT, self._states.attempt, self._states.taken, data))
                self._states.taken += 1


class RecordFeature(Feature):
    name = "record"

    def __init__(self, keeper: RunRecorder) -> None:
        self._keeper = keeper

    async def enter(self, setup: RunSetup) -> RunSetup:
        """Wrap the model and every tool that does more than read."""
        tools = {
            name: tool if tool.effect is Effect.READ else _RecordedTool(tool, self._keeper)
            for name, tool in setup.tools.items()
        }
        return setup.change(model=_RecordedModel(setup.model, self._keeper), tools=tools)


class _RecordedModel(LastingWrapper):
    """A model that is called only after everything before is recorded."""

    def __init__(self, model: Model, keeper: RunRecorder) -> None:
        self.inner_model = model
        """The wrapped model, for a run with a record of its own."""
        self._keeper = keeper

    @property
    def info(self) -> ModelInfo:
        return self.inner_model.info

    def rewrap(self, model: Model) -> Model:
        """Wrap another model in the same way."""
        return _RecordedModel(model, self._keeper)

    async def reply(self, request: ModelRequest, draft: Draft) -> Reply:
        try:
            await self._keeper.keep()
        except RecordError as error:
            failure = Failure("record", str(error))
            return Reply(draft.finish("error", error=failure.message), failure)
        return await self.inner_model.reply(request, draft)


class _RecordedTool(WrappedTool):
    """A tool that acts only after the reply that calls it is recorded."""

    def __init__(self, tool: Tool, keeper: RunRecorder) -> None:
        super().__init__(tool)
        self._keeper = keeper

    async def call(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        try:
            await self._keeper.keep()
        except RecordError as error:
            return ToolResult.of(f"{self._tool.spec.name} was not run: {error}", {}, is_error=True)
        try:
            return await self._tool.call(arguments, context)
        finally:
            if self._tool.effect in _CHANGING:
                await self._keeper.look()
