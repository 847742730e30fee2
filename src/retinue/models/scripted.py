"""A model that plays a script, for tests and demos without a network.

This file must not know wire formats: faults on the wire are played by the mock server.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path

import orjson
from msgspec import UNSET

from retinue.core.messages import (
    AssistantMessage,
    BashExecutionMessage,
    BranchSummaryMessage,
    CompactionSummaryMessage,
    CustomMessage,
    Message,
    TextContent,
    ToolCall,
    UserMessage,
)
from retinue.core.model import Draft, Failure, ModelInfo, ModelRequest, Reply
from retinue.models.cost import to_usage
from retinue.models.script import (
    EXHAUSTED,
    Script,
    ScriptBlock,
    ScriptCall,
    ScriptContext,
    ScriptError,
    ScriptReply,
    ScriptText,
    ScriptThinking,
)
from retinue.models.script_file import load_script, parse_script

__all__ = ["ScriptedModel", "load_script", "parse_script"]


class ScriptedModel:
    """Answers each request with the script's reply for the number of assistant messages so far."""

    def __init__(
        self,
        script: Script,
        info: ModelInfo | None = None,
        *,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        name = Path(script.source).name
        self._script = script
        self.info = info or ModelInfo(provider="scripted", id=name, api="scripted", name=f"script {name}")
        self._sleep = sleep
        self._attempts: dict[tuple[int, int, object], int] = {}

    async def reply(self, request: ModelRequest, draft: Draft) -> Reply:
        exchange = read_exchange(request)
        position = sum(count for _, count in exchange.users)
        reply = self._script.find(exchange)
        if reply is None:
            count = len(self._script.replies)
            message = f"{EXHAUSTED}: {self._script.source} has {count}, asked for {position + 1}"
            return _fail(draft, ScriptError(message))
        attempt = self._count_attempt(reply, position, request, exchange)
        error = reply.error
        if error is not None and error.times is not None and attempt >= error.times:
            error = None
        await self._pause(reply.delay_ms)
        if error is not None and (error.times is not None or not reply.blocks):
            return _fail(draft, error)
        faults = await self._play(reply, position, draft)
        if error is None and reply.stop_or_default == "refusal":
            error = ScriptError("the model refused to answer", "refused")
        if error is not None:
            return _fail(draft, error, reply.raw_stop)
        return self._finish(reply, draft, faults)

    def _finish(self, reply: ScriptReply, draft: Draft, faults: dict[str, str]) -> Reply:
        stop = reply.stop_or_default
        on_wire = next((fault for fault in reply.faults if fault.kind != "bad_args"), None)
        if on_wire is not None:
            message = f"the fault {on_wire.kind!r} of this reply is played by the mock server only"
            return _fail(draft, ScriptError(message))
        # The parser gives every reply with stop `error` an error, so `stop` is one of the three successful ends here.
        ended = draft.finish(
            stop if stop in ("length", "toolUse") else "stop",
            raw_stop_reason=UNSET if reply.raw_stop is None else reply.raw_stop,
        )
        return Reply(ended, faults=faults)

    def _count_attempt(self, reply: ScriptReply, position: int, request: ModelRequest, exchange: ScriptContext) -> int:
        if reply.error is None or reply.error.times is None:
            return 0
        conversation = request.session_id or (exchange.users[0][0] if exchange.users else "")
        key = (id(reply), position, conversation)
        attempt = self._attempts.get(key, 0)
        self._attempts[key] = attempt + 1
        return attempt

    async def _play(self, reply: ScriptReply, position: int, draft: Draft) -> dict[str, str]:
        """Write the blocks into the draft; returns the calls that must not run."""
        faults: dict[str, str] = {}
        bad = next((fault for fault in reply.faults if fault.kind == "bad_args"), None)
        is_first = True
        for index, block in enumerate(reply.blocks):
            call_id = f"call_{position}_{index}"
            at, text, close = _open_block(draft, block, call_id)
            for piece in _split(text, reply.chunk_chars):
                if not is_first:
                    await self._pause(reply.chunk_ms)
                is_first = False
                draft.add(at, piece)
            close()
            if isinstance(block, ScriptCall) and bad is not None:
                faults[call_id if block.id is None else block.id] = "the arguments are not valid JSON"
        used = reply.usage_or_default
        draft.usage = to_usage(self.info.cost, used.input, used.output, used.cache_read, used.cache_write)
        return faults

    async def _pause(self, milliseconds: float) -> None:
        if milliseconds:
            await self._sleep(milliseconds / 1000)


def read_exchange(request: ModelRequest) -> ScriptContext:
    """The request in the form that a script needs."""
    users: list[tuple[str, int]] = []
    for message in request.messages:
        if type(message) is AssistantMessage:
            text, count = users.pop() if users else ("", 0)
            users.append((text, count + 1))
        else:
            said = _user_text(message)
            if said is not None:
                users.append((said, 0))
    return ScriptContext(users, request.system)


def _user_text(message: Message) -> str | None:
    """The text that the model sees as the user's; None for other messages."""
    if isinstance(message, UserMessage | CustomMessage):
        if isinstance(message.content, str):
            return message.content
        return "\n".join(part.text for part in message.content if type(part) is TextContent)
    if isinstance(message, BranchSummaryMessage | CompactionSummaryMessage):
        return message.summary
    if isinstance(message, BashExecutionMessage):
        return None if message.exclude_from_context else message.command
    return None


def _split(text: str, chunk_chars: int) -> Iterator[str]:
    size = chunk_chars or len(text) or 1
    return (text[at : at + size] for at in range(0, len(text), size))


def _open_block(draft: Draft, block: ScriptBlock, call_id: str) -> tuple[int, str, Callable[[], None]]:
    """Begin a block; returns its index, its text, and a function that ends it."""
    if isinstance(block, ScriptText):
        at = draft.open_text()
        return at, block.text, partial(draft.close_text, at)
    if isinstance(block, ScriptThinking):
        at = draft.open_thinking()
        signature = UNSET if block.signature is None else block.signature
        return at, block.thinking, partial(draft.close_thinking, at, signature=signature)
    call = ToolCall(call_id if block.id is None else block.id, block.name, dict(block.arguments))
    at = draft.open_call(call.id, call.name)
    return at, orjson.dumps(call.arguments).decode(), partial(draft.close_call, at, call)


def _fail(draft: Draft, error: ScriptError, raw_stop: str | None = None) -> Reply:
    message = draft.finish("error", error=error.message, raw_stop_reason=UNSET if raw_stop is None else raw_stop)
    failure = Failure(
        kind=error.kind,
        message=error.message,
        retryable=error.retryable,
        status=error.status,
        retry_after_s=error.retry_after_s,
    )
    return Reply(message, failure)
