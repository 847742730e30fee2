"""A tool inside of another one: the base of those that change one thing about a tool and leave it the rest.

This file must not know which tools exist, or why one is wrapped.
"""

from typing import Any

from retinue.core.model import ToolSpec
from retinue.core.tool import Effect, Tool, ToolContext, ToolResult

_ASKED_FOR = ("abandon", "refuse")
"""What a tool may be able to do besides; whoever asks by protocol does not see what is merely passed on."""


class WrappedTool:
    """Answers with the words of the tool in it, and acts through it; a subclass says what is different."""

    def __init__(self, tool: Tool) -> None:
        self._tool = tool
        for name in _ASKED_FOR:
            if hasattr(tool, name):
                setattr(self, name, getattr(tool, name))

    @property
    def spec(self) -> ToolSpec:
        return self._tool.spec

    @property
    def effect(self) -> Effect:
        return self._tool.effect

    @property
    def hint(self) -> str:
        return self._tool.hint

    @property
    def guidelines(self) -> tuple[str, ...]:
        return self._tool.guidelines

    def __getattr__(self, name: str) -> Any:
        # What else a tool may be asked for, such as whether it is shown only on demand, is the tool's own.
        return getattr(self._tool, name)

    async def call(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        """Run the tool."""
        return await self._tool.call(arguments, context)
