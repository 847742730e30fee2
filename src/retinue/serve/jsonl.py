"""JSON front end: a run's events as pi's event stream, one ASCII JSON object per line."""

from collections.abc import Callable
from typing import Any

from msgspec import UNSET

from retinue.core import events as ev
from retinue.core.jsonline import encode_json
from retinue.core.messages import AssistantMessage, Message
from retinue.core.run import Reason

Life = Callable[[ev.Event], dict[str, Any] | None]
"""Makes the record of a subagent's event; None if the event has no record."""


class JsonFrontend:
    """Turns the events of one run into records; of its subagents, it reports only lifecycle events."""

    def __init__(self, write: Callable[[bytes], None], life: Life | None = None, run_id: str = "") -> None:
        """`run_id` is the run to follow; if empty, every run that was not queued is treated as that run."""
        self._write = write
        self._life = life
        self._run_id = run_id
        self._crew: set[str] = set()
        self._is_open = False
        self._messages: list[Message] = []

    def open(self, header: dict[str, Any]) -> None:
        """Write the session header, the first record."""
        self._print(header)

    def __call__(self, event: ev.Event) -> None:
        """Write the records of one event."""
        if isinstance(event, ev.Asked | ev.Answered):
            self._print(_describe_question(event))
            return
        if isinstance(event, ev.RunQueued):
            self._crew.add(event.run_id)
        if event.run_id in self._crew or (self._run_id and event.run_id != self._run_id):
            if self._life is not None and (record := self._life(event)) is not None:
                self._print(record)
            return
        match event:
            case ev.AttemptStarted():
                self._messages = []
            case ev.AttemptEnded():
                self._print({"type": "agent_end", "messages": self._messages, "willRetry": event.will_retry})
                self._messages = []
            case ev.MessageStarted():
                self._is_open = True
            case ev.MessageFinished():
                if not (self._is_open and isinstance(event.message, AssistantMessage)):
                    self._print({"type": "message_start", "message": event.message})
                self._is_open = False
                self._messages.append(event.message)
            case _:
                pass
        render = _RECORDS.get(type(event))
        if render is not None:
            self._print(render(event))

    def _print(self, record: dict[str, Any]) -> None:
        self._write(encode_json(record) + b"\n")


def _describe_call(kind: str, event: ev.ToolStarted | ev.ToolProgress | ev.CallChanged) -> dict[str, Any]:
    return {"type": kind, "toolCallId": event.call_id, "toolName": event.name, "args": event.arguments}


def _describe_change(event: ev.CallChanged) -> dict[str, Any]:
    """There is no result yet; only the arguments have changed."""
    details = {"modifiedInput": {"by": event.by, "args": event.arguments}}
    return {**_describe_call("tool_execution_update", event), "partialResult": {"content": [], "details": details}}


def _describe_progress(event: ev.ToolProgress) -> dict[str, Any]:
    return {
        **_describe_call("tool_execution_update", event),
        "partialResult": _describe_result(event.content, event.details),
    }


def _describe_end(event: ev.ToolFinished) -> dict[str, Any]:
    result = event.result
    return {
        "type": "tool_execution_end",
        "toolCallId": result.tool_call_id,
        "toolName": result.tool_name,
        "result": _describe_result(result.content, result.details),
        "isError": result.is_error,
        **({} if event.duration_ms is None else {"durationMs": event.duration_ms}),
    }


def _describe_result(content: list[Any], details: Any) -> dict[str, Any]:
    return {"content": content} if details is UNSET else {"content": content, "details": details}


def _describe_retry(event: ev.RetryScheduled) -> dict[str, Any]:
    return {
        "type": "auto_retry_start",
        "attempt": event.attempt,
        "maxAttempts": event.max_attempts,
        "delayMs": event.delay_ms,
        "errorMessage": event.error,
    }


def _describe_retry_end(event: ev.RetryEnded) -> dict[str, Any]:
    error = {} if event.success else {"finalError": event.error}
    return {"type": "auto_retry_end", "success": event.success, "attempt": event.attempt, **error}


def _describe_compaction(event: ev.Compacted) -> dict[str, Any]:
    return {
        "type": "compaction_end",
        "reason": event.reason,
        **({} if event.result is None else {"result": event.result}),
        "aborted": event.aborted,
        "willRetry": event.will_retry,
        **({"errorMessage": event.error} if event.error else {}),
    }


def _describe_question(event: ev.Asked | ev.Answered) -> dict[str, Any]:
    """Describe a question in full, or its answer."""
    if isinstance(event, ev.Answered):
        return {"type": "subagents:answer", "id": event.question_id, "answer": event.answer, "by": event.by}
    question = event.question
    return {
        "type": "subagents:question",
        "id": question.id,
        "agentId": question.run_id,
        "agentType": question.agent,
        "kind": question.kind,
        "title": question.title,
        "text": question.text,
        "options": question.options,
        "default": question.default,
        "toolName": question.tool,
    }


_RECORDS: dict[type, Callable[[Any], dict[str, Any]]] = {
    ev.AttemptStarted: lambda event: {"type": "agent_start"},
    ev.BranchesMerged: lambda event: {
        "type": "landing",
        "step": event.step.kind,
        "branches": event.step.branches,
        "text": event.step.text,
    },
    ev.RunFinished: lambda event: {"type": "agent_settled", "aborted": event.outcome.reason is Reason.USER},
    ev.RunPaused: lambda event: {
        "type": "subagents:waiting",
        "id": event.run_id,
        "until": event.until_ms,
        "provider": event.provider,
    },
    ev.RunContinued: lambda event: {"type": "subagents:continued", "id": event.run_id},
    ev.TurnStarted: lambda event: {"type": "turn_start"},
    ev.TurnFinished: lambda event: {"type": "turn_end", "message": event.message, "toolResults": event.tool_results},
    ev.MessageStarted: lambda event: {"type": "message_start", "message": event.message},
    ev.MessageDelta: lambda event: {
        "type": "message_update",
        "usage": event.usage,
        "assistantMessageEvent": event.delta,
    },
    ev.MessageFinished: lambda event: {"type": "message_end", "message": event.message},
    ev.ToolStarted: lambda event: _describe_call("tool_execution_start", event),
    ev.CallChanged: _describe_change,
    ev.ToolProgress: _describe_progress,
    ev.ToolFinished: _describe_end,
    ev.RetryScheduled: _describe_retry,
    ev.RetryEnded: _describe_retry_end,
    ev.Steered: lambda event: {"type": "queue_update", "steering": event.steering, "followUp": event.follow_up},
    ev.CompactionStarted: lambda event: {"type": "compaction_start", "reason": event.reason},
    ev.Compacted: _describe_compaction,
    ev.EntryAppended: lambda event: {"type": "entry_appended", "entry": event.entry},
    ev.ThinkingChanged: lambda event: {"type": "thinking_level_changed", "level": event.level},
    ev.SessionRenamed: lambda event: {
        "type": "session_info_changed",
        **({"name": event.name} if event.name else {}),
    },
}
