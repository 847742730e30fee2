"""Apply events to runs: the only place where a Run changes. Pure."""

from retinue.core import events as ev
from retinue.core.messages import AssistantMessage, Usage
from retinue.core.run import Question, Run, Status


def fold_record(run: Run, event: ev.Event) -> None:
    """Like `fold`, for a run of which only the record is left: its totals come from its outcome."""
    fold(run, event)
    if isinstance(event, ev.RunFinished):
        outcome = event.outcome
        run.turns += outcome.turns
        run.tool_uses += outcome.tool_calls
        run.usage += outcome.usage


def find_summary_usage(event: ev.Compacted) -> Usage:
    """What a compaction has used."""
    used = (event.result or {}).get("usage")
    return used if isinstance(used, Usage) else Usage()


def fold(run: Run, event: ev.Event) -> None:
    """Update a run from an event about it; unrelated events change nothing."""
    match event:
        case ev.RunStarted():
            run.status = Status.RUNNING
            run.started_ms = event.at_ms
            run.outcome = None
            run.grant = event.grant or run.grant
            run.is_background = run.is_background or event.is_detached
        case ev.RunPaused() | ev.RunContinued() if not run.status.is_final:
            run.status = Status.WAITING if isinstance(event, ev.RunPaused) else Status.RUNNING
        case ev.RunFinished():
            run.status = event.outcome.status
            run.outcome = event.outcome
            run.branch = event.outcome.branch or run.branch
            run.finished_ms = event.at_ms
            run.activity = ""
        case ev.RunQueued():
            run.status = Status.QUEUED
            run.queued_ms = event.run.queued_ms
            run.started_ms = event.run.started_ms
            run.attempt = event.run.attempt
            run.worker = ""
            run.is_read = False
            run.is_guest = event.run.is_guest
        case ev.RunPlaced():
            run.worker = event.worker
            run.activity = "" if event.worker else "waiting for a worker"
        case ev.RunProgressed() if not run.status.is_final:
            run.turns, run.tool_uses, run.compactions = event.turns, event.tool_uses, event.compactions
            run.usage, run.context_tokens, run.activity = event.usage, event.context_tokens, event.activity
        case ev.RunRead():
            run.is_read = True
        case ev.RunAsked() | ev.RunAnswered():
            run.questions = _find_open(run, event)
        case ev.TurnStarted():
            run.turns += 1
            run.activity = "thinking"
        case ev.MessageFinished(message=AssistantMessage() as message):
            run.usage += message.usage
            if message.usage.total_tokens:
                run.context_tokens = message.usage.total_tokens
        case ev.ToolStarted():
            run.activity = event.name
        case ev.ToolFinished():
            run.tool_uses += 1
        case ev.Compacted() if event.result is not None:
            run.compactions += 1
            run.context_tokens = 0
            run.usage += find_summary_usage(event)


def _find_open(run: Run, event: ev.RunAsked | ev.RunAnswered) -> tuple[Question, ...]:
    if isinstance(event, ev.RunAsked):
        return (*run.questions, event.question)
    return tuple(question for question in run.questions if question.id != event.question_id)
