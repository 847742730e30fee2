"""The list of builtin tools, by hand, and how they are made; decides nothing about who may use them."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from msgspec import Struct, field

from retinue.core.errors import UsageError, quote
from retinue.core.tool import Tool
from retinue.tools.files.edit import EditTool
from retinue.tools.files.find import FindTool
from retinue.tools.files.grep import GrepTool
from retinue.tools.files.ls import LsTool
from retinue.tools.files.read import ReadTool
from retinue.tools.files.ripgrep import Ripgrep
from retinue.tools.files.write import WriteTool
from retinue.tools.ledger import Ledger
from retinue.tools.locks import PathLocks
from retinue.tools.shell.bash import BashTool
from retinue.tools.trees import TreeProbe

if TYPE_CHECKING:  # who has no use for the web pays for none of it
    from retinue.tools.convert.options import ConvertOptions, ConvertPorts
    from retinue.tools.web.options import WebOptions, WebPorts

BUILTIN_TOOLS = ("read", "bash", "edit", "write", "grep", "find", "ls")


class ToolOptions(Struct, frozen=True):
    """What the builtin tools share. One object for all runs of a process: it owns the locks, who did what to which
    file, and what was probed."""

    locks: PathLocks = field(default_factory=PathLocks)
    ledger: Ledger = field(default_factory=Ledger)
    trees: TreeProbe = field(default_factory=TreeProbe)
    environment: Mapping[str, str] | None = None
    """What commands inherit; the process's own environment when absent."""
    shell: str = ""
    """The program that runs commands instead of bash; a path."""
    command_prefix: str = ""
    """A line before each command."""
    search_timeout_s: float = 30.0
    max_image_bytes: int = 3_750_000
    sync_writes: bool = False


def build_extra_tools() -> dict[str, Tool]:
    """The tools beside the builtin ones that an agent has when its file asks for them."""
    from retinue.tools.todo import TodoTool

    return {"todo_write": TodoTool()}


def build_web(options: "WebOptions", ports: "WebPorts") -> dict[str, Tool]:
    """The tools that search and fetch; they share what they keep."""
    from retinue.tools.web.family import build_web_tools

    return build_web_tools(options, ports)


def build_convert(options: "ConvertOptions", ports: "ConvertPorts") -> dict[str, Tool]:
    """The tool that reads documents."""
    from retinue.tools.convert.convert import ConvertContentTool

    return {"convert_content": ConvertContentTool(options, ports)}


def build_tools(options: ToolOptions, names: Iterable[str] = BUILTIN_TOOLS) -> dict[str, Tool]:
    """The named tools, in the order of the list. Raises UsageError for a name that is not on it."""
    wanted = set(names)
    unknown = wanted.difference(BUILTIN_TOOLS)
    if unknown:
        raise UsageError(f"unknown tool {quote(min(unknown))}: expected some of {', '.join(BUILTIN_TOOLS)}")
    ripgrep = Ripgrep(options.trees, timeout_s=options.search_timeout_s)
    tools: dict[str, Tool] = {
        "read": ReadTool(options.ledger, max_image_bytes=options.max_image_bytes),
        "bash": BashTool(
            options.trees, environment=options.environment, shell=options.shell, prefix=options.command_prefix
        ),
        "edit": EditTool(options.locks, options.ledger, sync=options.sync_writes),
        "write": WriteTool(options.locks, options.ledger, sync=options.sync_writes),
        "grep": GrepTool(ripgrep),
        "find": FindTool(ripgrep),
        "ls": LsTool(),
    }
    return {name: tool for name, tool in tools.items() if name in wanted}
