"""The connection to a server that is a process: one message a line, each checked before the library sees it.

What breaks the rules of the protocol, or floods us, ends the connection: a server that does either cannot be trusted to
have meant the rest. Imports the library, so nothing imports this file before a server is used.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import anyio
from mcp.shared.message import SessionMessage
from mcp.types import JSONRPCError, JSONRPCNotification, JSONRPCRequest, JSONRPCResponse, jsonrpc_message_adapter

from retinue.features.mcp.program import MAX_MESSAGE, Program
from retinue.features.mcp.server import ServerTrouble

MAX_NOTICES = 2_000
"""Notifications within one window; more is a flood."""
WINDOW_S = 10.0


class MessageGuard:
    """Knows what may come next."""

    def __init__(self, on_asked: Callable[[str], None]) -> None:
        """`on_asked` hears what the server asks of us."""
        self._on_asked = on_asked
        self._sent: set[str | int] = set()
        self._window_s = 0.0
        self._notices = 0

    def note_sent(self, message: Any) -> None:
        """We have asked something."""
        if isinstance(message, JSONRPCRequest):
            self._sent.add(message.id)

    def find_fault(self, message: Any) -> str:
        """Why a message must be the last one; empty when it need not."""
        if isinstance(message, JSONRPCResponse | JSONRPCError):
            # A late answer to what was given up is fine; an answer to what nobody asked is not.
            is_strange = message.id is not None and message.id not in self._sent
            return "it answered a question that was never asked" if is_strange else ""
        if isinstance(message, JSONRPCRequest):
            self._on_asked(message.method)
        return self._count() if isinstance(message, JSONRPCRequest | JSONRPCNotification) else ""

    def _count(self) -> str:
        now_s = anyio.current_time()
        if now_s - self._window_s > WINDOW_S:
            self._window_s, self._notices = now_s, 0
        self._notices += 1
        return (
            f"it sent more than {MAX_NOTICES} notifications within {WINDOW_S:g} s"
            if self._notices > MAX_NOTICES
            else ""
        )


_GONE = (anyio.ClosedResourceError, anyio.BrokenResourceError, OSError)


@asynccontextmanager
async def open_stdio(
    start: Callable[[], Awaitable[Program]], trouble: ServerTrouble, on_asked: Callable[[str], None]
) -> AsyncIterator[tuple[Any, Any]]:
    """The streams of a server that is started here and ended on leaving. `on_asked` hears what it asks of us."""
    program = await start()
    to_us, read_stream = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    write_stream, from_us = anyio.create_memory_object_stream[SessionMessage](0)
    guard = MessageGuard(on_asked)
    is_leaving = False

    async def read() -> None:
        reason = ""
        async with to_us:
            with suppress(*_GONE):
                async for line in _read_lines(program, trouble):
                    message = _parse(line, guard)
                    if isinstance(message, str):
                        reason = message
                        break
                    await to_us.send(SessionMessage(message))
            if not reason and not is_leaving:
                await program.wait_ended(0.2)
                reason = program.describe_end()
            # An end that we bring about is not the server's doing: whoever leaves knows why.
            if not is_leaving:
                trouble.note(reason)

    async def write() -> None:
        with suppress(*_GONE):
            async with from_us:
                async for item in from_us:
                    guard.note_sent(item.message)
                    text = item.message.model_dump_json(by_alias=True, exclude_unset=True)
                    await program.input.write(text.encode() + b"\n")

    try:
        async with anyio.create_task_group() as group:
            group.start_soon(program.read_complaints)
            group.start_soon(read)
            group.start_soon(write)
            try:
                yield read_stream, write_stream
            finally:
                is_leaving = True
                # The process must end whatever cancels us; every wait in there is bounded.
                with anyio.CancelScope(shield=True):
                    await program.stop()
                group.cancel_scope.cancel()
    finally:
        program.cut()
        for stream in (to_us, read_stream, write_stream, from_us):
            stream.close()


async def _read_lines(program: Program, trouble: ServerTrouble) -> AsyncIterator[bytes]:
    while not trouble.ended.is_set():
        try:
            line = await program.output.readuntil(b"\n")
        except asyncio.IncompleteReadError as error:
            if error.partial.strip():
                await program.wait_ended(0.2)
                trouble.note(f"its last message was cut off, and {program.describe_end()}")
            return
        except asyncio.LimitOverrunError:
            trouble.note(f"it sent a message of more than {MAX_MESSAGE >> 20} MiB")
            return
        if line.strip():
            yield line


def _parse(line: bytes, guard: MessageGuard) -> Any:
    """The message of a line, or why it must be the last one."""
    try:
        message = jsonrpc_message_adapter.validate_json(line, by_name=False)
    except ValueError:
        return "it sent a line that is no message of the protocol"
    return guard.find_fault(message) or message
