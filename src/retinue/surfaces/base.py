"""What the tools of every surface get from the run that calls them, and shared limits for answers.

MUST NOT contain texts of a particular surface. Tools keep no state of their own.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from retinue.core.clock import Clock
from retinue.core.definition import Definition
from retinue.core.errors import UsageError, quote
from retinue.core.events import Warned
from retinue.core.model import ModelInfo
from retinue.core.output_schema import check_schema, parse_schema
from retinue.core.receipt import to_commands
from retinue.core.run import Grant, Run
from retinue.core.tool import Tool, list_aliases
from retinue.core.tool_table import SURFACE_TOOLS
from retinue.engine.budget import Lease
from retinue.engine.manager import Manager
from retinue.engine.setup import Feature, RunSetup
from retinue.models.resolve import ModelChoice

MAX_BYTES = 204_800
MAX_LINES = 5_000
"""Maximum size of an answer in the caller's context."""


class Caller(Struct, frozen=True):
    """A run that delegates: what its delegation tools work with. Each run has its own."""

    find_manager: Callable[[], Manager]
    """A function, because the main agent's tools exist before the Manager does."""
    run_id: str
    definitions: Callable[[], Sequence[Definition]]
    """Reads the files again and returns all definitions, including disabled ones; the first wins a name conflict."""
    resolve_model: Callable[..., ModelChoice]
    """Returns the model for a name; `is_choice`: a person wrote it. Raises OutOfReach or another ModelError."""
    list_models: Callable[[], Sequence[ModelInfo]]
    """Returns the models that a run can be given by name."""
    clock: Clock
    lease: Lease | None = None
    """What the run and its children may still spend."""
    allowed_agents: tuple[str, ...] | None = None
    """The agents it may start; None means all."""
    find_faults: Callable[[str], Sequence[str]] = lambda name: ()
    """Returns the problems of agent files with this name."""

    @property
    def manager(self) -> Manager:
        return self.find_manager()

    @property
    def depth(self) -> int:
        """0 for the main agent."""
        run = self.manager.find(self.run_id)
        return 0 if run is None else run.level

    @property
    def grant(self) -> Grant | None:
        """What the run itself may use; None for the main agent, which has the rights of its session."""
        return None if self.manager.find(self.run_id) is None else self.manager.find_grant(self.run_id)

    @property
    def model(self) -> ModelInfo:
        live = self.manager.live(self.run_id) or self.manager.root
        return live.setup.model.info

    def may_start(self, agent: str) -> bool:
        allowed = self.allowed_agents
        return allowed is None or any(name in ("*", agent.casefold()) for name in map(str.casefold, allowed))

    @property
    def may_run_commands(self) -> bool:
        """Whether the run has the tool `bash`."""
        live, grant = self.manager.live(self.run_id) or self.manager.root, self.grant
        if grant is not None:
            return "bash" in grant.tools
        return any(name in live.setup.tools for name in list_aliases(("bash",)))

    def find_run(self, run_id: str) -> Run | None:
        """Return a run that this one started, directly or indirectly; None if it may not be asked about."""
        run = found = self.manager.find(run_id)
        while run is not None and run.parent_id != self.run_id:
            run = self.manager.find(run.parent_id)
        return None if run is None else found

    def list_runs(self) -> list[Run]:
        """Return the runs that `find_run` would return, newest first."""
        return [run for run in self.manager.list_runs() if self.find_run(run.id) is not None]

    def tell_faults(self, name: str) -> str:
        """Return problems of an agent's file, one per line, to append to an "unknown agent" message."""
        return "".join(f"\n{text}" for text in self.find_faults(name))

    def warn(self, text: str) -> None:
        """Warn the user; the model does not see it."""
        self.manager.root.bus.publish(Warned(run_id=self.run_id, text=text))


OUTPUT_SCHEMA = {
    "type": ["object", "string"],
    "description": "JSON Schema that the result must match, or the path of a file with it; the answer is then JSON",
}
"""The parameter of the tools that start agents."""


def read_output_schema(given: Any, cwd: Path) -> dict[str, Any] | None:
    """Return the schema that a call asks for: an object, JSON, or a file below the working directory.

    Raises UsageError. A regular expression of a model could block the program, so it is accepted in files only.
    """
    if given is None or given == "":
        return None
    try:
        if not isinstance(given, str):
            return check_schema(given, patterns=False)
        if given.lstrip().startswith("{"):
            return check_schema(parse_schema(given), patterns=False)
        path = Path(os.path.realpath(cwd / given))
        if not path.is_relative_to(os.path.realpath(cwd)) or not path.is_file():
            raise UsageError(f"there is no file {quote(given, 200)} below the working directory")
        return check_schema(parse_schema(path.read_bytes()), patterns=False)
    except OSError as error:
        raise UsageError(f"output_schema: {error.strerror}") from None
    except UsageError as error:
        raise UsageError(f"output_schema: {error}") from None


VERIFY = {
    "type": ["string", "array"],
    "items": {"type": "string"},
    "description": "Shell command, or a list, that must succeed in the agent's workspace before it is done",
}
"""The parameter of the tools that start agents."""


def read_verify(given: Any, caller: Caller) -> tuple[str, ...]:
    """Return the commands that a model names to verify a result: only if it may run commands itself.

    Raises UsageError.
    """
    commands = to_commands(None if given in ("", []) else given)
    if commands and not caller.may_run_commands:
        raise UsageError("verify: you may not name commands, because you have no tool to run one yourself")
    return commands


class ChildTools(Feature):
    """A feature that gives a child delegation tools of its own, in place of its parent's."""

    name = "delegation"

    def __init__(self, make_tools: Callable[[RunSetup], Mapping[str, Tool]]) -> None:
        self._make_tools = make_tools

    async def enter(self, setup: RunSetup) -> RunSetup:
        if not any(name in setup.tools for names in SURFACE_TOOLS.values() for name in names):
            return setup
        own = self._make_tools(setup)
        return setup.change(tools={name: own.get(name, tool) for name, tool in setup.tools.items()})


class Cut(Struct, frozen=True):
    """A text that may have been truncated."""

    text: str
    """Starts with a line that says so if it was truncated."""
    notice: str = ""
    """The same as a sentence; empty if nothing was truncated."""


def cut_text(text: str) -> Cut:
    """Truncate a long text to whole lines, then to whole characters."""
    size, lines = len(text.encode(errors="replace")), text.count("\n") + 1
    if size <= MAX_BYTES and lines <= MAX_LINES:
        return Cut(text)
    kept = "\n".join(text.split("\n", MAX_LINES)[:MAX_LINES])
    kept = kept.encode(errors="replace")[:MAX_BYTES].decode(errors="ignore")
    shown, shown_size = kept.count("\n") + 1, len(kept.encode(errors="replace"))
    sizes = f"{_render_size(shown_size)} of {_render_size(size)}"
    head = f"[TRUNCATED: showing first {shown} of {lines} lines, {sizes}]"
    return Cut(f"{head}\n{kept}", f"Output truncated: showing {shown} of {lines} lines")


def name_rest(session_file: str, field: str) -> str:
    """Say where the rest of a truncated answer is: in the session, or without one in a field of the result."""
    where = f"the agent's session, {session_file}" if session_file else f"`{field}`"
    return f"The rest is in {where}."


def _render_size(size: int) -> str:
    if size < 1024:
        return f"{size}B"
    return f"{size / 1024:.1f}KB" if size < 1024 * 1024 else f"{size / 1024 / 1024:.1f}MB"
