"""Prompts for summaries: the conversation as text, and the form of the summary.

The sections are those of pi's summaries, so that each program can continue the other's sessions. Must not know when or
where a context is cut.
"""

from collections.abc import Iterable
from typing import Final, Literal

from retinue.core.jsonline import encode_json
from retinue.core.messages import (
    AssistantMessage,
    BashExecutionMessage,
    BranchSummaryMessage,
    CompactionSummaryMessage,
    Message,
    SystemMessage,
    ToolCall,
    ToolResultMessage,
    join_text,
)

RESULT_CHARS: Final = 2000
"""How much of a tool result a summary request shows."""

SYSTEM_PROMPT: Final = """\
You write hand-over notes. You are shown a conversation between a user and a coding agent; another agent will \
continue the work with nothing but your notes. Do not answer or continue the conversation, and do not call tools: \
write the notes, in the form you are given, and nothing else."""

HISTORY_PROMPT: Final = """\
Sum up the conversation above so that the work can continue from your notes alone. Be short, but copy paths, names, \
commands and error messages letter by letter. Write "(none)" where a section has nothing. Use these sections:

## Goal
What the user wants to reach.

## Constraints & Preferences
- What the user asked to respect or avoid.

## Progress
### Done
- [x] What is finished.

### In Progress
- [ ] What has been begun.

### Blocked
- What stands in the way.

## Key Decisions
- **The decision**: why it was taken.

## Next Steps
1. What comes next, in order.

## Critical Context
- Facts, values and places that the work cannot continue without."""

BRANCH_PROMPT: Final = """\
The conversation above is a branch that the user has left. The work continues from an earlier point; the next agent \
should know what was tried and found. Be short, but copy paths, names, commands and error messages letter by letter. \
Write "(none)" where a section has nothing. Use these sections:

## Goal
What the user wanted on this branch.

## Constraints & Preferences
- What the user asked to respect or avoid.

## Progress
### Done
- [x] What was finished.

### In Progress
- [ ] What had been begun.

### Blocked
- What stood in the way.

## Key Decisions
- **The decision**: why it was taken.

## Next Steps
1. What would have come next on this branch."""

UPDATE_PROMPT: Final = """\
The conversation continues the one that the previous summary describes. Write one new summary of both: keep what still \
holds, move what was finished to Done, add what is new, and leave out what no longer matters."""

PREFIX_PROMPT: Final = """\
The conversation above is the first part of the work on one request; the later part is kept in full and follows your \
notes. Say only what the later part cannot be understood without, and nothing that is not above. Use these sections:

## Original Request
What the user asked for.

## Progress So Far
- What was found, decided and done.

## Context Needed to Continue
- Facts, values and places that the later part builds on."""


def render_conversation(messages: Iterable[Message], most_chars: int | None = None) -> str:
    """Render messages as text without thinking and with truncated tool results.

    If that exceeds `most_chars`, long parts are shortened, and parts between the first and the latest are left out.
    """
    parts = [part for message in messages for part in _render_message(message) if part]
    if most_chars is not None and len(parts) and sum(len(part) + 2 for part in parts) > most_chars:
        parts = _fit_parts([shorten(part, most_chars // 4) for part in parts], most_chars)
    return "\n\n".join(parts)


def _fit_parts(parts: list[str], most_chars: int) -> list[str]:
    first, left, place = parts[0], most_chars - len(parts[0]) - 100, len(parts)
    while place > 1 and len(parts[place - 1]) + 2 <= left:
        place -= 1
        left -= len(parts[place]) + 2
    missing = [f"[{place - 1} parts are left out here: there is no room for them]"] if place > 1 else []
    return [first, *missing, *parts[place:]]


def shorten(text: str, most: int) -> str:
    """Cut out the middle of a text longer than `most` characters; the note in its place is not counted."""
    if len(text) <= most:
        return text
    head = most * 2 // 3
    return f"{text[:head]}\n[… {len(text) - most} characters left out …]\n{text[len(text) - (most - head) :]}"


def _render_message(message: Message) -> list[str]:
    match message:
        case AssistantMessage():
            calls = "; ".join(f"{call.name}({_render_arguments(call)})" for call in message.calls)
            said = f"[Assistant]: {message.text}" if message.text else ""
            return [said, f"[Assistant tool calls]: {calls}" if calls else ""]
        case ToolResultMessage():
            text = join_text(message.content)
            more = f"\n[{len(text) - RESULT_CHARS} more characters]" if len(text) > RESULT_CHARS else ""
            return [f"[Tool result]: {text[:RESULT_CHARS]}{more}" if text else ""]
        case BashExecutionMessage():
            if message.exclude_from_context:
                return []
            return [f"[User ran a command]: {message.command}\n{message.output[:RESULT_CHARS]}"]
        case BranchSummaryMessage() | CompactionSummaryMessage():
            return [f"[Summary of earlier work]: {message.summary}"]
        case SystemMessage():
            return []
        case _:
            text = join_text(message.content)
            return [f"[User]: {text}" if text else ""]


def _render_arguments(call: ToolCall) -> str:
    return ", ".join(f"{name}={encode_json(value).decode()}" for name, value in call.arguments.items())


def render_prompt(
    part: Literal["history", "prefix"],
    messages: Iterable[Message],
    previous_summary: str,
    instructions: str,
    most_chars: int | None = None,
) -> str:
    if most_chars is not None:
        previous_summary = shorten(previous_summary, most_chars // 3)
        most_chars -= len(previous_summary)
    pieces = [f"<conversation>\n{render_conversation(messages, most_chars)}\n</conversation>"]
    if previous_summary:
        pieces.append(f"<previous-summary>\n{previous_summary}\n</previous-summary>")
        pieces.append(UPDATE_PROMPT)
    pieces.append(PREFIX_PROMPT if part == "prefix" else HISTORY_PROMPT)
    return _join_pieces(pieces, instructions)


def render_branch_prompt(messages: Iterable[Message], instructions: str, most_chars: int | None = None) -> str:
    conversation = f"<conversation>\n{render_conversation(messages, most_chars)}\n</conversation>"
    return _join_pieces([conversation, BRANCH_PROMPT], instructions)


def _join_pieces(pieces: list[str], instructions: str) -> str:
    wish = [f"The user asks you to focus on: {instructions}"] if instructions else []
    return "\n\n".join([*pieces, *wish])
