"""Creates the tools of the table in `core/tool_table.py`, renames them and loads their descriptions.

Does not decide who may use a tool.
"""

from collections.abc import Iterable, Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from msgspec import Struct, field, structs

from retinue.core.errors import UsageError, quote
from retinue.core.messages import TextContent
from retinue.core.model import ToolSpec
from retinue.core.tool import Tool, ToolResult, WrappedTool
from retinue.core.tool_table import BUILTIN_TOOLS, ToolRow, list_rows
from retinue.tools.arguments import is_whole
from retinue.tools.file_changes import FileChanges, PathLocks
from retinue.tools.process_tree import TreeProbe


class ToolOptions(Struct, frozen=True):
    """What the builtin tools share. All runs of a process use one object, because it holds the file locks, the record
    of file changes and the result of probes.
    """

    locks: PathLocks = field(default_factory=PathLocks)
    file_changes: FileChanges = field(default_factory=FileChanges)
    trees: TreeProbe = field(default_factory=TreeProbe)
    environment: Mapping[str, str] | None = None
    """The environment of commands; None: that of this process."""
    shell: str = ""
    """Path of the program that runs commands instead of bash."""
    command_prefix: str = ""
    """A line that is run before each command."""
    max_image_bytes: int = 3_750_000


def build_tools(options: ToolOptions, names: Iterable[str] = BUILTIN_TOOLS) -> dict[str, Tool]:
    """Create the named tools, in table order. Raises UsageError for a name that is not a builtin tool."""
    wanted = set(names)
    unknown = wanted.difference(BUILTIN_TOOLS)
    if unknown:
        raise UsageError(f"unknown tool {quote(min(unknown))}: expected some of {', '.join(BUILTIN_TOOLS)}")
    return {row.name: load_class(row).build(options) for row in list_rows(audience="everyone") if row.name in wanted}


def build_extra_tools() -> dict[str, Tool]:
    """Create the other tools that an agent file can ask for."""
    return {row.name: load_class(row)() for row in list_rows(audience="listed")}


def build_family(family: str, *shared: object) -> dict[str, Tool]:
    """Create the tools of a family from the objects they share."""
    return {row.name: load_class(row)(*shared) for row in list_rows(family=family)}


def load_class(row: ToolRow) -> Any:
    return getattr(import_module(f"retinue.{row.file.replace('/', '.')}"), row.class_name)


@cache
def load_description(module_file: str) -> str:
    """Return the description of a tool for the model: the .md file next to its module, as one paragraph."""
    return " ".join(Path(module_file).with_suffix(".md").read_text(encoding="utf-8").split())


def rename_tools(tools: Mapping[str, Tool], names: Mapping[str, str]) -> dict[str, Tool]:
    """Map visible names to tools, renaming each tool whose own name differs."""
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


def render_answer(details: dict[str, Any], *, note: str = "") -> ToolResult:
    """Return a result with the object as JSON text; a note follows as a separate text block."""
    text = _print(details)
    content = [TextContent(text), *([TextContent(note)] if note else ())]
    return ToolResult(list(content), details)


def render_failure(code: str, message: str, **more: Any) -> ToolResult:
    """Return an expected failure as a result, with further fields."""
    details = {"error": {"code": code, "message": message}, **more}
    return ToolResult.of(_print(details), details, is_error=True)


def explain_offset(offset: Any) -> str:
    """Return what is wrong with a start offset; empty if it is valid."""
    is_right = is_whole(offset) and offset >= 0
    return "" if is_right else f"offset is {quote(offset)}: expected a whole number from 0"


def explain_end(offset: int, total: int) -> str:
    """Return an error if the offset is not below the number of characters; else empty."""
    return f"offset is {offset}: the content has {total} characters" if 0 < offset >= total else ""


def cut_content(text: str, offset: int, most: int, *, is_short: bool = False) -> dict[str, Any]:
    """Return the fields for one page of a text. `is_short` means that the text was already truncated before."""
    begin = min(offset, len(text))
    end = min(begin + most, len(text))
    shown = {"content": text[begin:end], "truncated": is_short or end < len(text)}
    shown |= {"offset": begin, "totalChars": len(text)}
    return shown | ({"nextOffset": end} if end < len(text) else {})


def _print(details: dict[str, Any]) -> str:
    import json

    return json.dumps(details, indent=2, ensure_ascii=False)
