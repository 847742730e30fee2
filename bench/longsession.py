"""A session of 100,000 lines: open it, continue it, with a compaction in it and without."""

import json
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.figure import Figure
from bench.mock import serve
from bench.workplace import CLI, Workplace, open_workplace

LINES, KEPT, ROUNDS = 100_000, 400, 3
ISO, EPOCH_MS = "2026-01-01T00:00:00.000Z", 1_767_225_600_000
USAGE = {"input": 10, "output": 5, "cacheRead": 0, "cacheWrite": 0, "totalTokens": 15,
         "cost": {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0, "total": 0}}  # fmt: skip


def measure() -> Iterator[Figure]:
    """From the start of the program to its end, with one reply that takes no time."""
    script = {"replies": [{"text": "continued"}], "repeat": True}
    with open_workplace() as place, serve(place.folder, script) as mock:
        place.use(mock)
        short_s = time_continue(place, write_session(place.folder / "short.jsonl", place.project, 20, 0))
        path = write_session(place.folder / "long.jsonl", place.project, LINES, KEPT)
        size_mb = path.stat().st_size / 1e6
        took_s = time_continue(place, path)
        whole_s = time_continue(place, write_session(place.folder / "whole.jsonl", place.project, LINES, 0))
    note = f"{size_mb:.0f} MB, start of the program to its end; a session of 20 lines: {short_s:.2f} s"
    yield Figure("open and continue a session of 100,000 lines", took_s, "s", 2, note)
    yield Figure("the same, all of it sent to the model", whole_s, "s", None, "no compaction, one request of 50 MB")


def time_continue(place: Workplace, path: Path) -> float:
    """Median wall time of one more prompt."""
    times = []
    for _ in range(ROUNDS):
        begun_s = time.perf_counter()
        answer = place.run(*CLI, "-p", "--model", "mock/bench", "--session", str(path), "go on")
        times.append(time.perf_counter() - begun_s)
        if answer.strip() != "continued":
            raise RuntimeError(f"{path.name} was not continued: {answer!r}")
    return statistics.median(times)


def write_session(path: Path, cwd: Path, lines: int, kept: int) -> Path:
    """A session of so many lines; with `kept`, a compaction leaves that many messages in the context."""
    compacted_at = lines - 1 - kept if kept else -1
    with open(path, "w", encoding="utf-8") as file:
        header = {"type": "session", "version": 3, "id": "bench-long", "timestamp": ISO, "cwd": str(cwd)}
        file.write(json.dumps(header) + "\n")
        parent: str | None = None
        for number in range(1, lines):
            entry_id = f"{number:08x}"
            body: dict[str, Any] = {"type": "message", "message": make_message(number)}
            if number == compacted_at:
                body = {"type": "compaction", "summary": "What was done before.", "tokensBefore": 100_000,
                        "firstKeptEntryId": parent}  # fmt: skip
            file.write(json.dumps({**body, "id": entry_id, "parentId": parent, "timestamp": ISO}) + "\n")
            parent = entry_id
    return path


def make_message(number: int) -> dict[str, Any]:
    """A user's words or a reply, about 400 characters."""
    content = [{"type": "text", "text": f"Message {number}. " + "Some words about the code. " * 12}]
    if number % 2:
        return {"role": "user", "content": content, "timestamp": EPOCH_MS + number}
    return {
        "role": "assistant", "content": content, "api": "openai-completions", "provider": "mock", "model": "bench",
        "usage": USAGE, "stopReason": "stop", "timestamp": EPOCH_MS + number,
    }  # fmt: skip
