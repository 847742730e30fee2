"""Parse server-sent events from a byte stream.

Event names are dropped: every supported wire format repeats them in the data. This file must not know what the data
means.
"""

_BOM = b"\xef\xbb\xbf"


class EventTooLong(ValueError):
    """One event exceeds the size limit of the parser."""


class SseParser:
    """Splits a byte stream into event payloads, wherever the chunks are cut."""

    __slots__ = ("_after_cr", "_begun", "_held", "_held_bytes", "_limit_bytes")

    def __init__(self, limit_bytes: int = 64 << 20) -> None:
        self._held: list[bytes] = []
        self._held_bytes = 0
        self._limit_bytes = limit_bytes
        self._after_cr = False
        self._begun = False

    def feed(self, chunk: bytes) -> list[bytes]:
        """Add bytes; returns the payloads of the completed events."""
        if self._after_cr or b"\r" in chunk:
            chunk = self._unify_line_ends(chunk)
        if self._held:
            if b"\n\n" not in chunk and not (chunk.startswith(b"\n") and self._held[-1].endswith(b"\n")):
                return self._hold(chunk)
            chunk = b"".join((*self._held, chunk))
            self._held.clear()
            self._held_bytes = 0
        if not chunk.endswith(b"\n\n"):
            cut = chunk.rfind(b"\n\n")
            if cut < 0:
                return self._hold(chunk)
            self._hold(chunk[cut + 2 :])
            chunk = chunk[:cut]
        return self._split(chunk)

    def flush(self) -> list[bytes]:
        """At the end of the stream: the payload of a last event without its blank line, possibly cut off."""
        rest = b"".join(self._held)
        self._held.clear()
        self._held_bytes = 0
        return self._split(rest) if rest else []

    def _hold(self, chunk: bytes) -> list[bytes]:
        if chunk:
            self._held.append(chunk)
            self._held_bytes += len(chunk)
            if self._held_bytes > self._limit_bytes:
                raise EventTooLong(f"an event is longer than {self._limit_bytes} bytes")
        return []

    def _unify_line_ends(self, chunk: bytes) -> bytes:
        # A CR at the end of a chunk already ends the line; an LF at the start of the next chunk belongs to it.
        if self._after_cr and chunk.startswith(b"\n"):
            chunk = chunk[1:]
            self._after_cr = False
        if chunk:
            self._after_cr = chunk.endswith(b"\r")
        return chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    def _split(self, events: bytes) -> list[bytes]:
        if not self._begun:
            self._begun = True
            events = events.removeprefix(_BOM)
        payloads = []
        for event in events.split(b"\n\n"):
            if event.startswith(b"data: ") and b"\n" not in event:
                payloads.append(event[6:])
            elif event:
                payload = b"\n".join(_data_lines(event))
                if payload:
                    payloads.append(payload)
        return payloads


def _data_lines(event: bytes) -> list[bytes]:
    lines = []
    for line in event.split(b"\n"):
        if line.startswith(b"data:"):
            lines.append(line[6:] if line[5:6] == b" " else line[5:])
    return lines
