"""RunSetup: everything one run needs, resolved; and features, which may change it.

Features are entered in order and left in reverse order, even after a failure or a cancel.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from random import random
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
from msgspec import Struct, structs

from retinue.core.errors import IsolationFailed, RetinueError
from retinue.core.events import Event
from retinue.core.launch import ANYWHERE, ConfinementFactory, Territory
from retinue.core.messages import CustomMessage, ThinkingLevel
from retinue.core.model import Model
from retinue.core.run import Outcome, Reason, Status
from retinue.core.tool import Tool
from retinue.engine.calls import CallHook
from retinue.engine.fork import Fork
from retinue.engine.inbox import Delivery
from retinue.engine.limit_wait import Fallbacks
from retinue.engine.limits import Limits
from retinue.engine.loop import Ending
from retinue.engine.scope import run_shielded
from retinue.engine.warm_up import WarmUp
from retinue.models.gate import Gates
from retinue.models.retry import RetryPolicy
from retinue.sessions.compaction import CompactionConfig

if TYPE_CHECKING:
    from retinue.engine.run_config import RunPlan


class RunSetup(Struct, frozen=True):
    """Everything one run needs, before it starts."""

    run_id: str
    cwd: Path
    model: Model
    name: str = ""
    """The name shown to people."""
    thinking: ThinkingLevel = "off"
    tools: Mapping[str, Tool] = {}
    refusals: Mapping[str, str] = {}
    """Error texts for calls of tools that are not available on this machine, by tool name."""
    sections: Mapping[str, str] = {}
    """The parts of the system prompt, in order."""
    limits: Limits = Limits()
    retry: RetryPolicy = RetryPolicy()
    random: Callable[[], float] = random
    compaction: CompactionConfig = CompactionConfig()
    environment: Mapping[str, str] = {}
    hooks: Sequence[CallHook] = ()
    redact: Callable[[Any], Any] | None = None
    """Removes secrets from the prompt and from tool results before anyone sees them."""
    spill_dir: Path | None = None
    steering_mode: Delivery = "one-at-a-time"
    follow_up_mode: Delivery = "one-at-a-time"
    writable: tuple[str, ...] = ()
    """Directories outside its workspace that the run may write to, such as its notes."""
    confinement: ConfinementFactory | None = None
    """The sandbox for processes started by tools."""
    find_territory: Callable[[], Territory] = lambda: ANYWHERE
    """Returns the paths that file tools may use."""
    features: Sequence["Feature"] = ()
    """Entered in this order before the first turn, left in reverse order after the last."""
    reviewers: Sequence["Reviewer"] = ()
    """Called when the run has ended by itself."""
    tag: str = ""
    """Names the run, at the end of its first message; empty if that was sent earlier."""
    preface: str = ""
    """Put before the first message."""
    fork: Fork | None = None
    """The parent's request with which a new session begins."""
    is_fork: bool = False
    """Whether the run continues its parent's request: prompt and tools are those of the session."""
    cache_key: str = ""
    """The key of provider-side caches, the same for all runs of a main agent; empty means the session's id."""
    plan: "RunPlan | None" = None
    session_id: str = ""
    """Id of the session that records the run; set by the run."""
    fallbacks: Fallbacks = Fallbacks()
    """Models to ask while a usage limit of its own lasts."""
    warm_up: WarmUp | None = None
    """Lets the first of several runs ask alone; None if all may ask at once."""
    gates: Gates | None = None
    """Where it waits for usage limits; None for gates of its own."""
    pause_idle: Callable[[], AbstractContextManager[None]] = nullcontext
    """Context manager in which waiting does not count as idle time; set by the run."""

    def change(self, **parts: Any) -> "RunSetup":
        return structs.replace(self, **parts)

    def find_plan(self) -> "RunPlan":
        """Return the plan. Raises ValueError if the setup was not built from a request."""
        if self.plan is None:
            raise ValueError(f"run {self.run_id!r} was not built from a request")
        return self.plan

    def build_environment(self, session_file: Path | None) -> dict[str, str]:
        """Return environment variables about the session for child processes, as in pi."""
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
        return self if self.redact is None else self.change(sections=self.redact(dict(self.sections)))


class Reviewer(Protocol):
    """Checks the outcome of a run before it counts; limits itself how often it sends the run back."""

    async def review(self, outcome: Outcome) -> str | CustomMessage | Outcome | None:
        """Return None to accept, a text or message to let the run continue with it, or an outcome to replace it.

        MUST NOT raise.
        """
        ...


class Feature(Protocol):
    """Sets up something for one run and may change its setup and its outcome. One object serves one run.

    An exception in either method fails the run, never the program. `enter` cleans up after itself if it raises or is
    cancelled. `leave` is called for every `enter` that returned, even after an abort, and has a few seconds.
    """

    @property
    def name(self) -> str:
        """Used in error messages."""
        ...

    async def enter(self, setup: RunSetup) -> RunSetup:
        """Prepare the run; the result replaces its setup."""
        ...

    async def leave(self, outcome: Outcome) -> Outcome:
        """Undo what `enter` did; the result replaces the outcome. A class that has nothing to undo inherits this."""
        return outcome


class ListeningFeature:
    """A base class for features that also hear which tools their run uses, also in another process."""

    # Not derived from a protocol: every run looks for it among its features, and a protocol is slow to look for.
    def hear(self, event: Event) -> None:
        raise NotImplementedError


class FeatureStack:
    """The features that were entered for one run."""

    def __init__(self) -> None:
        self.outcome = Outcome(Status.FAILED, Reason.CRASH)
        """The outcome after features were left, valid even if a cancel interrupted that."""
        self._entered: list[Feature] = []

    def __bool__(self) -> bool:
        return bool(self._entered)

    async def enter(self, setup: RunSetup) -> RunSetup | Ending:
        """Enter all features and return the changed setup; return an Ending if one fails."""
        for feature in setup.features:
            try:
                setup = await feature.enter(setup)
            except Exception as error:
                return Ending(Reason.ERROR, error=_tell_failure(feature, error))
            self._entered.append(feature)
        return setup

    async def leave(self, outcome: Outcome, limit_s: float) -> None:
        """Leave all features within `limit_s` seconds; failures are added to the outcome."""
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
        return str(error)  # callers recognise it by its first words
    # Our own messages are complete; other exceptions mean little without their type.
    kind = "" if isinstance(error, RetinueError) else f"{type(error).__name__}: "
    return f"{feature.name}: {kind}{error}"


def _add_failure(outcome: Outcome, error: str) -> Outcome:
    """Add a feature's failure to the outcome; a completed run becomes a failed one."""
    error = "; ".join(filter(None, (outcome.error, error)))
    if outcome.status is not Status.COMPLETED:
        return msgspec.structs.replace(outcome, error=error)
    return msgspec.structs.replace(outcome, status=Status.FAILED, reason=Reason.ERROR, error=error)
