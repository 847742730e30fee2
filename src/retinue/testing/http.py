"""A minimal, fast HTTP/1.1 server for the mock server: parses requests and plays response plans.

It supports keep-alive, pipelining and bodies with a content length. Must not know models.
"""

import asyncio
import socket
import struct
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import orjson

from retinue.testing.plan import Close, Reset, ResponsePlan, Stall, Step, Wait, Write, render_response

_LINGER_NOT = struct.pack("ii", 1, 0)
_SECRET_HEADERS = frozenset({"authorization", "x-api-key", "x-goog-api-key", "api-key", "cookie"})


class RecordedRequest:
    __slots__ = ("arrived_ns", "body", "head")

    def __init__(self, head: bytes, body: bytes) -> None:
        self.head = head
        self.body = body
        self.arrived_ns = time.monotonic_ns()

    @property
    def method(self) -> str:
        return self.head.split(b" ", 1)[0].decode("latin-1")

    @property
    def path(self) -> str:
        """Path and query."""
        return self.head.split(b" ", 2)[1].decode("latin-1")

    @property
    def headers(self) -> dict[str, str]:
        """Headers by lower-case name, including secrets."""
        lines = self.head.decode("latin-1").split("\r\n")[1:]
        pairs = (line.partition(":") for line in lines if line)
        return {name.strip().lower(): value.strip() for name, _, value in pairs}

    @property
    def json(self) -> Any:
        return orjson.loads(self.body)

    def to_log_line(self) -> bytes:
        """Return the request as a line of JSON without secrets."""
        shown = {name: "***" if name in _SECRET_HEADERS else value for name, value in self.headers.items()}
        path, has_key, rest = self.path.partition("key=")
        line = {
            "method": self.method,
            "path": f"{path}key=***{rest[rest.find('&') :] if '&' in rest else ''}" if has_key else path,
            "headers": shown,
            "body": _to_json(self.body),
            "arrivedNs": self.arrived_ns,
        }
        return orjson.dumps(line) + b"\n"


Answer: TypeAlias = Callable[[bytes, bytes], ResponsePlan]
"""Maps head and body of a request to its response."""


class Connection(asyncio.Protocol):
    """One client connection: parses its requests and plays the plans one after another."""

    __slots__ = (
        "_answer",
        "_connections",
        "_data",
        "_due_s",
        "_is_playing",
        "_paused",
        "_steps",
        "_timer",
        "_transport",
    )

    def __init__(self, answer: Answer, connections: set["Connection"]) -> None:
        self._answer = answer
        self._connections = connections
        self._data = b""
        self._due_s = 0.0
        self._is_playing = False
        self._paused = False
        self._steps: Iterator[Step] = iter(())
        self._timer: asyncio.TimerHandle | None = None
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._connections.discard(self)
        self._transport = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        if self._is_playing and self._timer is None:
            self._play()

    def data_received(self, data: bytes) -> None:
        self._data = self._data + data if self._data else data
        if not self._is_playing:
            self._serve()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def _serve(self) -> None:
        while self._data and self._transport is not None and not self._is_playing:
            end = self._data.find(b"\r\n\r\n")
            if end < 0:
                return
            head = self._data[:end]
            length = _read_length(head)
            if length is None:
                self._transport.write(render_response(411, b'{"error": "a content length is needed"}'))
                self._transport.close()
                return
            stop = end + 4 + length
            if len(self._data) < stop:
                return
            body = self._data[end + 4 : stop]
            self._data = self._data[stop:]
            plan = self._answer(head, body)
            if plan.steps:
                self._is_playing = True
                self._due_s = asyncio.get_running_loop().time()
                self._steps = plan.walk()
                self._play()
            else:
                self._transport.write(plan.data)

    def _play(self) -> None:
        self._timer = None
        for step in self._steps:
            if self._transport is None:
                return
            if type(step) is Write:
                self._transport.write(step.data)
                if self._paused:
                    return
            elif type(step) is Wait:
                # Relative to the start of the plan, so that delays on a busy machine do not add up.
                self._due_s += step.seconds
                self._timer = asyncio.get_running_loop().call_at(self._due_s, self._play)
                return
            elif type(step) is Stall:
                return
            else:
                self._end(step)
                return
        self._is_playing = False
        self._serve()

    def _end(self, step: Step) -> None:
        assert self._transport is not None
        if type(step) is Reset:
            sock: socket.socket = self._transport.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_NOT)
            self._transport.abort()
        elif type(step) is Close:
            self._transport.close()


def _read_length(head: bytes) -> int | None:
    lower = head.lower()
    at = lower.find(b"\r\ncontent-length:")
    if at < 0:
        return None if b"\r\ntransfer-encoding:" in lower else 0
    end = lower.find(b"\r\n", at + 2)
    value = lower[at + 17 : end if end >= 0 else len(lower)].strip()
    return int(value) if value.isdigit() else None


def _to_json(body: bytes) -> Any:
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        return body.decode("utf-8", "replace") or None
