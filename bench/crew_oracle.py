"""What must hold after a crew was killed and brought to its end: functions from what is there to what is wrong."""

import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.crash import find_lost, is_acknowledgement
from bench.crew_script import ISOLATED, OFTEN, SOON, name_work

Json = dict[str, Any]


@dataclass(slots=True)
class Life:
    """What the session says about one run."""

    task: str
    is_read: bool = False
    starts: int = 0
    statuses: list[str] = field(default_factory=list)
    unstarted_end: bool = False
    is_requeued: bool = False
    branch: str = ""


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
            outcome = data["outcome"]
            status = outcome["status"]
            lives[run_id].statuses.append(status)
            lives[run_id].unstarted_end |= status == "interrupted" and not lives[run_id].starts
            lives[run_id].branch = outcome.get("branch", "")
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


def find_unsettled(lives: dict[str, Life], *, goes_on: bool = False) -> Iterator[str]:
    """Runs that do not end exactly once, or ended before they began though they only waited.

    A run that `goes_on` may begin again, and is never interrupted.
    """
    for run_id, life in lives.items():
        ends = ("completed",) if goes_on else ("completed", "interrupted")
        if len(life.statuses) != 1 or life.statuses[0] not in ends:
            yield f"run {run_id} ({life.task}) has final states {life.statuses}"
        elif life.unstarted_end:
            yield f"run {run_id} ({life.task}) waited, and was interrupted instead of queued again"
        elif life.starts != 1 and not goes_on:
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


def read_tokens(effects: Path) -> Counter[str]:
    """What commands have left, and how often."""
    return Counter(effects.read_text(encoding="utf-8").split()) if effects.exists() else Counter()


def has_loss(entries: list[Json]) -> bool:
    """Whether a call of a session has no result: its run was told that it may have happened."""
    messages = [entry["message"] for entry in entries if entry.get("type") == "message"]
    blocks = [block for message in messages if message["role"] == "assistant" for block in message["content"]]
    called = {block["id"] for block in blocks if block["type"] == "toolCall"}
    return not called <= {message.get("toolCallId") for message in messages}


def find_repeated(lives: dict[str, Life], done: Counter[str], losses: Collection[str] = ()) -> Iterator[str]:
    """Commands that ran more than once, and those of completed runs that did not run.

    The runs of the tasks in `losses` know that one may not have.
    """
    for token, count in done.items():
        if count > 1:
            yield f"command {token} ran {count} times"
    for life in lives.values():
        number = life.task.removeprefix("child-")
        if number == life.task or life.statuses != ["completed"] or life.task in losses:
            continue
        if not (done[f"{number}-1"] and done[f"{number}-2"]):
            yield f"{life.task} is completed without its commands"


def find_lost_work(lives: dict[str, Life], done: Counter[str], saved: set[str], branches: set[str]) -> Iterator[str]:
    """What children wrote into their copies and is in no branch, and branches that are named and not there."""
    isolated = {f"{number:02d}" for number in ISOLATED}
    for token in done:
        if token.partition("-")[0] in isolated and name_work(token) not in saved:
            yield f"the work of {token} is in no branch"
    for life in lives.values():
        if life.branch and life.branch not in branches:
            yield f"{life.task} names the branch {life.branch}, which is not there"
        if life.statuses == ["completed"] and life.task.removeprefix("child-") in isolated and not life.branch:
            yield f"{life.task} is completed and names no branch"


def find_bad_fires(records: Iterable[Json], jobs: list[Json], lives: dict[str, Life], due_often: int) -> Iterator[str]:
    """Jobs that were acknowledged and are not kept, fires without a run, and due times that started two."""
    kept = {job["id"] for job in jobs}
    for record in records:
        if record.get("type") != "subagents:scheduled":
            continue
        if record["change"] == "added" and record["job"]["id"] not in kept:
            yield f"the job {record['job']['name']} is not kept"
        if record["change"] == "fired" and record["agentId"] not in lives:
            yield f"the run {record['agentId']} of {record['name']} is not on record"
    runs = Counter(life.task for life in lives.values())
    for name, due in ((SOON, 1), (OFTEN, due_often)):
        if runs[name] > due:
            yield f"{name} was due {due} times and has {runs[name]} runs"
