"""`kill -9` of the whole process over a crew of twenty, some in copies, with schedules: what the next start finds.

The stream of each process says what was promised, the session says what is on record, a file that every command
appends to says what was really done, branches say what became of work in copies. Also a sample of it runs as a test.
Prints its seed.
"""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from bench import crew_oracle as oracle
from bench.crash import parse_lines
from bench.crew_script import (
    CHILDREN,
    INTERVAL_S,
    LATE_S,
    OFTEN,
    build_command,
    find_effects,
    make_repository,
    read_jobs,
    renew_project,
    script_crew,
    write_settings,
)
from bench.figure import Figure
from bench.findings import Findings
from bench.mock import serve, write_sample
from bench.workplace import Workplace, open_workplace

KILLS, LANES = 500, 3
ORPHAN_S = 2.0
JOINS = ("async", "smart")
AGAIN = 0.3
"""How many second processes are killed too."""
MOST_RECORDS, MOST_WAIT_S = 250, 0.25
"""What a process may tell, and how long it may live after that, before it is killed: it tells 270 and more in all."""
Json = dict[str, Any]


@dataclass(slots=True)
class Damage(Findings):
    """What a sweep found to be wrong, each with the number of its kill; the numbers are how much was tried."""

    unsettled: list[str] = field(default_factory=list)
    work: list[str] = field(default_factory=list)
    unopened: list[str] = field(default_factory=list)
    landed: int = 0
    acknowledged: int = 0
    interrupted: int = 0
    requeued: int = 0
    saved: int = 0
    """Files of copies that are in branches."""
    salvaged: int = 0
    """Runs in copies that were cut off, with their work in a branch."""
    fired: int = 0

    def add(self, other: "Damage") -> None:
        """Take what another sweep found."""
        for each in fields(self):
            setattr(self, each.name, getattr(self, each.name) + getattr(other, each.name))


def measure() -> Iterator[Figure]:
    """Kill many crews, count what went wrong."""
    seed = random.SystemRandom().randrange(2**32)
    print(f"crew-crash: seed {seed}", file=sys.stderr)
    found = sweep(KILLS, seed, lanes=LANES)
    for line in found.all:
        print(f"crew-crash: {line}", file=sys.stderr)
    note = (
        f"{found.landed} kills of a crew of {CHILDREN}, {found.acknowledged} acknowledged records, "
        f"{found.interrupted} runs interrupted, {found.requeued} queued again; seed {seed}"
    )
    yield Figure("crew: acknowledged but missing after kill -9", len(found.lost), "", 0, note)
    yield Figure("crew: runs without exactly one final state", len(found.unsettled), "", 0)
    yield Figure("crew: reports lost or doubled", len(found.notices), "", 0)
    yield Figure("crew: tool effects repeated", len(found.repeated), "", 0, f"{found.fired} runs of schedules")
    yield Figure(f"crew: processes left after {ORPHAN_S:g} s", len(found.orphans), "", 0)
    note = f"{found.saved} files of copies in branches, the work of {found.salvaged} interrupted runs among them"
    yield Figure("crew: work of agents lost", len(found.work), "", 0, note)
    yield Figure("crew: sessions that do not go on", len(found.unopened), "", 0)


def sweep(kills: int, seed: int, *, lanes: int = 1, runner: str = "inprocess") -> Damage:
    """Kill so many crews at random moments, let the next start finish the work, and look at what there is."""
    found = Damage()
    with ThreadPoolExecutor(lanes) as pool:
        shares = [range(lane, kills, lanes) for lane in range(lanes)]
        for damage in pool.map(lambda share: sweep_lane(share, seed, runner), shares):
            found.add(damage)
    return found


def sweep_lane(numbers: range, seed: int, runner: str) -> Damage:
    """The kills of these numbers, one after the other."""
    found = Damage()
    with open_workplace() as place:
        template = place.folder / "template"
        make_repository(template)
        with serve(place.folder, script_crew(write_sample(place.folder), find_effects(place))) as mock:
            place.use(mock)
            for number in numbers:
                write_settings(place, JOINS[number % len(JOINS)], runner)
                renew_project(place, template)
                Scene(place, number, found, is_durable=runner == "durable").play(random.Random(seed + number))
    return found


class Scene:
    """One crew that is killed once or twice and then brought to its end."""

    def __init__(self, place: Workplace, number: int, found: Damage, *, is_durable: bool) -> None:
        self._place = place
        self._number = number
        self._found = found
        self._is_durable = is_durable
        self._session = place.folder / f"crew-{number}.jsonl"
        self._records: list[Json] = []
        self._due_often = 0

    def play(self, chance: random.Random) -> None:
        """Kill, kill again perhaps, go on, look."""
        begun_s = time.monotonic()
        self._kill("begin", chance)
        if not self._session.exists():
            return
        if chance.random() < AGAIN:
            self._kill("go on", chance)
        problem = self._finish()
        self._due_often += int(time.monotonic() - begun_s) // INTERVAL_S
        if problem:
            self._found.unopened.append(f"kill {self._number}: {problem}")
            return
        self._look(parse_lines(self._session.read_bytes()))
        self._session.unlink()

    def _kill(self, prompt: str, chance: random.Random) -> None:
        """Kill a process a moment after it has told so much; time alone would miss it on a busy machine."""
        self._let_time_pass()
        after_records, after_s = chance.randrange(MOST_RECORDS), chance.uniform(0, MOST_WAIT_S)
        output = self._place.folder / "stream.jsonl"
        with open(output, "wb") as sink:
            process = subprocess.Popen(
                build_command(self._session, prompt),
                cwd=self._place.project,
                env=self._place.environment,
                stdout=sink,
                stderr=subprocess.DEVNULL,
            )
            while process.poll() is None and output.read_bytes().count(b"\n") < after_records:
                time.sleep(0.002)
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
        self._let_time_pass()
        try:
            stream = self._place.run(*build_command(self._session, "go on"), timeout_s=60)
        except (RuntimeError, subprocess.TimeoutExpired) as error:
            return str(error)
        self._records += parse_lines(stream.encode())
        return ""

    def _let_time_pass(self) -> None:
        """What repeats is overdue when the next process starts, as if that were long after."""
        moment = datetime.now(UTC) - timedelta(seconds=LATE_S)
        for path in (self._place.project / ".pi" / "subagent-schedules").glob("*.json"):
            content = json.loads(path.read_text(encoding="utf-8"))
            for job in content["jobs"]:
                if job["name"] == OFTEN:
                    job["nextRun"] = moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
                    self._due_often += 1
            path.write_text(json.dumps(content), encoding="utf-8")

    def _look(self, entries: list[Json]) -> None:
        found, place = self._found, self._place
        lives, done = oracle.read_lives(entries), oracle.read_tokens(find_effects(place))
        saved, branches = list_saved(place), set(ask_git(place, "for-each-ref", "--format=%(refname:short)"))
        jobs = read_jobs(place)
        tell = f"kill {self._number}: {{}}".format
        found.acknowledged += sum(oracle.is_promise(record) for record in self._records)
        found.lost += map(tell, oracle.find_lost_of_crew(self._records, entries, self._session))
        found.unsettled += map(tell, oracle.find_unsettled(lives, goes_on=self._is_durable))
        found.notices += map(tell, oracle.find_bad_notices(lives, entries))
        found.repeated += map(tell, oracle.find_repeated(lives, done, self._read_losses()))
        found.repeated += map(tell, oracle.find_bad_fires(self._records, jobs, lives, self._due_often))
        found.work += map(tell, oracle.find_lost_work(lives, done, saved, branches))
        found.work += map(tell, find_left_copies(place))
        found.interrupted += sum(life.statuses == ["interrupted"] for life in lives.values())
        found.requeued += sum(life.is_requeued for life in lives.values())
        found.saved += len(saved)
        found.salvaged += sum(life.statuses == ["interrupted"] and life.branch != "" for life in lives.values())
        found.fired += sum(not life.task.startswith("child") for life in lives.values())

    def _read_losses(self) -> set[str]:
        """The tasks of runs that were told of a call whose effect is unknown."""
        if not self._is_durable:
            return set()
        found = set()
        for path in self._session.with_suffix("").glob("*/session.jsonl"):
            entries = parse_lines(path.read_bytes())
            words = [entry["message"]["content"][0]["text"] for entry in entries if is_user(entry)]
            if words and oracle.has_loss(entries):
                found.add(words[0])
        return found


def is_user(entry: Json) -> bool:
    """Whether an entry is something a user said."""
    return entry.get("type") == "message" and bool(entry["message"].get("role") == "user")


def ask_git(place: Workplace, *words: str) -> list[str]:
    """The lines that git prints about the project."""
    done = subprocess.run(["git", *words], cwd=place.project, check=True, capture_output=True, text=True)
    return done.stdout.splitlines()


def list_saved(place: Workplace) -> set[str]:
    """The files that are in some commit, of the work of children."""
    return {name for name in ask_git(place, "log", "--all", "--name-only", "--format=") if name.startswith("work-")}


def find_left_copies(place: Workplace) -> Iterator[str]:
    """Copies and records of copies that nobody works in any more."""
    copies = [line for line in ask_git(place, "worktree", "list", "--porcelain") if line.startswith("worktree ")]
    yield from (f"a copy is left: {line}" for line in copies[1:])
    records = (place.agent_dir / "retinue" / "worktrees").glob("*.json")
    yield from (f"a record of a copy is left: {path.name}" for path in records)


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
