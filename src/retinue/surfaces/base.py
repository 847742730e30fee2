"""What a surface is, and what the tools of every surface get from the run they belong to.

No surface's words are in here. Tools keep no state of their own beyond what they are handed.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from retinue.core.clock import Clock
from retinue.core.definition import Definition
from retinue.core.events import Warned
from retinue.core.model import ModelInfo
from retinue.core.run import Grant, Outcome, Run
from retinue.core.tool import Tool
from retinue.core.tool_table import SURFACE_TOOLS
from retinue.engine.budget import Lease
from retinue.engine.manager import Manager
from retinue.engine.setup import RunSetup
from retinue.models.resolve import ModelChoice

MAX_BYTES = 204_800
MAX_LINES = 5_000
"""Of an answer in a caller's context."""


@dataclass(frozen=True, slots=True)
class Caller:
    """A run that delegates: what its delegation tools work with. Each run has its own."""

    find_manager: Callable[[], Manager]
    """Asked when a tool is used: the main agent's tools exist before the Manager does."""
    run_id: str
    """The run whose tools these are."""
    definitions: Callable[[], Sequence[Definition]]
    """All definitions as of now, the disabled ones too, in the order that settles ties; reads the files again."""
    resolve_model: Callable[..., ModelChoice]
    """The model a name means; `is_choice`: a person wrote it. Raises OutOfReach or another ModelError."""
    list_models: Callable[[], Sequence[ModelInfo]]
    """The models that a run can be given by name."""
    clock: Clock
    lease: Lease | None = None
    """What the run may still spend, its children's expenses included."""
    allowed_agents: tuple[str, ...] | None = None
    """The agents it may start; None for all."""
    find_faults: Callable[[str], Sequence[str]] = lambda name: ()
    """What is wrong with files that could have been an agent of this name."""

    @property
    def manager(self) -> Manager:
        """Of all runs."""
        return self.find_manager()

    @property
    def depth(self) -> int:
        """0 for the main agent."""
        run = self.manager.find(self.run_id)
        return 0 if run is None else run.level

    @property
    def grant(self) -> Grant | None:
        """What the run itself may use; None for the main agent, whose rights are those of its session."""
        return None if self.manager.find(self.run_id) is None else self.manager.find_grant(self.run_id)

    @property
    def model(self) -> ModelInfo:
        """The model the run itself talks to."""
        live = self.manager.live(self.run_id) or self.manager.root
        return live.setup.model.info

    def may_start(self, agent: str) -> bool:
        """Whether its definition lets the run start this agent."""
        allowed = self.allowed_agents
        return allowed is None or any(name in ("*", agent.casefold()) for name in map(str.casefold, allowed))

    def find_run(self, run_id: str) -> Run | None:
        """A run that this one may ask about: one that it started, directly or not."""
        run = found = self.manager.find(run_id)
        while run is not None and run.parent_id != self.run_id:
            run = self.manager.find(run.parent_id)
        return None if run is None else found

    def list_runs(self) -> list[Run]:
        """The runs this one may ask about, newest first."""
        return [run for run in self.manager.list_runs() if self.find_run(run.id) is not None]

    def tell_faults(self, name: str) -> str:
        """What is wrong with an agent's file, for the end of a message that there is no such agent; a line each."""
        return "".join(f"\n{text}" for text in self.find_faults(name))

    def warn(self, text: str) -> None:
        """Something a person should know and the model need not."""
        self.manager.root.bus.publish(Warned(run_id=self.run_id, text=text))


class ChildTools:
    """A feature that gives a child its own delegation tools in place of those it shares with its parent."""

    name = "delegation"

    def __init__(self, make_tools: Callable[[RunSetup], Mapping[str, Tool]]) -> None:
        self._make_tools = make_tools

    async def enter(self, setup: RunSetup) -> RunSetup:
        """The setup with tools that know whose they are; unchanged when it has none of them."""
        if not any(name in setup.tools for names in SURFACE_TOOLS.values() for name in names):
            return setup
        own = self._make_tools(setup)
        return setup.change(tools={name: own.get(name, tool) for name, tool in setup.tools.items()})

    async def leave(self, outcome: Outcome) -> Outcome:
        """Nothing to undo."""
        return outcome


@dataclass(frozen=True, slots=True)
class Cut:
    """A text that may have been cut."""

    text: str
    """Headed by a line that says so when it was."""
    notice: str = ""
    """The same as a sentence; empty when it is whole."""


def cut_text(text: str) -> Cut:
    """The beginning of a text that is too long: whole lines first, then whole characters."""
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
    """Where the rest of a cut answer is: in the session, or in a field of the result when there is none."""
    where = f"the agent's session, {session_file}" if session_file else f"`{field}`"
    return f"The rest is in {where}."


def _render_size(size: int) -> str:
    if size < 1024:
        return f"{size}B"
    return f"{size / 1024:.1f}KB" if size < 1024 * 1024 else f"{size / 1024 / 1024:.1f}MB"
