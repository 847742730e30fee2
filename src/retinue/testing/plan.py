"""A plan: the bytes of one response and what happens between them, and how HTTP frames them.

This file must not know models or scripts; whoever has a socket plays a plan.
"""

from collections.abc import Iterable, Iterator
from typing import TypeAlias

from msgspec import Struct

_REASONS = {200: b"OK", 307: b"Temporary Redirect", 400: b"Bad Request", 404: b"Not Found", 429: b"Too Many Requests"}


class Write(Struct, frozen=True):
    """Send bytes."""

    data: bytes


class Wait(Struct, frozen=True):
    """Do nothing for a time."""

    seconds: float


class Repeat(Struct, frozen=True):
    """Send the same bytes many times, as fast as they are taken, or with a pause; None is for ever."""

    data: bytes
    count: int | None = None
    interval_s: float = 0


class Close(Struct, frozen=True):
    """End the connection after what was sent."""


class Reset(Struct, frozen=True):
    """Break the connection."""


class Stall(Struct, frozen=True):
    """Keep the connection and stay silent until the client leaves."""


Step: TypeAlias = Write | Wait | Repeat | Close | Reset | Stall


class Plan(Struct, frozen=True):
    """A response; with `steps` empty it is `data` in one piece."""

    data: bytes = b""
    steps: tuple[Step, ...] = ()

    @classmethod
    def of(cls, steps: Iterable[Step]) -> "Plan":
        """Make a plan, joining neighbouring writes when nothing depends on their number."""
        joined: list[Step] = []
        for step in steps:
            last = joined[-1] if joined else None
            if type(step) is Write and type(last) is Write:
                joined[-1] = Write(last.data + step.data)
            else:
                joined.append(step)
        if len(joined) == 1 and type(joined[0]) is Write:
            return cls(joined[0].data)
        return cls(steps=tuple(joined))

    def walk(self) -> Iterator[Step]:
        """The steps with repetitions spelled out."""
        for step in self.steps:
            if type(step) is not Repeat:
                yield step
                continue
            pause = Wait(step.interval_s)
            left = step.count
            while left is None or left > 0:
                yield Write(step.data)
                if step.interval_s:
                    yield pause
                left = None if left is None else left - 1


def render_head(status: int, headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """The status line and the headers."""
    lines = [b"HTTP/1.1 %d %s\r\n" % (status, _REASONS.get(status, b"Status"))]
    lines.extend(b"%s: %s\r\n" % header for header in headers)
    return b"".join([*lines, b"\r\n"])


def render_response(status: int, body: bytes, headers: Iterable[tuple[bytes, bytes]] = ()) -> bytes:
    """A whole response of known length."""
    length = (b"content-length", b"%d" % len(body))
    return render_head(status, [(b"content-type", b"application/json"), *headers, length]) + body


def frame_chunk(data: bytes) -> bytes:
    """One chunk of a chunked body."""
    return b"%x\r\n%s\r\n" % (len(data), data) if data else b""


LAST_CHUNK = b"0\r\n\r\n"
