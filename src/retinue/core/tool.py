"""The Tool port: a name, a schema, an effect and one async call; a base for tools that wrap another one.

This file must not know which tools exist.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from msgspec import UNSET, Struct

from retinue.core.diagnostics import suggest
from retinue.core.errors import quote
from retinue.core.launch import ANYWHERE, Confining, Territory
from retinue.core.messages import TextContent, UserContent
from retinue.core.model import ToolSpec


class Effect(StrEnum):
    """The most a tool can do; rights are decided by it."""

    READ = "read"
    WRITE = "write"
    EXECUTE = "execute"
    NETWORK = "network"
    DELEGATE = "delegate"


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What a tool gives back: `content` for the model, `details` for people and programs."""

    content: list[UserContent]
    details: Any = UNSET
    is_error: bool = False
    ends_run: bool = False
    """Nothing is left to say: the run is done with the calls of this reply."""

    @classmethod
    def of(cls, text: str, details: Any = UNSET, *, is_error: bool = False, ends_run: bool = False) -> "ToolResult":
        """A result of one text."""
        return cls([TextContent(text)], details, is_error, ends_run)

    def note(self, facts: Mapping[str, Any]) -> "ToolResult":
        """The same with facts added for people and programs; details that are no object stay as they are."""
        known = {} if self.details is UNSET else self.details
        return replace(self, details={**known, **facts}) if isinstance(known, Mapping) else self


def find_code(details: Any) -> Any:
    """The error code in the details of a result; None without one."""
    if not isinstance(details, Mapping):
        return None
    error = details.get("error")
    return error.get("code") if isinstance(error, Mapping) else details.get("errorCode", details.get("code"))


class Amendment(Struct, frozen=True):
    """Other arguments for a call, from somebody who was asked about it. The call counts only with them."""

    arguments: dict[str, Any]
    by: tuple[str, ...] = ()
    """Who wanted that, in their order."""
    keys: tuple[str, ...] = ()
    """The same, told apart even where they share a name; the last is content with the call as it is now."""
    word: str = ""
    """What was said about the changed call: allow, ask, or nothing."""
    reason: str = ""

    def describe(self) -> dict[str, Any]:
        """For the details of the result."""
        return {"modifiedInput": {"by": list(self.by), "args": self.arguments}}


def ignore_progress(partial: ToolResult) -> None:
    """The progress callback of a call that nobody watches."""


class ToolContext(Struct, frozen=True):
    """Where and for whom a call runs."""

    cwd: Path
    run_id: str = ""
    run_name: str = ""
    """What people call the run."""
    call_id: str = ""
    environment: Mapping[str, str] = {}
    """Variables that describe the session, for processes the tool starts."""
    spill_dir: Path | None = None
    """Where outputs too long for the model are kept; the system's temporary directory when absent."""
    redact: Callable[[str], str] = str
    """Takes secrets out of what a tool keeps in a file; what it returns is taken care of."""
    progress: Callable[[ToolResult], None] = ignore_progress
    find_territory: Callable[[], Territory] = lambda: ANYWHERE
    """Where files may be read and changed; asked by the first tool that wants to know."""
    confinement: Confining | None = None
    """The boundary of processes the tool starts; None: they have none."""

    @property
    def territory(self) -> Territory:
        """Where files may be read and changed."""
        return self.find_territory()


class Tool(Protocol):
    """Something the model can call."""

    @property
    def spec(self) -> ToolSpec: ...

    @property
    def effect(self) -> Effect: ...

    @property
    def hint(self) -> str:
        """One line for the list of tools in the system prompt; empty keeps the tool out of that list."""
        ...

    @property
    def guidelines(self) -> tuple[str, ...]:
        """Sentences on when to use it, for the system prompt."""
        ...

    async def call(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        """Run the tool. Arguments fit the schema already.

        An expected failure is an error result, or `ToolFailed`. Cancelling must end all the call has started.
        """
        ...


@runtime_checkable
class Refusing(Protocol):
    """A tool that has words of its own for arguments that do not fit its schema."""

    def refuse(self, arguments: Mapping[str, Any], problem: str) -> ToolResult:
        """The result of a call that cannot be tried. MUST NOT raise."""
        ...


ELSEWHERE = {
    "Glob": "find",
    "MultiEdit": "edit",
    "Task": "Agent",
    "TodoWrite": "todo_write",
    "WebFetch": "fetch_content",
    "WebSearch": "web_search",
}
"""Claude Code's names that differ by more than a capital, and the tools here that do the same."""
CODINGCODE = {
    "read_file": "read",
    "write_file": "write",
    "edit_file": "edit",
    "execute_command": "bash",
    "search_code": "grep",
    "search_files": "find",
    "fetch_url": "fetch_content",
    "web_search": "web_search",
    "todo_write": "todo_write",
}
"""CodingCode's name of a tool → ours; the model of such an agent sees the former."""


def list_aliases(tools: Iterable[str]) -> tuple[str, ...]:
    """These tools by all names under which a model may know them."""
    own = tuple(tools)
    return tuple(dict.fromkeys((*own, *(alias for alias, tool in CODINGCODE.items() if tool in own))))


def suggest_tool(name: str, known: Collection[str]) -> str:
    """` (…)` with the name of the tool that was meant, or nothing."""
    if (own := ELSEWHERE.get(name)) is not None:
        return f" (that is Claude Code's name; here it is {quote(own)})"
    return suggest(name, known)


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
