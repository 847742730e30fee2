"""Completion by tool call: the agent delivers its answer with `subagent_finalize` and is reminded if it does not.

Other text of such a run is not its answer. Must not know surfaces.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from retinue.core.errors import quote
from retinue.core.model import ToolSpec
from retinue.core.run import Finalized, Outcome, Reason, Status
from retinue.core.tool import Effect, ToolContext, ToolResult
from retinue.core.tool_table import FINALIZE
from retinue.engine.external.result import read_finalized
from retinue.engine.setup import RunSetup

MAX_REMINDERS = 2
RULE = (
    "SUCCESS needs a result that is not empty; ERROR needs an error that is not empty, and may have a partial result."
)
REMINDER = (
    f"You ended without a valid call of `{FINALIZE}`, so nothing of what you said was delivered. "
    f"Call `{FINALIZE}` now: with status SUCCESS and your answer as result, or with ERROR and the reason as error. "
    f"{RULE}"
)
SECTION = (
    f"Your work ends with one call of `{FINALIZE}`, which delivers your answer. "
    "Text outside that call is not delivered to anybody."
)


class FinalizeTool:
    """Receives the answer of a run and ends it."""

    effect = Effect.READ
    hint = "Deliver the answer and end the work"
    guidelines: tuple[str, ...] = ()
    spec = ToolSpec(
        FINALIZE,
        f"Deliver your answer. This must be your last action: it ends your work, and it alone is delivered. {RULE}",
        {
            "type": "object",
            "properties": {
                "status": {"type": "string", "description": "SUCCESS or ERROR"},
                "result": {"type": "string", "description": "The whole answer; with ERROR what was found until then"},
                "error": {"type": "string", "description": "Why the task could not be done"},
            },
            "required": ["status"],
            "additionalProperties": False,
        },
    )

    def __init__(self, take: Callable[[Finalized], None] = lambda finalized: None) -> None:
        self._take = take

    async def call(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        """A valid call ends the run; an invalid one gets an error and the run continues."""
        finalized = read_finalized(arguments)
        if finalized is None:
            return ToolResult.of(f"{_find_fault(arguments)} {RULE} Call {FINALIZE} again.", {}, is_error=True)
        self._take(finalized)
        return ToolResult.of(f"Delivered: {finalized.status}.", msgspec.to_builtins(finalized), ends_run=True)


class FinalizeFeature:
    """Adds the tool to one run, reminds it at most twice, and makes the call its outcome."""

    name = "finalising"

    def __init__(self) -> None:
        self._finalized: Finalized | None = None
        self._reminders = 0

    async def enter(self, setup: RunSetup) -> RunSetup:
        """Add the tool, even if the run's tool list does not contain it."""
        self._finalized, self._reminders = None, 0
        return setup.change(
            tools={**setup.tools, FINALIZE: FinalizeTool(self._take)},
            sections={**setup.sections, "finalising": SECTION},
            reviewers=(*setup.reviewers, self),
        )

    async def leave(self, outcome: Outcome) -> Outcome:
        """Keep a delivered answer despite later errors, unless the user or the parent stopped the run."""
        is_unwanted = outcome.reason in (Reason.USER, Reason.PARENT)
        if self._finalized is None or outcome.finalized is not None or is_unwanted:
            return outcome
        return _apply(outcome, self._finalized)

    async def review(self, outcome: Outcome) -> str | Outcome | None:
        """Return a reminder for a run that has not finalised; after the last reminder, its final outcome."""
        # A run in a separate process made the call there, so its outcome already contains it.
        finalized = outcome.finalized or self._finalized
        if finalized is not None:
            return _apply(outcome, finalized)
        if self._reminders < MAX_REMINDERS:
            self._reminders += 1
            return REMINDER
        error = f"the agent ended {MAX_REMINDERS + 1} times without a valid call of {FINALIZE}"
        change = {"status": Status.FAILED, "reason": Reason.NOT_FINALIZED, "text": "", "error": error}
        return msgspec.structs.replace(outcome, **change)

    def _take(self, finalized: Finalized) -> None:
        self._finalized = finalized


def _apply(outcome: Outcome, finalized: Finalized) -> Outcome:
    is_good = finalized.status == "SUCCESS"
    return msgspec.structs.replace(
        outcome,
        status=Status.COMPLETED if is_good else Status.FAILED,
        reason=Reason.DONE if is_good else Reason.ERROR,
        text=finalized.result,
        error="" if is_good else finalized.error,
        finalized=finalized,
    )


def _find_fault(arguments: dict[str, Any]) -> str:
    status = arguments.get("status")
    if status not in ("SUCCESS", "ERROR"):
        return f"status {quote(status)} is neither SUCCESS nor ERROR."
    return f"{status} without {'a result' if status == 'SUCCESS' else 'an error'} is not valid."
