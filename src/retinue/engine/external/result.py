"""Collects the answer, the errors and the usage from the records of a child process. Pure."""

import json
import re
from collections.abc import Mapping
from typing import Any

from retinue.core.amounts import is_number
from retinue.core.messages import Cost, Usage
from retinue.core.pattern import late_pattern
from retinue.core.run import Finalized
from retinue.core.tool_table import FINALIZE

_TROUBLE = late_pattern(
    "Error Code|internal_server_error|stream error|INTERNAL_ERROR|ECONNRESET|ECONNREFUSED|ETIMEDOUT|ENOTFOUND|"
    "rate limit|rate_limit|overloaded|provider error|server error|API error|network error|timeout",
    re.IGNORECASE,
)
_LARGEST = 1e15
"""Larger numbers are not plausible."""
_SPEAKING = ("turn_end", "message_end", "message")


class ProcessReport:
    def __init__(self) -> None:
        self.answer = ""
        """The last reply with text that ended neither in tool calls nor in an error."""
        self.last_text = ""
        self.error = ""
        self.usage = Usage()
        """Sum of all replies."""
        self.turns = 0
        self.replies = 0
        self.tool_calls = 0
        self.last_stop = ""
        self.finalized: Finalized | None = None
        self._result = ""
        self._last_kind = ""

    def add(self, record: Mapping[str, Any]) -> None:
        kind, message = record.get("type"), record.get("message")
        self._last_kind = str(kind)
        message = message if isinstance(message, dict) else {}
        is_reply = message.get("role") == "assistant"
        self.turns += kind == "turn_end"
        self.tool_calls += kind in ("tool_execution_end", "tool_result_end")
        self.error = _find_error(record, message if is_reply else {}) or self.error
        usage = read_usage(record.get("usage") or message.get("usage"))
        if kind == "result" and isinstance(record.get("output"), str):
            self._result = record["output"]
        if is_reply and kind in _SPEAKING:
            self._hear(message)
            if kind == "message_end":
                self.replies += 1
                self.usage += usage or Usage()

    @property
    def is_broken(self) -> bool:
        """Whether the last reply failed, or there is an error and no text at all."""
        return self.last_stop in ("error", "aborted") or (bool(self.error) and not self.partial and not self._result)

    @property
    def partial(self) -> str:
        """The text so far, for a run that did not finish."""
        return self.answer or self.last_text

    def render(self, plain: str) -> str:
        """Return the answer, or the next best text; `plain` is output that was not JSON."""
        return self.answer or self._result or self.error or self.last_text or plain or self._describe()

    def _hear(self, message: Mapping[str, Any]) -> None:
        self.last_stop = str(message.get("stopReason") or "")
        for call in list_calls(message):
            if call.get("name") == FINALIZE:
                self.finalized = read_finalized(call.get("arguments")) or self.finalized
        text = read_text(message)
        if not text:
            return
        # If the provider ended the reply normally, it is an answer, even if it contains words such as "timeout".
        if self.last_stop not in ("stop", "length") and _TROUBLE.search(text):
            return
        if self.last_stop not in ("error", "aborted"):
            self.last_text = text
            if self.last_stop != "toolUse":
                self.answer = text

    def _describe(self) -> str:
        if not self._last_kind:
            return "(the child ended without output)"
        stop = f", the last stop reason was {self.last_stop}" if self.last_stop else ""
        return (
            f"(the child gave no final answer: its last event was {self._last_kind}{stop}, "
            f"and {self.tool_calls} tool executions were completed)"
        )


def read_text(message: Mapping[str, Any]) -> str:
    content = message.get("content")
    if isinstance(content, str):
        return content.strip()
    return "\n".join(str(part.get("text") or "") for part in _list_parts(message, "text")).strip()


def read_usage(raw: Any) -> Usage | None:
    """Return the usage in a record; None if it has none."""
    if not isinstance(raw, dict):
        return None
    numbers = {key: int(value) for key, value in raw.items() if key != "cost" and is_number(value, 0, _LARGEST)}
    paid = raw.get("cost")
    parts: dict[str, Any] = paid if isinstance(paid, dict) else {"total": paid}
    cost = {key: float(value) for key, value in parts.items() if is_number(value, 0, _LARGEST)}
    into, out, read, written = (numbers.get(key, 0) for key in ("input", "output", "cacheRead", "cacheWrite"))
    total = numbers.get("totalTokens") or into + out + read + written
    prices = (cost.get(key, 0.0) for key in ("input", "output", "cacheRead", "cacheWrite", "total"))
    return Usage(into, out, read, written, total, Cost(*prices))


def read_finalized(arguments: Any, *, is_data: bool = False) -> Finalized | None:
    """Return the answer in a call of `subagent_finalize`; None if it is invalid.

    With `is_data` the result may be any JSON value, which becomes text.
    """
    if not isinstance(arguments, dict):
        return None
    result, error = (value if isinstance(value := arguments.get(key), str) else "" for key in ("result", "error"))
    if is_data and not isinstance(arguments.get("result"), str | None):
        result = json.dumps(arguments["result"], ensure_ascii=False)
    if arguments.get("status") == "SUCCESS" and result.strip():
        return Finalized("SUCCESS", result, error)
    if arguments.get("status") == "ERROR" and error.strip():
        return Finalized("ERROR", result, error)
    return None


def list_calls(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    return _list_parts(message, "toolCall")


def _list_parts(message: Mapping[str, Any], kind: str) -> list[dict[str, Any]]:
    content = message.get("content")
    parts = content if isinstance(content, list) else []
    return [part for part in parts if isinstance(part, dict) and part.get("type") == kind]


def _find_error(record: Mapping[str, Any], reply: Mapping[str, Any]) -> str:
    for told in (record.get("error"), reply.get("error"), reply.get("errorMessage")):
        if isinstance(told, str) and told.strip():
            return told.strip()
        if isinstance(told, dict):
            return ": ".join(str(told[key]) for key in ("code", "message") if told.get(key)) or "error"
    text = read_text(reply)
    if text and _TROUBLE.search(text):
        return text
    direct = record.get("message")
    return direct.strip() if isinstance(direct, str) and _TROUBLE.search(direct) else ""
