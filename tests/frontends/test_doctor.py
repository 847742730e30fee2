import json
import os
import re
import sqlite3
from functools import partial

import pytest

from retinue.durable.local.database import RunDatabase, RunRow, put_run

pytestmark = pytest.mark.here("the switch names a database that is made with the first run")


@pytest.fixture
def doctor(place):
    """Runs `retinue doctor --json` and gives back its status and its items."""

    def run(*args, env=None):
        done = place.run("doctor", "--json", *args, env=env)
        report = json.loads(done.stdout)
        statuses = [item["status"] for item in report["items"]]
        counted = {
            "passed": statuses.count("pass"),
            "warnings": statuses.count("warn"),
            "failed": statuses.count("fail"),
        }
        assert (report["summary"], set(statuses) <= {"pass", "warn", "fail", "info"}) == (counted, True)
        return done.status, report["items"]

    return run


def of(items, category):
    return [(item["status"], item["message"]) for item in items if item["category"] == category]


@pytest.mark.spec("devkit:60")
def test_fresh_home_is_fine(doctor):
    status, items = doctor()
    assert status == 0
    assert {"python", "git", "search", "permissions", "config", "trust", "models", "agents", "terminal"} <= {
        item["category"] for item in items
    }
    assert of(items, "config") == [("info", "Using default configuration")]
    assert of(items, "models") == [("warn", "No language model; only the built-in rules answer")]
    assert of(items, "agents") == [("pass", "11 builtin agents discovered")]


def test_broken_configuration_fails(place, doctor):
    (place.agent_dir / "settings.json").write_text('{"defaultModel": }')
    (place.agent_dir / "subagents.json").write_text('{"maxConcurrent": 0, "maxConcurent": 2}')
    status, items = doctor()
    assert (status, of(items, "config")) == (
        1,
        [("fail", "Configuration error"), ("fail", "Configuration error"), ("warn", "Configuration warning")],
    )
    details = [item["details"] for item in items if item["category"] == "config"]
    assert details[0].startswith(f"{place.agent_dir}/settings.json:1:")
    assert details[1].endswith("maxConcurrent: found 0; expected a whole number from 1 to 1024")
    assert details[2].endswith("unknown setting 'maxConcurent' (did you mean 'maxConcurrent'?)")


@pytest.mark.spec("devkit:61")
def test_agent_files_are_told_by_line(place, doctor):
    folder = place.agent_dir / "agents"
    folder.mkdir()
    (folder / "broken.md").write_text("---\ntools: [read, bash\n---\nx\n")
    (folder / "README.md").write_text("# Agents\n")
    (folder / "typo.md").write_text("---\nname: typo\ndescription: d\ntools: raed\nreadonly: tru\n---\nDo.\n")
    (folder / "explorer.md").write_text("---\nname: explorer\ndescription: d\n---\nDo.\n")
    status, items = doctor()
    told = "\n".join(f"{item['message']}: {item['details']}" for item in items if item["category"] == "agents")
    assert (status, "2 user agents found: explorer, typo" in told) == (0, True)
    assert f"Agent file skipped: {folder}/broken.md:" in told
    assert f"Agent file skipped: {folder}/README.md" in told
    assert f"Agent file warning: {folder}/typo.md:4: tools: there is no tool 'raed'" in told
    assert f"{folder}/typo.md:5:" in told
    assert f"is hidden by {folder}/explorer.md" in told


def test_untrusted_project_is_a_warning(place, doctor):
    (place.work / ".pi" / "agents").mkdir(parents=True)
    status, items = doctor()
    assert (status, of(items, "trust")) == (0, [("warn", "This project is not trusted")])
    assert of(doctor("--approve")[1], "trust") == [("pass", "This project is trusted")]


@pytest.mark.skipif(os.name != "posix", reason="modes are of POSIX")
def test_open_agent_directory_fails(place, doctor):
    place.agent_dir.chmod(0o777)
    status, items = doctor()
    assert (status, of(items, "permissions")[0]) == (1, ("fail", "Agent directory not safe"))


def test_missing_programs_are_told(place, doctor):
    status, items = doctor(env={"PATH": "relative:/nowhere"})
    assert (status, of(items, "git")) == (0, [("warn", "git not found")])


def test_programs_of_the_project_are_not_run(place, doctor):
    for name in ("git", "rg", "bwrap"):
        path = place.work / name
        path.write_text(f"#!/bin/sh\ntouch {place.root}/canary\n")
        path.chmod(0o755)
    doctor(env={"PATH": f".:{os.environ['PATH']}"})
    assert not (place.root / "canary").exists()


def test_unknown_default_model_is_told(place, doctor):
    (place.agent_dir / "settings.json").write_text('{"defaultModel": "no-such-model"}')
    status, items = doctor()
    assert (status, of(items, "models")[0]) == (0, ("warn", "Default model not usable"))


def test_report_leaves_nothing_behind(place, doctor):
    doctor()
    left = [path.name for path in place.root.rglob("*") if path.is_file()]
    assert left == []


def test_text_has_a_summary(place):
    done = place.run("doctor")
    assert (done.status, done.stderr) == (0, "")
    assert re.match(r"\d+ passed, \d warnings, 0 failed\n\n\[PYTHON\]\n  \[PASS\] Python 3", done.stdout)
    assert "[AGENTS]\n  [PASS] 11 builtin agents discovered\n" in done.stdout


@pytest.fixture
def ledger(place):
    """The record of durable runs, with one that has not ended."""
    ledger = RunDatabase(place.agent_dir / "retinue" / "runs.db")
    (place.agent_dir / "main.jsonl").touch()
    ledger.transact([partial(put_run, entry=RunRow("s", "r", 1, 0, str(place.agent_dir / "main.jsonl")))])
    ledger.close()
    return ledger


def read_record(doctor):
    status, items = doctor()
    return status, [
        (item["status"], item["message"], item["details"]) for item in items if item["category"] == "record"
    ]


@pytest.mark.inprocess
def test_record_is_told_where_wanted(place, doctor):
    assert read_record(doctor) == (0, [])
    (place.agent_dir / "subagents.json").write_text('{"runner": "durable"}')
    where = f"{place.agent_dir}/retinue/runs.db"
    assert read_record(doctor) == (0, [("pass", "No durable run on record", f"{where} is created with the first one")])
    assert not (place.agent_dir / "retinue").exists()


def test_record_of_an_agent_is_told(place, doctor):
    (place.agent_dir / "agents").mkdir()
    (place.agent_dir / "agents" / "long.md").write_text(
        "---\nname: long\ndescription: d\nrunner: durable\n---\nWork.\n"
    )
    assert [row[:2] for row in read_record(doctor)[1]] == [("pass", "No durable run on record")]


def test_waiting_durable_runs_are_told(doctor, ledger, place):
    ledger.transact([partial(put_run, entry=RunRow("s2", "r", 1, 0, str(place.agent_dir / "gone.jsonl")))])
    ledger.close()
    main = f"{place.agent_dir}/main.jsonl"
    rows = [
        ("pass", "Record of durable runs usable", str(ledger.path)),
        ("info", "1 durable run has not ended", f"running now, or resumed by: retinue --session {main}"),
        ("warn", "1 durable run cannot be resumed", f"missing sessions: {place.agent_dir}/gone.jsonl"),
    ]
    before = ledger.path.read_bytes(), os.listdir(ledger.path.parent)
    assert read_record(doctor) == (0, rows)
    assert before == (ledger.path.read_bytes(), os.listdir(ledger.path.parent))


def test_damaged_record_fails(doctor, ledger):
    data = bytearray(ledger.path.read_bytes())
    data[4096:] = os.urandom(len(data) - 4096)
    ledger.path.write_bytes(data)
    status, [(kind, message, details)] = read_record(doctor)
    assert (status, kind, message) == (1, "fail", "Record of durable runs cannot be used")
    assert details.startswith(f"cannot record runs in {ledger.path}: it is damaged (")
    assert details.endswith("; move it away, and resume unfinished runs by hand")


def test_held_record_is_told(doctor, ledger):
    with sqlite3.connect(ledger.path, isolation_level=None) as holder:
        holder.execute("BEGIN IMMEDIATE")
        status, [(kind, message, details)] = read_record(doctor)
    holder.close()
    assert (status, kind, message) == (0, "warn", "Record of durable runs is locked")
    assert details == (
        f"cannot record runs in {ledger.path}: another program has locked it for more than 1 s; "
        "end that program, or try again"
    )
