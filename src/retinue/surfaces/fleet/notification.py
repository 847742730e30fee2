"""Renders the notification about finished runs, as text for the model and data for the UI. Pure."""

from collections.abc import Callable, Sequence
from typing import Any

from retinue.core.messages import CustomMessage, escape_element
from retinue.core.run import Run
from retinue.engine.notify import CUSTOM_TYPE
from retinue.surfaces.fleet.result import NO_OUTPUT, find_verdict, render_seen
from retinue.surfaces.fleet.status import Figures, explain_error, label_status, note_status, to_word

SOLO_CHARS = 500
GROUP_CHARS = 300
Measure = Callable[[Run], Figures]


def render_notification(
    runs: Sequence[Run], measure: Measure, *, now_ms: int, is_group: bool = False, is_partial: bool = False
) -> CustomMessage:
    limit = GROUP_CHARS if is_group else SOLO_CHARS
    blocks = [render_block(run, measure(run), limit) for run in runs]
    if is_group:
        head = f"Background agent group completed: {len(runs)} agent(s) finished"
        head += " (partial — others still running)" if is_partial else ""
        text = "\n\n".join((head, *blocks, "get_subagent_result gives the whole result of each."))
    else:
        text = blocks[0]
        if runs[0].output_file:
            text += f"\nFull transcript available at: {runs[0].output_file}"
    details = _to_details(runs[0], measure(runs[0]), limit)
    if len(runs) > 1:
        details["others"] = [_to_details(run, measure(run), limit) for run in runs[1:]]
    return CustomMessage(CUSTOM_TYPE, text, display=True, timestamp=now_ms, details=details)


def render_block(run: Run, figures: Figures, limit: int) -> str:
    """Return one run as XML, one element per line."""
    elements = [
        ("task-id", run.id),
        ("tool-use-id", escape_element(run.call_id)),
        ("output-file", escape_element(run.output_file)),
        ("status", escape_element(label_status(run))),
        ("summary", escape_element(f'Agent "{run.description}" {to_word(run)}{note_status(run)}')),
        ("result", escape_element(preview(run, limit))),
        ("seen-by-host", escape_element(cut(render_seen(run), limit))),
        ("full-output", f"get_subagent_result with agent_id {run.id}"),
        ("usage", _render_usage(run, figures)),
    ]
    lines = [f"<{name}>{text}</{name}>" for name, text in elements if text]
    return "\n".join(("<task-notification>", *lines, "</task-notification>"))


def preview(run: Run, limit: int) -> str:
    """Return the start of a result; notes about its changes are truncated separately, so they are not lost."""
    outcome = run.outcome
    parts = () if outcome is None else (outcome.text.strip(), outcome.notes.strip())
    return "\n\n".join(cut(part, limit) for part in parts if part) or NO_OUTPUT


def cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[:limit]}\n[cut here; {len(text) - limit} more characters]"


def _render_usage(run: Run, figures: Figures) -> str:
    facts = {
        "total_tokens": figures.tokens,
        "tool_uses": run.tool_uses,
        "context_percent": figures.percent,
        "compactions": run.compactions or None,
        "duration_ms": figures.duration_ms,
    }
    return "".join(f"<{name}>{value}</{name}>" for name, value in facts.items() if value is not None)


def _to_details(run: Run, figures: Figures, limit: int) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "id": run.id,
        "attempt": run.attempt,
        "description": run.description,
        "status": to_word(run),
        "toolUses": run.tool_uses,
        "turnCount": run.turns,
        "maxTurns": run.invocation.get("maxTurns"),
        "totalTokens": figures.tokens,
        "durationMs": figures.duration_ms,
        "outputFile": run.output_file or None,
        "branch": (run.outcome.branch if run.outcome is not None else "") or None,
        "error": explain_error(run) or None,
        "resultPreview": preview(run, limit),
        "verification": find_verdict(run),
    }
    return {name: value for name, value in facts.items() if value is not None}
