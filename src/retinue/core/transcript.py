"""Repair a transcript so that every provider accepts it. Pure.

Every tool call is followed directly by exactly one result, in the order of the calls, and ids are unique. This file
must not know wire formats.
"""

from typing import Final

from msgspec.structs import replace

from retinue.core.messages import AssistantContent, AssistantMessage, Message, TextContent, ToolCall, ToolResultMessage

INTERRUPTED: Final = "interrupted, effect unknown"
"""The result for the model of a call whose end was not recorded."""

_UNFINISHED: Final = frozenset({"error", "aborted", "pending"})


def repair_transcript(messages: list[Message]) -> list[Message]:
    """Return the same list if it is sound, else a repaired copy.

    Failed, aborted and empty replies are dropped, and results without a call. A call without a result gets one that
    says so; results move directly after their call; a repeated id gets a suffix.
    """
    return messages if is_sound(messages) else _Repair(messages).run()


def list_orphans(messages: list[Message]) -> list[ToolResultMessage]:
    """Results without a call; a repair drops them."""
    called = {call.id for message in messages if type(message) is AssistantMessage for call in message.calls}
    return [m for m in messages if type(m) is ToolResultMessage and m.tool_call_id not in called]


def interrupt_call(call_id: str, name: str, timestamp: int) -> ToolResultMessage:
    """The result of a call whose end was not recorded."""
    return ToolResultMessage(call_id, name, [TextContent(INTERRUPTED)], True, timestamp)


def is_sound(messages: list[Message]) -> bool:
    """Whether strict providers accept the order of calls and results."""
    seen: set[str] = set()
    waiting: list[str] = []
    for message in messages:
        if type(message) is ToolResultMessage:
            if not waiting or waiting.pop() != message.tool_call_id:
                return False
        elif waiting:
            return False
        elif type(message) is AssistantMessage:
            if not message.content or message.stop_reason in _UNFINISHED:
                return False
            waiting = [call.id for call in message.calls]
            if not all(waiting) or len(set(waiting)) < len(waiting) or not seen.isdisjoint(waiting):
                return False
            seen.update(waiting)
            waiting.reverse()
    return not waiting


class _Repair:
    def __init__(self, messages: list[Message]) -> None:
        self._messages = [message for message in messages if not _is_void(message)]
        self._taken: set[str] = set()
        for message in self._messages:
            if type(message) is AssistantMessage:
                self._taken.update(call.id for call in message.calls)

    def run(self) -> list[Message]:
        answers = self._pair()
        used: set[str] = set()
        repaired: list[Message] = []
        for place, message in enumerate(self._messages):
            if type(message) is AssistantMessage and message.calls:
                repaired += self._mend_reply(message, place, answers, used)
            elif type(message) is not ToolResultMessage:
                repaired.append(message)
        return repaired

    def _mend_reply(
        self,
        reply: AssistantMessage,
        place: int,
        answers: dict[tuple[int, int], ToolResultMessage],
        used: set[str],
    ) -> list[Message]:
        content: list[AssistantContent] = []
        results: list[Message] = []
        for block in reply.content:
            if type(block) is not ToolCall:
                content.append(block)
                continue
            call = self._rename(block, used)
            content.append(call)
            result = answers.get((place, len(results))) or interrupt_call(call.id, call.name, reply.timestamp)
            results.append(result if result.tool_call_id == call.id else replace(result, tool_call_id=call.id))
        is_same = all(new is old for new, old in zip(content, reply.content, strict=True))
        return [reply if is_same else replace(reply, content=content), *results]

    def _pair(self) -> dict[tuple[int, int], ToolResultMessage]:
        # A result belongs to the latest reply before it that has an unanswered call with that id.
        answers: dict[tuple[int, int], ToolResultMessage] = {}
        open_calls: dict[str, list[list[tuple[int, int]]]] = {}
        for place, message in enumerate(self._messages):
            if type(message) is AssistantMessage:
                own: dict[str, list[tuple[int, int]]] = {}
                for number, call in enumerate(message.calls):
                    own.setdefault(call.id, []).append((place, number))
                for call_id, spots in own.items():
                    open_calls.setdefault(call_id, []).append(spots)
            elif type(message) is ToolResultMessage and (replies := open_calls.get(message.tool_call_id)):
                answers[replies[-1].pop(0)] = message
                if not replies[-1]:
                    replies.pop()
        return answers

    def _rename(self, call: ToolCall, used: set[str]) -> ToolCall:
        call_id = call.id
        if not call_id or call_id in used:
            stem, number = call_id or "call", 2
            while (call_id := f"{stem}-{number}") in self._taken:
                number += 1
            self._taken.add(call_id)
        used.add(call_id)
        return call if call_id == call.id else replace(call, id=call_id)


def _is_void(message: Message) -> bool:
    return type(message) is AssistantMessage and (not message.content or message.stop_reason in _UNFINISHED)
