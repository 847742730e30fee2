"""Runs on workers whose calls are judged at the face that sent them."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys

import pytest

from retinue.core.events import Asked
from retinue.core.run import Status
from retinue.settings.request import Request, SessionWish
from retinue.testing import make_repo
from retinue.testing.process import run_cli
from tests.cluster.judged_world import DONE, hook_file, make_hook, read_notes, was_said

pytestmark = pytest.mark.timeout(120)


async def wait_for(world, holds, what):
    await asyncio.to_thread(world.wait_until, holds, what)


@pytest.mark.parametrize(("answer", "effects"), [("allow", 1), ("deny", 0)])
async def test_person_decides_about_remote_call(world, plain, answer, effects):
    world.settings["approvals"] = "ask"
    world.play(world.act(1), DONE)
    world.start_worker("--approve", **plain())
    async with world.open_face() as face:
        with face.questions.attend():
            handle = await face.spawn("general-purpose", "Work.")
            await wait_for(world, lambda: face.questions.waiting, "it asks")
            [question] = face.questions.waiting
            before = list(world.effects)
            face.questions.answer(question.id, answer)
            outcome = await handle.wait()
    assert (question.run_id, question.agent, question.tool) == (handle.id, "general-purpose", "bash")
    assert (before, len(world.effects), bool(handle.run.worker)) == ([], effects, True)
    assert outcome.status is Status.COMPLETED
    assert was_said(world, "was denied: denied by the user") == (answer == "deny")


async def test_rule_denies_on_worker(world, plain):
    world.settings["approvalRules"] = [
        {"action": "deny", "tool": "bash", "pattern": "*effects.log*", "reason": "no logs"}
    ]
    world.play(world.act(1), DONE)
    world.start_worker("--approve", **plain())
    async with world.open_face() as face:
        handle = await face.spawn("general-purpose", "Work.")
        outcome = await handle.wait()
    assert (outcome.status, world.effects, bool(handle.run.worker)) == (Status.COMPLETED, [], True)
    assert was_said(world, "was denied: no logs")


async def test_rule_sees_where_paths_lead(world, plain):
    rule = {"action": "deny", "tool": "read", "pattern": f"{world.project}/README.md"}
    world.settings["approvalRules"] = [rule]
    link = world.act(1, after="ln -s README.md other")
    world.play(link, {"calls": [{"name": "read", "arguments": {"path": "other"}}]}, DONE)
    world.start_worker("--approve", **plain())
    async with world.open_face() as face:
        await (await face.spawn("general-purpose", "Work.")).wait()
    assert (len(world.effects), was_said(world, '[Denied] Tool "read"')) == (1, True)


@pytest.mark.slow
async def test_hook_files_judge_at_face(world, plain, home, tmp_path):
    notes = tmp_path / "notes.jsonl"
    world.play(world.act(1), DONE)
    hook_file(home, [
        make_hook(tmp_path, "guard", "tool.approval.pre", '{"decision": "deny", "reason": "not today"}', notes=notes),
        make_hook(tmp_path, "denied", "tool.execute.denied", notes=notes, kind="observer"),
        make_hook(tmp_path, "end", "agent.turn.end", notes=notes, kind="observer"),
    ])  # fmt: skip
    world.start_worker("--approve", **plain())
    async with world.open_face() as face:
        handle = await face.spawn("general-purpose", "Work.")
        outcome = await handle.wait()
    told = read_notes(notes)
    assert (outcome.status, world.effects, was_said(world, "was denied: not today")) == (Status.COMPLETED, [], True)
    assert [each["point"] for each in told] == ["tool.approval.pre", "tool.execute.denied", "agent.turn.end"]
    assert {(each["runId"], each["agent"], each["cwd"]) for each in told} == {
        (handle.id, "general-purpose", str(world.project))
    }


@pytest.mark.slow
async def test_observers_hear_and_hold_nothing(world, plain, home, tmp_path):
    notes = tmp_path / "notes.jsonl"
    world.play(world.act(1), DONE)
    points = ("agent.turn.start", "tool.execute.before", "tool.execute.after", "llm.response.after", "agent.turn.end")
    hook_file(home, [make_hook(tmp_path, f"h{n}", p, notes=notes, kind="observer") for n, p in enumerate(points)])
    world.start_worker("--approve", **plain())
    async with world.open_face() as face:
        await (await face.spawn("general-purpose", "Work.")).wait()
    told = [each["point"] for each in read_notes(notes)]
    assert (told[0], told[-1], len(world.effects)) == ("agent.turn.start", "agent.turn.end", 1)
    assert told[1:-1] == ["llm.response.after", "tool.execute.before", "tool.execute.after", "llm.response.after"]
    assert world.ask("SELECT count(*) FROM retinue.words WHERE kind = 'ruling'") == [(0,)]


async def test_hooks_stop_and_send_back(world, plain, home, tmp_path):
    notes = tmp_path / "notes.jsonl"
    world.play({"text": "Half."}, {"text": "Whole."}, {"text": "More."})
    again = '{"decision": "continue", "injection": "Go on."}'
    once = make_hook(tmp_path, "once", "agent.turn.stop", again, notes=notes)
    script = tmp_path / "once.sh"
    silent = f"printf '#!/bin/sh\\n' > {script}.silent; chmod +x {script}.silent; mv {script}.silent {script}"
    script.write_text(f"{script.read_text()}{silent}\n")
    hook_file(home, [once, make_hook(tmp_path, "step", "agent.step.before", notes=notes)])
    world.start_worker("--approve", **plain())
    async with world.open_face() as face:
        outcome = await (await face.spawn("general-purpose", "Work.")).wait()
    assert (outcome.status, outcome.text, was_said(world, "Go on.")) == (Status.COMPLETED, "Whole.", True)
    points = [each["point"] for each in read_notes(notes)]
    assert points == ["agent.step.before", "agent.turn.stop", "agent.step.before"]


async def test_agent_file_hooks_judge(world, plain, home, tmp_path):
    notes = tmp_path / "notes.jsonl"
    guard = make_hook(tmp_path, "guard", "tool.approval.pre", '{"decision": "deny", "reason": "its own"}', notes=notes)
    agents = home / ".codingcode" / "agents"
    agents.mkdir(parents=True)
    (agents / "careful.md").write_text(
        f"---\nname: careful\ndescription: x\nhooks: {json.dumps([guard])}\n---\n\nWork.\n"
    )
    acting = world.act(1)
    acting["calls"][0]["name"] = "execute_command"  # as such a file calls it
    world.play(acting, DONE)
    world.start_worker("--approve", **plain())
    async with world.open_face() as face:
        handle = await face.spawn("careful", "Work.")
        await handle.wait()
    assert (world.effects, was_said(world, "was denied: its own"), bool(handle.run.worker)) == ([], True, True)


async def test_nothing_is_asked_without_rules(world, plain):
    world.play(world.act(1), DONE)
    world.start_worker("--approve", **plain())
    async with world.open_face() as face:
        await (await face.spawn("general-purpose", "Work.")).wait()
    [(judged, below)] = world.ask("SELECT assignment->'judged', assignment->'judgedBelow' FROM retinue.runs")
    [(brought,)] = world.ask("SELECT last_value - (NOT is_called)::int FROM retinue.cases_seq_seq")
    assert (judged, below, brought) == ({}, False, 0)


FACE = """
import asyncio, os, sys
from retinue import Retinue

async def main():
    async with Retinue(sys.argv[1], model="mock/mock-1") as face:
        with face.questions.attend():
            await face.spawn("general-purpose", "Work.", idle_s=2)
            while not face.questions.waiting:
                await asyncio.sleep(0.05)
            print("asked", flush=True)
            await asyncio.sleep(60)

asyncio.run(main())
"""


async def test_call_waits_for_its_face(world, plain, home):
    world.settings["approvals"] = "ask"
    world.play(world.act(1), DONE)
    world.start_worker("--approve", **plain())
    environment = {**os.environ, "RETINUE_DATABASE": world.database}
    first = subprocess.Popen(
        [sys.executable, "-c", FACE, world.project], env=environment, stdout=subprocess.PIPE, text=True
    )
    assert await asyncio.to_thread(first.stdout.readline) == "asked\n"
    first.kill()
    first.communicate(timeout=20)
    await asyncio.sleep(3)  # longer than the run may be idle
    before = (list(world.effects), world.ask("SELECT finished FROM retinue.runs"))
    shown = run_cli(["cluster", "status"], world.project, {"RETINUE_DATABASE": world.database}, home=home).stdout
    async with world.open_face(request=Request(session=SessionWish("newest"))) as face:
        with face.questions.attend():
            [handle] = await face.runs()
            await wait_for(world, lambda: face.questions.waiting, "it asks again")
            face.questions.answer(face.questions.waiting[0].id, "allow")
            outcome = await handle.wait()
    assert (before, outcome.status, len(world.effects)) == (([], [(None,)]), Status.COMPLETED, 1)
    assert re.search(r"working .* waiting for an answer for (?:[3-9]|\d\d)", shown), shown


@pytest.mark.slow
async def test_leaving_person_denies_nothing(world, plain):
    world.settings["approvals"] = "ask"
    world.play(world.act(1), DONE)
    world.start_worker("--approve", **plain())
    async with world.open_face() as face:
        with face.questions.attend():
            handle = await face.spawn("general-purpose", "Work.")
            await wait_for(world, lambda: face.questions.waiting, "it asks")
        await asyncio.sleep(1.5)
        between = (list(world.effects), handle.run.status, face.questions.waiting)
        with face.questions.attend():
            await wait_for(world, lambda: face.questions.waiting, "it asks again")
            face.questions.answer(face.questions.waiting[0].id, "allow")
            outcome = await handle.wait()
    assert (between, outcome.status, len(world.effects)) == (([], Status.RUNNING, []), Status.COMPLETED, 1)


@pytest.mark.slow
async def test_yes_outlives_its_worker(world, plain):
    world.settings["approvals"] = "ask"
    world.play(world.act(1), world.act(2), DONE)
    theirs = plain()
    first = world.start_worker("--approve", **theirs)
    async with world.open_face() as face:
        with face.questions.attend():
            handle = await face.spawn("general-purpose", "Work.")
            await wait_for(world, lambda: face.questions.waiting, "it asks")
            os.kill(first.pid, signal.SIGSTOP)
            face.questions.answer(face.questions.waiting[0].id, "allow")
            await wait_for(world, lambda: count_rulings(world) == 1, "the answer is on record")
            world.kill(first)
            world.start_worker("--approve", **theirs)
            await wait_for(world, lambda: face.questions.waiting, "it asks about the second call")
            [second] = face.questions.waiting
            between = list(world.effects)
            face.questions.answer(second.id, "allow")
            outcome = await handle.wait()
    assert (len(between), " 2" in second.text, count_rulings(world)) == (1, True, 2)
    assert (outcome.status, len(world.effects), len(set(world.effects))) == (Status.COMPLETED, 2, 2)


def count_rulings(world):
    return world.ask("SELECT count(*) FROM retinue.words WHERE kind = 'ruling'")[0][0]


LEAD = "---\nname: lead\ndescription: Leads.\ntools: read, bash, Agent, get_subagent_result\n---\n\nLead.\n"


def to(words, **reply):
    return {"match": {"last_user": words}, **reply}


def play_lead(world, *digging, runner=""):
    """An agent that lets another one dig, which does so with this runner, and says what it is told of it."""
    agents, kind = world.project / ".pi" / "agents", "digger" if runner else "general-purpose"
    agents.mkdir(parents=True)
    (agents / "lead.md").write_text(LEAD)
    if runner:
        (agents / "digger.md").write_text(f"---\nname: digger\ndescription: Digs.\nrunner: {runner}\n---\n\nDig.\n")
    spawned = {"prompt": "Dig.", "description": "dig", "subagent_type": kind}
    world.play(
        to("^Lead", calls=[{"name": "Agent", "arguments": spawned}]),
        to("^Lead", text="Led."),
        *(to("^Dig", **reply) for reply in digging),
        to("^Dig", text="Dug."),
        to("task-notification", text="I was told."),
    )


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    "runner", ["cluster", *(pytest.param(name, marks=pytest.mark.slow) for name in ("inprocess", "process"))]
)
async def test_runs_of_runs_are_judged(world, plain, home, tmp_path, runner):
    notes = tmp_path / "notes.jsonl"
    deny = '{"decision": "deny", "reason": "not below"}'
    play_lead(world, world.act(1), runner=runner)
    hook_file(home, [make_hook(tmp_path, "guard", "tool.approval.pre", deny, notes=notes)])
    guard = tmp_path / "guard.sh"
    guard.write_text(f"#!/bin/sh\nread -r line; echo \"$line\" >> {notes}\n"
                     f"case \"$line\" in *'\"bash\"'*) echo '{deny}';; esac\n")  # fmt: skip
    world.start_worker("--approve", "--slots", "1", **plain())
    async with world.open_face(request=Request(approve=True)) as face:
        handle = await face.spawn("lead", "Lead.")
        outcome = await handle.wait()
    told = [(each["agent"], each["toolName"]) for each in read_notes(notes)]
    assert (outcome.status, world.effects, was_said(world, "was denied: not below")) == (Status.COMPLETED, [], True)
    assert told == [("lead", "Agent"), ("digger", "bash")]
    assert len(world.ask("SELECT 1 FROM retinue.runs")) == (2 if runner == "cluster" else 1)


async def test_run_of_run_asks_person(world, plain):
    world.settings["approvals"] = "ask"
    play_lead(world, world.act(1))
    world.start_worker("--approve", **plain())
    async with world.open_face(request=Request(approve=True)) as face:
        with face.questions.attend():
            handle = await face.spawn("lead", "Lead.")
            await wait_for(world, lambda: face.questions.waiting, "it asks")
            [question] = face.questions.waiting
            face.questions.answer(question.id, "allow")
            outcome = await handle.wait()
    [(below,)] = world.ask("SELECT run FROM retinue.runs WHERE queue = 'retinue-2'")
    assert (question.run_id, question.agent, question.tool) == (below, "general-purpose", "bash")
    assert (outcome.text, len(world.effects)) == ("I was told.", 1)


@pytest.mark.slow
async def test_same_rules_ask_once(world):
    world.settings["approvals"] = "ask"
    world.play(world.act(1), DONE)
    world.start_worker("--approve")
    asked = []
    async with world.open_face() as face:
        face.listen(lambda event: asked.append(event) if isinstance(event, Asked) else None)
        with face.questions.attend():
            handle = await face.spawn("general-purpose", "Work.")
            await wait_for(world, lambda: face.questions.waiting, "it asks")
            face.questions.answer(face.questions.waiting[0].id, "allow")
            outcome = await handle.wait()
    assert (outcome.status, len(world.effects), len(asked)) == (Status.COMPLETED, 1, 1)


EXTENSION = """
from retinue.core.tool import ToolResult

class Watch:
    async def after(self, call, tool, result):
        return ToolResult.of(f"{call.name} was seen")

def register(registrar):
    registrar.hook(Watch())
"""


@pytest.mark.slow
async def test_extension_changes_results(world, plain, tmp_path):
    (tmp_path / "watch.py").write_text(EXTENSION)
    world.play(world.act(1), DONE)
    world.start_worker("--approve", **plain())
    extensions = world.agent_dir / "extensions"
    extensions.mkdir()
    (extensions / "watch.py").write_text(EXTENSION)
    async with world.open_face() as face:
        handle = await face.spawn("general-purpose", "Work.")
        await handle.wait()
    assert (len(world.effects), was_said(world, "bash was seen"), bool(handle.run.worker)) == (1, True, True)


LOCKED = {"approvalRules": [{"action": "deny", "tool": "write", "pattern": "*.lock"}]}


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    "settings", [pytest.param({}, id="unjudged", marks=pytest.mark.slow), pytest.param(LOCKED, id="judged")]
)
async def test_restriction_counts_on_worker(world, plain, settings):
    world.settings.update(settings)
    world.play(world.act(1, after="sleep 2"), world.act(2), DONE)
    world.start_worker("--approve", **plain())
    async with world.open_face() as face:
        handle = await face.spawn("general-purpose", "Work.")
        await wait_for(world, lambda: world.effects, "it acts")
        face.restrict("bash", run_id=handle.id)
        outcome = await handle.wait()
    assert (outcome.status, len(world.effects)) == (Status.COMPLETED, 1)
    assert was_said(world, "bash was revoked from this agent while it worked")


@pytest.mark.slow
async def test_loss_outlives_worker(world, plain):
    world.play(world.act(1, after="sleep 60"), world.act(2), DONE)
    theirs = plain()
    first = world.start_worker("--approve", **theirs)
    async with world.open_face() as face:
        handle = await face.spawn("general-purpose", "Work.")
        await wait_for(world, lambda: world.effects, "it acts")
        face.restrict(readonly=True)
        await wait_for(world, lambda: world.ask("SELECT 1 FROM retinue.words WHERE kind = 'restrict'"), "said")
        world.kill(first)
        world.start_worker("--approve", **theirs)
        outcome = await handle.wait()
    assert (outcome.status, len(world.effects)) == (Status.COMPLETED, 1)
    assert was_said(world, "bash can change things, and this agent was made read-only while it worked")


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    "runner",
    [pytest.param("cluster", marks=pytest.mark.slow), pytest.param("inprocess", marks=pytest.mark.slow), "process"],
)
async def test_runs_of_runs_lose_it_too(world, plain, runner):
    play_lead(world, world.act(1, after="sleep 3"), world.act(2), runner=runner)
    world.start_worker("--approve", **plain())
    async with world.open_face(request=Request(approve=True)) as face:
        handle = await face.spawn("lead", "Lead.")
        await wait_for(world, lambda: world.effects, "the one below acts")
        face.restrict("bash", run_id=handle.id)
        outcome = await handle.wait()
    # In a process of its own nothing can be taken from it: it is stopped.
    told = was_said(world, "bash was revoked from this agent while it worked")
    assert (outcome.status, len(world.effects), told) == (Status.COMPLETED, 1, runner != "process")


async def test_runs_of_worker_share_connections(world, plain):
    play_lead(world)
    world.start_worker("--approve", **plain())
    async with world.open_face(request=Request(approve=True)) as face:
        handles = [await face.spawn("lead", "Lead.") for _ in range(3)]
        outcomes = [await handle.wait() for handle in handles]
    assert [outcome.text for outcome in outcomes] == ["I was told."] * 3
    assert world.ask("SELECT count(*), count(DISTINCT face) FROM retinue.runs WHERE queue = 'retinue-2'") == [(3, 1)]


@pytest.mark.slow
async def test_agent_knows_what_is_missing(world, plain):
    make_repo(world.project / "inner", {"a.txt": "a"})
    world.play(DONE)
    world.start_worker("--approve", **plain())
    async with world.open_face() as face:
        await (await face.spawn("general-purpose", "Work.")).wait()
    assert was_said(world, "Git repositories inside this one are not sent")
