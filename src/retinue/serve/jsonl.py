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
            self._tell_life(event)
            return
        render = _RENDERERS.get(type(event))
        if render is not None:
            render(self, event)

    def _print(self, record: dict[str, Any]) -> None:
        self._write(encode_json(record) + b"\n")

    def _tell_life(self, event: ev.Event) -> None:
        record = self._life(event) if self._life is not None else None
        if record is not None:
            self._print(record)

    def _attempt_started(self, event: ev.AttemptStarted) -> None:
        self._messages = []
        self._print({"type": "agent_start"})

    def _attempt_ended(self, event: ev.AttemptEnded) -> None:
        self._print({"type": "agent_end", "messages": self._messages, "willRetry": event.will_retry})
        self._messages = []

    def _run_finished(self, event: ev.RunFinished) -> None:
        self._print({"type": "agent_settled", "aborted": event.outcome.reason is Reason.USER})

    def _turn_started(self, event: ev.TurnStarted) -> None:
        self._print({"type": "turn_start"})

    def _turn_finished(self, event: ev.TurnFinished) -> None:
        self._print({"type": "turn_end", "message": event.message, "toolResults": event.tool_results})

    def _message_started(self, event: ev.MessageStarted) -> None:
        self._is_open = True
        self._print({"type": "message_start", "message": event.message})

    def _message_delta(self, event: ev.MessageDelta) -> None:
        self._print({"type": "message_update", "usage": event.usage, "assistantMessageEvent": event.delta})

    def _message_finished(self, event: ev.MessageFinished) -> None:
        if not (self._is_open and isinstance(event.message, AssistantMessage)):
            self._print({"type": "message_start", "message": event.message})
        self._is_open = False
        self._messages.append(event.message)
        self._print({"type": "message_end", "message": event.message})

    def _tool_started(self, event: ev.ToolStarted) -> None:
        self._print(
            {
                "type": "tool_execution_start",
                "toolCallId": event.call_id,
                "toolName": event.name,
                "args": event.arguments,
            }
        )

    def _call_changed(self, event: ev.CallChanged) -> None:
        """There is no result yet; only the arguments have changed."""
        self._print(
            {
                "type": "tool_execution_update",
                "toolCallId": event.call_id,
                "toolName": event.name,
                "args": event.arguments,
                "partialResult": {
                    "content": [],
                    "details": {"modifiedInput": {"by": event.by, "args": event.arguments}},
                },
            }
        )

    def _tool_progress(self, event: ev.ToolProgress) -> None:
        self._print(
            {
                "type": "tool_execution_update",
                "toolCallId": event.call_id,
                "toolName": event.name,
                "args": event.arguments,
                "partialResult": _result(event.content, event.details),
            }
        )

    def _tool_finished(self, event: ev.ToolFinished) -> None:
        result = event.result
        record = {
            "type": "tool_execution_end",
            "toolCallId": result.tool_call_id,
            "toolName": result.tool_name,
            "result": _result(result.content, result.details),
            "isError": result.is_error,
        }
        if event.duration_ms is not None:
            record["durationMs"] = event.duration_ms
        self._print(record)

    def _retry_scheduled(self, event: ev.RetryScheduled) -> None:
        self._print(
            {
                "type": "auto_retry_start",
                "attempt": event.attempt,
                "maxAttempts": event.max_attempts,
                "delayMs": event.delay_ms,
                "errorMessage": event.error,
            }
        )

    def _retry_ended(self, event: ev.RetryEnded) -> None:
        record: dict[str, Any] = {"type": "auto_retry_end", "success": event.success, "attempt": event.attempt}
        if not event.success:
            record["finalError"] = event.error
        self._print(record)

    def _steered(self, event: ev.Steered) -> None:
        self._print({"type": "queue_update", "steering": event.steering, "followUp": event.follow_up})

    def _compaction_started(self, event: ev.CompactionStarted) -> None:
        self._print({"type": "compaction_start", "reason": event.reason})

    def _compacted(self, event: ev.Compacted) -> None:
        record: dict[str, Any] = {"type": "compaction_end", "reason": event.reason}
        if event.result is not None:
            record["result"] = event.result
        record["aborted"] = event.aborted
        record["willRetry"] = event.will_retry
        if event.error:
            record["errorMessage"] = event.error
        self._print(record)

    def _entry_appended(self, event: ev.EntryAppended) -> None:
        self._print({"type": "entry_appended", "entry": event.entry})

    def _thinking_changed(self, event: ev.ThinkingChanged) -> None:
        self._print({"type": "thinking_level_changed", "level": event.level})

    def _session_renamed(self, event: ev.SessionRenamed) -> None:
        name = {"name": event.name} if event.name else {}
        self._print({"type": "session_info_changed", **name})


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


def _result(content: list[Any], details: Any) -> dict[str, Any]:
    return {"content": content} if details is UNSET else {"content": content, "details": details}


_RENDERERS: dict[type, Callable[[JsonFrontend, Any], None]] = {
    ev.AttemptStarted: JsonFrontend._attempt_started,
    ev.AttemptEnded: JsonFrontend._attempt_ended,
    ev.RunFinished: JsonFrontend._run_finished,
    ev.TurnStarted: JsonFrontend._turn_started,
    ev.TurnFinished: JsonFrontend._turn_finished,
    ev.MessageStarted: JsonFrontend._message_started,
    ev.MessageDelta: JsonFrontend._message_delta,
    ev.MessageFinished: JsonFrontend._message_finished,
    ev.ToolStarted: JsonFrontend._tool_started,
    ev.CallChanged: JsonFrontend._call_changed,
    ev.ToolProgress: JsonFrontend._tool_progress,
    ev.ToolFinished: JsonFrontend._tool_finished,
    ev.RetryScheduled: JsonFrontend._retry_scheduled,
    ev.RetryEnded: JsonFrontend._retry_ended,
    ev.Steered: JsonFrontend._steered,
    ev.CompactionStarted: JsonFrontend._compaction_started,
    ev.Compacted: JsonFrontend._compacted,
    ev.EntryAppended: JsonFrontend._entry_appended,
    ev.ThinkingChanged: JsonFrontend._thinking_changed,
    ev.SessionRenamed: JsonFrontend._session_renamed,
}
