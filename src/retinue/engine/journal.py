"""Writes the durable events of a run to its session, and handles write failures.

An event is on disk before it is shown. If the disk fails, the run continues in memory and warns once, and each later
event tries again to write everything that is missing.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import UNSET

from retinue.core.errors import SessionError
from retinue.core.events import (
    Answered,
    Asked,
    CallChanged,
    Event,
    MessageFinished,
    RunAnswered,
    RunAsked,
    RunContinued,
    RunFinished,
    RunForgotten,
    RunPaused,
    RunQueued,
    RunRead,
    RunStarted,
    RunSteered,
    ToolFinished,
)
from retinue.core.jsonline import encode_json
from retinue.core.messages import CustomMessage, Message, ToolResultMessage, UserMessage
from retinue.core.run import Outcome, Run

if TYPE_CHECKING:
    from retinue.sessions.log import Session

TOOL_RESULT = "retinue.tool_result"
"""Custom entry: a result that finished before an earlier call of the same reply; used if its message is missing."""
RUN_FINISHED = "retinue.run_finished"
"""Custom entry: how a run ended."""
PAUSE = "retinue.pause"
"""Custom entry: the run waits for a usage limit, or no longer does."""
CREW = "retinue.crew"
"""Custom entry of a main session: an event of a run below the main agent."""
RECORD = "subagents:record"
"""Custom entry of a main session: how such a run ended, in a form that other programs read."""
QUESTION = "retinue.question"
"""Custom entry of a main session: a question to the user and its answer."""
CHANGED = "retinue.call_changed"
"""Custom entry: a call whose arguments were changed by a hook; written before the call is made."""

_MOST_BYTES = 1 << 20
_MOST_EVENTS = 1000
"""Per write."""
_CREW_EVENTS = (
    *(RunQueued, RunStarted, RunPaused, RunContinued, RunFinished, RunRead, RunForgotten, RunSteered),
    *(RunAsked, RunAnswered),
)


class Journal:
    """Writes the durable part of events."""

    def __init__(self, run_id: str, record: "Session", warn: Callable[[str], None]) -> None:
        self._run_id = run_id
        self._record = record
        self._warn = warn
        self._backlog: list[Callable[[], str]] = []
        self._settled: set[str] = set()
        self._names: dict[str, tuple[str, str]] = {}
        self.last_message_id = ""
        """Entry of the newest message, for edits that refer to it."""

    def __call__(self, event: Event) -> None:
        """Write the event if it is durable. Does not raise."""
        kind = type(event)
        if kind is MessageFinished:
            self._message(event.message)  # type: ignore[union-attr]
        elif kind is ToolFinished:
            self._result(event)  # type: ignore[arg-type]
        elif kind is Asked or kind is Answered:
            self.write(lambda: self._record.append_custom(QUESTION, msgspec.to_builtins(event)))
        elif kind is CallChanged:
            self.write(lambda: self._record.append_custom(CHANGED, msgspec.to_builtins(event)))
        elif event.run_id != self._run_id:
            if isinstance(event, _CREW_EVENTS):
                self._write_facts(self._list_facts(event))
        elif kind is RunPaused or kind is RunContinued:
            self.write(lambda: self._record.append_custom(PAUSE, msgspec.to_builtins(event), sync=True))
        elif kind is RunFinished:
            outcome = event.outcome  # type: ignore[union-attr]
            data = {"status": outcome.status, "reason": outcome.reason, "error": outcome.error, "turns": outcome.turns}
            data |= {"sandbox": outcome.sandbox} if outcome.sandbox else {}
            self.write(lambda: self._record.append_custom(RUN_FINISHED, data, sync=True))

    def record_all(self, events: Sequence[Event]) -> None:
        """Write many events of child runs in few writes. Does not raise."""
        for at in range(0, len(events), _MOST_EVENTS):
            part = events[at : at + _MOST_EVENTS]
            theirs = [event for event in part if event.run_id != self._run_id and isinstance(event, _CREW_EVENTS)]
            self._write_facts([fact for event in theirs for fact in self._list_facts(event)])

    def take_over(self, runs: Iterable[Run], ends: Mapping[str, int], records: Iterable[Any]) -> None:
        """Register the runs of an earlier process, and write end records that are missing."""
        written = Counter(record.get("id") for record in records if isinstance(record, dict))
        for run in runs:
            self._names[run.id] = (run.agent, run.description)
            if run.status.is_final and run.outcome is not None and ends.get(run.id, 0) > written[run.id]:
                self._write_facts([self._tell_end(run.id, run.outcome, run.finished_ms)])

    def write(self, append: Callable[[], str]) -> str:
        """Append an entry after all pending ones; return its id, or "" if it could not be written yet."""
        self._backlog.append(append)
        return self.flush()

    def flush(self) -> str:
        """Write all pending entries; return the last id, or "" if some could not be written."""
        entry_id = ""
        while self._backlog:
            try:
                entry_id = self._backlog[0]()
            except SessionError as error:
                if len(self._backlog) == 1:
                    self._warn(f"not saved: {error}")
                return ""
            del self._backlog[0]
        return entry_id

    @property
    def is_saved(self) -> bool:
        return not self._backlog

    def _message(self, message: Message) -> None:
        if type(message) is ToolResultMessage and message.tool_call_id in self._settled:
            self._settled.discard(message.tool_call_id)
            return
        if type(message) is CustomMessage:
            self.last_message_id = self.write(lambda: self._append_custom(message))
            return
        sync = type(message) is UserMessage
        self.last_message_id = self.write(lambda: self._record.append_message(message, sync=sync))

    def _append_custom(self, message: CustomMessage) -> str:
        # Synced before the model is asked: this entry acknowledges the delivery.
        return self._record.append_custom_message(
            message.custom_type,
            message.content,
            display=message.display,
            details=None if message.details is UNSET else message.details,
            sync=True,
        )

    def _result(self, event: ToolFinished) -> None:
        result = event.result
        if event.in_order:
            self._settled.add(result.tool_call_id)
            self.last_message_id = self.write(lambda: self._record.append_message(result))
        else:
            data = {"toolCallId": result.tool_call_id, "message": msgspec.to_builtins(result)}
            self.write(lambda: self._record.append_custom(TOOL_RESULT, data))

    def _write_facts(self, facts: list[tuple[str, Any]]) -> None:
        self.write(lambda: self._record.append_customs(facts))

    def _list_facts(self, event: Event) -> list[tuple[str, Any]]:
        # Encoded now, because the run in it changes. Long events stay objects, so that the session can shorten their
        # parts.
        line = encode_json(event)
        data = msgspec.Raw(line) if len(line) <= _MOST_BYTES else msgspec.to_builtins(event)
        if isinstance(event, RunQueued):
            self._names[event.run_id] = (event.run.agent, event.run.description)
        elif isinstance(event, RunFinished):
            return [(CREW, data), self._tell_end(event.run_id, event.outcome, event.at_ms)]
        return [(CREW, data)]

    def _tell_end(self, run_id: str, outcome: Outcome, at_ms: int) -> tuple[str, Any]:
        agent, description = self._names.pop(run_id, ("", ""))
        record = {
            "id": run_id,
            "type": agent,
            "description": description,
            "status": outcome.status,
            "result": outcome.text,
            "error": outcome.error or None,
            "completedAt": at_ms,
        }
        return RECORD, record
