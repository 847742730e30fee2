"""The result of the `subagent` tool: what went well or wrong, as `content` and `details`. Pure."""

from typing import Any

from retinue.core.run import Outcome, Reason, Run, Status

TIMEOUTS = {Reason.WALL_TIMEOUT: "runtime", Reason.IDLE_TIMEOUT: "idle"}
RUN_ID_CHARS = 8


def render_error(code: str, message: str, *, mode: str = "single") -> dict[str, Any]:
    """The result of a call that started nothing."""
    details = {"mode": mode, "results": [], "error": {"code": code, "message": message}}
    return {"content": [{"type": "text", "text": message}], "details": details}


def render_run(run: Run, task: str, session_id: str = "") -> dict[str, Any]:
    """The result of a call that started a run."""
    outcome = run.outcome or Outcome(Status.FAILED, Reason.CRASH)
    status = find_exit_code(outcome)
    text = outcome.text + outcome.notes if status == 0 else render_failure(outcome, status)
    usage = outcome.usage
    result: dict[str, Any] = {
        "agent": run.agent,
        "task": task,
        "exitCode": status,
        "usage": {
            "input": usage.input,
            "output": usage.output,
            "cacheRead": usage.cache_read,
            "cacheWrite": usage.cache_write,
            "cost": outcome.cost,
            "turns": outcome.turns,
        },
        "sessionFile": outcome.session_file,
        "output": text,
    }
    details: dict[str, Any] = {"mode": "single", "runId": run.id[:RUN_ID_CHARS], "results": [result]}
    if outcome.reason in TIMEOUTS:
        result["timeoutReason"] = TIMEOUTS[outcome.reason]
    if session_id:
        details["sessionId"] = session_id
    if status:
        result["error"] = text
        code = "SUBAGENT_TIMEOUT" if outcome.reason in TIMEOUTS else "SUBAGENT_FAILED"
        details["error"] = {"code": code, "message": text}
    return {"content": [{"type": "text", "text": text}], "details": details}


def find_exit_code(outcome: Outcome) -> int:
    """What a process with this outcome would exit with."""
    if outcome.status is Status.COMPLETED:
        return 0
    if outcome.reason in TIMEOUTS:
        return 124
    return 130 if outcome.reason is Reason.USER else 1


def render_failure(outcome: Outcome, status: int) -> str:
    """The report of a run that failed, in sections."""
    error = "Subagent execution was cancelled by user." if outcome.reason is Reason.USER else outcome.error
    error = error or f"Subagent stopped: {outcome.reason.replace('_', ' ')}."
    parts = [f"Subagent failed with exit code {status}.", f"Error:\n{error}"]
    if outcome.text and outcome.text != error:
        parts.append(f"Partial output:\n{outcome.text}")
    if outcome.notes:
        parts.append(outcome.notes.strip())
    if outcome.session_file:
        parts.append(f"Session file:\n{outcome.session_file}")
    return "\n\n".join(parts)
