import asyncio
import json
import os
import signal
import subprocess
import sys

import pytest

from retinue.core.events import Event, RunFinished, RunQueued
from retinue.core.messages import AssistantMessage, UserMessage
from retinue.core.run import Reason, Status
from retinue.settings.request import Request, SessionWish
from tests.cluster.judged_world import was_said

pytestmark = pytest.mark.timeout(120)
LEAD = "---\nname: lead\ndescription: Leads.\ntools: read, bash, Agent, get_subagent_result\n---\n\nLead.\n"
USED = {"usage": {"input": 1000, "output": 50}}


def to(words, **reply):
    return {"match": {"last_user": words}, **reply, **USED}


def spawn(task, agent):
    return [{"name": "Agent", "arguments": {"prompt": task, "description": "dig", "subagent_type": agent}}]


def play_lead(world, *digging, chief=False):
    """A main agent that starts a lead, perhaps through a chief, who lets another one dig; each is told of it."""
    agents = world.project / ".pi" / "agents"
    agents.mkdir(parents=True)
    (agents / "lead.md").write_text(LEAD)
    (agents / "chief.md").write_text(LEAD.replace("lead", "chief"))
    first = ("Command.", "chief") if chief else ("Lead.", "lead")
    world.play(
        to("^Start", calls=spawn(*first)),
        to("^Start", text="Waiting."),
        to("^Command", calls=spawn("Lead.", "lead")),
        to("^Command", text="Commanding."),
        to("^Lead", calls=spawn("Dig.", "general-purpose")),
        to("^Lead", text="Leading."),
        *(to("^Dig", **reply) for reply in digging),
        to("^Dig", text="Dug."),
        to("^Hurry", text="Hurried."),
        to("^Again", text="Again."),
        to("task-notification", text="I was told."),
    )


def start_face(world, *words):
    return subprocess.Popen(
        [sys.executable, "-m", "retinue", "-p", "--approve", "--model", "mock/mock-1", *words],
        env={**os.environ, "RETINUE_DATABASE": world.database},
        cwd=world.project,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def open_face(world, session):
    return world.open_face(request=Request(approve=True, session=SessionWish("named", str(session))))


def find_run(face, agent):
    return next((run for run in face.session_runs.runs if run.agent == agent), None)


def list_crew(main):
    """What a main session says of the life of its runs."""
    records = [json.loads(line) for line in main.read_text().splitlines()]
    return [record["data"] for record in records if record.get("customType") == "retinue.crew"]


async def wait_for(world, holds, what):
    await asyncio.to_thread(world.wait_until, holds, what)


def count_told(world):
    """How often somebody was told of the end of a run."""
    texts = [str(request.json["messages"][-1]) for request in world.server.requests]
    return sum("task-notification" in text for text in texts)


@pytest.mark.sample(1)
@pytest.mark.parametrize("runner", ["inprocess", "cluster"])
def test_stream_tells_of_nested(world, runner):
    world.settings["runner"] = runner
    play_lead(world, world.act(1))
    worker = world.start_worker("--approve")
    said, errors = start_face(world, "--mode", "json", "Start.").communicate(timeout=60)
    records = [record for record in map(json.loads, said.splitlines()) if record["type"].startswith("subagents:")]
    [lead] = {record["id"] for record in records if record["depth"] == 1}
    nested = [record for record in records if record["depth"] == 2]
    life = [record["type"].partition(":")[2] for record in nested if not record["type"].endswith("placed")]
    end, places = nested[-1], {record.get("worker", "") for record in nested} - {""}
    assert (life, {record["parentAgentId"] for record in nested}) == (["created", "started", "completed"], {lead}), (
        errors
    )
    assert (end["result"], end["toolUses"], end["tokens"]["total"]) == ("Dug.", 1, 2100)
    assert [f"-{worker.pid}-" in place for place in places] == ([True] if runner == "cluster" else [])


@pytest.mark.sample(1)
@pytest.mark.parametrize("runner", ["inprocess", "cluster"])
def test_nested_sessions_come_home(world, tmp_path, runner):
    world.settings["runner"] = runner
    play_lead(world, world.act(1), chief=True)
    world.start_worker("--approve")
    main = tmp_path / "main.jsonl"
    _, errors = start_face(world, "--session", str(main), "Start.").communicate(timeout=60)
    runs = [fact["run"] for fact in list_crew(main) if fact["type"] == "RunQueued"]
    files = {run["agent"]: tmp_path / "main" / run["id"] / "session.jsonl" for run in runs}
    nested, above = files["general-purpose"].read_text(), str(files["lead"])
    header = json.loads(nested.splitlines()[0])
    assert (header["cwd"], header["parentSession"], "Dug." in nested) == (str(world.project), above, True), errors
    assert [oct(path.stat().st_mode & 0o777) for path in files.values()] == ["0o600"] * 3


async def test_nested_run_is_followed(world, tmp_path):
    play_lead(world, world.act(1, after="sleep 2"), world.act(2))
    world.start_worker("--approve")
    async with open_face(world, tmp_path / "main.jsonl") as face:
        handle = await face.spawn("lead", "Lead.")
        await wait_for(world, lambda: (run := find_run(face, "general-purpose")) and run.activity == "bash", "it acts")
        run = find_run(face, "general-purpose")
        seen = (run.status, run.turns, run.usage.input, run.parent_id, run.depth)
        words = [type(message) for message in face.session_runs.read_messages(run.id)]
        await handle.wait()
        assert (seen, bool(run.worker)) == ((Status.RUNNING, 1, 1000, handle.id, 2), True)
        assert (run.status, run.turns, run.tool_uses, run.usage.input) == (Status.COMPLETED, 3, 2, 3000)
        assert words[-2:] == [UserMessage, AssistantMessage]
        assert face.session_runs.read_messages(run.id)[-1].text == "Dug."


async def test_nested_run_is_stopped(world, tmp_path):
    play_lead(world, world.act(1, after="sleep 60"))
    world.start_worker("--approve")
    async with open_face(world, tmp_path / "main.jsonl") as face:
        handle = await face.spawn("lead", "Lead.")
        await wait_for(world, lambda: world.effects, "it acts")
        await wait_for(world, lambda: find_run(face, "general-purpose"), "it is listed")
        run = find_run(face, "general-purpose")
        is_stopped = face.session_runs.stop(run.id)
        outcome = await handle.wait()
    assert (is_stopped, run.status, run.outcome.reason) == (True, Status.STOPPED, Reason.USER)
    assert (outcome.status, outcome.text) == (Status.COMPLETED, "I was told.")


@pytest.mark.slow
async def test_nested_run_is_steered(world, tmp_path):
    play_lead(world, world.act(1, after="sleep 2"), chief=True)
    world.start_worker("--approve")
    async with open_face(world, tmp_path / "main.jsonl") as face:
        handle = await face.spawn("chief", "Command.")
        await wait_for(world, lambda: world.effects, "it acts")
        await wait_for(world, lambda: find_run(face, "general-purpose"), "it is listed")
        run = find_run(face, "general-purpose")
        is_heard = face.session_runs.steer(run.id, "Hurry.")
        await handle.wait()
    assert (is_heard, run.depth, run.outcome.text, face.session_runs.steer(run.id, "Late.")) == (
        True,
        3,
        "Hurried.",
        False,
    )


@pytest.mark.slow
async def test_nested_run_is_resumed(world, tmp_path):
    play_lead(world, world.act(1))
    world.start_worker("--approve")
    async with open_face(world, tmp_path / "main.jsonl") as face:
        await (await face.spawn("lead", "Lead.")).wait()
        run = find_run(face, "general-purpose")
        handle = await face.resume(run.id, "Hurry.")
        outcome = await handle.wait()
        said = [
            message.text for message in face.session_runs.read_messages(run.id) if isinstance(message, AssistantMessage)
        ]
    assert (outcome.text, handle.run.attempt, bool(handle.run.worker)) == ("Hurried.", 2, True)
    assert said == ["", "Dug.", "Hurried."]


@pytest.mark.slow
async def test_loss_reaches_nested_run(world, tmp_path):
    play_lead(world, world.act(1, after="sleep 2"), world.act(2))
    world.start_worker("--approve")
    async with open_face(world, tmp_path / "main.jsonl") as face:
        handle = await face.spawn("lead", "Lead.")
        await wait_for(world, lambda: world.effects and find_run(face, "general-purpose"), "it acts")
        face.restrict("bash", run_id=find_run(face, "general-purpose").id)
        await handle.wait()
    assert (len(world.effects), was_said(world, "bash was revoked from this agent while it worked")) == (1, True)


async def test_stop_of_lead_ends_nested(world, tmp_path):
    play_lead(world, world.act(1, after="sleep 60"))
    world.start_worker("--approve")
    async with open_face(world, tmp_path / "main.jsonl") as face:
        handle = await face.spawn("lead", "Lead.")
        await wait_for(world, lambda: world.effects and find_run(face, "general-purpose"), "it acts")
        await handle.stop()
        await handle.wait()
        run = find_run(face, "general-purpose")
        assert (handle.status, run.status) == (Status.STOPPED, Status.STOPPED)


async def test_returned_face_lists_nested(world, tmp_path):
    play_lead(world, world.act(1, after="sleep 4"))
    world.start_worker("--approve")
    main, events = tmp_path / "main.jsonl", list[Event]()
    first = start_face(world, "--session", str(main), "Start.")
    await wait_for(world, lambda: world.effects and main.read_text().count('"RunStarted"') == 2, "it acts")
    first.send_signal(signal.SIGKILL)
    first.communicate(timeout=20)
    async with open_face(world, main) as face:
        face.listen(events.append)
        known = [(run.agent, run.status, run.depth) for run in face.session_runs.runs]
        await face.prompt("Again.", settle=True)
        ended = {run.agent: (run.status, run.usage.input, bool(run.worker)) for run in face.session_runs.runs}
    assert known == [("lead", Status.RUNNING, 1), ("general-purpose", Status.RUNNING, 2)]
    assert ended == {"lead": (Status.COMPLETED, 3000, True), "general-purpose": (Status.COMPLETED, 2000, True)}
    assert [type(event) for event in events if isinstance(event, RunQueued | RunFinished)].count(RunFinished) == 3
    assert (count_told(world), len(world.effects)) == (2, 1)
    crew = [fact["type"] for fact in list_crew(main)]
    assert (crew.count("RunQueued"), crew.count("RunFinished")) == (2, 2)


@pytest.mark.slow
async def test_nested_outlives_its_workers(world, tmp_path):
    play_lead(world, world.act(1, after="sleep 3"))
    first = world.start_worker("--approve")
    async with open_face(world, tmp_path / "main.jsonl") as face:
        handle = await face.spawn("lead", "Lead.")
        await wait_for(world, lambda: world.effects and find_run(face, "general-purpose"), "it acts")
        run = find_run(face, "general-purpose")
        await wait_for(world, lambda: run.usage.input, "its reply is told")
        world.kill(first)
        second = world.start_worker("--approve")
        outcome = await handle.wait()
        listed = [(each.agent, each.status) for each in face.session_runs.runs]
    assert (outcome.text, run.outcome.text, f"-{second.pid}-" in run.worker) == ("I was told.", "Dug.", True)
    assert (listed, run.usage.input) == ([("lead", Status.COMPLETED), ("general-purpose", Status.COMPLETED)], 2000)
