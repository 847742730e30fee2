"""Forks: a child whose first request begins with the bytes of its parent's request, which the provider has cached.

The parent's request is the one that was answered with the call that starts the child, without that answer. It is copied
into the child's session, so that a resumed run sends the same. MUST NOT know wire formats.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

from msgspec import Struct

from retinue.core.clock import Clock
from retinue.core.messages import AssistantMessage, Message, SystemMessage, ToolResultMessage
from retinue.core.model import ToolSpec
from retinue.core.transcript import repair_transcript
from retinue.engine.prompt import declare_change
from retinue.sessions.log import Session

MOST_MARKS = 2
"""Cache marks among the messages: providers allow four, and prompt and tools have one each."""


class SentHead(Struct, frozen=True):
    """What a run sends before its messages."""

    sections: Mapping[str, str]
    specs: Sequence[ToolSpec]
    cache_key: str


class InheritedPart(Struct, frozen=True):
    """The part of a conversation that was another run's request."""

    head: SentHead
    marks: tuple[int, ...]
    """The cache marks of that request."""
    size: int
    """Its number of messages."""
    last: Message
    """Its last message. Without it at its place, the conversation was summarised."""

    def is_in(self, messages: Sequence[Message]) -> bool:
        last = messages[self.size - 1] if self.size <= len(messages) else None
        return last is self.last or last == self.last


class ForkParent(Protocol):
    """A run that can be forked."""

    @property
    def session(self) -> Session: ...

    @property
    def head(self) -> SentHead: ...

    @property
    def inherited(self) -> InheritedPart | None: ...

    @property
    def messages(self) -> Sequence[Message]: ...


class Fork(Struct, frozen=True):
    """A request of a parent, for a child that begins with it."""

    head: SentHead
    messages: tuple[Message, ...]
    """Without system messages."""
    marks: tuple[int, ...]
    size: int
    """Number of messages of the request; the rest, if any, is the answer of an idle parent."""

    def write(self, session: Session, clock: Clock, *, waits: bool) -> None:
        """Begin the child's session with the request. Raises SessionError."""
        system = declare_change({}, self.head.sections, (), self.head.specs, clock.now_ms())
        system = system or SystemMessage("", clock.now_ms())
        facts = {"marks": self.marks, "size": self.size, "cacheKey": self.head.cache_key}
        session.append_fork(system, self.messages, facts, waits=waits)


def take_fork(parent: ForkParent, call_id: str) -> Fork | None:
    """Return the request of a parent that was answered with a call, without a call the last one; None without any."""
    messages = parent.messages
    size = _find_answer(messages, call_id)
    if size is None and call_id:
        # The parent has summarised its conversation since.
        context = parent.session.find_before(call_id)
        messages = [] if context is None else repair_transcript(context.messages)
        size = len(messages)
    if not size:
        return None
    marks, _ = choose_marks(parent.inherited, messages[:size])
    is_idle = not call_id and not _has_open_calls(messages)
    kept = tuple(each for each in (messages if is_idle else messages[:size]) if not isinstance(each, SystemMessage))

    def count(number: int) -> int:
        # The child's own system message comes first.
        return 1 + sum(not isinstance(each, SystemMessage) for each in messages[:number])

    return Fork(parent.head, kept, tuple(map(count, marks)), count(size)) if kept else None


def read_inherited(session: Session) -> InheritedPart | None:
    """Return what a session took over; None if it did not begin with the conversation of another run."""
    if (fork := session.fork) is None:
        return None
    messages, size = session.context().messages, fork.get("size")
    marks = [mark for mark in fork.get("marks") or () if isinstance(mark, int) and mark > 0]
    if not messages or not isinstance(size, int) or not 0 < size <= len(messages):
        return None
    head = read_head(session, str(fork.get("cacheKey") or session.id))
    return InheritedPart(head, tuple(marks[-MOST_MARKS:]), size, messages[size - 1])


def read_head(session: Session, cache_key: str) -> SentHead:
    """Return prompt and tools as they are stored in a session."""
    context = session.context()
    specs = [
        ToolSpec(str(tool.get("name")), str(tool.get("description")), tool.get("parameters") or {})
        for tool in context.tools
    ]
    return SentHead(context.sections, specs, cache_key)


def choose_marks(inherited: InheritedPart | None, messages: Sequence[Message]) -> tuple[tuple[int, ...], int]:
    """Return where a request has cache marks, and how many of its messages were another run's request.

    The first request of a fork keeps the marks of its parent's, since they are among its bytes.
    """
    size = len(messages)
    if inherited is None or not inherited.is_in(messages):
        return (size,), 0
    if any(isinstance(message, AssistantMessage) for message in messages[inherited.size :]):
        return (inherited.size, size), 0
    marks = inherited.marks
    return (*marks, size) if len(marks) < MOST_MARKS else marks, inherited.size


def _find_answer(messages: Sequence[Message], call_id: str) -> int | None:
    """Return how many messages come before the reply with a call, or before the last reply if no call is named."""
    for number in reversed(range(len(messages))):
        message = messages[number]
        if isinstance(message, AssistantMessage) and (not call_id or any(call.id == call_id for call in message.calls)):
            return number
    return None


def _has_open_calls(messages: Sequence[Message]) -> bool:
    answered = {message.tool_call_id for message in messages if isinstance(message, ToolResultMessage)}
    last = next((each for each in reversed(messages) if isinstance(each, AssistantMessage)), None)
    return last is not None and any(call.id not in answered for call in last.calls)
