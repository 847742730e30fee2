"""The offered tools as four actions, and conversion of tool calls back to actions.

`bash` replaces any of grep, find, read and ls that is not offered. This file must not know what is searched for.
"""

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from retinue.core.messages import ToolCall
from retinue.core.model import ToolSpec


@dataclass(frozen=True, slots=True)
class SearchAction:
    """Search for lines that match a pattern."""

    pattern: str
    path: str = "."
    ignore_case: bool = False
    literal: bool = False
    limit: int = 200
    context: int = 0


@dataclass(frozen=True, slots=True)
class Find:
    """Find files whose name matches a glob."""

    pattern: str
    limit: int = 1000
    path: str = "."


@dataclass(frozen=True, slots=True)
class Read:
    path: str
    offset: int = 1
    limit: int = 120


@dataclass(frozen=True, slots=True)
class List:
    path: str = "."


Action: TypeAlias = SearchAction | Find | Read | List

_REQUIRED = {"grep": "pattern", "find": "pattern", "read": "path", "ls": "path", "bash": "command"}
_TOOL = {SearchAction: "grep", Find: "find", Read: "read", List: "ls"}


@dataclass(frozen=True, slots=True)
class ToolNames:
    """The available tools, with the names that calls must use."""

    names: Mapping[str, str]
    """Own name of a tool → name to call it by."""

    @classmethod
    def of(cls, tools: Sequence[ToolSpec]) -> "ToolNames":
        """Select the known tools of a request; a tool with other parameters than ours is left out."""
        known = [tool for tool in tools if _REQUIRED.get(tool.own_name, "\0") in tool.parameters.get("properties", {})]
        return cls({tool.own_name: tool.name for tool in known})

    def can(self, action: type[Action]) -> bool:
        """Whether this kind of action is possible."""
        return _TOOL[action] in self.names or "bash" in self.names

    def to_call(self, action: Action, call_id: str) -> ToolCall:
        """The tool call for an action, which must be possible (see `can`)."""
        name = _TOOL[type(action)]
        if name in self.names:
            return ToolCall(call_id, self.names[name], _to_arguments(action))
        return ToolCall(call_id, self.names["bash"], {"command": _to_command(action)})


def _to_arguments(action: Action) -> dict[str, Any]:
    if isinstance(action, SearchAction):
        arguments: dict[str, Any] = {"pattern": action.pattern, "limit": action.limit}
        arguments |= {"path": action.path} if action.path != "." else {}
        arguments |= {"ignoreCase": True} if action.ignore_case else {}
        arguments |= {"literal": True} if action.literal else {}
        return arguments | ({"context": action.context} if action.context else {})
    if isinstance(action, Find):
        found: dict[str, Any] = {"pattern": action.pattern, "limit": action.limit}
        return found | ({"path": action.path} if action.path != "." else {})
    if isinstance(action, Read):
        return {"path": action.path, "offset": action.offset, "limit": action.limit}
    return {"path": action.path}


def to_action(call: ToolCall) -> Action | None:
    """The action behind a call of this model; the call must have the tool's own name. None if there is none."""
    arguments = call.arguments
    if call.name == "grep":
        return SearchAction(
            str(arguments.get("pattern", "")),
            str(arguments.get("path", ".")),
            bool(arguments.get("ignoreCase")),
            bool(arguments.get("literal")),
            _to_int(arguments.get("limit"), 100),
            _to_int(arguments.get("context"), 0),
        )
    if call.name == "find":
        return Find(
            str(arguments.get("pattern", "")), _to_int(arguments.get("limit"), 1000), str(arguments.get("path", "."))
        )
    if call.name == "read":
        return Read(
            str(arguments.get("path", "")), _to_int(arguments.get("offset"), 1), _to_int(arguments.get("limit"), 2000)
        )
    if call.name == "ls":
        return List(str(arguments.get("path", ".")))
    return _parse_command(str(arguments.get("command", ""))) if call.name == "bash" else None


def _to_int(value: object, default: int) -> int:
    return int(value) if isinstance(value, int | float) else default


_SKIPPED = ("--exclude-dir=.git", "--exclude-dir=node_modules", "--exclude-dir=.venv")


def _to_command(action: Action) -> str:
    if isinstance(action, SearchAction):
        flags = "-rnHI" + ("i" if action.ignore_case else "") + ("F" if action.literal else "E")
        context = [f"-C{action.context}"] if action.context else []
        words = ["grep", flags, *context, *_SKIPPED, "--", action.pattern, action.path]
        return f"{shlex.join(words)} | head -n {action.limit}"
    if isinstance(action, Find):
        skipped = "-not -path '*/.git/*' -not -path '*/node_modules/*' -not -path '*/.venv/*'"
        named = f"find {shlex.quote(action.path)} -type f -iname {shlex.quote(action.pattern)}"
        return f"{named} {skipped} | sort | head -n {action.limit}"
    if isinstance(action, Read):
        return f"sed -n {action.offset},{action.offset + action.limit - 1}p {shlex.quote(action.path)}"
    return f"ls -1Ap {shlex.quote(action.path)}"


def _parse_command(command: str) -> Action | None:
    try:
        words = shlex.split(command)
    except ValueError:
        return None
    if not words:
        return None
    if words[0] == "grep" and "--" in words:
        start = words.index("--")
        context = next((int(word[2:]) for word in words[2:start] if re.fullmatch(r"-C\d+", word)), 0)
        return SearchAction(
            words[start + 1], words[start + 2], "i" in words[1], "F" in words[1], int(words[-1]), context
        )
    if words[0] == "find" and "-iname" in words:
        return Find(words[words.index("-iname") + 1], int(words[-1]), words[1])
    if words[0] == "sed" and re.fullmatch(r"\d+,\d+p", words[2]):
        first, last = (int(part) for part in words[2][:-1].split(","))
        return Read(words[3], first, last - first + 1)
    return List(words[-1]) if words[0] == "ls" else None
