"""Lets the run in a child process ask its parent, over a socket that only the two processes have.

Each message is one line of JSON. A lost connection answers nothing: the run decides itself.
"""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

import msgspec
from msgspec import Struct

from retinue.engine.external.budget_socket import SocketLine
from retinue.tools.ask_parent import NO_ANSWER

_MAX_CHARS = 8_000
"""Of one answer: a message has a maximum size. The tool limits questions."""
AskHere = Callable[[str, Sequence[str]], Awaitable[str]]


class AskMessage(Struct, frozen=True):
    number: int
    question: str
    options: tuple[str, ...] = ()


class AnswerMessage(Struct, frozen=True):
    number: int
    text: str


_read_ask = msgspec.json.Decoder(AskMessage).decode
_read_answer = msgspec.json.Decoder(AnswerMessage).decode


@asynccontextmanager
async def open_asking(ask: AskHere) -> AsyncIterator[int]:
    """Answer the questions of a process by `ask`; the descriptor is for that process only."""
    ours, theirs = socket.socketpair()
    with theirs:
        async with asyncio.TaskGroup() as group:
            tasks = list[asyncio.Task[None]]()

            async def answer(asked: AskMessage) -> None:
                text = await ask(asked.question, asked.options)
                line.send(AnswerMessage(asked.number, text[:_MAX_CHARS]))

            line = SocketLine(ours, lambda data: tasks.append(group.create_task(answer(_read_ask(data)))), lambda: None)
            try:
                yield theirs.fileno()
            finally:
                line.close()
                for task in tasks:
                    task.cancel()


class ParentDesk:
    """Asks the parent of the run that this process works for."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end
        self._line: SocketLine | None = None
        self._answers: dict[int, asyncio.Future[str]] = {}
        self._last = 0

    async def ask(self, run_id: str, question: str, options: Sequence[str]) -> str:
        self._line = self._line or SocketLine(self._end, self._take, self._lose)
        self._last = number = self._last + 1
        answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._answers[number] = answer
        self._line.send(AskMessage(number, question, tuple(options)))
        if not self._line.is_open:
            return NO_ANSWER
        try:
            return await answer
        finally:
            self._answers.pop(number, None)

    def _take(self, data: bytes) -> None:
        message = _read_answer(data)
        answer = self._answers.get(message.number)
        if answer is not None and not answer.done():
            answer.set_result(message.text)

    def _lose(self) -> None:
        for answer in self._answers.values():
            if not answer.done():
                answer.set_result(NO_ANSWER)
