"""What an idle `retinue serve` with ten sessions costs."""

import json
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from bench.figure import Figure
from bench.workplace import CLI, open_workplace

SESSIONS, SECONDS = 10, 10


def measure() -> Iterator[Figure]:
    """Processor time and memory of the server and its sessions while nobody looks."""
    with open_workplace() as place:
        server = subprocess.Popen(
            [*CLI, "serve"], cwd=place.project, env=place.environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        try:
            assert server.stdout is not None
            server.stdout.readline()
            for _ in range(SESSIONS):
                place.run(*CLI, "--detach", "--model", "offline/rules", "--session-id", f"bench{_}")
            rows = json.loads(place.run(*CLI, "attach", "--list", "--json"))["sessions"]
            pids = [row["pid"] for row in rows if row["isOpen"]]
            time.sleep(3)  # until what a start leaves behind is done
            before = sum(map(read_ticks, [server.pid, *pids]))
            time.sleep(SECONDS)
            ticks = sum(map(read_ticks, [server.pid, *pids])) - before
            percent = 100 * ticks / os.sysconf("SC_CLK_TCK") / SECONDS
            memory = [read_memory_mb(pid) for pid in pids]
            yield Figure(f"processor, idle server with {len(pids)} sessions", percent, "% of a core", None)
            note = f"the server {read_memory_mb(server.pid):.0f} MB"
            yield Figure("memory per idle session", sum(memory) / len(memory), "MB", None, note)
        finally:
            for row in json.loads(place.run(*CLI, "attach", "--list", "--json"))["sessions"]:
                if row["isOpen"]:
                    place.run(*CLI, "attach", "--stop", row["id"])
            server.terminate()
            server.wait()


def read_ticks(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def read_memory_mb(pid: int) -> float:
    """What the process alone has in memory."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    found = (int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return next(found) / 1024
