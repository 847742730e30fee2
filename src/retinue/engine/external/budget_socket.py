"""Lets a child process draw on the budget of its run, over a socket that only the two processes have.

Each message is one line of JSON. The child asks before each reply and settles after it. What it has not settled when it
ends counts as spent, because the provider may have counted it. An unreadable message closes the socket, and nothing
more is granted.
"""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from retinue.core.messages import Cost, Usage
from retinue.core.model import Price
from retinue.engine.budget import Hold, Lease
from retinue.engine.external.result import read_usage

_MAX_LINE = 64 * 1024
_Count = Annotated[int, Meta(ge=0, le=10**15)]
_INFINITE = float("inf")


class Ask(Struct, frozen=True, tag="ask", tag_field="type"):
    """Request to reserve the highest possible price of a reply."""

    number: _Count
    size: _Count
    wanted: _Count
    price: Price


class Settle(Struct, frozen=True, tag="settle", tag_field="type"):
    """Report what a reply used, also if there was none."""

    number: _Count
    used: dict[str, Any]


class Answer(Struct, frozen=True):
    """Maximum length of the reply, 0 if the budget is spent, and what is left; None means no limit."""

    number: _Count
    output: _Count
    tokens: float | None = None
    usd: float | None = None


_read_request = msgspec.json.Decoder(Ask | Settle).decode
_read_answer = msgspec.json.Decoder(Answer).decode


class SocketLine:
    """One end of the socket."""

    def __init__(self, end: socket.socket, take: Callable[[bytes], None], lose: Callable[[], None]) -> None:
        """`take` receives each line and raises DecodeError for an unreadable one; `lose` is called at the end."""
        self._end = end
        self._take = take
        self._lose = lose
        self._rest = b""
        self.is_open = True
        end.setblocking(False)
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(end, self.read)

    def send(self, message: Struct) -> None:
        """Send a message without blocking; if the other end does not read, the socket is closed."""
        data = msgspec.json.encode(message) + b"\n"
        if self.is_open:
            sent = 0
            with suppress(OSError):
                sent = self._end.send(data)
            if sent < len(data):
                self.close()

    def read(self) -> None:
        while self.is_open:
            try:
                data = self._end.recv(_MAX_LINE)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            *lines, self._rest = (self._rest + data).split(b"\n")
            try:
                for line in lines:
                    self._take(line)
            except msgspec.DecodeError:
                data = b""
            if not data or len(self._rest) > _MAX_LINE:
                self.close()

    def close(self) -> None:
        if self.is_open:
            self.is_open = False
            self._loop.remove_reader(self._end)
            self._end.close()
            self._lose()


class ProcessReservations:
    """What one process has reserved from the lease of its run."""

    def __init__(self, lease: Lease, end: socket.socket, group: asyncio.TaskGroup) -> None:
        self._lease = lease
        self._group = group
        self._asking: dict[int, asyncio.Task[None]] = {}
        self._holds: dict[int, Hold] = {}
        self._settling: set[asyncio.Task[None]] = set()
        self._line = SocketLine(end, self._take, lambda: None)
        self.was_refused = False
        """Whether the last request was refused."""

    async def close(self) -> None:
        """Read the last messages of the ended process, then settle what is still reserved."""
        self._line.read()
        self._line.close()
        for task in self._asking.values():
            task.cancel()
        if self._settling:  # before the group cancels the remaining tasks
            await asyncio.wait(self._settling)
        while self._holds:
            _, hold = self._holds.popitem()
            await self._lease.release(hold, Usage(total_tokens=hold.tokens, cost=Cost(total=hold.usd)))

    def _take(self, line: bytes) -> None:
        message = _read_request(line)
        number = message.number
        if isinstance(message, Ask):
            if number in self._asking or number in self._holds:
                raise msgspec.DecodeError("a number was used twice")
            self._asking[number] = self._group.create_task(self._grant(message))
        elif (hold := self._holds.pop(number, None)) is not None:
            release = self._group.create_task(self._lease.release(hold, read_usage(message.used) or Usage()))
            self._settling.add(release)
            release.add_done_callback(self._settling.discard)
        elif (task := self._asking.pop(number, None)) is not None:
            task.cancel()

    async def _grant(self, ask: Ask) -> None:
        hold = await self._lease.reserve(ask.price, ask.size, ask.wanted)
        self._asking.pop(ask.number, None)
        self.was_refused = hold is None
        if hold is not None:
            self._holds[ask.number] = hold
        rest = (None if left == _INFINITE else left for left in self._lease.left())
        self._line.send(Answer(ask.number, 0 if hold is None else hold.output, *rest))


@asynccontextmanager
async def open_draws(lease: Lease) -> AsyncIterator[tuple[ProcessReservations, int]]:
    """Let a process draw on a lease; the descriptor is for that process only."""
    ours, theirs = socket.socketpair()
    with theirs:
        async with asyncio.TaskGroup() as group:
            draws = ProcessReservations(lease, ours, group)
            try:
                yield draws, theirs.fileno()
            finally:
                await draws.close()


class ParentBudget:
    """The budget of the run that this process works for: the source of its first lease."""

    is_limit = True

    def __init__(self, end: socket.socket) -> None:
        self._end = end
        self._line: SocketLine | None = None
        self._answers: dict[int, asyncio.Future[int]] = {}
        self._last = 0
        self.rest = (_INFINITE, _INFINITE)
        """Tokens and dollars that were left at the last contact."""

    async def reserve(self, price: Price, size: int, wanted: int, keys: Sequence[str] = ()) -> tuple[int, int]:
        self._line = self._line or SocketLine(self._end, self._take, self._lose)
        self._last = number = self._last + 1
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        self._line.send(Ask(number, size, wanted, price))
        if not self._line.is_open:
            return number, 0
        try:
            return number, await answer
        except asyncio.CancelledError:
            await self.settle(number, Usage())
            raise
        finally:
            self._answers.pop(number, None)

    async def settle(self, number: int, used: Usage) -> None:
        if self._line is not None:
            self._line.send(Settle(number, msgspec.to_builtins(used)))

    def _take(self, line: bytes) -> None:
        message = _read_answer(line)
        left = (message.tokens, message.usd)
        self.rest = (_INFINITE if left[0] is None else left[0], _INFINITE if left[1] is None else left[1])
        answer = self._answers.get(message.number)
        if answer is not None and not answer.done():
            answer.set_result(message.output)

    def _lose(self) -> None:
        for answer in self._answers.values():
            if not answer.done():
                answer.set_result(0)
