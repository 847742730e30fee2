"""What one run is made of, resolved: the engine asks for nothing else; and the features that may change it.

They are entered in their order and undone in reverse, whatever comes in between.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from random import random
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
from msgspec import Struct, structs

from retinue.core.errors import IsolationFailed, RetinueError
from retinue.core.launch import ANYWHERE, Confining, Territory
from retinue.core.messages import CustomMessage, ThinkingLevel
from retinue.core.model import Model
from retinue.core.run import Outcome, Reason, Status
from retinue.core.tool import Tool
from retinue.engine.calls import CallHook
from retinue.engine.inbox import Delivery
from retinue.engine.limits import Limits
from retinue.engine.loop import Ending
from retinue.engine.scope import run_shielded
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

    def build_environment(self, session_file: Path | None) -> dict[str, str]:
        """What processes may know about the session, as pi tells them."""
        info = self.model.info
        known = {
            "PI_SESSION_ID": self.session_id,
            "PI_PROVIDER": info.provider,
            "PI_MODEL": info.id,
            "PI_REASONING_LEVEL": self.thinking,
        }
        if session_file is not None:
            known["PI_SESSION_FILE"] = str(session_file)
        return {**known, **self.environment}

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


class Enclosure:
    """What stands around one run now."""

    def __init__(self) -> None:
        self.outcome = Outcome(Status.FAILED, Reason.CRASH)
        """What leaving has made of the run's outcome, also when a cancel came in between."""
        self._entered: list[Feature] = []

    def __bool__(self) -> bool:
        return bool(self._entered)

    async def enter(self, setup: RunSetup) -> RunSetup | Ending:
        """The setup as they change it; one that cannot be entered ends the run."""
        for feature in setup.features:
            try:
                setup = await feature.enter(setup)
            except Exception as error:
                return Ending(Reason.ERROR, error=_tell_failure(feature, error))
            self._entered.append(feature)
        return setup

    async def leave(self, outcome: Outcome, limit_s: float) -> None:
        """Undo them within a time; what fails is part of the outcome."""
        entered, self._entered, self.outcome = self._entered, [], outcome

        async def leave_all() -> None:
            while entered:
                try:
                    self.outcome = await entered[-1].leave(self.outcome)
                except Exception as error:
                    self.outcome = _add_failure(self.outcome, _tell_failure(entered[-1], error))
                entered.pop()

        try:
            await run_shielded(leave_all(), limit_s)
        finally:
            for feature in reversed(entered):
                self.outcome = _add_failure(self.outcome, f"{feature.name}: not undone within {limit_s:g} s")


def _tell_failure(feature: Feature, error: Exception) -> str:
    if isinstance(error, IsolationFailed):
        return str(error)  # callers know it by how it begins
    # A message of ours is whole; any other exception means little without its kind.
    kind = "" if isinstance(error, RetinueError) else f"{type(error).__name__}: "
    return f"{feature.name}: {kind}{error}"


def _add_failure(outcome: Outcome, error: str) -> Outcome:
    """The outcome of a run that a feature has spoilt: what was said stays, a success is none any more."""
    error = "; ".join(filter(None, (outcome.error, error)))
    if outcome.status is not Status.COMPLETED:
        return msgspec.structs.replace(outcome, error=error)
    return msgspec.structs.replace(outcome, status=Status.FAILED, reason=Reason.ERROR, error=error)
