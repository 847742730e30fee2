"""Converts the records of a child process into events of its run."""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from msgspec import UNSET, Struct

from retinue.core.clock import Clock
from retinue.core.events import (
    Compacted,
    Event,
    MessageDelta,
    MessageFinished,
    MessageStarted,
    ToolFinished,
    ToolProgress,
    ToolStarted,
    TurnFinished,
    TurnStarted,
)
from retinue.core.jsonline import encode_json
from retinue.core.messages import AssistantMessage, Message, ToolResultMessage, Usage, UserContent
from retinue.core.model import Delta
from retinue.engine.external.result import read_usage
from retinue.sessions.entry import decode_message


class _Update(Struct, rename="camel"):
    assistant_message_event: Delta
    usage: Usage = Usage()


class _Start(Struct):
    message: AssistantMessage


class _Progress(Struct, rename="camel"):
    tool_call_id: str
    tool_name: str
    args: dict[str, Any] = {}
    partial_result: dict[str, Any] = {}


class EventPublisher:
    """Publishes records as events. Unknown and unreadable records are ignored."""

    def __init__(self, run_id: str, publish: Callable[[Event], None], clock: Clock) -> None:
        self._run_id = run_id
        self._publish = publish
        self._clock = clock
        self._turns = 0

    def tell(self, record: Mapping[str, Any]) -> None:
        """Publish a record that is kept."""
        run_id = self._run_id
        match record.get("type"):
            case "turn_start":
                self._turns += 1
                self._publish(TurnStarted(run_id=run_id, turn=self._turns))
            case "message_end" | "tool_result_end":
                message = _read_message(record.get("message"))
                if isinstance(message, AssistantMessage | ToolResultMessage):
                    self._publish(MessageFinished(run_id=run_id, message=message))
            case "tool_execution_start":
                self._publish(ToolStarted(run_id=run_id, **_read_call(record)))
            case "tool_execution_end":
                spent = record.get("durationMs")
                duration_ms = spent if isinstance(spent, int) else None
                end = self._read_result(record)
                self._publish(ToolFinished(run_id=run_id, result=end, duration_ms=duration_ms, in_order=False))
            case "turn_end":
                answer = _read_message(record.get("message"))
                results = [_read_message(each) for each in _as_list(record.get("toolResults"))]
                if isinstance(answer, AssistantMessage):
                    given = [each for each in results if isinstance(each, ToolResultMessage)]
                    event = TurnFinished(run_id=run_id, turn=self._turns, message=answer, tool_results=given)
                    self._publish(event)
            case "compaction_end" if record.get("reason") in ("manual", "threshold", "overflow"):
                result = record.get("result")
                self._publish(
                    Compacted(
                        run_id=run_id,
                        reason=record["reason"],
                        result=result if isinstance(result, dict) else None,
                        error=str(record.get("errorMessage") or ""),
                    )
                )
            case _:
                pass

    def tell_piece(self, kind: str, line: bytes) -> None:
        """Publish a record that is only shown."""
        try:
            if kind == "message_update":
                update = msgspec.json.decode(line, type=_Update)
                delta = update.assistant_message_event
                self._publish(MessageDelta(run_id=self._run_id, delta=delta, usage=update.usage))
            elif kind == "message_start":
                message = msgspec.json.decode(line, type=_Start).message
                self._publish(MessageStarted(run_id=self._run_id, message=message))
            elif kind == "tool_execution_update":
                progress = msgspec.json.decode(line, type=_Progress)
                self._publish(
                    ToolProgress(
                        run_id=self._run_id,
                        call_id=progress.tool_call_id,
                        name=progress.tool_name,
                        arguments=progress.args,
                        content=_read_content(progress.partial_result.get("content")),
                        details=progress.partial_result.get("details", UNSET),
                    )
                )
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return

    def _read_result(self, record: Mapping[str, Any]) -> ToolResultMessage:
        result = record.get("result")
        parts = result if isinstance(result, dict) else {}
        content = _read_content(parts.get("content"))
        return ToolResultMessage(
            tool_call_id=str(record.get("toolCallId") or ""),
            tool_name=str(record.get("toolName") or ""),
            content=content,
            is_error=record.get("isError") is True,
            timestamp=self._clock.now_ms(),
            details=parts.get("details", UNSET),
        )


def _read_message(raw: Any) -> Message | None:
    if not isinstance(raw, dict):
        return None
    try:
        message = decode_message(encode_json(raw))
    except (msgspec.MsgspecError, ValueError, TypeError, RecursionError):
        return None
    used = read_usage(raw.get("usage"))
    if isinstance(message, AssistantMessage) and used is not None:
        kept = message.usage
        # Some programs write no total, or the cost as one number.
        if (kept.total_tokens, kept.cost.total) != (used.total_tokens, used.cost.total):
            return msgspec.structs.replace(message, usage=used)
    return message


def _read_call(record: Mapping[str, Any]) -> dict[str, Any]:
    arguments = record.get("args")
    return {
        "call_id": str(record.get("toolCallId") or ""),
        "name": str(record.get("toolName") or ""),
        "arguments": arguments if isinstance(arguments, dict) else {},
    }


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _read_content(value: Any) -> list[UserContent]:
    try:
        return msgspec.convert(_as_list(value), list[UserContent])
    except msgspec.ValidationError:
        return []
