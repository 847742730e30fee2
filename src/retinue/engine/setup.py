"""What one run is made of, resolved: the engine asks for nothing else; and what may change it, for one run."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from random import random
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct, structs

from retinue.core.launch import Confining
from retinue.core.messages import CustomMessage, ThinkingLevel
from retinue.core.model import Model
from retinue.core.run import Outcome
from retinue.core.territory import ANYWHERE, Territory
from retinue.core.tool import Tool
from retinue.engine.calls import CallHook
from retinue.engine.inbox import Delivery
from retinue.engine.limits import Limits
from retinue.models.retry import RetryPolicy
from retinue.sessions.compaction import CompactionConfig

if TYPE_CHECKING:
    from retinue.engine.run_config import RunPlan


class RunSetup(Struct, frozen=True):
    """One run before it starts."""

    run_id: str
    cwd: Path
    model: Model
    name: str = ""
    """What people call the run."""
    thinking: ThinkingLevel = "off"
    tools: Mapping[str, Tool] = {}
    refusals: Mapping[str, str] = {}
    """What is said to who calls a tool that this machine could not give."""
    sections: Mapping[str, str] = {}
    """The system prompt, in order."""
    limits: Limits = Limits()
    retry: RetryPolicy = RetryPolicy()
    random: Callable[[], float] = random
    compaction: CompactionConfig = CompactionConfig()
    environment: Mapping[str, str] = {}
    hooks: Sequence[CallHook] = ()
    redact: Callable[[Any], Any] | None = None
    """Takes secrets out of its prompt and of what its tools return, before anyone sees it."""
    spill_dir: Path | None = None
    steering_mode: Delivery = "one-at-a-time"
    follow_up_mode: Delivery = "one-at-a-time"
    writable: tuple[str, ...] = ()
    """Directories beside its workspace that the run keeps itself, such as its notes."""
    confinement: Confining | None = None
    """The boundary of the processes its tools start."""
    find_territory: Callable[[], Territory] = lambda: ANYWHERE
    """The boundary of its file tools."""
    features: Sequence["Feature"] = ()
    """Entered in this order before the first turn, left in reverse after the last."""
    reviewers: Sequence["Reviewer"] = ()
    """Asked when the run has come to its end by itself."""
    plan: "RunPlan | None" = None
    """What was decided about the run when it was built."""
    session_id: str = ""
    """Of the session it is recorded in; the run fills it in."""
    patience: Callable[[], AbstractContextManager[None]] = nullcontext
    """Inside of it waiting for somebody is no idleness; the run fills it in."""

    def change(self, **parts: Any) -> "RunSetup":
        """A copy with other parts."""
        return structs.replace(self, **parts)

    def find_plan(self) -> "RunPlan":
        """What was decided about the run; raises ValueError for a setup that was not built from a request."""
        if self.plan is None:
            raise ValueError(f"run {self.run_id!r} was not built from a request")
        return self.plan

    def hide_secrets(self) -> "RunSetup":
        """A copy without the secrets in what was read for its prompt."""
        return self if self.redact is None else self.change(sections=self.redact(dict(self.sections)))


class Reviewer(Protocol):
    """Looks at the outcome of a run before it counts. Counts itself how often it sends the run back."""

    async def review(self, outcome: Outcome) -> str | CustomMessage | Outcome | None:
        """None lets it pass; words, or a report, are said to the run, which goes on; an outcome replaces it.

        MUST NOT raise.
        """
        ...


class Feature(Protocol):
    """Something around one run that may change its setup and its outcome. One object serves one run.

    Raising in either method fails the run, never the program. `enter` undoes its own half when it raises or is
    cancelled; `leave` follows every `enter` that returned, also after an abort, and has a few seconds.
    """

    @property
    def name(self) -> str:
        """What a failure is told under."""
        ...

    async def enter(self, setup: RunSetup) -> RunSetup:
        """Prepare; the result replaces the setup."""
        ...

    async def leave(self, outcome: Outcome) -> Outcome:
        """Undo; the result replaces the outcome."""
        ...
