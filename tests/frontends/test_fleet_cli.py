import json
import subprocess
import time

import pytest

from retinue.testing import make_repo

COPIER = "---\nname: copier\ndescription: d\ntools: read, write\nisolation: worktree\n---\n\nWork.\n"


def to(words, **reply):
    return {"match": {"last_user": words}, **reply}


def agent(**arguments):
    asked = {"subagent_type": "general-purpose", "prompt": "make it", "description": "a file", **arguments}
    return [{"name": "Agent", "arguments": asked}]


def write(path):
    return [{"name": "write", "arguments": {"path": path, "content": "new\n"}}]


def git(place, *arguments):
    done = subprocess.run(["git", *arguments], cwd=place.work, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def records(place):
    """Runs `retinue -p --mode json` with a script for a model; gives back what it wrote."""

    def run(*args, replies):
        done = place.run("-p", "--mode", "json", *args, replies=replies)
        assert (done.status, done.stderr) == (0, "")
        return [json.loads(line) for line in done.stdout.splitlines()]

    return run


@pytest.mark.spec("fleet:B92")
def test_branch_of_a_run_is_told(place, records):
    make_repo(place.work, {"a.txt": "one\n"})
    replies = [
        to("^begin", calls=agent(isolation="worktree")),
        to("^begin", text="started"),
        to("^make", calls=write("new.txt")),
        to("^make", text="Made it"),
        to("Changes saved to branch", text="Thank you"),
    ]
    told = records("begin", replies=replies)
    (done,) = [record for record in told if record["type"] == "subagents:completed"]
    branch = f"pi-agent-{done['id']}"
    assert done["result"] == f"Made it\n\n---\nChanges saved to branch `{branch}`\nMerge: `git merge {branch}`"
    assert (git(place, "show", f"{branch}:new.txt"), git(place, "status", "--porcelain")) == ("new", "")


def test_run_works_in_a_copy_too(place):
    make_repo(place.work, {"a.txt": "one\n"})
    (place.agent_dir / "agents").mkdir()
    (place.agent_dir / "agents" / "copier.md").write_text(COPIER)
    model = place.script({"calls": write("new.txt")}, {"text": "Made it"})
    done = place.run("run", "copier", "make it", "--write", "--model", model)
    assert (done.status, done.stderr) == (0, "")
    assert done.stdout.startswith("Made it\n\n---\nChanges saved to branch `pi-agent-")
    assert git(place, "status", "--porcelain") == ""


LATER = [to("^later", calls=agent(schedule="1h", subagent_type="Explore")), to("^later", text="Noted")]


def test_schedules_are_told_and_listed(place, records):
    told = records("later", replies=LATER)
    ready, added = [record for record in told if record["type"].startswith("subagents:schedule")]
    assert (ready["type"], ready["jobCount"], added["change"]) == ("subagents:scheduler_ready", 0, "added")
    done = place.run("schedules", "--json")
    (job,) = json.loads(done.stdout)["jobs"]
    assert (done.status, job) == (0, added["job"])
    assert (job["name"], job["scheduleType"], job["intervalMs"]) == ("a file", "interval", 3_600_000)
    assert place.run("schedules").stdout.split()[0] == job["id"]


def test_schedule_is_cancelled(place, records):
    records("later", replies=LATER)
    (job,) = json.loads(place.run("schedules", "--json").stdout)["jobs"]
    assert place.run("schedules", "cancel", job["id"]).status == 0
    assert json.loads(place.run("schedules", "--json").stdout) == {"jobs": []}
    again = place.run("schedules", "cancel", job["id"])
    assert (again.status, again.stdout) == (2, "")
    assert again.stderr.startswith(f"retinue: no job '{job['id']}' is scheduled")


@pytest.mark.parametrize("words", [["cancel"], ["stop", "x"], ["cancel", "x", "y"]])
def test_wrong_schedule_words_are_refused(place, words):
    done = place.run("schedules", *words)
    assert (done.status, done.stdout, done.stderr[:9]) == (2, "", "retinue: ")


def test_switched_off_schedules_are_not_offered(place):
    (place.agent_dir / "subagents.json").write_text('{"schedulingEnabled": false}')
    done = place.run("-p", "later", replies=[*LATER])
    assert (done.status, done.stdout) == (0, "Noted\n")
    assert place.run("schedules", "--json").stdout == '{"jobs": []}\n'


def test_no_session_leaves_no_run_behind(place):
    call = {"name": "Agent", "arguments": {"subagent_type": "Explore", "prompt": "look", "description": "a look"}}
    replies = [
        {"match": {"last_user": "^begin"}, "calls": [call]},
        {"match": {"last_user": "^begin"}, "text": "started"},
        {"match": {"last_user": "^look"}, "text": "the report"},
        *({"match": {"last_user": "task-notification"}, "text": "thanks"} for _ in range(2)),
    ]
    result = place.run("--no-session", "-p", "begin", replies=replies)
    assert (result.stdout, sorted(place.agent_dir.glob("sessions/**/*.jsonl"))) == ("thanks\n", [])


@pytest.mark.spec("fleet:B53")
def test_no_timer_keeps_the_process(place):
    replies = [
        to("^begin", calls=[*agent(subagent_type="Explore"), *agent(schedule="1h", description="later")]),
        to("^begin", text="started"),
        to("^make it", text="the report"),
        to("task-notification", text="thanks"),
    ]
    begun_s = time.monotonic()
    done = place.run("-p", "begin", replies=replies, timeout_s=50)
    # Old runs are looked for every minute, and the job is due in an hour.
    assert (done.status, done.stdout, time.monotonic() - begun_s < 40) == (0, "thanks\n", True)
