"""Tools under other names: what a definition calls a tool is what its model sees."""

from collections.abc import Mapping

from msgspec import structs

from retinue.core.model import ToolSpec
from retinue.core.tool import Tool
from retinue.core.wrapped import WrappedTool


def rename_tools(tools: Mapping[str, Tool], names: Mapping[str, str]) -> dict[str, Tool]:
    """The tools that some visible names stand for, by those names."""
    return {
        visible: tools[name] if visible == name else _Renamed(tools[name], visible) for visible, name in names.items()
    }


class _Renamed(WrappedTool):
    def __init__(self, tool: Tool, name: str) -> None:
        super().__init__(tool)
        self._spec = structs.replace(tool.spec, name=name, alias_of=tool.spec.own_name)

    @property
    def spec(self) -> ToolSpec:
        return self._spec
