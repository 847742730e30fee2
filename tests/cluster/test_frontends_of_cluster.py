import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys

import pytest

from retinue import Request, SessionWish
from retinue.core.run import Status

pytestmark = pytest.mark.timeout(120)


def to(words, **reply):
    return {"match": {"last_user": words}, **reply}


LEAD = "---\nname: lead\ndescription: Leads others.\ntools: read, bash, Agent, get_subagent_result\n---\n\nLead.\n"


def spawn(task, agent="general-purpose"):
    arguments = {"prompt": task, "description": "dig", "subagent_type": agent}
    return [{"name": "Agent", "arguments": arguments}]


def start_face(world, *words):
    return subprocess.Popen(
        [sys.executable, "-m", "retinue", "-p", "--model", "mock/mock-1", *words],
        env={**os.environ, "RETINUE_DATABASE": world.database},
        cwd=world.project,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_run_outlives_its_face(world):
    slow = to("Dig", **world.act(1, after="sleep 3"))
    told = to("task-notification", text="I was told.")
    started = [to("^Start", calls=spawn("Dig.")), to("^Start", text="Waiting.")]
    world.play(*started, slow, to("Dig", text="Found it."), told, to("^Again", text="Still waiting."))
    world.start_worker()
    first = start_face(world, "Start.")
    world.wait_until(lambda: world.effects, "the run acts")
    first.send_signal(signal.SIGKILL)
    first.communicate(timeout=20)
    second = start_face(world, "--continue", "Again.")
    said, errors = second.communicate(timeout=60)
    runs = world.ask("SELECT epoch, finished IS NOT NULL FROM retinue.runs")
    assert (second.returncode, runs, len(world.effects)) == (0, [(1, True)], 1), errors
    assert said.strip().endswith("I was told."), (said, errors)


async def test_left_run_goes_on_there(world):
    world.play(to("hi", text="Hi."), to("Dig", **world.act(1, after="sleep 1")), to("Dig", text="Found it."))
    world.start_worker()
    session = Request(session=SessionWish("exact", "left"))
    async with world.open_face(request=session) as face:
        await face.prompt("hi")
        handle = await face.spawn("general-purpose", "Dig.")
        await asyncio.to_thread(world.wait_until, lambda: world.effects, "the run acts")
        face.session_runs.leave()
    async with world.open_face(request=session) as face:
        (again,) = await face.runs()
        outcome = await again.wait(30)
    assert (again.id, outcome.status, outcome.text) == (handle.id, Status.COMPLETED, "Found it.")
    assert (world.ask("SELECT epoch FROM retinue.runs"), len(world.effects)) == ([(1,)], 1)


def test_stream_names_the_worker(world):
    world.play(
        to("^Start", calls=spawn("Dig.")),
        to("^Start", text="Waiting."),
        to("^Dig", **world.act(1)),
        to("^Dig", text="Found it."),
        to("task-notification", text="I was told."),
    )
    worker = world.start_worker()
    said, errors = start_face(world, "--mode", "json", "Start.").communicate(timeout=60)
    records = [record for record in map(json.loads, said.splitlines()) if record["type"].startswith("subagents:")]
    placed = [(record["type"], record.get("worker", "")) for record in records]
    [name] = {name for _, name in placed} - {""}
    life = ["created", "started", "placed", "placed", "completed"]
    assert [kind.partition(":")[2] for kind, _ in placed] == life, errors
    assert ([name for _, name in placed[2:]], f"-{worker.pid}-" in name) == (["", name, name], True)


def test_parent_learns_the_branch(world):
    told = {"match": {"last_user": r"Changes saved to branch `pi-agent-\w+`\nMerge: `git merge pi-agent-"}}
    world.play(
        to("^Start", calls=spawn("Dig.")),
        to("^Start", text="Waiting."),
        to("^Dig", calls=[{"name": "bash", "arguments": {"command": "echo new > new.txt"}}]),
        to("^Dig", text="Found it."),
        {**told, "text": "I was told."},
        to("task-notification", text="I was not told."),
    )
    world.start_worker()
    said, errors = start_face(world, "Start.").communicate(timeout=60)
    assert said.strip().endswith("I was told."), (said, errors)


def test_run_starts_runs_elsewhere(world):
    world.play(
        to("^Start", calls=spawn("Lead.", "lead")),
        to("^Start", text="Waiting."),
        to("^Lead", calls=spawn("Dig.")),
        to("^Lead", text="Leading."),
        to("^Dig", **world.act(1)),
        to("^Dig", text="Found it."),
        to("task-notification", text="I was told."),
    )
    agents = world.agent_dir / "agents"
    agents.mkdir()
    (agents / "lead.md").write_text(LEAD)
    world.start_worker("--slots", "1")
    face = start_face(world, "Start.")
    said, errors = face.communicate(timeout=90)
    queues = world.ask("SELECT queue, finished IS NOT NULL FROM retinue.runs ORDER BY queue")
    assert (face.returncode, queues) == (0, [("retinue-1", True), ("retinue-2", True)]), errors
    assert said.strip().endswith("I was told."), (said, errors)


async def test_questions_reach_the_face(world, tmp_path):
    world.play(world.act(1), {"text": "All done."})
    theirs = tmp_path / "theirs"
    shutil.copytree(world.agent_dir, theirs)
    (theirs / "subagents.json").write_text(json.dumps({"approvals": "ask", "sandbox": world.sandbox}))
    world.start_worker(PI_CODING_AGENT_DIR=str(theirs))
    async with world.open_face() as face:
        with face.questions.attend():
            handle = await face.spawn("general-purpose", "Work.")
            await asyncio.to_thread(world.wait_until, lambda: face.questions.waiting, "it asks")
            [question] = face.questions.waiting
            effects = list(world.effects)
            face.questions.answer(question.id, "allow")
            outcome = await handle.wait()
    assert (question.run_id, question.agent, question.tool) == (handle.id, "general-purpose", "bash")
    assert (effects, len(world.effects), outcome.status) == ([], 1, Status.COMPLETED)


def test_program_judges_what_it_sent(world):
    world.settings["approvals"] = "ask"
    spawned = [to("^Start", calls=spawn("Dig.")), to("^Start", text="Waiting.")]
    world.play(*spawned, to("^Dig", **world.act(1)), to("^Dig", text="Refused."), to("task-not", text="I was told."))
    world.start_worker()
    said, errors = start_face(world, "Start.").communicate(timeout=60)
    told = [str(request.json) for request in world.server.requests]
    assert (said.strip().endswith("I was told."), world.effects) == (True, []), (said, errors)
    assert any("Approval required but no UI available" in text for text in told)
    assert world.ask("SELECT epoch, finished IS NOT NULL FROM retinue.runs") == [(1, True)]
