"""Renders a run's conversation as plain text: complete for `verbose`, as lines for `peek`."""

from collections.abc import Iterable
from contextlib import closing

from retinue.core.errors import SessionError
from retinue.core.messages import (
    AssistantMessage,
    BranchSummaryMessage,
    CompactionSummaryMessage,
    CustomMessage,
    Message,
    ToolResultMessage,
    UserMessage,
    join_text,
)
from retinue.core.run import Run
from retinue.sessions.log import Session
from retinue.surfaces.base import Caller

MAX_RESULT_CHARS = 200


def load_messages(caller: Caller, run: Run) -> list[Message] | None:
    """Return the messages of a run; None if its session no longer exists."""
    live = caller.manager.live(run.id)
    if live is not None:
        return live.session.context().messages
    if heard := caller.manager.remote_children.list_messages(run.id):
        return heard
    if run.outcome is None or not run.outcome.session_file:
        return None
    path = run.outcome.session_file
    try:
        with closing(Session.open(path, clock=caller.clock, new_id=lambda: run.id, read_only=True)) as session:
            return session.context().messages
    except SessionError:
        return None


def render_conversation(messages: Iterable[Message]) -> str:
    """Return the messages separated by blank lines; tool results are truncated."""
    return "\n\n".join(block for message in messages for block in _render_message(message))


def list_lines(message: Message) -> list[str]:
    """Return the non-blank lines of a message, with one line per tool call."""
    lines = [line for line in _join_text(message).splitlines() if line.strip()]
    if isinstance(message, AssistantMessage):
        lines += [f"Tool: {call.name}" for call in message.calls]
    return lines


def _render_message(message: Message) -> list[str]:
    text = _join_text(message).strip()
    if isinstance(message, UserMessage | CustomMessage):
        return [f"[User]: {text}"] if text else []
    if isinstance(message, AssistantMessage):
        said = [f"[Assistant]: {text}"] if text else []
        calls = "\n".join(f"  Tool: {call.name}" for call in message.calls)
        return [*said, f"[Tool Calls]:\n{calls}"] if calls else said
    if isinstance(message, ToolResultMessage):
        cut = text if len(text) <= MAX_RESULT_CHARS else f"{text[:MAX_RESULT_CHARS]}..."
        return [f"[Tool Result ({message.tool_name})]: {cut}"]
    if isinstance(message, CompactionSummaryMessage | BranchSummaryMessage):
        return [f"[Summary]: {text}"]
    return []


def _join_text(message: Message) -> str:
    if isinstance(message, CompactionSummaryMessage | BranchSummaryMessage):
        return message.summary
    return join_text(getattr(message, "content", ""))
