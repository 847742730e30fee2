"""Truncates text for a model and reports what was cut."""

from typing import Any, Literal

from msgspec import Struct

MAX_LINES = 2000
MAX_BYTES = 50 * 1024
MAX_LINE_CHARS = 500
SPILL_CAP = 64 * 1024 * 1024
"""How many bytes of an output are kept on disk."""


class Truncation(Struct, frozen=True):
    """A truncated text and how it relates to the original."""

    content: str
    truncated_by: Literal["lines", "bytes"] | None
    total_lines: int
    total_bytes: int
    output_lines: int
    output_bytes: int
    last_line_partial: bool = False
    first_line_exceeds_limit: bool = False
    max_lines: int = MAX_LINES
    max_bytes: int = MAX_BYTES

    @property
    def truncated(self) -> bool:
        return self.truncated_by is not None

    def to_details(self) -> dict[str, Any]:
        """Return the facts for programs, without the text."""
        return {
            "truncated": self.truncated,
            "truncatedBy": self.truncated_by,
            "totalLines": self.total_lines,
            "totalBytes": self.total_bytes,
            "outputLines": self.output_lines,
            "outputBytes": self.output_bytes,
            "lastLinePartial": self.last_line_partial,
            "firstLineExceedsLimit": self.first_line_exceeds_limit,
            "maxLines": self.max_lines,
            "maxBytes": self.max_bytes,
        }


def truncate_head(text: str, *, max_lines: int = MAX_LINES, max_bytes: int = MAX_BYTES) -> Truncation:
    """Keep whole lines from the start; nothing if the first line alone is too long."""
    return _truncate(text, max_lines, max_bytes, is_tail=False)


def truncate_tail(text: str, *, max_lines: int = MAX_LINES, max_bytes: int = MAX_BYTES) -> Truncation:
    """Keep whole lines from the end; if the last line alone is too long, keep its end."""
    return _truncate(text, max_lines, max_bytes, is_tail=True)


def _truncate(text: str, max_lines: int, max_bytes: int, *, is_tail: bool) -> Truncation:
    size, lines = count_bytes(text), split_lines(text)
    if len(lines) <= max_lines and size <= max_bytes:
        return Truncation(text, None, len(lines), size, len(lines), size, max_lines=max_lines, max_bytes=max_bytes)
    kept: list[str] = []
    used = -1  # the first line has no line feed before it
    for line in reversed(lines[-max_lines:]) if is_tail else lines[:max_lines]:
        used += count_bytes(line) + 1
        if used > max_bytes:
            break
        kept.append(line)
    is_cut_short = len(kept) < min(len(lines), max_lines)
    is_partial = is_tail and not kept
    if is_partial:
        kept = [cut_start(lines[-1], max_bytes)]
    content = "\n".join(reversed(kept) if is_tail else kept)
    return Truncation(
        content,
        "bytes" if is_cut_short else "lines",
        len(lines),
        size,
        len(kept),
        count_bytes(content),
        last_line_partial=is_partial,
        first_line_exceeds_limit=not kept,
        max_lines=max_lines,
        max_bytes=max_bytes,
    )


def cut_start(text: str, max_bytes: int) -> str:
    """Return the last `max_bytes` bytes of a text, cut between characters."""
    return text.encode("utf-8", "replace")[-max_bytes:].decode("utf-8", "ignore")


def cut_line(line: str, max_chars: int = MAX_LINE_CHARS) -> tuple[str, bool]:
    """Cut a line to `max_chars` characters; also return whether it was cut."""
    if len(line) <= max_chars:
        return line, False
    return f"{line[:max_chars]}... [truncated]", True


def split_lines(text: str) -> list[str]:
    """Split at LF only; a final LF does not start another line."""
    if not text:
        return []
    lines = text.split("\n")
    if not lines[-1]:
        lines.pop()
    return lines


def count_bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "replace"))


def render_size(size: int) -> str:
    """Format a size for people: 512B, 1.5KB, 3.0MB, 2.0GB."""
    if size < 1024:
        return f"{size}B"
    value = float(size)
    for unit in ("KB", "MB", "GB"):
        value /= 1024
        if value < 1024 or unit == "GB":
            return f"{value:.1f}{unit}"
    raise AssertionError("unreachable")
