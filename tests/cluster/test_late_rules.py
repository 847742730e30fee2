"""Rules and hooks that come to be when a run is on a worker already: they count from its next call on."""

import asyncio
import json
import os
import subprocess
import sys

import pytest

from retinue.core.run import Status
from retinue.settings.request import Request, SessionWish
from tests.cluster.judged_world import was_said

pytestmark = pytest.mark.timeout(120)
DONE = {"text": "All done."}
RULE = {"action": "deny", "tool": "bash", "pattern": "*effects.log*", "reason": "no logs"}
LEAD = "---\nname: lead\ndescription: Leads.\ntools: read, bash, Agent, get_subagent_result\n---\n\nLead.\n"
FACE = """
import asyncio, sys
from retinue import Retinue
from retinue.settings.request import Request

async def main():
    async with Retinue(sys.argv[1], model="mock/mock-1", request=Request(approve=True)) as face:
        await face.spawn(sys.argv[2], sys.argv[3])
        await asyncio.sleep(100)

asyncio.run(main())
"""


async def wait_for(world, holds, what):
    await asyncio.to_thread(world.wait_until, holds, what)


def to(words, **reply):
    return {"match": {"last_user": words}, **reply}


async def send_and_die(world, agent, task):
    """A face that has sent a run, and is gone when the run has acted once."""
    environment = {**os.environ, "RETINUE_DATABASE": world.database}
    face = subprocess.Popen([sys.executable, "-c", FACE, world.project, agent, task], env=environment)
    try:
        await wait_for(world, lambda: world.effects, "it acts")
    finally:
        face.kill()
        face.wait(10)


async def count_words(world, count):
    sql = "SELECT count(*) FROM retinue.words WHERE kind = 'judge'"
    await wait_for(world, lambda: world.ask(sql) == [(count,)], f"{count} runs are told")
    await asyncio.sleep(1.2)  # a notice may get lost


def make_plain(world, tmp_path):
    """Settings of a worker without the user's rules."""
    agent = tmp_path / "theirs"
    agent.mkdir()
    (agent / "models.json").write_bytes((world.agent_dir / "models.json").read_bytes())
    (agent / "subagents.json").write_text(json.dumps({"sandbox": world.sandbox}))
    return agent


async def test_rule_of_next_face_counts(world, tmp_path):
    gate = world.shared / "gate"
    world.play(world.act(1, after=f"until [ -e {gate} ]; do sleep 0.1; done"), world.act(2), DONE)
    world.start_worker("--approve", PI_CODING_AGENT_DIR=str(make_plain(world, tmp_path)))
    await send_and_die(world, "general-purpose", "Work.")
    world.change({"approvalRules": [RULE]})
    async with world.open_face(request=Request(session=SessionWish("newest"))) as face:
        [handle] = await face.runs()
        await count_words(world, 1)
        gate.touch()
        outcome = await handle.wait()
    assert (outcome.status, len(world.effects)) == (Status.COMPLETED, 1)
    assert was_said(world, "was denied: no logs")


@pytest.mark.slow
async def test_late_rule_outlives_worker(world, tmp_path):
    world.play(world.act(1, after="sleep 60"), world.act(2), DONE)
    first = world.start_worker("--approve")
    await send_and_die(world, "general-purpose", "Work.")
    world.change({"approvalRules": [RULE]})
    async with world.open_face(request=Request(session=SessionWish("newest"))) as face:
        [handle] = await face.runs()
        await count_words(world, 1)
        world.kill(first)
        world.start_worker("--approve", PI_CODING_AGENT_DIR=str(make_plain(world, tmp_path)))
        outcome = await handle.wait()
    assert (outcome.status, len(world.effects), was_said(world, "was denied: no logs")) == (
        Status.COMPLETED,
        1,
        True,
    )


@pytest.mark.parametrize(
    ("runner", "words"),
    [("cluster", 2), *(pytest.param(name, 1, marks=pytest.mark.slow) for name in ("inprocess", "process"))],
)
async def test_late_rule_counts_below(world, tmp_path, runner, words):
    gate = world.shared / "gate"
    agents = world.project / ".pi" / "agents"
    agents.mkdir(parents=True)
    (agents / "lead.md").write_text(LEAD)
    (agents / "digger.md").write_text(f"---\nname: digger\ndescription: Digs.\nrunner: {runner}\n---\n\nDig.\n")
    spawned = {"prompt": "Dig.", "description": "dig", "subagent_type": "digger"}
    world.play(
        to("^Lead", calls=[{"name": "Agent", "arguments": spawned}]),
        to("^Dig", **world.act(1, after=f"until [ -e {gate} ]; do sleep 0.1; done")),
        to("^Dig", **world.act(2)),
        to("^Dig", text="Dug."),
        to("^Lead", text="Led."),
        to("task-notification", text="I was told."),
    )
    world.start_worker("--approve", PI_CODING_AGENT_DIR=str(make_plain(world, tmp_path)))
    await send_and_die(world, "lead", "Lead.")
    world.change({"approvalRules": [RULE]})
    async with world.open_face(request=Request(session=SessionWish("newest"), approve=True)) as face:
        [handle] = [each for each in await face.runs() if each.run.agent == "lead"]
        await count_words(world, words)
        gate.touch()
        outcome = await handle.wait()
    # In a process of its own it could not ask: it is stopped.
    told = was_said(world, "was denied: no logs")
    assert (outcome.status, len(world.effects), told) == (Status.COMPLETED, 1, runner != "process")
