"""Shows a few lines of a run's output without marking its result as read.

A caller's regular expression may be malicious, so ripgrep matches it in linear time; an expression that it rejects is
matched literally.
"""

import asyncio
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import count, islice
from pathlib import Path
from typing import Any, TypeAlias

from msgspec import Struct

from retinue.features.transcript import read_messages
from retinue.surfaces.fleet.conversation import list_lines
from retinue.surfaces.fleet.result import MAX_CHARS

DEFAULT_LINES = 20
MAX_LINES = 200
MAX_LINE_CHARS = 2000
MAX_PATTERN_CHARS = 1000
MAX_SOURCE_LINES = 200_000
FILTER_S = 5.0
NOTHING = "No output yet for this agent."

Numbered: TypeAlias = tuple[int, str]


class Peek(Struct, frozen=True):
    lines: int = DEFAULT_LINES
    regex: str = ""
    after: int | None = None

    @classmethod
    def of(cls, given: dict[str, Any]) -> "Peek":
        """Read the argument; invalid values become the default."""
        lines, after, regex = given.get("lines"), given.get("after"), given.get("regex")
        is_count = isinstance(lines, int) and not isinstance(lines, bool) and lines >= 1
        return cls(
            min(lines, MAX_LINES) if is_count and lines is not None else DEFAULT_LINES,
            regex[:MAX_PATTERN_CHARS] if isinstance(regex, str) else "",
            after if isinstance(after, int) and not isinstance(after, bool) and after >= 0 else None,
        )


async def render_peek(peek: Peek, source: Iterable[str], name: str, program: str = "") -> str:
    """Return the selected lines, numbered as in the source. `program` is ripgrep; without it matching is literal."""
    numbered, total = await asyncio.to_thread(number_lines, source)
    if not total:
        return NOTHING
    if peek.regex:
        numbered = await filter_lines(peek.regex, numbered, program)
    if peek.after is None:
        picked = numbered[-peek.lines :]
        what = f"last {peek.lines} lines"
    else:
        picked = list(islice((line for line in numbered if line[0] > (peek.after or 0)), MAX_LINES))
        what = f"lines after {peek.after}"
    by = f", filtered by regex /{peek.regex}/," if peek.regex else ""
    shown, cut = _fit(picked)
    head = f"Showing {len(shown)} {what}{by} of {total} total ({name}). Line numbers index the full source."
    lines = [head, *(f"[{number}] {text}" for number, text in shown)]
    left = sum(1 for number, _ in numbered if picked and number > picked[-1][0]) if peek.after is not None else 0
    if shown and (cut or left):
        lines.append(f"[More lines follow: use peek.after = {shown[-1][0]}.]")
    return "\n".join(lines)


def number_lines(source: Iterable[str]) -> tuple[list[Numbered], int]:
    """Return the non-blank lines (at most MAX_SOURCE_LINES, the newest) with numbers from 1, and their total."""
    kept: deque[Numbered] = deque(maxlen=MAX_SOURCE_LINES)
    number = 0
    for number, text in zip(count(1), (line for line in source if line.strip()), strict=False):
        kept.append((number, text[:MAX_LINE_CHARS]))
    return list(kept), number


async def filter_lines(pattern: str, lines: list[Numbered], program: str) -> list[Numbered]:
    matched = await _ask_ripgrep(pattern, [text for _, text in lines], program) if program else None
    if matched is None:
        return [line for line in lines if pattern in line[1]]
    return [line for place, line in enumerate(lines) if place in matched]


async def _ask_ripgrep(pattern: str, texts: list[str], program: str) -> set[int] | None:
    """Return the indexes of matching texts; None if the pattern is invalid or takes too long."""
    if "\n" in pattern or "\0" in pattern:
        return None
    try:
        process = await asyncio.create_subprocess_exec(
            program,
            *("--no-config", "--color=never", "--no-filename", "--line-number", "--text", "--regexp", pattern, "-"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env={},
        )
    except (OSError, ValueError):
        return None
    body = "\n".join(text.replace("\n", " ").replace("\r", " ") for text in texts) + "\n"
    try:
        async with asyncio.timeout(FILTER_S):
            printed, _ = await process.communicate(body.encode(errors="replace"))
    except TimeoutError:
        return None
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    if process.returncode not in (0, 1):
        return None
    return {int(line.split(b":", 1)[0]) - 1 for line in printed.splitlines() if line[:1].isdigit()}


def _fit(lines: list[Numbered]) -> tuple[list[Numbered], bool]:
    left = MAX_CHARS
    for place, (number, text) in enumerate(lines):
        left -= len(text) + len(str(number)) + 4
        if left < 0:
            return lines[:place], True
    return lines, False


def read_transcript(path: Path) -> Iterator[str]:
    """Return the lines of a transcript; unreadable parts are skipped."""
    for message in read_messages(path):
        yield from list_lines(message)
