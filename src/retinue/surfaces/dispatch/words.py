"""The texts of the `dispatch` surface: error codes, results, and the list of agents. Pure."""

from collections.abc import Iterable, Mapping
from typing import Any

from retinue.core.definition import Definition
from retinue.core.errors import RetinueError
from retinue.core.messages import TextContent
from retinue.core.receipt import describe_receipts, render_receipts
from retinue.core.run import Outcome, Reason, Run, Status
from retinue.core.tool import ToolResult
from retinue.surfaces.base import cut_text, name_rest

EMPTY = "(subagent completed without output)"
AGAIN = "Dispatch it again for the part you need."
FAILED = "TOOL_EXECUTION_FAILED"
MAX_STEPS = "MAX_STEPS_REACHED"
_CODES: Mapping[Reason, str] = {
    Reason.WALL_TIMEOUT: "LLM_TIMEOUT",
    Reason.IDLE_TIMEOUT: "LLM_TIMEOUT",
    Reason.USER: "AGENT_ABORTED",
    Reason.PARENT: "AGENT_ABORTED",
    Reason.CRASH: FAILED,
    Reason.BUDGET: "BUDGET_EXCEEDED",
    Reason.NOT_FINALIZED: "NOT_FINALIZED",
}
_LIMITED = (Reason.TURN_LIMIT, Reason.TURN_LIMIT_WRAPPED)
GUIDANCE = """Hand a task over with `dispatch_agent` when it needs many searches or much reading of which only the
conclusion matters, or when two tasks do not depend on each other: make those calls in one reply, they run side by side.
Do it yourself when you know the file, or when one or two calls are enough.

- The agent sees nothing of this conversation. Its prompt must have the whole task, and say what to report.
- Do not do the same search yourself while it works, and do not look at its files in between: wait for the answer.
- The user does not see the answer. Say what matters of it, in few words.

Example: to learn where requests are authenticated, call `dispatch_agent` with agent `{name}` and the prompt
"Find where incoming requests are authenticated. Report the functions with file:line and the order they run in."
"""


class DispatchFailed(RetinueError):
    """Raised when a call fails; the code is part of the message to the caller."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code

    def to_result(self, details: Mapping[str, Any] | None = None) -> ToolResult:
        text = f"[Error: {self.code}] {self}"
        return ToolResult.of(text, {"code": self.code, "error": str(self), **(details or {})}, is_error=True)


def explain_failure(outcome: Outcome, max_steps: int) -> str:
    """Return why a run failed, with its code in front; empty if it succeeded."""
    if outcome.reason in _LIMITED:
        return f"[{MAX_STEPS}] Max steps ({max_steps}) reached"
    if outcome.status is Status.COMPLETED:
        return ""
    error = outcome.error or f"stopped: {outcome.reason.replace('_', ' ')}"
    is_coded = error.startswith("[") and error[1:].partition("]")[0].replace("_", "").isupper()
    if is_coded:
        return error
    code = "AGENT_REPORTED_ERROR" if outcome.finalized is not None else _CODES.get(outcome.reason, "LLM_FAILED")
    return f"[{code}] {error}"


def render_result(run: Run, max_steps: int) -> ToolResult:
    """Return the result of a finished run: its answer, or its failure with the text so far."""
    outcome = run.outcome or Outcome(Status.FAILED, Reason.CRASH)
    details: dict[str, Any] = {
        "agent": run.agent,
        "runId": run.id,
        "status": "done",
        "turns": outcome.turns,
        "toolUses": outcome.tool_calls,
        "sessionFile": outcome.session_file,
    }
    if outcome.structured is not None:
        details["structured"] = outcome.structured
    details |= describe_receipts(outcome.verification, outcome.receipts)
    cut = cut_text(outcome.text)
    notes = f"\n\n{outcome.notes.strip()}" if outcome.notes.strip() else ""
    if cut.notice:
        details["output"] = outcome.text
        notes += f"\n\n[{name_rest(outcome.session_file, 'details.output')} {AGAIN}]"
    failure = explain_failure(outcome, max_steps)
    seen = render_receipts(outcome.verification, outcome.receipts)
    more = [TextContent(seen)] if seen else []
    if not failure:
        text = (cut.text if cut.text.strip() else EMPTY) + notes
        return ToolResult([TextContent(text), *more], details)
    text = f"Subagent failed: {failure}"
    if cut.text.strip():
        text += f"\n\nWhat it had said by then:\n{cut.text}"
    failed = DispatchFailed(FAILED, text + notes)
    inner = failure[1:].partition("]")[0]
    result = failed.to_result({**details, "status": "error", "reason": inner})
    result.content.extend(more)
    return result


def describe_profile(definition: Definition) -> dict[str, Any]:
    facts = {
        "name": definition.name,
        "description": definition.description,
        "readonly": definition.readonly,
        "tools": None if definition.tools.names is None else list(definition.tools.names),
        "mcpServers": list(definition.mcp_servers),
        "model": definition.model,
        "maxSteps": definition.max_turns,
        "source": definition.source,
        "path": definition.path,
    }
    return {name: value for name, value in facts.items() if value is not None}


def render_section(agents: Iterable[tuple[Definition, Iterable[str]]]) -> str:
    """Return the prompt section about available agents and their tools; empty if there are none."""
    listed = [(definition, ", ".join(tools) or "none") for definition, tools in agents]
    if not listed:
        return ""
    blocks = [f"### {each.name}\n{each.description.strip()}\nTools: {tools}" for each, tools in listed]
    return "\n\n".join(("## Available Subagents", *blocks, GUIDANCE.format(name=listed[0][0].name).strip()))
