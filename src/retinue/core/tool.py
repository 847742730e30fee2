"""The Tool interface: a name, a schema, an effect and one async call; a base class for wrapping a tool.

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
from retinue.core.launch import ANYWHERE, ConfinementFactory, Territory
from retinue.core.messages import TextContent, UserContent
from retinue.core.model import ToolSpec


class Effect(StrEnum):
    """The most a tool can do; permissions depend on it."""

    READ = "read"
    WRITE = "write"
    EXECUTE = "execute"
    NETWORK = "network"
    DELEGATE = "delegate"


@dataclass(frozen=True, slots=True)
class ToolResult:
    """The result of a tool call: `content` for the model, `details` for users and programs."""

    content: list[UserContent]
    details: Any = UNSET
    is_error: bool = False
    ends_run: bool = False
    """End the run after the calls of this reply."""

    @classmethod
    def of(cls, text: str, details: Any = UNSET, *, is_error: bool = False, ends_run: bool = False) -> "ToolResult":
        return cls([TextContent(text)], details, is_error, ends_run)

    def note(self, facts: Mapping[str, Any]) -> "ToolResult":
        """Add facts to `details`; details that are not an object stay as they are."""
        known = {} if self.details is UNSET else self.details
        return replace(self, details={**known, **facts}) if isinstance(known, Mapping) else self


def find_code(details: Any) -> Any:
    """The error code in the details of a result, or None."""
    if not isinstance(details, Mapping):
        return None
    error = details.get("error")
    return error.get("code") if isinstance(error, Mapping) else details.get("errorCode", details.get("code"))


class Amendment(Struct, frozen=True):
    """Changed arguments for a call, from a hook or user that was asked. The call is allowed only with them."""

    arguments: dict[str, Any]
    by: tuple[str, ...] = ()
    """Names of those who changed it, in order."""
    keys: tuple[str, ...] = ()
    """Like `by`, but unique even if names repeat; the last one has accepted the call as it is now."""
    word: str = ""
    """The decision on the changed call: allow, ask, or empty."""
    reason: str = ""

    def describe(self) -> dict[str, Any]:
        """Entries for the details of the result."""
        return {"modifiedInput": {"by": list(self.by), "args": self.arguments}}


def ignore_progress(partial: ToolResult) -> None: ...


class ToolContext(Struct, frozen=True):
    """The folder, run and limits of a tool call."""

    cwd: Path
    run_id: str = ""
    run_name: str = ""
    """The run's display name."""
    call_id: str = ""
    environment: Mapping[str, str] = {}
    """Variables that describe the session, for processes the tool starts."""
    spill_dir: Path | None = None
    """The folder for outputs that are too long for the model; None: the system's temporary directory."""
    redact: Callable[[str], str] = str
    """Removes secrets from what a tool writes to a file; its result is redacted by the caller."""
    progress: Callable[[ToolResult], None] = ignore_progress
    on_cut: Callable[[Callable[[str], ToolResult]], None] = lambda render: None
    """Registers what renders the result so far, for the case that the call is cut off; it gets the reason."""
    find_territory: Callable[[], Territory] = lambda: ANYWHERE
    """Returns where files may be read and changed; computed when a tool first needs it."""
    confinement: ConfinementFactory | None = None
    """The sandbox of processes the tool starts; None: no sandbox."""

    @property
    def territory(self) -> Territory:
        return self.find_territory()


class Tool(Protocol):
    """Something the model can call."""

    @property
    def spec(self) -> ToolSpec: ...

    @property
    def effect(self) -> Effect: ...

    @property
    def hint(self) -> str:
        """One line for the tool list in the system prompt; empty omits the tool there."""
        ...

    @property
    def guidelines(self) -> tuple[str, ...]:
        """Sentences for the system prompt on when to use it."""
        ...

    async def call(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        """Run the tool; the arguments already fit the schema.

        An expected failure is an error result or `ToolFailed`. Cancellation must end everything the call started.
        """
        ...


@runtime_checkable
class Refusing(Protocol):
    """A tool with its own message for arguments that do not fit its schema."""

    def refuse(self, arguments: Mapping[str, Any], problem: str) -> ToolResult:
        """The result of a call with invalid arguments. MUST NOT raise."""
        ...


@runtime_checkable
class SharedTool(Protocol):
    """A tool that a run in a process of its own has there, and whose state is here."""

    def pack(self) -> str:
        """What the tool in the other process needs, as JSON."""
        ...

    def hear(self, arguments: Any) -> None:
        """Receive a call that was made there. MUST NOT raise."""
        ...


ELSEWHERE = {
    "Glob": "find",
    "MultiEdit": "edit",
    "Task": "Agent",
    "TodoWrite": "todo_write",
    "WebFetch": "fetch_content",
    "WebSearch": "web_search",
}
"""Claude Code's tool names that differ in more than case, and our tools that do the same."""
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
"""CodingCode's tool name → ours; the model of a CodingCode agent sees CodingCode's name."""


def list_aliases(tools: Iterable[str]) -> tuple[str, ...]:
    """The tools under all names that a model may know."""
    own = tuple(tools)
    return tuple(dict.fromkeys((*own, *(alias for alias, tool in CODINGCODE.items() if tool in own))))


def suggest_tool(name: str, known: Collection[str]) -> str:
    """` (…)` with the name of the tool that was meant, or an empty string."""
    if (own := ELSEWHERE.get(name)) is not None:
        return f" (that is Claude Code's name; here it is {quote(own)})"
    return suggest(name, known)


_ASKED_FOR = ("abandon", "refuse")
"""Optional methods, copied to the wrapper: an `isinstance` check with a protocol does not see `__getattr__`."""


class WrappedTool:
    """Delegates everything to another tool; subclasses override what differs."""

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
        # Other attributes, such as whether it is shown only on demand, come from the wrapped tool.
        return getattr(self._tool, name)

    async def call(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        return await self._tool.call(arguments, context)
