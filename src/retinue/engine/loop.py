"""The agent loop: asks the model and runs its tool calls until there is nothing more to do.

Every policy is an argument. MUST NOT know subagents, sessions, features or settings, and uses only the clock it is
given: it is a deterministic function of what its ports return.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

from msgspec import UNSET, Struct, field
from msgspec.structs import replace

from retinue.core.clock import Clock
from retinue.core.events import (
    Event,
    MessageDelta,
    MessageFinished,
    MessageStarted,
    TurnFinished,
    TurnStarted,
)
from retinue.core.messages import (
    AssistantContent,
    AssistantMessage,
    Message,
    ThinkingLevel,
    ToolCall,
    ToolResultMessage,
    Usage,
    UserMessage,
)
from retinue.core.model import Delta, Draft, Failure, Model, ModelRequest, Reply, ToolSpec
from retinue.core.run import Reason
from retinue.engine.calls import Batch
from retinue.engine.limits import WRAP_UP_TEXT, LimitVerdict

NUDGE_TEXT = "Your last reply was empty. Answer the request now, or say in one sentence that nothing is left to do."
MAX_REFUSALS = 8
"""The run fails after this many replies in a row with only calls of the same tool, refused with the same error."""


class RunConversation(Struct):
    """The messages of a run and what the current prompt has used. The loop appends to it."""

    messages: list[Message] = field(default_factory=list)
    turns: int = 0
    tool_calls: int = 0
    usage: Usage = field(default_factory=Usage)
    memo: dict[Any, Any] = field(default_factory=dict)
    """Cache of the model adapter: see `ModelRequest.memo`."""
    call_ids: set[str] = field(default_factory=set)
    wrapping_up: bool = False

    def begin(self) -> None:
        self.turns = self.tool_calls = 0
        self.usage = Usage()
        self.wrapping_up = False

    def load(self, messages: list[Message]) -> None:
        self.messages = messages
        self.memo.clear()  # keyed by identity, and new objects may get the same ids
        for message in messages:
            if isinstance(message, AssistantMessage):
                self.call_ids.update(call.id for call in message.calls)


class Ending(Struct, frozen=True):
    reason: Reason
    reply: AssistantMessage | None = None
    failure: Failure | None = None
    error: str = ""


class LoopInbox(Protocol):
    def take_steering(self) -> Sequence[Message]: ...

    def take_follow_up(self) -> Sequence[Message]: ...


class LoopPorts(Struct, frozen=True):
    """Everything that the loop uses."""

    run_id: str
    model: Model
    system: str
    tool_specs: Callable[[], Sequence[ToolSpec]]
    """Called before each reply, because a run may receive tools while it works."""
    thinking: ThinkingLevel
    session_id: str
    publish: Callable[[Event], None]
    """Records an event, then shows it. MUST NOT raise."""
    watched: Callable[[], bool]
    """Whether anyone wants partial replies; otherwise no events are created for them."""
    run_calls: Callable[[Sequence[ToolCall], dict[str, str]], Awaitable[Batch]]
    inlet: LoopInbox
    judge: Callable[[RunConversation], LimitVerdict]
    """Called after each turn if the run wants another one."""
    prepare: Callable[[RunConversation], Awaitable[None]]
    """Called before each further turn, to compact the context if needed. MUST NOT raise."""
    clock: Clock


async def run_loop(talk: RunConversation, opening: Sequence[Message], ports: LoopPorts) -> Ending:
    """Work until the model stops calling tools and nothing is queued, a limit is reached, or a reply fails.

    On cancel, what was received so far is kept in the conversation before the cancel is raised.
    """
    loop = _Loop(talk, ports)
    pending = [*opening, *ports.inlet.take_steering()] if opening else list(ports.inlet.take_steering())
    while True:
        ending, pending = await loop.turn(pending)
        if ending is not None:
            return ending


class _Loop:
    """State of one call of `run_loop`; what must outlive it is in the conversation."""

    def __init__(self, talk: RunConversation, ports: LoopPorts) -> None:
        self._talk = talk
        self._ports = ports
        self._first = True
        self._refusal: tuple[str, str] | None = None
        self._refusals = 0
        self._nudged = False
        self._is_over = False

    async def turn(self, pending: list[Message]) -> tuple[Ending | None, list[Message]]:
        """Do one reply and its tool calls; return the ending, or None and the next messages."""
        ports, talk = self._ports, self._talk
        if not self._first:
            await ports.prepare(talk)
            if not pending:
                pending = list(ports.inlet.take_steering())
        self._first = False
        talk.turns += 1
        ports.publish(TurnStarted(run_id=ports.run_id, turn=talk.turns))
        for message in pending:
            self._say(message)
        results = list[ToolResultMessage]()
        try:
            reply = await self._ask()
            if reply.failure is None:
                results = await self._use_tools(reply)
        finally:
            # Also on cancel: listeners must see each turn end.
            answer = talk.messages[-1 - len(results)] if talk.messages else None
            if isinstance(answer, AssistantMessage):
                ports.publish(TurnFinished(run_id=ports.run_id, turn=talk.turns, message=answer, tool_results=results))
        if reply.failure is not None:
            return Ending(Reason.ERROR, reply.message, reply.failure, reply.failure.message), []
        if self._is_over:
            return Ending(self._natural_reason(reply.message), reply.message), []
        return self._continue(reply.message, bool(results))

    def _continue(self, message: AssistantMessage, has_results: bool) -> tuple[Ending | None, list[Message]]:
        ports, talk = self._ports, self._talk
        if self._refusal is not None and self._refusals >= MAX_REFUSALS:
            name, text = self._refusal
            error = f"{MAX_REFUSALS} replies in a row called only {name}, each time with the same error: {text}"
            return Ending(Reason.ERROR, message, error=error), []
        following, was_nudged = list(ports.inlet.take_steering()), self._nudged
        if not has_results and not following:
            following = self._follow_up(message)
            if not following:
                return Ending(self._natural_reason(message), message), []
        verdict = ports.judge(talk)
        if verdict.stop is not None:
            return Ending(verdict.stop, message), []
        # The nudge is ours, not a step of the model, so limits do not count it.
        if verdict.wrap_up and self._nudged is was_nudged:
            talk.wrapping_up = True
            following.append(UserMessage(WRAP_UP_TEXT, ports.clock.now_ms()))
        return None, following

    def _follow_up(self, message: AssistantMessage) -> list[Message]:
        is_empty = not message.text.strip() and message.stop_reason != "length"
        if is_empty and not self._nudged:
            self._nudged = True
            return [UserMessage(NUDGE_TEXT, self._ports.clock.now_ms())]
        return list(self._ports.inlet.take_follow_up())

    def _natural_reason(self, message: AssistantMessage) -> Reason:
        if self._talk.wrapping_up:
            return Reason.TURN_LIMIT_WRAPPED
        return Reason.LENGTH if message.stop_reason == "length" else Reason.DONE

    def _say(self, message: Message) -> None:
        self._talk.messages.append(message)
        self._ports.publish(MessageFinished(run_id=self._ports.run_id, message=message))

    async def _ask(self) -> Reply:
        """Get one reply and add it to the conversation, even if a cancel cuts it off."""
        ports, talk = self._ports, self._talk
        draft = Draft(ports.model.info, started_ms=ports.clock.now_ms(), thinking=ports.thinking)
        if ports.watched():
            draft.watcher = _Watcher(draft, ports)
        request = ModelRequest(
            system=ports.system,
            messages=talk.messages,
            tools=ports.tool_specs(),
            thinking=ports.thinking,
            session_id=ports.session_id,
            memo=talk.memo,
        )
        try:
            reply = await ports.model.reply(request, draft)
        except BaseException:
            # A model raises nothing but the cancel. The text that was already shown stays in the conversation.
            self._say(draft.finish("aborted", error="Request was aborted"))
            raise
        reply = self._with_unique_ids(reply)
        talk.usage += reply.message.usage
        self._say(reply.message)
        return reply

    async def _use_tools(self, reply: Reply) -> list[ToolResultMessage]:
        calls = reply.message.calls
        if not calls:
            self._refusal = None
            return []
        faults = dict(reply.faults)
        if reply.message.stop_reason == "length":
            text = "the reply hit the output limit, so its arguments may be cut off. Call it again with complete ones."
            faults = {call.id: text for call in calls}
        try:
            batch = await self._ports.run_calls(calls, faults)
        except BaseException:
            self._talk.tool_calls += len(calls)
            raise
        self._talk.tool_calls += len(calls)
        self._refusals = self._refusals + 1 if batch.refusal == self._refusal else 1
        self._refusal = batch.refusal
        self._is_over = batch.ends_run
        self._talk.messages.extend(batch.results)
        return batch.results

    def _with_unique_ids(self, reply: Reply) -> Reply:
        """Make call ids unique in the conversation: they pair calls with results, and some providers repeat them."""
        seen = self._talk.call_ids
        calls = reply.message.calls
        if all(call.id and call.id not in seen for call in calls) and len({call.id for call in calls}) == len(calls):
            seen.update(call.id for call in calls)
            return reply
        content, faults = list[AssistantContent](), dict(reply.faults)
        for block in reply.message.content:
            if isinstance(block, ToolCall):
                fresh, number = block.id or "call", 2
                while not fresh or fresh in seen or (fresh == "call" and not block.id):
                    fresh, number = f"{block.id or 'call'}_{number}", number + 1
                seen.add(fresh)
                if fresh != block.id and block.id in faults:
                    faults[fresh] = faults[block.id]
                content.append(replace(block, id=fresh))
            else:
                content.append(block)
        return Reply(replace(reply.message, content=content), reply.failure, faults)


class _Watcher:
    """Publishes the parts of a reply as events."""

    __slots__ = ("_begun", "_draft", "_ports")

    def __init__(self, draft: Draft, ports: LoopPorts) -> None:
        self._draft = draft
        self._ports = ports
        self._begun = False

    def __call__(self, delta: Delta) -> None:
        run_id = self._ports.run_id
        if not self._begun:
            self._begun = True
            message = replace(self._draft.finish("pending"), content=[], thinking_level=UNSET)
            self._ports.publish(MessageStarted(run_id=run_id, message=message))
        self._ports.publish(MessageDelta(run_id=run_id, delta=delta, usage=self._draft.usage))
