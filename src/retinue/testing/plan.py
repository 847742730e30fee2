"""A response plan: the bytes of one response, how they are split, and pauses and breaks between them.

Must not know models or scripts.
"""

import random
from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from retinue.models.script import Position
from retinue.testing.wire.base import Mark, WireEvent

_REASONS = {200: b"OK", 307: b"Temporary Redirect", 400: b"Bad Request", 404: b"Not Found", 429: b"Too Many Requests"}


class Write(Struct, frozen=True):
    data: bytes


class Wait(Struct, frozen=True):
    seconds: float


class Repeat(Struct, frozen=True):
    """Send the same bytes many times, optionally with a pause; a count of None repeats forever."""

    data: bytes
    count: int | None = None
    interval_s: float = 0


class Close(Struct, frozen=True):
    """Close the connection after what was sent."""


class Reset(Struct, frozen=True):
    """Reset the connection."""


class Stall(Struct, frozen=True):
    """Keep the connection open and send nothing until the client leaves."""


Step: TypeAlias = Write | Wait | Repeat | Close | Reset | Stall


class ResponsePlan(Struct, frozen=True):
    """A response; if `steps` is empty, `data` is sent in one piece."""

    data: bytes = b""
    steps: tuple[Step, ...] = ()

    @classmethod
    def of(cls, steps: Iterable[Step]) -> "ResponsePlan":
        """Create a plan and join adjacent writes."""
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
        """Yield the steps with repetitions expanded."""
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
    lines = [b"HTTP/1.1 %d %s\r\n" % (status, _REASONS.get(status, b"Status"))]
    lines.extend(b"%s: %s\r\n" % header for header in headers)
    return b"".join([*lines, b"\r\n"])


def render_response(status: int, body: bytes, headers: Iterable[tuple[bytes, bytes]] = ()) -> bytes:
    """Return a whole response with its length."""
    length = (b"content-length", b"%d" % len(body))
    return render_head(status, [(b"content-type", b"application/json"), *headers, length]) + body


def frame_chunk(data: bytes) -> bytes:
    """Return one chunk of a chunked body."""
    return b"%x\r\n%s\r\n" % (len(data), data) if data else b""


LAST_CHUNK = b"0\r\n\r\n"


Place: TypeAlias = Position | int | Literal["end"]
"""`end` is before the terminal events."""

_MARKS: dict[Place, Mark] = {"mid_text": "text", "mid_args": "args", "after_call": "call_end"}


def split_body(data: bytes, sizes: int, seed: int | None) -> list[bytes]:
    """Split a body into pieces of a fixed size, or with a seed of random sizes up to it."""
    if seed is None:
        return [data[at : at + sizes] for at in range(0, len(data), sizes)]
    dice = random.Random(seed)
    pieces: list[bytes] = []
    at = 0
    while at < len(data):
        size = dice.randint(1, max(1, sizes))
        pieces.append(data[at : at + size])
        at += size
    return pieces


def add_bom(events: list[WireEvent]) -> list[WireEvent]:
    return [replace(events[0], data=b"\xef\xbb\xbf" + events[0].data), *events[1:]]


def to_crlf(events: list[WireEvent], *, mix: bool) -> list[WireEvent]:
    """Use CRLF as line ending, with `mix` only in every second event."""
    return [
        event if mix and index % 2 else replace(event, data=event.data.replace(b"\n", b"\r\n"))
        for index, event in enumerate(events)
    ]


def find_offset(events: list[WireEvent], place: Place) -> int:
    """Return the byte offset of a fault; an unknown place is the middle."""
    total = sum(len(event.data) for event in events)
    if isinstance(place, int):
        return min(place, total)
    if place in ("first_byte", "last_byte"):
        return 0 if place == "first_byte" else total - 1
    return total // 2 if len(events) == 1 else _find_event(events, place, total)


def _find_event(events: list[WireEvent], place: Place, total: int) -> int:
    ends = list(accumulate(len(event.data) for event in events))
    if place == "end":
        return next(
            end - len(event.data) for end, event in zip(ends, events, strict=True) if event.mark in ("stop", "last")
        )
    mark = _MARKS[place]
    found = [at for at, event in enumerate(events) if event.mark == mark]
    # Use the first of several blocks: the middle of all could be the end of one.
    found = [at for index, at in enumerate(found) if at == found[0] + index]
    if place == "after_call" and found:
        return ends[found[0]]
    if place == "mid_args" and not found:
        # A format that sends arguments whole is cut inside the event.
        whole = [at for at, event in enumerate(events) if event.mark == "call_end"]
        return ends[whole[0]] - len(events[whole[0]].data) // 2 if whole else total // 2
    if not found:
        return total // 2
    middle = found[(len(found) - 1) // 2]
    is_single = place == "mid_text" and len(found) == 1
    return ends[middle] - len(events[middle].data) // 2 if is_single else ends[middle]


def cut_events(events: list[WireEvent], offset: int) -> tuple[list[WireEvent], list[WireEvent]]:
    """Split events at a byte offset."""
    before: list[WireEvent] = []
    after: list[WireEvent] = []
    for event in events:
        size = len(event.data)
        if offset >= size:
            before.append(event)
        elif offset <= 0:
            after.append(event)
        else:
            before.append(replace(event, data=event.data[:offset]))
            after.append(replace(event, data=event.data[offset:]))
        offset -= size
    return before, after
