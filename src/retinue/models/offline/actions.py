"""The four actions of this model, as calls of the tools `grep`, `find`, `read` and `ls`, and back.

A field is the tool's argument of that name, and its default is the tool's own. This file must not know what is searched
for.
"""

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import msgspec
from msgspec import Struct, ValidationError

from retinue.core.messages import ToolCall
from retinue.core.model import ToolSpec


class SearchAction(Struct, frozen=True, rename="camel", omit_defaults=True):
    """Search for lines that match a pattern."""

    pattern: str
    path: str = "."
    ignore_case: bool = False
    literal: bool = False
    limit: int = 100


class Find(Struct, frozen=True, omit_defaults=True):
    """Find files whose name matches a glob."""

    pattern: str
    limit: int = 1000
    path: str = "."


class Read(Struct, frozen=True):
    path: str
    offset: int = 1
    limit: int = 2000


class List(Struct, frozen=True):
    path: str = "."


Action: TypeAlias = SearchAction | Find | Read | List
ToolNames: TypeAlias = Mapping[type[Action], str]
"""The possible actions, with the name under which a request offers the tool of each."""

_TOOLS: dict[str, type[Action]] = {"grep": SearchAction, "find": Find, "read": Read, "ls": List}
_REQUIRED = {"grep": "pattern", "find": "pattern", "read": "path", "ls": "path"}


def find_tools(tools: Sequence[ToolSpec]) -> ToolNames:
    """Select the known tools of a request; a tool with other parameters than ours is left out."""
    known = [tool for tool in tools if _REQUIRED.get(tool.own_name, "\0") in tool.parameters.get("properties", {})]
    return {_TOOLS[tool.own_name]: tool.name for tool in known}


def to_call(action: Action, tool_names: ToolNames, call_id: str) -> ToolCall:
    return ToolCall(call_id, tool_names[type(action)], msgspec.to_builtins(action))


def to_action(call: ToolCall) -> Action | None:
    """The action behind a call, which must have the tool's own name; None if there is none."""
    if call.name not in _TOOLS:
        return None
    try:
        return msgspec.convert(call.arguments, _TOOLS[call.name], strict=False)
    except ValidationError:
        return None
