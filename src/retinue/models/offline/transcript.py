"""The state of the conversation for this model, and a summary of it for compaction.

Everything is derived from the messages of one request, so that a replay gives the same result. This file must not know
how questions are answered.
"""

import re
from collections.abc import Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from retinue.core.messages import (
    AssistantMessage,
    CustomMessage,
    Message,
    ToolCall,
    ToolResultMessage,
    UserMessage,
    join_text,
)
from retinue.core.model import ToolSpec
from retinue.core.pattern import late_pattern

_WRAP_UP = late_pattern(
    r"\b(?:turn|step|time|token|budget)s?\b.{0,30}\blimit\b|\blimit\b.{0,40}\b(?:turns?|steps?)\b|\bwrap(?:ping)? up\b"
    r"|\b(?:no|without) (?:more|further|other) tool|\bfinal answer\b|\bout of (?:turns|steps|time)\b",
    re.IGNORECASE,
)
DELEGATING = ("Agent", "get_subagent_result")
NOTIFICATION = "<task-notification>"
_CALL_ID = late_pattern(r"rules_(\d+)$")


class ToolExchange(Struct, frozen=True):
    call: ToolCall
    text: str
    is_error: bool


class Transcript(Struct, frozen=True):
    """The current question and the work done for it."""

    start: int
    """Index of the message with the question."""
    question: str
    earlier: tuple[str, ...]
    """Earlier questions, oldest first."""
    exchanges: tuple[ToolExchange, ...]
    """Calls for this question that have a result, in order."""
    turns: int
    """Replies to this question that contain tool calls other than delegation."""
    wrap_up: bool
    """The answer is wanted now, with what was found so far."""
    is_news: bool
    """The question was answered, and a subagent's report arrived after that."""
    is_child: bool
    """The question comes from another agent."""
    next_call: int


def read_transcript(messages: Sequence[Message], tools: Sequence[ToolSpec] = ()) -> Transcript:
    """Find the question and the work done for it; calls are converted to the tools' own names."""
    asked: list[tuple[int, str]] = []
    wrap_up = working = is_news = is_idle = is_child = False
    for index, message in enumerate(messages):
        if isinstance(message, UserMessage):
            text = join_text(message.shown)
            is_child |= message.shown != message.content
            # A wrap-up message during the work ends it; the same words after an answer are a question.
            if working and _WRAP_UP.search(text):
                wrap_up = True
            else:
                asked.append((index, text.removeprefix("Task: ")))  # prefix used by callers of a child process
                wrap_up = working = is_news = is_idle = False
        elif isinstance(message, AssistantMessage):
            working = bool(message.calls)
            is_idle = not working
        elif isinstance(message, CustomMessage) and is_idle and NOTIFICATION in join_text(message.content):
            is_news = True
    start, question = asked[-1] if asked else (0, "")
    earlier = tuple(text for _, text in asked[-5:-1])
    replies = [each for each in messages[start:] if isinstance(each, AssistantMessage)]
    work = [each for each in replies if any(call.name not in DELEGATING for call in each.calls)]
    own = {tool.name: tool.own_name for tool in tools if tool.alias_of}
    results = {each.tool_call_id: each for each in messages[start:] if isinstance(each, ToolResultMessage)}
    exchanges = tuple(
        ToolExchange(_call_by(own, call), join_text(results[call.id].content), results[call.id].is_error)
        for reply in work
        for call in reply.calls
        if call.id in results
    )
    return Transcript(
        start, question, earlier, exchanges, len(work), wrap_up, is_news, is_child, _count_calls(messages) + 1
    )


def _call_by(own: Mapping[str, str], call: ToolCall) -> ToolCall:
    return replace(call, name=own[call.name]) if call.name in own else call


def _count_calls(messages: Sequence[Message]) -> int:
    numbers = [0]
    for message in messages:
        if isinstance(message, AssistantMessage):
            numbers.extend(int(found.group(1)) for call in message.calls if (found := _CALL_ID.match(call.id)))
    return max(numbers)


_USER = late_pattern(r"^\[User\]:\s*(.+)", re.MULTILINE)
_ASSISTANT = late_pattern(r"^\[Assistant\]:\s*(.+(?:\n(?!\[).+){0,12})", re.MULTILINE)
_PATH = late_pattern(r"\bpath[=:]\s*[\"']?([\w./@-]+\.\w+)")


def is_summary_request(text: str) -> bool:
    """Whether a prompt contains a whole conversation and asks for a summary."""
    return "<conversation>" in text and "summar" in text.lower()


def render_summary(text: str) -> str:
    """The questions, files and last answer of a conversation."""
    asked = [found.strip()[:300] for found in _USER.findall(text)]
    answers = _ASSISTANT.findall(text)
    paths = list(dict.fromkeys(_PATH.findall(text)))
    lines = ["## Goal", *(f"- {question}" for question in asked[-8:] or ["(none stated)"])]
    lines += [
        "",
        "## Progress",
        f"- {len(asked)} questions, {len(answers)} answers; extracted by rules, not by a language model",
    ]
    if answers:
        lines += ["", "## Last answer", answers[-1].strip()[:1500]]
    if paths:
        lines += ["", "## Files looked at", *(f"- {path}" for path in paths[:40])]
    return "\n".join(lines)
