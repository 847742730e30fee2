"""What a turn costs late in a conversation, as a multiple of what it costs early."""

import sys
from collections.abc import Iterator

from bench.figure import Figure
from bench.longsession import write_session
from bench.mock import serve
from bench.workplace import open_workplace

EARLY, LATE = 20, 400


def measure() -> Iterator[Figure]:
    """CPU of one turn with a long and with a short history."""
    with open_workplace() as place, serve(place.folder, {"replies": [{"text": "ok"}], "repeat": True}) as mock:
        place.use(mock)
        cost = {}
        for messages in (EARLY, LATE):
            path = write_session(place.folder / f"history-{messages}.jsonl", place.project, messages + 1, 0)
            command = [sys.executable, "-m", "bench.ours", "--continue-session", str(path)]
            cost[messages] = place.measure(*command)["turn_ms"]
    note = f"{cost[LATE]:.2f} ms of CPU at {LATE} messages, {cost[EARLY]:.2f} ms at {EARLY}"
    yield Figure("cost of a turn late / early", cost[LATE] / cost[EARLY], "×", 3, note)
