"""Waiting that must not look like an idle run: for a person whom a hook asks, for a reply that comes in one piece."""

from retinue.core.messages import ToolCall
from retinue.core.model import Draft, Model, ModelInfo, Reply, Request
from retinue.core.tool import Tool, ToolResult
from retinue.engine.calls import Answer, CallHook
from retinue.engine.scope import Scope


class PatientHook:
    """A hook that may wait for a person."""

    def __init__(self, hook: CallHook, scope: Scope) -> None:
        self._hook = hook
        self._scope = scope

    async def before(self, call: ToolCall, tool: Tool) -> Answer:
        """What it says before a call."""
        with self._scope.patience():
            return await self._hook.before(call, tool)

    async def after(self, call: ToolCall, tool: Tool, result: ToolResult) -> ToolResult:
        """What it makes of a result."""
        with self._scope.patience():
            return await self._hook.after(call, tool, result)


class PatientModel:
    """A model whose whole reply is fetched in silence."""

    def __init__(self, model: Model, scope: Scope) -> None:
        self._model = model
        self._scope = scope

    @property
    def info(self) -> ModelInfo:
        """Of the model itself."""
        return self._model.info

    async def reply(self, request: Request, draft: Draft) -> Reply:
        """Ask it. MUST NOT raise, as the model itself."""
        if draft.watcher is not None:
            return await self._model.reply(request, draft)
        with self._scope.patience():
            return await self._model.reply(request, draft)
