"""Tools under other names: what a definition calls a tool is what its model sees."""

from collections.abc import Mapping
from typing import Any

from msgspec import structs

from retinue.core.model import ToolSpec
from retinue.core.tool import Effect, Tool, ToolContext, ToolResult


def rename_tools(tools: Mapping[str, Tool], names: Mapping[str, str]) -> dict[str, Tool]:
    """The tools that some visible names stand for, by those names."""
    return {
        visible: tools[name] if visible == name else _Renamed(tools[name], visible) for visible, name in names.items()
    }


class _Renamed:
    def __init__(self, tool: Tool, name: str) -> None:
        self._tool = tool
        self._spec = structs.replace(tool.spec, name=name)
        self.target = tool.spec.name
        """Its own name, for whoever decides about tools by that."""

    @property
    def spec(self) -> ToolSpec:
        return self._spec

    @property
    def effect(self) -> Effect:
        return self._tool.effect

    @property
    def hint(self) -> str:
        return self._tool.hint

    @property
    def guidelines(self) -> tuple[str, ...]:
        return self._tool.guidelines

    async def call(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        """Run the tool behind the name."""
        return await self._tool.call(arguments, context)
