"""Renders the result of the `subagent` tool as `content` and `details`. Pure.

Programs read these shapes and texts. Secrets in the output of a run are masked.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import msgspec

from retinue.core.definition import Definition
from retinue.core.messages import Usage
from retinue.core.receipt import VERIFICATION_FAILED, describe_receipts, render_receipts
from retinue.core.run import Finalized, Outcome, Reason, Run, Status
from retinue.engine.request import RunRequest
from retinue.surfaces.base import Caller, cut_text, name_rest
from retinue.surfaces.subagent.sanitise import sanitise, sanitise_all
from retinue.surfaces.subagent.watch import RUNNING, AttemptWatch

Prepare: TypeAlias = "Callable[[SubagentCall], tuple[Definition, RunRequest, str]]"
"""Returns the agent, its request, and the id to continue its session (or empty). Raises RetinueError."""


@dataclass(frozen=True, slots=True)
class SubagentSettings:
    is_enabled: bool
    max_depth: int
    base_depth: int
    """Depth of the main agent itself, if it runs inside the agent of another program."""
    timeout_ms: int
    idle_timeout_ms: int
    max_attempts: int
    """Including the first one."""
    allow_write: bool
    home: str
    """Shown as `~`; empty if there is none."""


@dataclass(frozen=True, slots=True)
class SubagentCall:
    agent: str
    task: str
    session_id: str | None = None
    write: bool = False
    call_id: str = ""
    output_schema: Any = None
    verify: Any = None
    is_verify_judged: bool = False
    """Whether a model named the commands."""


@dataclass(frozen=True, slots=True)
class SubagentPorts:
    caller: Caller
    settings: SubagentSettings
    prepare: Prepare


TIMEOUTS = {Reason.WALL_TIMEOUT: "runtime", Reason.IDLE_TIMEOUT: "idle"}
CANCELLED = "Subagent execution was cancelled by user."
TRUNCATED = "SUBAGENT_OUTPUT_TRUNCATED"
RUN_ID_CHARS = 8
SPARED = ("task", "sessionFile", "sessionId", "runId", "displayItems")
"""Fields that are not masked: callers need them unchanged, and `displayItems` are masked already."""


@dataclass(frozen=True, slots=True)
class FinishedCall:
    run: Run
    task: str
    watch: AttemptWatch
    """Of the last attempt."""
    attempts: int = 1
    session_id: str = ""
    """Id of a session that can be continued."""
    finalises: bool = False
    """Whether the agent had to answer with a `subagent_finalize` call."""
    note: str = ""

    @property
    def outcome(self) -> Outcome:
        return self.run.outcome or Outcome(Status.FAILED, Reason.CRASH)


def render_error(code: str, message: str, *, mode: str = "single", home: str = "") -> dict[str, Any]:
    """Return the result of a call that started no run."""
    message = sanitise(message, home)
    details = {"mode": mode, "results": [], "error": {"code": code, "message": message}}
    return {"content": _to_content(message), "details": details}


def render_update(watch: AttemptWatch) -> dict[str, Any]:
    """Return what a caller sees while the run works."""
    items = [*watch.calls, *([{"type": "text", "text": watch.text}] if watch.text else [])]
    usage = render_usage(watch.usage, watch.replies)
    streaming = {"displayItems": items, "usage": usage, "turnCount": watch.replies}
    details = {"mode": "single", "results": [], "streaming": streaming}
    return {"content": _to_content(watch.text or RUNNING), "details": details}


def render_run(finish: FinishedCall, settings: SubagentSettings) -> dict[str, Any]:
    """Return the result of a call that started a run."""
    outcome, watch = finish.outcome, finish.watch
    status = find_exit_code(outcome)
    report = _render_answer(finish) if status == 0 else render_failure(finish, status, settings)
    report = sanitise(report, settings.home)
    result: dict[str, Any] = {
        "agent": finish.run.agent,
        "task": finish.task,
        "exitCode": status,
        "usage": render_usage(watch.last_usage, watch.turns or outcome.turns),
        "sessionFile": outcome.session_file,
        "output": report,
    }
    details: dict[str, Any] = {"mode": "single", "runId": finish.run.id[:RUN_ID_CHARS], "results": [result]}
    if outcome.structured is not None:
        result["structured"] = outcome.structured
    result |= describe_receipts(outcome.verification, outcome.receipts)
    if watch.items:
        result["displayItems"] = watch.items
    if outcome.reason in TIMEOUTS:
        result["timeoutReason"] = TIMEOUTS[outcome.reason]
    if status:
        result["error"] = report
        details["error"] = {"code": _choose_code(outcome), "message": report}
    if finish.session_id:
        details["sessionId"] = finish.session_id
    text = report
    if finish.finalises:
        text = f"{_render_header(outcome, finish.session_id)}{report}"
        if outcome.finalized is not None:
            details["finalized"] = msgspec.to_builtins(outcome.finalized)
    if not status:
        cut = cut_text(text)
        text = cut.text
        if cut.notice:
            details["error"] = {"code": TRUNCATED, "message": cut.notice}
            rest = name_rest(outcome.session_file, "details.results[0].output")
            text = f"{text}\n\n[{sanitise(rest, settings.home)}]"
    if finish.note:
        text = f"{text}\n\n{sanitise(finish.note, settings.home)}"
    content = _to_content(text)
    if seen := render_receipts(outcome.verification, outcome.receipts):
        content += _to_content(sanitise(seen, settings.home))
    return {"content": content, "details": sanitise_all(details, settings.home, spare=SPARED)}


def render_usage(usage: Usage, turns: int) -> dict[str, Any]:
    return {
        "input": usage.input,
        "output": usage.output,
        "cacheRead": usage.cache_read,
        "cacheWrite": usage.cache_write,
        "cost": usage.cost.total,
        "turns": turns,
    }


def find_exit_code(outcome: Outcome) -> int:
    """Return the exit code of a process with this outcome; an error that the agent itself reports is exit code 0."""
    if outcome.verification == "failed":
        return 1
    if outcome.status is Status.COMPLETED or outcome.finalized is not None:
        return 0
    if outcome.reason in TIMEOUTS:
        return 124
    if outcome.reason is Reason.OUTPUT_LIMIT:
        return 1
    return 130 if outcome.reason is Reason.USER else outcome.exit_code or 1


def render_failure(finish: FinishedCall, status: int, settings: SubagentSettings) -> str:
    outcome = finish.outcome
    error = _explain(outcome, settings)
    parts = [f"Subagent failed with exit code {status}."]
    if finish.attempts > 1:
        parts.append(f"Attempts: {finish.attempts}.")
    parts.append(f"Error:\n{error}")
    if (partial := outcome.text.strip()) and partial != error:
        parts.append(f"Partial output:\n{partial}")
    elif not partial and finish.watch.tool_results:
        parts.append(f"Last captured output:\n{finish.watch.describe_silence()}")
    if outcome.notes:
        parts.append(outcome.notes.strip())
    if outcome.session_file:
        parts.append(f"Session file:\n{outcome.session_file}")
    return "\n\n".join(parts)


def is_failure(result: dict[str, Any]) -> bool:
    """Return whether the call counts as failed; a truncated answer is not a failure."""
    error = result["details"].get("error")
    return error is not None and not (error["code"] == TRUNCATED and is_success(result))


def is_success(result: dict[str, Any]) -> bool:
    """Return whether a run was started and succeeded."""
    results = result["details"]["results"]
    return bool(results) and results[0]["exitCode"] == 0


def _explain(outcome: Outcome, settings: SubagentSettings) -> str:
    if outcome.reason is Reason.WALL_TIMEOUT:
        return f"Subagent exceeded maximum runtime after {settings.timeout_ms}ms."
    if outcome.reason is Reason.IDLE_TIMEOUT:
        return f"Subagent timed out after {settings.idle_timeout_ms}ms without activity."
    if outcome.reason is Reason.USER:
        return CANCELLED
    return outcome.error.strip() or f"Subagent stopped: {outcome.reason.replace('_', ' ')}."


def _choose_code(outcome: Outcome) -> str:
    if outcome.reason is Reason.OUTPUT_LIMIT:
        return TRUNCATED
    if outcome.verification == "failed":
        return VERIFICATION_FAILED
    if outcome.reason is Reason.INVALID_RESULT:
        return "SUBAGENT_INVALID_RESULT"
    return "SUBAGENT_TIMEOUT" if outcome.reason in TIMEOUTS else "SUBAGENT_FAILED"


def _render_answer(finish: FinishedCall) -> str:
    outcome = finish.outcome
    if outcome.finalized is not None:
        return f"{_render_finalized(outcome.finalized)}{outcome.notes}"
    return (outcome.text.strip() or finish.watch.describe_silence()) + outcome.notes


def _render_finalized(finalized: Finalized) -> str:
    if finalized.status == "SUCCESS":
        return finalized.result
    partial = f"\n\nPartial result:\n{finalized.result}" if finalized.result.strip() else ""
    return f"{finalized.error}{partial}"


def _render_header(outcome: Outcome, session_id: str) -> str:
    status = outcome.finalized.status if outcome.finalized is not None else "ERROR"
    return f"**Status:** {status}\n**Session ID:** `{session_id}`\n\n---\n\n"


def _to_content(text: str) -> list[dict[str, Any]]:
    return [{"type": "text", "text": text}]
