"""`kill -9` of the whole process over a crew of twenty: what the next start makes of it.

The stream of each process says what was promised, the session says what is on record, a file that every command
appends to says what was really done. Also a sample of it runs as a test. Prints its seed.
"""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.crash import find_lost, is_acknowledgement, parse_lines
from bench.figure import Figure
from bench.mock import serve, write_sample
from bench.workplace import CLI, Workplace, open_workplace

KILLS, CHILDREN, CONCURRENT = 500, 20, 4
ORPHAN_S = 2.0
JOINS = ("async", "smart")
AGAIN = 0.3
"""How many second processes are killed too."""
Json = dict[str, Any]


@dataclass(slots=True)
class Damage:
    """What a sweep found to be wrong, each with the number of its kill; `landed` and `seen` are how much was tried."""

    lost: list[str] = field(default_factory=list)
    unsettled: list[str] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)
    repeated: list[str] = field(default_factory=list)
    orphans: list[str] = field(default_factory=list)
    unopened: list[str] = field(default_factory=list)
    landed: int = 0
    acknowledged: int = 0
    interrupted: int = 0
    requeued: int = 0

    @property
    def all(self) -> list[str]:
        """Everything that is wrong."""
        return [*self.lost, *self.unsettled, *self.notices, *self.repeated, *self.orphans, *self.unopened]


def measure() -> Iterator[Figure]:
    """Kill many crews, count what went wrong."""
    seed = random.SystemRandom().randrange(2**32)
    print(f"crew-crash: seed {seed}", file=sys.stderr)
    found = sweep(KILLS, seed)
    note = (
        f"{found.landed} kills of a crew of {CHILDREN}, {found.acknowledged} acknowledged records, "
        f"{found.interrupted} runs interrupted, {found.requeued} queued again; seed {seed}"
    )
    yield Figure("crew: acknowledged but missing after kill -9", len(found.lost), "", 0, note)
    yield Figure("crew: runs without exactly one final state", len(found.unsettled), "", 0)
    yield Figure("crew: reports lost or doubled", len(found.notices), "", 0)
    yield Figure("crew: tool effects repeated", len(found.repeated), "", 0)
    yield Figure(f"crew: processes left after {ORPHAN_S:g} s", len(found.orphans), "", 0)
    yield Figure("crew: sessions that do not go on", len(found.unopened), "", 0)


def sweep(kills: int, seed: int) -> Damage:
    """Kill so many crews at random moments, let the next start finish the work, and look at what there is."""
    chance = random.Random(seed)
    found = Damage()
    with open_workplace() as place:
        script = script_crew(write_sample(place.project), place.project / "effects.txt")
        with serve(place.folder, script) as mock:
            place.use(mock)
            write_settings(place, JOINS[0])
            whole_s = time_whole(place)
            for number in range(kills):
                write_settings(place, JOINS[number % len(JOINS)])
                Scene(place, number, found).play(chance, whole_s)
    return found


class Scene:
    """One crew that is killed once or twice and then brought to its end."""

    def __init__(self, place: Workplace, number: int, found: Damage) -> None:
        self._place = place
        self._number = number
        self._found = found
        self._session = place.folder / f"crew-{number}.jsonl"
        self._effects = place.project / "effects.txt"
        self._records: list[Json] = []

    def play(self, chance: random.Random, whole_s: float) -> None:
        """Kill, kill again perhaps, go on, look."""
        self._effects.unlink(missing_ok=True)
        self._kill("begin", chance.uniform(0.2, 1) * whole_s)
        if not self._session.exists():
            return
        if chance.random() < AGAIN:
            self._kill("go on", chance.uniform(0.2, 1) * whole_s)
        problem = self._finish()
        if problem:
            self._found.unopened.append(f"kill {self._number}: {problem}")
            return
        entries = parse_lines(self._session.read_bytes())
        self._look(entries)
        self._session.unlink()

    def _kill(self, prompt: str, after_s: float) -> None:
        output = self._place.folder / "stream.jsonl"
        with open(output, "wb") as sink:
            process = subprocess.Popen(
                build_command(self._session, prompt),
                cwd=self._place.project,
                env=self._place.environment,
                stdout=sink,
                stderr=subprocess.DEVNULL,
            )
            try:
                process.wait(after_s)
            except subprocess.TimeoutExpired:
                self._found.landed += 1
            process.send_signal(signal.SIGKILL)
            process.wait()
        self._records += parse_lines(output.read_bytes())
        left = await_end_of_processes(self._place)
        self._found.orphans += [f"kill {self._number}: {line}" for line in left]

    def _finish(self) -> str:
        """Start again and let it work to its end; what is wrong, if anything."""
        try:
            stream = self._place.run(*build_command(self._session, "go on"), timeout_s=60)
        except (RuntimeError, subprocess.TimeoutExpired) as error:
            return str(error)
        self._records += parse_lines(stream.encode())
        return ""

    def _look(self, entries: list[Json]) -> None:
        found = self._found
        lives = read_lives(entries)
        tell = f"kill {self._number}: {{}}".format
        found.acknowledged += sum(is_promise(record) for record in self._records)
        found.lost += map(tell, find_lost_of_crew(self._records, entries, self._session))
        found.unsettled += map(tell, find_unsettled(lives))
        found.notices += map(tell, find_bad_notices(lives, entries))
        found.repeated += map(tell, find_repeated(lives, self._effects))
        found.interrupted += sum(life.statuses == ["interrupted"] for life in lives.values())
        found.requeued += sum(life.is_requeued for life in lives.values())


def script_crew(sample: Path, effects: Path) -> Json:
    """A parent that starts twenty children in one reply; each runs two commands that leave a trace, and reads."""
    pace = {"delay_ms": 2}
    spawn = [
        {"name": "Agent", "arguments": {"prompt": f"child-{number:02d}", "description": f"child {number}"}}
        for number in range(CHILDREN)
    ]
    parent = {"first_user": "^begin|^go on"}
    replies: list[Json] = [{"calls": spawn, "match": parent, **pace}]
    replies += [{"text": f"Noted ({number}).", "match": parent, **pace} for number in range(4 * CHILDREN)]
    for number in range(CHILDREN):
        match = {"first_user": f"child-{number:02d}"}
        steps = [
            {
                "calls": [
                    {"name": "bash", "arguments": {"command": f"echo {number:02d}-{step} >> {effects}; sleep 0.02"}}
                ]
            }
            for step in (1, 2)
        ]
        look = {"calls": [{"name": "read", "arguments": {"path": str(sample)}}]}
        answer = {"text": f"Child {number:02d} is done."}
        replies += [{**reply, "match": match, **pace} for reply in (steps[0], look, steps[1], answer)]
    return {"replies": replies}


def write_settings(place: Workplace, join: str) -> None:
    """Few at once, so that many wait."""
    settings = {"maxConcurrent": CONCURRENT, "defaultJoinMode": join}
    (place.agent_dir / "subagents.json").write_text(json.dumps(settings), encoding="utf-8")


def build_command(session: Path, prompt: str) -> list[str]:
    """One process on a certain session."""
    return [*CLI, "-p", "--mode", "json", "--model", "mock/bench", "--session", str(session), prompt]


def time_whole(place: Workplace) -> float:
    """How long an undisturbed crew takes."""
    begun_s = time.monotonic()
    place.run(*build_command(place.folder / "whole.jsonl", "begin"))
    return time.monotonic() - begun_s


def await_end_of_processes(place: Workplace) -> list[str]:
    """The command lines of what still runs in this workplace when time is over."""
    ends_s = time.monotonic() + ORPHAN_S
    while (left := list_processes(place)) and time.monotonic() < ends_s:
        time.sleep(0.01)
    return left


def list_processes(place: Workplace) -> list[str]:
    """Whatever has this workplace's home for its home."""
    mark, left = f"HOME={place.folder / 'home'}".encode(), []
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit() or folder.name == str(os.getpid()):
            continue
        try:
            if mark in (folder / "environ").read_bytes().split(b"\0"):
                left.append((folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        except OSError:
            continue
    return left


@dataclass(slots=True)
class Life:
    """What the session says about one run."""

    task: str
    is_read: bool = False
    starts: int = 0
    statuses: list[str] = field(default_factory=list)
    unstarted_end: bool = False
    is_requeued: bool = False


def read_lives(entries: list[Json]) -> dict[str, Life]:
    """The crew entries, run by run."""
    lives: dict[str, Life] = {}
    main_runs = 0
    queued_in: dict[str, int] = {}
    for entry in entries:
        if entry.get("type") == "message" and entry["message"].get("role") == "user":
            main_runs += 1
        if entry.get("type") != "custom" or entry.get("customType") != "retinue.crew":
            continue
        data = entry["data"]
        run_id = data["runId"]
        if data["type"] == "RunQueued":
            lives[run_id] = Life(data["request"]["task"])
            queued_in[run_id] = main_runs
        elif data["type"] == "RunStarted":
            lives[run_id].starts += 1
            lives[run_id].is_requeued = queued_in[run_id] != main_runs
        elif data["type"] == "RunRead":
            lives[run_id].is_read = True
        elif data["type"] == "RunFinished":
            status = data["outcome"]["status"]
            lives[run_id].statuses.append(status)
            lives[run_id].unstarted_end |= status == "interrupted" and not lives[run_id].starts
    return lives


def is_promise(record: Json) -> bool:
    """Whether a record of a stream promises that something is on disk."""
    return is_acknowledgement(record) or str(record.get("type", "")).startswith("subagents:")


def find_lost_of_crew(records: list[Json], entries: list[Json], session: Path) -> list[str]:
    """What a stream told and the session does not have."""
    promised = [record for record in records if is_acknowledgement(record)]
    plain = [record for record in promised if record.get("message", {}).get("role") != "custom"]
    told = {json.dumps(entry.get("details"), sort_keys=True) for entry in entries if is_notice(entry)}
    custom = [record for record in promised if record.get("message", {}).get("role") == "custom"]
    lost = [json.dumps(record)[:300] for record in find_lost(plain, session)]
    lost += [
        json.dumps(record)[:300]
        for record in custom
        if json.dumps(record["message"].get("details"), sort_keys=True) not in told
    ]
    kinds = {"created": "RunQueued", "started": "RunStarted", "completed": "RunFinished", "failed": "RunFinished"}
    written = {
        (entry["data"]["type"], entry["data"]["runId"])
        for entry in entries
        if entry.get("type") == "custom" and entry.get("customType") == "retinue.crew"
    }
    for record in records:
        kind = kinds.get(str(record.get("type", "")).removeprefix("subagents:"))
        if kind is not None and (kind, record["id"]) not in written:
            lost.append(f"{kind} of {record['id']}")
    return lost


def find_unsettled(lives: dict[str, Life]) -> Iterator[str]:
    """Runs that do not end exactly once, or ended before they began though they only waited."""
    for run_id, life in lives.items():
        if len(life.statuses) != 1 or life.statuses[0] not in ("completed", "interrupted"):
            yield f"run {run_id} ({life.task}) has final states {life.statuses}"
        elif life.unstarted_end:
            yield f"run {run_id} ({life.task}) waited, and was interrupted instead of queued again"
        elif life.starts != 1:
            yield f"run {run_id} ({life.task}) began {life.starts} times"


def is_notice(entry: Json) -> bool:
    """Whether an entry tells a parent of finished runs."""
    return entry.get("type") == "custom_message" and entry.get("customType") == "subagent-notification"


def find_bad_notices(lives: dict[str, Life], entries: list[Json]) -> Iterator[str]:
    """Runs whose end was not told exactly once."""
    told: Counter[str] = Counter()
    for entry in filter(is_notice, entries):
        details = entry.get("details") or {}
        told.update(item["id"] for item in (details, *details.get("others", ())))
    for run_id, life in lives.items():
        if told[run_id] != (0 if life.is_read else 1):
            yield f"run {run_id} ({life.task}, {life.statuses}) was told {told[run_id]} times"


def find_repeated(lives: dict[str, Life], effects: Path) -> Iterator[str]:
    """Commands that ran more than once, and those of completed runs that did not run."""
    done = Counter(effects.read_text(encoding="utf-8").split()) if effects.exists() else Counter()
    for token, count in done.items():
        if count > 1:
            yield f"command {token} ran {count} times"
    for life in lives.values():
        number = life.task.removeprefix("child-")
        if life.statuses == ["completed"] and not (done[f"{number}-1"] and done[f"{number}-2"]):
            yield f"{life.task} is completed without its commands"
