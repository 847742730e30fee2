from dataclasses import replace
from pathlib import Path

import msgspec

from retinue.core.run import Outcome, Reason, Status
from retinue.durable.cluster.assignment import Assignment, pack_assignment, unpack_assignment
from retinue.durable.cluster.worker import WorkerJob
from retinue.durable.cluster.worker_host import build_sections, to_sender_outcome
from retinue.engine.limits import Limits

ASSIGNMENT = Assignment(
    run_id="r",
    attempt=1,
    agent="a",
    description="d",
    depth=1,
    task="t",
    sections=(("role", "You are a."), ("environment", "# Environment\nWorking directory: /home/me/project")),
    cwd="/home/me/project",
    tools=(),
    model="p/m",
    thinking="off",
    marks={},
    trusted=True,
)
JOB = WorkerJob(ASSIGNMENT, Path("/w/sessions"), Path("/w/copies/1"), None, None, False, None, None, None)


def test_outcome_names_files_at_home():
    told = Outcome(Status.COMPLETED, Reason.DONE, text="See /w/copies/1/src/a.py:3.", notes="/w/copies/1 is full")
    found = to_sender_outcome(told, JOB)
    assert (found.text, found.notes) == ("See /home/me/project/src/a.py:3.", "/home/me/project is full")


def test_moved_run_names_files_at_home():
    told = Outcome(Status.COMPLETED, Reason.DONE, text="/v/copies/10/a.py, /v/copies/1/b.py and /w/copies/1/c.py")
    found = to_sender_outcome(told, replace(JOB, former=("/v/copies/1", "/v/copies/10")))
    assert found.text == "/home/me/project/a.py, /home/me/project/b.py and /home/me/project/c.py"


def test_prompt_says_where_it_was():
    said = build_sections(ASSIGNMENT, "/w/copies/1", ("/v/copies/1", "/w/copies/1"))["elsewhere"]
    assert said.endswith(
        "\n\nBefore, you worked in /v/copies/1. That folder is not here: where a path below it was named, the same "
        "path below your working directory is meant. Processes you had started there are gone."
    )


def test_prompt_says_whose_copy_it_is():
    said = build_sections(ASSIGNMENT, "/w/copies/1")
    assert list(said) == ["role", "environment", "elsewhere"]
    assert said["environment"] == "# Environment\nWorking directory: /w/copies/1"
    assert said["elsewhere"].startswith("# Where you work\n")
    assert "a copy of /home/me/project." in said["elsewhere"]


def test_prompt_without_a_place_gets_one():
    said = build_sections(msgspec.structs.replace(ASSIGNMENT, sections=(("role", "You are a."),)), "/w/copies/1")
    assert (list(said), "/w/copies/1" in said["cwd"]) == (["role", "cwd", "elsewhere"], True)


def test_times_travel_as_fields_of_the_run():
    sent = msgspec.structs.replace(ASSIGNMENT, limits=Limits(wall_s=60.0, idle_s=5.0, strict_idle=True))
    packed = pack_assignment(sent)
    times = {"wallS": 60.0, "idleS": 5.0, "strictIdle": True, "toolS": None}
    assert times.items() <= msgspec.json.decode(packed).items() and "limits" not in packed
    assert unpack_assignment(packed) == sent
