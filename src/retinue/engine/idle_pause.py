"""Waiting that must not look like an idle run: for a person whom a hook asks."""

from retinue.core.messages import ToolCall
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
