"""Calls of delegation tools by MCP hosts.

A call belongs to the server, not to the request that started it: requests wait for it, bring answers to what its agents
ask, or poll it as a task. Must not know the protocol's library.
"""

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import nullcontext, suppress
from typing import Any, Literal, TypeAlias

import msgspec

from retinue.app import Retinue
from retinue.app.delegation_tools import Delegation
from retinue.core.errors import RetinueError
from retinue.core.events import Answered, Asked, Event, RunAnswered, RunAsked
from retinue.core.messages import ToolResultMessage
from retinue.core.run import Question
from retinue.core.tool import Tool

MAX_CALLS = 64
PULSE_S = 2.0
"""Seconds between progress messages during a call: hosts give up on silent calls."""
PARK_S = 600.0
"""How long a call waits for the next request of a client that was asked something."""
KEEP_S = 3600.0
"""How long the result of a task is kept."""
MAX_MESSAGE = 500
PARSE, INVALID, UNKNOWN, PARAMS, INTERNAL = -32700, -32600, -32601, -32602, -32603
CallStatus: TypeAlias = Literal["working", "input_required", "completed", "failed", "cancelled"]


class CallRefused(Exception):
    """The request gets an error response."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class HostCall:
    """One call of a tool and what is known of it."""

    def __init__(self, name: str, arguments: dict[str, Any], *, asks: bool) -> None:
        """`asks`: the client can be asked what the agents of the call want to know."""
        self.id = secrets.token_urlsafe(24)
        """Cannot be guessed: whoever knows it may answer, poll and stop the call."""
        self.name = name
        self.arguments = arguments
        self.asks = asks
        self.awaited = str(arguments.get("agent_id", "")) if arguments.get("wait") is True else ""
        """The run that a reading call waits for."""
        self.open: dict[str, Question] = {}
        self.note = ""
        self.result: ToolResultMessage | None = None
        self.error = ""
        self.is_over = False
        self.created_s = self.changed_s = time.time()
        self.waiters = 0
        self.parked: asyncio.TimerHandle | None = None
        self.task: asyncio.Task[None] | None = None
        self._news = asyncio.Event()

    @property
    def status(self) -> CallStatus:
        if not self.is_over:
            return "input_required" if self.open else "working"
        if self.error:
            return "failed"
        return "cancelled" if self.result is None else "completed"

    def tell(self, text: str) -> None:
        self.note = " ".join(text.split())[:MAX_MESSAGE]
        self.change()

    def change(self) -> None:
        """Wake everybody who waits for a change."""
        self.changed_s = time.time()
        news, self._news = self._news, asyncio.Event()
        news.set()

    async def wait_change(self) -> None:
        await self._news.wait()

    def stop(self) -> None:
        if self.task is not None:
            self.task.cancel()


class HostCalls:
    """All calls of one server, whoever made them."""

    def __init__(self, crew: Retinue, delegation: Delegation, group: asyncio.TaskGroup) -> None:
        self.delegation = delegation
        self._crew = crew
        self._group = group
        self._calls: dict[str, HostCall] = {}
        self._deaf = crew.listen(self._hear, pieces=False)

    def close(self) -> None:
        """Stop all calls."""
        self._deaf()
        for call in self._calls.values():
            call.stop()

    def start(self, name: Any, arguments: Any, *, asks: bool = False) -> HostCall:
        """Start a call. Raises CallRefused."""
        known = self.delegation.tools
        if not isinstance(name, str) or name not in known:
            raise CallRefused(PARAMS, f"unknown tool {str(name)[:80]!r}; available: {', '.join(known)}")
        if not isinstance(arguments, dict):
            raise CallRefused(PARAMS, "arguments must be an object")
        now_s = time.time()
        for call_id in [each.id for each in self._calls.values() if each.is_over and each.changed_s + KEEP_S < now_s]:
            del self._calls[call_id]
        if sum(not each.is_over for each in self._calls.values()) >= MAX_CALLS:
            raise CallRefused(INVALID, f"{MAX_CALLS} calls are already running; wait for one of them")
        call = HostCall(name, arguments, asks=asks)
        self._calls[call.id] = call
        call.task = self._group.create_task(self._work(call))
        call.task.add_done_callback(lambda _: self._finish(call))
        for question in (*self._crew.list_questions(), *self._crew.questions.waiting):
            self._assign(question)
        return call

    def find(self, call_id: str) -> HostCall:
        """Return a call by its id. Raises CallRefused."""
        call = self._calls.get(call_id)
        if call is None:
            reason = "unknown, or ended more than an hour ago, or of an earlier start of this server"
            raise CallRefused(PARAMS, f"task {call_id[:80]!r} is {reason}")
        return call

    def resume(self, state: str, name: str, arguments: Any) -> HostCall:
        """Return the call that a request continues. Raises CallRefused."""
        call = self._calls.get(state)
        if call is None or (call.name, call.arguments) != (name, arguments):
            raise CallRefused(
                PARAMS, "requestState matches no waiting call of this tool; call the tool again without it"
            )
        return call

    async def settle(self, call: HostCall) -> None:
        """Wait until a call is over or asks something. If the last request that waits is cancelled, the call stops."""
        if call.parked is not None:
            call.parked.cancel()
        call.waiters += 1
        try:
            while not (call.is_over or call.open):
                await call.wait_change()
        except asyncio.CancelledError:
            if call.waiters == 1:
                self._give_up(call)
            raise
        finally:
            call.waiters -= 1
        if call.is_over:
            self._calls.pop(call.id, None)
        else:
            call.parked = asyncio.get_running_loop().call_later(PARK_S, self._give_up, call)

    async def follow(self, call: HostCall) -> AsyncIterator[str]:
        """Yield what to tell the client while a call works: at once, with each news, and every two seconds."""
        while not (call.is_over or call.open):
            yield call.note or self.delegation.describe_work()[:MAX_MESSAGE] or "working"
            call.note = ""
            with suppress(TimeoutError):
                async with asyncio.timeout(PULSE_S):
                    await call.wait_change()

    def answer(self, call: HostCall, responses: Mapping[str, Any]) -> None:
        """Hand in a client's answers. What matches no open question, or is no possible answer, is ignored."""
        for key, response in responses.items():
            question = call.open.get(key)
            if question is None or not isinstance(response, Mapping):
                continue
            action, content = response.get("action"), response.get("content")
            text = question.default if action in ("decline", "cancel") else None
            if action == "accept" and isinstance(content, Mapping):
                text = content.get("answer")
            if isinstance(text, str):
                with suppress(RetinueError):
                    self._crew.answer(key, text)

    async def _work(self, call: HostCall) -> None:
        try:
            with self._crew.questions.attend() if call.asks else nullcontext():
                while True:
                    result = await self.delegation.call(call.id, call.name, call.arguments, call.tell)
                    if not (call.awaited and call.open):
                        break
                    # It returned because its run asks something. The client answers that, then the run is read again.
                    while call.open:
                        await call.wait_change()
                call.result = result
        except RetinueError as error:
            call.error = str(error)

    def _finish(self, call: HostCall) -> None:
        call.is_over = True
        call.open.clear()
        call.change()

    def _give_up(self, call: HostCall) -> None:
        self._calls.pop(call.id, None)
        call.stop()

    def _hear(self, event: Event) -> None:
        if isinstance(event, Asked | RunAsked):
            if not self._assign(event.question):
                # Not at once: whoever asks is still telling.
                asyncio.get_running_loop().call_soon(self._decline, event)
        elif isinstance(event, Answered | RunAnswered):
            for call in self._calls.values():
                if call.open.pop(event.question_id, None) is not None:
                    call.change()

    def _assign(self, question: Question) -> bool:
        """Show a question in the calls that it concerns; False if there is none whose client can answer."""
        line = self.delegation.find_line(question.run_id)
        if not line:
            return False
        asking = [call for call in self._calls.values() if call.asks and not call.is_over]
        concerned = [
            call for call in asking if call.id == line[-1].call_id or call.awaited in (line[0].id, line[-1].id)
        ]
        for call in concerned:
            if question.id not in call.open:
                call.open[question.id] = question
                call.change()
        return bool(concerned)

    def _decline(self, event: Asked | RunAsked) -> None:
        """Answer for a client that cannot; a run in the background may wait for the host's model to answer."""
        line = self.delegation.find_line(event.run_id)
        if isinstance(event, Asked) or (line and not line[0].is_background):
            with suppress(RetinueError):
                self._crew.answer(event.question.id, event.question.default)


def render_requests(call: HostCall) -> dict[str, Any]:
    """Return the open questions of a call as the protocol's requests to the client."""
    return {key: _render_request(question) for key, question in call.open.items()}


def _render_request(question: Question) -> dict[str, Any]:
    about = "\n".join(filter(None, (question.title, question.text)))
    answer: dict[str, Any] = {"type": "string", "title": "Answer"}
    if question.options and question.kind != "ask":
        answer["enum"] = list(question.options)
    elif question.options:
        answer["description"] = f"For example: {', '.join(question.options)}"
    schema = {"type": "object", "properties": {"answer": answer}, "required": ["answer"]}
    message = f"{question.agent or 'agent'} ({question.run_id[:8]}): {about}"
    return {"method": "elicitation/create", "params": {"mode": "form", "message": message, "requestedSchema": schema}}


def describe_tool(tool: Tool) -> dict[str, Any]:
    spec = tool.spec
    return {"name": spec.name, "description": spec.description, "inputSchema": {"type": "object", **spec.parameters}}


def to_result(message: ToolResultMessage) -> dict[str, Any]:
    """Convert a result for MCP; details for programs go into `_meta`, which models do not see."""
    blocks = []
    for block in msgspec.to_builtins(message.content):
        kept = {"type": block["type"], **{key: block[key] for key in ("text", "data", "mimeType") if key in block}}
        blocks.append(kept)
    result: dict[str, Any] = {"content": blocks, "isError": message.is_error}
    details = None if message.details is msgspec.UNSET else msgspec.to_builtins(message.details, enc_hook=str)
    return {**result, "_meta": {"retinue/details": details}} if details else result
