"""Completion by tool call: the agent delivers its answer with `subagent_finalize`, or its result with `submit_result`.

A result must match the schema of the run. A run that delivers nothing valid is corrected at most twice. Must not know
surfaces.
"""

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import msgspec

from retinue.core.errors import UsageError, quote
from retinue.core.model import ToolSpec
from retinue.core.output_schema import INVALID, find_fault, parse_result, to_parameters
from retinue.core.run import Finalized, Outcome, Reason, Status
from retinue.core.tool import Effect, Tool, ToolContext, ToolResult
from retinue.core.tool_table import FINALIZE, SUBMIT
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
LAST = "This must be your last action: it ends your work, and it alone is delivered."
MATCHING = "The result must match the JSON Schema of its parameter."
SUBMITTING = (
    f"Your work ends with one call of `{SUBMIT}`, which delivers your result. "
    "The result must match the JSON Schema of its parameters. Text outside that call is not delivered to anybody."
)
WRITING = "Your last message must be one JSON value that matches this JSON Schema, and nothing else:\n"


class Delivery:
    """What a run has delivered so far, checked against its schema, and how often it may still be corrected."""

    def __init__(self, schema: Mapping[str, Any] | None = None, left: int = MAX_REMINDERS) -> None:
        self.schema = schema
        self.left = left
        self.is_spent = False
        """It was wrong once more than it may be."""
        self.finalized: Finalized | None = None
        self.structured: Any = None
        self.is_done = False
        self.text = ""
        """The last result, valid or not, as text."""
        self.fault = ""
        """Why the last result does not match."""

    def take(self, value: Any) -> bool:
        """Receive a result; returns whether it matches the schema."""
        self.text = value if isinstance(value, str) else _to_json(value)
        self.fault = find_fault(value, self.schema or {})
        if not self.fault:
            self.structured, self.is_done = value, True
        return not self.fault

    def take_text(self, text: str) -> bool:
        """Receive a result as JSON, or as the text that the schema asks for."""
        value: Any = text
        with suppress(ValueError):
            value = parse_result(text)
        if self.take(value):
            return True
        fault = self.fault if value is not text else f"the text is not JSON; {self.fault}"
        if value is not text and self.take(text):
            return True
        self.fault, self.text = fault, text
        return False

    def finalize(self, finalized: Finalized) -> bool:
        """Receive an answer; the result of a SUCCESS must match the schema."""
        if self.schema is not None and finalized.status == "SUCCESS" and not self.take_text(finalized.result):
            return False
        self.finalized, self.is_done = finalized, True
        return True

    def correct(self) -> bool:
        """Count a wrong end; returns whether the run may try again."""
        self.is_spent = self.left == 0
        self.left = max(0, self.left - 1)
        return not self.is_spent

    def pack(self) -> str:
        """Return what the tool of a child process needs, as JSON."""
        return json.dumps({"schema": self.schema, "left": self.left})

    @classmethod
    def unpack(cls, text: str) -> "Delivery":
        """Read what the parent packed; empty text means no schema. Raises UsageError."""
        try:
            return cls(**json.loads(text)) if text else cls()
        except (ValueError, TypeError):
            raise UsageError(f"RETINUE_RESULT {quote(text)} was not written by a parent; unset it") from None

    def refuse(self, name: str) -> ToolResult:
        """Return the result of a call with a wrong result; it ends the run if that was one too many."""
        may_retry = self.correct()
        end = f"Call {name} again with a result that matches." if may_retry else "This was the last attempt."
        text = f"The result does not match its schema: {self.fault}. {end}"
        return ToolResult.of(text, {"error": {"code": INVALID}}, is_error=True, ends_run=not may_retry)


class FinalizeTool:
    """Receives the answer of a run and ends it."""

    effect = Effect.READ
    hint = "Deliver the answer and end the work"
    guidelines: tuple[str, ...] = ()

    def __init__(self, delivery: Delivery | None = None) -> None:
        self._delivery = delivery or Delivery()
        schema = self._delivery.schema
        about = "The whole answer; with ERROR what was found until then"
        result = {"type": "string", "description": about} if schema is None else dict(schema)
        text = f"Deliver your answer. {LAST} {RULE}"
        self.spec = ToolSpec(
            FINALIZE,
            text if schema is None else f"{text} {MATCHING}",
            {
                "type": "object",
                "properties": {
                    "status": {"type": "string", "description": "SUCCESS or ERROR"},
                    "result": result,
                    "error": {"type": "string", "description": "Why the task could not be done"},
                },
                "required": ["status"],
                "additionalProperties": False,
                **{word: (schema or {})[word] for word in ("$defs", "definitions") if word in (schema or {})},
            },
            checks_itself=schema is not None,
        )

    async def call(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        """A valid call ends the run; an invalid one gets an error and the run continues."""
        finalized = read_finalized(arguments, is_data=self._delivery.schema is not None)
        if finalized is None:
            return ToolResult.of(f"{_find_fault(arguments)} {RULE} Call {FINALIZE} again.", {}, is_error=True)
        if not self._delivery.finalize(finalized):
            return self._delivery.refuse(FINALIZE)
        return ToolResult.of(f"Delivered: {finalized.status}.", msgspec.to_builtins(finalized), ends_run=True)

    def pack(self) -> str:
        return self._delivery.pack()

    def hear(self, arguments: Any) -> None:
        """Receive a call that a child process made, and answered itself."""
        finalized = read_finalized(arguments, is_data=self._delivery.schema is not None)
        if finalized is not None and not self._delivery.finalize(finalized):
            self._delivery.correct()


class SubmitTool:
    """Receives the result of a run as data and ends it."""

    effect = Effect.READ
    hint = "Deliver the result and end the work"
    guidelines: tuple[str, ...] = ()

    def __init__(self, delivery: Delivery | None = None) -> None:
        self._delivery = delivery or Delivery({"type": "object"})
        parameters, self._is_wrapped = to_parameters(self._delivery.schema or {})
        self.spec = ToolSpec(SUBMIT, f"Deliver your result. {LAST}", parameters, checks_itself=True)

    async def call(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        """A result that matches ends the run; another one gets an error, and the run continues."""
        if not self._delivery.take(self._find_value(arguments)):
            return self._delivery.refuse(SUBMIT)
        return ToolResult.of("Delivered.", {"structured": self._delivery.structured}, ends_run=True)

    def pack(self) -> str:
        return self._delivery.pack()

    def hear(self, arguments: Any) -> None:
        """Receive a call that a child process made, and answered itself."""
        if not self._delivery.take(self._find_value(arguments)):
            self._delivery.correct()

    def _find_value(self, arguments: Any) -> Any:
        is_whole = self._is_wrapped and isinstance(arguments, dict)
        return arguments.get("result") if is_whole else arguments


class FinalizeFeature:
    """Adds the tool to one run, corrects it at most twice, and makes what it delivers its outcome."""

    name = "finalising"

    def __init__(
        self, schema: Mapping[str, Any] | None = None, *, finalises: bool = True, has_tool: bool = True
    ) -> None:
        """Without `has_tool`, the last text of the run must be the result."""
        self._schema = schema
        self._finalises = finalises
        self._has_tool = has_tool
        self._delivery = Delivery(schema)

    async def enter(self, setup: RunSetup) -> RunSetup:
        """Add the tool, even if the run's tool list does not contain it."""
        self._delivery = Delivery(self._schema)
        tools: dict[str, Tool] = {}
        if not self._finalises and not self._has_tool:
            section = f"{WRITING}{json.dumps(self._schema)}"
        elif self._finalises:
            section, tools = SECTION, {FINALIZE: FinalizeTool(self._delivery)}
            section += f" {MATCHING}" if self._schema is not None else ""
        else:
            section, tools = SUBMITTING, {SUBMIT: SubmitTool(self._delivery)}
        return setup.change(
            tools={**setup.tools, **tools},
            sections={**setup.sections, "finalising": section},
            reviewers=(*setup.reviewers, self),
        )

    async def leave(self, outcome: Outcome) -> Outcome:
        """Keep a delivered answer despite later errors, unless it was stopped by choice or is known to be wrong."""
        is_unwanted = outcome.reason in (Reason.USER, Reason.PARENT) or outcome.verification == "failed"
        if self._delivery.is_done and outcome.status is not Status.COMPLETED and not is_unwanted:
            return self._apply(outcome)
        # A child process may have reported an answer that does not match.
        is_wrong = self._schema is not None and not self._delivery.is_done
        return msgspec.structs.replace(outcome, finalized=None) if is_wrong else outcome

    async def review(self, outcome: Outcome) -> str | Outcome | None:
        """Return a reminder for a run that has delivered nothing; after the last reminder, its final outcome."""
        delivery = self._delivery
        if not delivery.is_done and outcome.finalized is not None and self._schema is None:
            # A run in a separate process made the call there, so its outcome already contains it.
            delivery.finalize(outcome.finalized)
        if not delivery.is_done and not delivery.is_spent and not self._finalises:
            delivery.take_text(outcome.text)
        if delivery.is_done:
            return self._apply(outcome)
        if not delivery.is_spent and delivery.correct():
            return self._remind()
        if self._schema is not None:
            fault = delivery.fault or f"there was no call of {FINALIZE}"
            return _fail(outcome, delivery.text or outcome.text, f"{fault} (after {MAX_REMINDERS} corrections)")
        error = f"the agent ended {MAX_REMINDERS + 1} times without a valid call of {FINALIZE}"
        change = {"status": Status.FAILED, "reason": Reason.NOT_FINALIZED, "text": "", "error": error}
        return msgspec.structs.replace(outcome, **change)

    def _remind(self) -> str:
        if self._finalises:
            return REMINDER if self._schema is None else f"{REMINDER} {MATCHING}"
        fault = f"What you said last was read as your result, but it does not match: {self._delivery.fault}."
        if not self._has_tool:
            return f"{fault} {WRITING}{json.dumps(self._schema)}"
        return f"You ended without a valid call of `{SUBMIT}`. {fault} Call `{SUBMIT}` now with a result that matches."

    def _apply(self, outcome: Outcome) -> Outcome:
        delivery, finalized = self._delivery, self._delivery.finalized
        is_good = finalized is None or finalized.status == "SUCCESS"
        return msgspec.structs.replace(
            outcome,
            status=Status.COMPLETED if is_good else Status.FAILED,
            reason=Reason.DONE if is_good else Reason.ERROR,
            text=_to_json(delivery.structured) if finalized is None else finalized.result,
            error="" if finalized is None or is_good else finalized.error,
            finalized=finalized,
            structured=delivery.structured,
        )


def check_result(outcome: Outcome, schema: Mapping[str, Any] | None) -> Outcome:
    """Return the outcome that another machine reports, as a failure if its result does not match the schema."""
    if schema is None or outcome.status is not Status.COMPLETED:
        return msgspec.structs.replace(outcome, structured=None)
    fault = find_fault(outcome.structured, schema)
    return _fail(outcome, outcome.text, fault) if fault else outcome


def _fail(outcome: Outcome, text: str, fault: str) -> Outcome:
    error = f"[{INVALID}] the agent delivered no result that matches its schema: {fault}"
    change: dict[str, Any] = {"text": text, "error": error, "finalized": None, "structured": None}
    return msgspec.structs.replace(outcome, status=Status.FAILED, reason=Reason.INVALID_RESULT, **change)


def _to_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _find_fault(arguments: dict[str, Any]) -> str:
    status = arguments.get("status")
    if status not in ("SUCCESS", "ERROR"):
        return f"status {quote(status)} is neither SUCCESS nor ERROR."
    return f"{status} without {'a result' if status == 'SUCCESS' else 'an error'} is not valid."
