"""Runs on workers whose calls are judged at the face that sent them."""

import asyncio
import json
import shlex
import stat

import pytest

from retinue.core.run import Status

pytestmark = pytest.mark.timeout(120)
DONE = {"text": "All done."}


@pytest.fixture
def plain(world, tmp_path):
    """The settings of workers: they know nothing of the user's rules, hooks and agents."""
    home = tmp_path / "theirs"
    agent = home / ".pi" / "agent"

    def make():
        agent.mkdir(parents=True)
        for name in ("models.json", "auth.json"):
            if (world.agent_dir / name).exists():
                (agent / name).write_bytes((world.agent_dir / name).read_bytes())
        (agent / "subagents.json").write_text(json.dumps({"sandbox": {"mode": "off"}}))
        return {"PI_CODING_AGENT_DIR": str(agent), "HOME": str(home)}

    return make


def hook_file(folder, hooks):
    (folder / ".codingcode").mkdir(exist_ok=True)
    (folder / ".codingcode" / "hooks.yaml").write_text(json.dumps({"hooks": hooks}))


def make_hook(folder, name, point, answer="", *, notes, kind="decision"):
    """A hook that notes what it is told and answers always the same."""
    script = folder / f"{name}.sh"
    script.write_text(f"#!/bin/sh\ncat >> {shlex.quote(str(notes))}\necho {shlex.quote(answer)}\n")
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    return {"name": name, "point": point, "type": kind, "command": str(script), "enabled": True}


def read_notes(path):
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


async def wait_for(world, holds, what):
    await asyncio.to_thread(world.wait_until, holds, what)


def was_said(world, text):
    return any(text in str(request.json) for request in world.server.requests)


@pytest.mark.parametrize(("answer", "effects"), [("allow", 1), ("deny", 0)])
async def test_person_decides_about_remote_call(world, plain, answer, effects):
    world.settings["approvals"] = "ask"
    world.play(world.act(1), DONE)
    world.start_worker(**plain())
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
    world.start_worker(**plain())
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
    world.start_worker(**plain())
    async with world.open_face() as face:
        await (await face.spawn("general-purpose", "Work.")).wait()
    assert (len(world.effects), was_said(world, '[Denied] Tool "read"')) == (1, True)


async def test_hook_files_judge_at_face(world, plain, home, tmp_path):
    notes = tmp_path / "notes.jsonl"
    world.play(world.act(1), DONE)
    hook_file(home, [
        make_hook(tmp_path, "guard", "tool.approval.pre", '{"decision": "deny", "reason": "not today"}', notes=notes),
        make_hook(tmp_path, "denied", "tool.execute.denied", notes=notes, kind="observer"),
        make_hook(tmp_path, "end", "agent.turn.end", notes=notes, kind="observer"),
    ])  # fmt: skip
    world.start_worker(**plain())
    async with world.open_face() as face:
        handle = await face.spawn("general-purpose", "Work.")
        outcome = await handle.wait()
    told = read_notes(notes)
    assert (outcome.status, world.effects, was_said(world, "was denied: not today")) == (Status.COMPLETED, [], True)
    assert [each["point"] for each in told] == ["tool.approval.pre", "tool.execute.denied", "agent.turn.end"]
    assert {(each["runId"], each["agent"], each["cwd"]) for each in told} == {
        (handle.id, "general-purpose", str(world.project))
    }


async def test_observers_hear_and_hold_nothing(world, plain, home, tmp_path):
    notes = tmp_path / "notes.jsonl"
    world.play(world.act(1), DONE)
    points = ("agent.turn.start", "tool.execute.before", "tool.execute.after", "llm.response.after", "agent.turn.end")
    hook_file(home, [make_hook(tmp_path, f"h{n}", p, notes=notes, kind="observer") for n, p in enumerate(points)])
    world.start_worker(**plain())
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
    world.start_worker(**plain())
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
    world.play(world.act(1), DONE)
    world.start_worker(**plain())
    async with world.open_face() as face:
        handle = await face.spawn("careful", "Work.")
        await handle.wait()
    assert (world.effects, was_said(world, "was denied: its own"), bool(handle.run.worker)) == ([], True, True)


async def test_nothing_is_asked_without_rules(world, plain):
    world.play(world.act(1), DONE)
    world.start_worker(**plain())
    async with world.open_face() as face:
        await (await face.spawn("general-purpose", "Work.")).wait()
    [(judged, below)] = world.ask("SELECT assignment->'judged', assignment->'judgedBelow' FROM retinue.runs")
    [(brought,)] = world.ask("SELECT last_value - (NOT is_called)::int FROM retinue.cases_seq_seq")
    assert (judged, below, brought) == ({}, False, 0)
