"""What makes a run durable: its record is in a database before its model is asked and before a tool acts.

Wraps the Model and the Tool port and nothing else. A call whose reply is on record and whose result is not may have
happened: whoever goes on with the run says so to the model, and never calls it again by itself. Must not know which
database that is.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from retinue.core.errors import RetinueError
from retinue.core.model import Draft, Failure, Model, ModelInfo, ModelRequest, Reply
from retinue.core.run import Outcome
from retinue.core.tool import Effect, Tool, ToolContext, ToolResult, WrappedTool
from retinue.durable.session_files import Mirror, Piece, RecordError, Shelf
from retinue.engine.setup import RunSetup

SNAPSHOT = "snapshot"
_CHANGING = (Effect.WRITE, Effect.EXECUTE)
Snapshot = Callable[[], Awaitable[tuple[bytes | None, tuple[str, ...]]]]
"""The state of the workspace, None when it has not changed since the last time; and what cannot be carried."""


@dataclass(slots=True)
class States:
    """The states of a workspace that does not outlive its worker."""

    snapshot: Snapshot
    attempt: str
    taken: int
    """How many of them are on record."""


class RunRecorder:
    """Brings the record of one run up to date."""

    def __init__(self, shelf: Shelf, mirror: Mirror, states: States | None = None) -> None:
        """Without `states` the workspace stays where it is, and is nobody's business here."""
        self._shelf = shelf
        self._mirror = mirror
        self._states = states
        self._new: list[Piece] = []
        """States and notes that are not on record yet."""
        self._turn = asyncio.Lock()
        self.notes: dict[str, None] = {}
        """What could not be carried, for whoever reads the outcome."""

    async def keep(self) -> None:
        """Write what is new; raises RetinueError when that is not possible, or not allowed any more."""
        async with self._turn:
            pieces, states = self._mirror.collect(), list(self._new)
            # A result and what the workspace looked like after it are kept together, or neither is.
            await self._shelf.keep([*pieces, *states])
            self._mirror.settle(pieces)
            del self._new[: len(states)]

    def note(self, piece: Piece) -> None:
        """Keep something together with what is new next."""
        self._new.append(piece)

    async def look(self) -> None:
        """Take the state of the workspace after a call that may have changed it."""
        if self._states is None:
            return
        async with self._turn:
            try:
                data, notes = await self._states.snapshot()
            except RetinueError as error:
                # The run goes on; the next state, if it can be taken, holds this one's changes, too.
                data, notes = None, (f"the workspace could not be put on record: {error}",)
            self.notes.update(dict.fromkeys(notes))
            if data is not None:
                self._new.append(Piece(SNAPSHOT, self._states.attempt, self._states.taken, data))
                self._states.taken += 1


class Recorded:
    """The feature of a durable run."""

    name = "record"

    def __init__(self, keeper: RunRecorder) -> None:
        self._keeper = keeper

    async def enter(self, setup: RunSetup) -> RunSetup:
        """Put the record around the model and every tool that does more than read."""
        tools = {
            name: tool if tool.effect is Effect.READ else _RecordedTool(tool, self._keeper)
            for name, tool in setup.tools.items()
        }
        return setup.change(model=_RecordedModel(setup.model, self._keeper), tools=tools)

    async def leave(self, outcome: Outcome) -> Outcome:
        """Nothing is left to undo: the end of the run is written by whoever has claimed it."""
        return outcome


class _RecordedModel:
    """A model that is asked when all before is on record."""

    def __init__(self, model: Model, keeper: RunRecorder) -> None:
        self._model = model
        self._keeper = keeper

    @property
    def info(self) -> ModelInfo:
        return self._model.info

    @property
    def inner_model(self) -> Model:
        """What is in there, for a run that has a record of its own."""
        return self._model

    def rewrap(self, model: Model) -> Model:
        """The same around another model."""
        return _RecordedModel(model, self._keeper)

    async def reply(self, request: ModelRequest, draft: Draft) -> Reply:
        try:
            await self._keeper.keep()
        except RecordError as error:
            failure = Failure("record", str(error))
            return Reply(draft.finish("error", error=failure.message), failure)
        return await self._model.reply(request, draft)


class _RecordedTool(WrappedTool):
    """A tool that acts when the reply that calls it is on record."""

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
