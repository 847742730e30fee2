"""`kill -9` at random moments: what the JSON stream acknowledged must be in the session file.

Also a sample of it runs as a test. Prints its seed.
"""

import json
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.figure import Figure
from bench.mock import serve, write_sample
from bench.workplace import CLI, Workplace, open_workplace

KILLS = 500
Json = dict[str, Any]


def measure() -> Iterator[Figure]:
    """Kill many runs, count what was lost and what cannot be opened again."""
    seed = random.SystemRandom().randrange(2**32)
    print(f"crash: seed {seed}", file=sys.stderr)
    lost, unopened, acknowledged, landed = sweep(KILLS, seed)
    note = f"{KILLS} kills, {landed} while it worked, {acknowledged} acknowledged records; seed {seed}"
    yield Figure("acknowledged but missing after kill -9", len(lost), "", 0, note)
    yield Figure("sessions that do not open again", len(unopened), "", 0, "every tenth by `--continue`, all by reading")


def sweep(kills: int, seed: int) -> tuple[list[Json], list[str], int, int]:
    """What was lost, which sessions do not open, how much was acknowledged, how many kills hit a living process."""
    chance = random.Random(seed)
    lost: list[Json] = []
    unopened: list[str] = []
    acknowledged = landed = 0
    with open_workplace() as place, serve(place.folder, script_busy_run(write_sample(place.project))) as mock:
        place.use(mock)
        whole_s = time_whole(place)
        for number in range(kills):
            session = place.folder / f"session-{number}.jsonl"
            stream, was_alive = kill_run(place, session, chance.uniform(0, whole_s))
            landed += was_alive
            records = [record for record in parse_lines(stream) if is_acknowledgement(record)]
            acknowledged += len(records)
            lost += find_lost(records, session)
            reason = explain_unopened(place, session, by_program=number % 10 == 0) if session.exists() else ""
            if reason:
                print(f"crash: kill {number}: {reason}", file=sys.stderr)
                unopened.append(reason)
            session.unlink(missing_ok=True)
    return lost, unopened, acknowledged, landed


def script_busy_run(sample: Path) -> Json:
    """Turns with several calls each, quick, so that most moments are in the middle of something."""
    pace = {"delay_ms": 3, "chunk_ms": 1, "chunk_chars": 40}
    read = {"name": "read", "arguments": {"path": str(sample)}}
    shell = {"name": "bash", "arguments": {"command": "sleep 0.01; echo done"}}
    turns = [{"calls": [read, shell, read], **pace} for _ in range(6)]
    return {"replies": [*turns, {"text": "All is read. " * 20, **pace}], "repeat": True}


def build_command(session: Path, *, mode: str = "json") -> list[str]:
    """One run whose session is a certain file."""
    return [*CLI, "-p", "--mode", mode, "--model", "mock/bench", "--session", str(session), "read it"]


def time_whole(place: Workplace) -> float:
    """How long an undisturbed run takes."""
    begun_s = time.monotonic()
    place.run(*build_command(place.folder / "whole.jsonl"))
    return time.monotonic() - begun_s


def kill_run(place: Workplace, session: Path, after_s: float) -> tuple[bytes, bool]:
    """Start a run, kill it, and return what it had printed and whether it still lived."""
    output = place.folder / "stream.jsonl"
    with open(output, "wb") as sink:
        process = subprocess.Popen(
            build_command(session), cwd=place.project, env=place.environment, stdout=sink, stderr=subprocess.DEVNULL
        )
        time.sleep(after_s)
        was_alive = process.poll() is None
        process.send_signal(signal.SIGKILL)
        process.wait()
    return output.read_bytes(), was_alive


def parse_lines(data: bytes) -> list[Json]:
    """The complete lines that are JSON objects; what was being written when the end came does not count."""
    complete, _, _ = data.rpartition(b"\n")
    found = []
    for line in complete.splitlines():
        try:
            found.append(json.loads(line))
        except ValueError:
            continue
    return found


def is_acknowledgement(record: Json) -> bool:
    """Whether a record promises that something is on disk."""
    return record.get("type") in ("message_end", "tool_execution_end")


def find_lost(records: list[Json], session: Path) -> list[Json]:
    """The acknowledged records that the session file does not have."""
    entries = parse_lines(session.read_bytes() + b"\n") if session.exists() else []
    messages = {to_key(entry["message"]) for entry in entries if entry.get("type") == "message"}
    results = {call for entry in entries for call in find_results(entry)}
    return [
        record
        for record in records
        if (record["type"] == "message_end" and to_key(record["message"]) not in messages)
        or (record["type"] == "tool_execution_end" and record["toolCallId"] not in results)
    ]


def to_key(message: Json) -> str:
    """A message as text that is equal for equal messages."""
    return json.dumps(message, sort_keys=True)


def find_results(entry: Json) -> Iterator[str]:
    """Ids of the calls whose result an entry holds."""
    if entry.get("type") == "message" and entry["message"].get("role") == "toolResult":
        yield entry["message"]["toolCallId"]
    if entry.get("type") == "custom" and isinstance(entry.get("data"), dict) and "toolCallId" in entry["data"]:
        yield entry["data"]["toolCallId"]


def explain_unopened(place: Workplace, session: Path, *, by_program: bool) -> str:
    """Why the next start cannot use a session; empty when it can."""
    if by_program:
        try:
            answer = place.run(*build_command(session, mode="text"))
        except RuntimeError as error:
            return str(error)
        return "" if "All is read." in answer else f"unexpected answer {answer[:200]!r}"
    from retinue.core.errors import SessionError
    from retinue.engine.clock import SystemClock
    from retinue.sessions.log import Session

    try:
        opened = Session.open(session, clock=SystemClock(), new_id=lambda: "bench")
        opened.context()
        opened.close()
    except SessionError as error:
        return str(error)
    return ""
