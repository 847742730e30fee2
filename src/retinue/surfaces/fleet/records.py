"""Converts events about runs into JSON records for other programs: `subagents:created`, `started`, `completed` and so
on.

The agent's type is called `agentType`, because a record has a `type` already.
"""

from collections.abc import Callable
from typing import Any

from retinue.core import events as ev
from retinue.core.figures import count_tokens
from retinue.core.run import Run
from retinue.surfaces.fleet.result import describe_result, render_result_text
from retinue.surfaces.fleet.status import SUCCESSES, describe_machine, explain_error, measure_ms, to_word


class LifecycleRecords:
    """Converts events into records; returns None for events without a record."""

    def __init__(self, find: Callable[[str], Run | None] = lambda run_id: None) -> None:
        """`find` returns runs that were queued before this object listened, as after a crash."""
        self._find = find
        self._crew: dict[str, Run] = {}
        """The Manager's own run objects, which it updates before it publishes a change."""

    def __call__(self, event: ev.Event) -> dict[str, Any] | None:
        if isinstance(event, ev.RunQueued):
            self._crew[event.run_id] = event.run
            # A resumed run was already created.
            is_new = event.run.attempt == 1
            return self._tell("created", event.run, isBackground=event.run.is_background) if is_new else None
        if isinstance(event, ev.SchedulerReady | ev.ScheduleChanged):
            return _tell_schedule(event)
        run = self._crew.get(event.run_id) or self._find(event.run_id)
        if run is None:
            return None
        self._crew[run.id] = run
        return self._tell_change(run, event)

    def _tell_change(self, run: Run, event: ev.Event) -> dict[str, Any] | None:
        match event:
            case ev.RunStarted():
                return self._tell("started", run)
            case ev.RunPaused() | ev.RunContinued() | ev.RunAsked() | ev.RunAnswered():
                return self._tell_wait(run, event)
            case ev.RunPlaced():
                return {**self._identify("placed", run), **describe_machine(event.machine)}
            case ev.RunFinished():
                return self._finish(run)
            case ev.RunSteered():
                return {"type": "subagents:steered", "id": run.id, "message": event.text}
            case ev.Compacted() if event.result is not None:
                return self._compact(run, event)
            case ev.RunForgotten():
                del self._crew[run.id]
        return None

    def _tell_wait(
        self, run: Run, event: ev.RunPaused | ev.RunContinued | ev.RunAsked | ev.RunAnswered
    ) -> dict[str, Any]:
        match event:
            case ev.RunPaused():
                name, facts = "waiting", {"until": event.until_ms, "provider": event.provider}
            case ev.RunContinued():
                name, facts = "continued", {}
            case ev.RunAsked():
                name, facts = "asked", {"questionId": event.question.id, "question": event.question.whole}
                facts["options"] = list(event.question.options)
            case _:
                name, facts = "answered", {"questionId": event.question_id, "answer": event.answer, "by": event.by}
        return {**self._identify(name, run), **facts}

    def _tell(self, name: str, run: Run, **more: Any) -> dict[str, Any]:
        return {
            **self._identify(name, run),
            **more,
            **(describe_machine(run.machine) if run.machine else {}),
            "status": to_word(run),
            "startedAt": run.started_ms or run.queued_ms,
            "toolUses": run.tool_uses,
            "invocation": run.invocation,
        }

    def _finish(self, run: Run) -> dict[str, Any]:
        word, usage = to_word(run), run.usage
        name = "completed" if word in SUCCESSES else "failed"
        record = self._tell(name, run, result=render_result_text(run)) | describe_result(run)
        if error := explain_error(run):
            record["error"] = error
        if total := count_tokens(usage):
            record["tokens"] = {"input": usage.input, "output": usage.output, "total": total}
        record["durationMs"] = measure_ms(run, run.finished_ms)
        record["completedAt"] = run.finished_ms
        return record

    def _compact(self, run: Run, event: ev.Compacted) -> dict[str, Any]:
        return {
            **self._identify("compacted", run),
            "reason": event.reason,
            "tokensBefore": (event.result or {}).get("tokensBefore"),
            "compactionCount": run.compactions,
        }

    def _identify(self, name: str, run: Run) -> dict[str, Any]:
        record: dict[str, Any] = {
            "type": f"subagents:{name}",
            "id": run.id,
            "agentType": run.agent,
            "description": run.description,
            "depth": run.depth,
        }
        if run.parent_id in self._crew:
            record["parentAgentId"] = run.parent_id
        return record


def _tell_schedule(event: ev.SchedulerReady | ev.ScheduleChanged) -> dict[str, Any]:
    if isinstance(event, ev.SchedulerReady):
        facts = {"sessionId": event.session_id, "jobCount": event.job_count}
        return {"type": "subagents:scheduler_ready", **facts}
    record: dict[str, Any] = {"type": "subagents:scheduled", "change": event.change}
    if event.change in ("added", "updated"):
        return {**record, "job": event.job}
    record["jobId"] = event.job_id
    if event.change == "fired":
        fired = {**record, "agentId": event.agent_id, "name": (event.job or {}).get("name", "")}
        return {**fired, "note": event.note} if event.note else fired
    return {**record, "error": event.error} if event.change == "error" else record
