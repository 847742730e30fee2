"""Agents that `dispatch_agent` starts on workers: all that it promises at home holds there."""

import asyncio
import json
import os
import shlex
import signal
import stat
import sys
from pathlib import Path

import pytest

from retinue.core.events import Warned
from retinue.core.run import Status
from retinue.features.approvals.gate import NO_FRONTEND
from retinue.features.hooks.points import DECIDED, OBSERVED
from retinue.settings.request import Request, SessionWish
from tests.flows.mcp_world import PROGRAM

pytestmark = pytest.mark.timeout(120)
POINTS = [*OBSERVED, *DECIDED]


@pytest.fixture
def dispatching(world, home):
    """A user who dispatches one agent of their own."""
    world.settings["surfaces"] = ["dispatch"]
    write_agent(home)
    return world


def write_agent(home, fields=""):
    folder = home / ".codingcode" / "agents"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "helper.md").write_text(f"---\nname: helper\ndescription: Helps\n{fields}---\nYou are helper.\n")


def to(words, **reply):
    return {"match": {"last_user": words}, **reply}


def call(name, **arguments):
    return {"name": name, "arguments": arguments}


def play(world, *replies, agent="helper", more=()):
    """The main agent dispatches one agent, which says this."""
    begin = to("^begin", calls=[call("dispatch_agent", agent=agent, prompt="look around")])
    return world.play(begin, to("^begin", text="done"), *(to("^look", **reply) for reply in replies), *more)


def effect(world, name="execute_command"):
    """A call that leaves a line in the log."""
    return {"calls": [call(name, command=f"echo acted >> {world.log}")]}


async def run_main(face):
    """The result of the main agent's call, and the run it was."""
    await face.prompt("begin")
    [handle] = await face.runs()
    entries = read(face.session_file)
    [result] = [each["message"] for each in entries if each.get("message", {}).get("role") == "toolResult"]
    return result, handle.run


def read(path):
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


def find_labels(path):
    return [entry["data"] for entry in read(path) if entry.get("customType") == "retinue.dispatched"]


def results(run):
    said = [entry.get("message", {}) for entry in read(run.outcome.session_file)]
    return [each["content"][0]["text"] for each in said if each.get("role") == "toolResult"]


def watch(home, folder, *points):
    """Hooks of the user that note what they are told; returns where."""
    notes = folder / "notes.jsonl"
    script = folder / "watch.sh"
    script.write_text(f"#!/bin/sh\ncat >> {shlex.quote(str(notes))}\n")
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    entries = [
        {"name": f"h{number}", "point": point, "type": "decision" if point in DECIDED else "observer"}
        for number, point in enumerate(points)
    ]
    (home / ".codingcode").mkdir(exist_ok=True)
    hooks = [{**entry, "command": str(script), "enabled": True} for entry in entries]
    (home / ".codingcode" / "hooks.yaml").write_text(json.dumps({"hooks": hooks}))
    return notes


async def wait_for(world, holds, what):
    await asyncio.to_thread(world.wait_until, holds, what)


@pytest.mark.spec("codingcode:1", "codingcode:23", "codingcode:24", "codingcode:25")
async def test_dispatched_agent_works_elsewhere(dispatching, plain, home):
    (home / ".codingcode" / "rules.md").write_text("Never guess.\n")
    server = play(dispatching, {"calls": [call("read_file", path="README.md")]}, {"text": "Here it is."})
    dispatching.start_worker(**plain())
    async with dispatching.open_face() as face:
        result, run = await run_main(face)
        main = read(face.session_file)[0]
        beside = Path(face.session_file).with_suffix("")
    header = read(run.outcome.session_file)[0]
    assert (result["content"][0]["text"], bool(run.worker), results(run)) == ("Here it is.", True, ["# A project\n"])
    seen = result["details"].pop("receipts")
    assert (len(seen["commands"]), seen["files"], result["details"].pop("verification")) == (0, [], "not verified")
    assert result["details"] == {
        **{"agent": "helper", "runId": run.id, "status": "done", "turns": 2, "toolUses": 1},
        "sessionFile": str(beside / run.id / "session.jsonl"),
    }
    assert find_labels(run.outcome.session_file) == [{"parentSessionId": main["id"], "agentName": "helper"}]
    assert header["parentSession"] == f"{beside}.jsonl"
    [asked] = [str(request.json) for request in server.requests if "look around" in str(request.json)][:1]
    parts = ("You are helper.", "## Environment", "## User-defined Rules", "Never guess", "look around")
    places = [asked.index(part) for part in parts]
    assert places == sorted(places)


@pytest.mark.spec("codingcode:12", "codingcode:13", "codingcode:26")
@pytest.mark.slow
async def test_model_sees_the_files_names(dispatching, plain, home):
    write_agent(home, "tools: [read_file, search_code, dispatch_agent]\n")
    calls = [call("read", path="README.md"), call("write_file", path="x")]
    server = play(dispatching, {"calls": calls}, {"text": "tried"})
    dispatching.start_worker(**plain())
    async with dispatching.open_face() as face:
        _, run = await run_main(face)
    [asked] = [request.json for request in server.requests if "look around" in str(request.json)][:1]
    assert sorted(tool["function"]["name"] for tool in asked["tools"]) == ["read_file", "search_code"]
    assert [text.partition(".")[0] for text in results(run)] == ["Tool 'read' not found", "Tool 'write_file' not found"]


@pytest.mark.spec("codingcode:28")
async def test_nobody_there_is_a_no(dispatching, plain):
    play(dispatching, effect(dispatching), {"text": "tried"})
    dispatching.start_worker(**plain())
    async with dispatching.open_face() as face:
        result, run = await run_main(face)
    denied = [f'[Denied] Tool "execute_command" was denied: {NO_FRONTEND}']
    assert (result["content"][0]["text"], results(run), dispatching.effects) == ("tried", denied, [])
    assert bool(run.worker)


@pytest.mark.parametrize(("answer", "effects"), [pytest.param("allow", 1, marks=pytest.mark.slow), ("deny", 0)])
async def test_person_decides_about_dispatched_call(dispatching, plain, answer, effects):
    play(dispatching, effect(dispatching), {"text": "tried"})
    dispatching.start_worker(**plain())
    async with dispatching.open_face() as face, asyncio.TaskGroup() as group:
        with face.questions.attend():
            task = group.create_task(run_main(face))
            await wait_for(dispatching, lambda: face.questions.waiting, "it asks")
            [question] = face.questions.waiting
            before = list(dispatching.effects)
            face.questions.answer(question.id, answer)
            _, run = await task
    assert (question.run_id, question.agent, question.tool) == (run.id, "helper", "execute_command")
    assert (before, len(dispatching.effects), bool(run.worker)) == ([], effects, True)


@pytest.mark.unconfined("pins what readers get where there is no sandbox")
@pytest.mark.spec("codingcode:14", "codingcode:15")
async def test_reader_has_no_unconfined_commands(dispatching, plain):
    play(dispatching, effect(dispatching), {"text": "tried"}, agent="plan")
    dispatching.settings["approvals"] = "bypass"
    dispatching.change({})
    dispatching.start_worker(**plain())
    async with dispatching.open_face() as face:
        _, run = await run_main(face)
    [text] = results(run)
    assert ("SANDBOX_UNAVAILABLE" in text, dispatching.effects, bool(run.worker)) == (True, [], True)


@pytest.mark.spec("codingcode:21", "codingcode:22")
async def test_every_point_is_told_once(dispatching, plain, home, tmp_path):
    notes = watch(home, tmp_path, *POINTS)
    play(dispatching, {"calls": [call("read_file", path="README.md"), call("read_file", path="none")]}, {"text": "ok"})
    dispatching.start_worker(**plain())
    async with dispatching.open_face() as face:
        _, run = await run_main(face)
        main = read(face.session_file)[0]["id"]
    told, child = read(notes), read(run.outcome.session_file)[0]["id"]
    spawned = {each["point"]: each for each in told if each["point"].startswith("agent.subagent")}
    assert {point: each["sessionId"] for point, each in spawned.items()} == dict.fromkeys(spawned, main)
    assert [each.get("childSessionId") for each in spawned.values()] == [None, child, child]
    assert (len(spawned), spawned["agent.subagent.complete"]["status"]) == (3, "done")
    own = [each for each in told if each["agent"] == "helper"]
    assert {(each["sessionId"], each["runId"], each["projectPath"]) for each in own} == {
        (child, run.id, str(dispatching.project))
    }
    counts = {point: sum(each["point"] == point for each in own) for point in POINTS}
    assert {point: count for point, count in counts.items() if point.startswith("tool.")} == {
        **{"tool.execute.before": 2, "tool.execute.after": 1, "tool.execute.error": 1, "tool.execute.denied": 0},
        **{"tool.approval.pre": 2, "tool.approval.post": 2},
    }
    assert {each["toolName"] for each in own if each["point"].startswith("tool.execute")} == {"read_file"}
    assert (counts["agent.turn.start"], counts["agent.turn.stop"], counts["agent.turn.end"]) == (1, 1, 1)


@pytest.mark.spec("codingcode:32")
@pytest.mark.slow
async def test_step_limit_counts_there(dispatching, plain, home):
    write_agent(home, "maxSteps: 1\n")
    begun = {"text": "begun", "calls": [call("read_file", path="README.md")]}
    play(dispatching, begun, more=[to("limit|wrap up", text="partial")])
    dispatching.start_worker(**plain())
    async with dispatching.open_face() as face:
        result, run = await run_main(face)
    said = "Subagent failed: [MAX_STEPS_REACHED] Max steps (1) reached\n\nWhat it had said by then:\npartial"
    assert said in result["content"][0]["text"]
    assert (result["details"]["reason"], bool(run.worker)) == ("MAX_STEPS_REACHED", True)


@pytest.mark.spec("codingcode:36")
async def test_abort_takes_it_back(dispatching, plain, home, tmp_path):
    notes = watch(home, tmp_path, "agent.subagent.complete")
    play(dispatching, {"text": "late", "delay_ms": 60_000})
    dispatching.start_worker(**plain())
    async with dispatching.open_face() as face, asyncio.TaskGroup() as group:
        task = group.create_task(face.prompt("begin"))
        await wait_for(dispatching, lambda: len(dispatching.server.requests) == 2, "it works")
        face.abort()
        await task
        [handle] = await face.runs()
        outcome = await handle.wait()
        # An abort waits less than half a second for a call; one that takes longer tells hooks when its run is over.
        await wait_for(dispatching, lambda: notes.exists() and read(notes), "the hook is told")
    [told] = read(notes)
    assert outcome.status in (Status.STOPPED, Status.INTERRUPTED), outcome
    assert told["status"] == "error"


@pytest.mark.slow
async def test_dispatched_run_outlives_its_worker(dispatching, plain, home, tmp_path):
    notes = watch(home, tmp_path, "agent.subagent.spawn.after", "agent.subagent.complete")
    dispatching.settings["approvals"] = "bypass"
    command = f"echo acted >> {dispatching.log}; sleep 60"
    play(dispatching, {"calls": [call("execute_command", command=command)]}, {"text": "went on"})
    theirs = plain()
    first = dispatching.start_worker(**theirs)
    async with dispatching.open_face() as face, asyncio.TaskGroup() as group:
        task = group.create_task(run_main(face))
        await wait_for(dispatching, lambda: dispatching.effects, "it acts")
        os.kill(first.pid, signal.SIGSTOP)
        dispatching.kill(first)
        dispatching.start_worker(**theirs)
        result, run = await task
    assert (result["content"][0]["text"], len(dispatching.effects), run.attempt) == ("went on", 1, 1)
    after, complete = read(notes)
    assert (after["childSessionId"], complete["status"]) == (complete["childSessionId"], "done")
    assert read(run.outcome.session_file)[0]["id"] == after["childSessionId"]


def add_server(folder, program):
    entry = {"command": sys.executable, "args": ["-I", "-S", str(program)]}
    (folder / "mcp.json").write_text(json.dumps({"mcpServers": {"raw": entry}}))


@pytest.mark.spec("codingcode:30", "codingcode:31")
async def test_promised_servers_keep_it_here(dispatching, home, tmp_path):
    (tmp_path / "raw.py").write_text(PROGRAM)
    dispatching.settings["approvals"] = "bypass"
    write_agent(home, "tools: [read_file]\nmcpServers: [raw]\n")
    play(dispatching, {"calls": [call("mcp__raw__hi")]}, {"text": "greeted"})
    add_server(dispatching.agent_dir, tmp_path / "raw.py")
    warned = []
    async with dispatching.open_face() as face:
        face.listen(lambda event: warned.append(event.text) if isinstance(event, Warned) else None)
        result, run = await run_main(face)
    assert (result["content"][0]["text"], results(run), run.worker) == ("greeted", ["hello"], "")
    assert warned == ["agent 'helper': its MCP servers are configured on this machine; using runner inprocess"]


async def test_servers_keep_a_run_of_the_fleet(dispatching, home, tmp_path):
    (tmp_path / "raw.py").write_text(PROGRAM)
    dispatching.settings["approvals"] = "bypass"
    write_agent(home, "tools: [read_file]\nmcpServers: [raw]\n")
    dispatching.play({"calls": [call("mcp__raw__hi")]}, {"text": "greeted"})
    add_server(dispatching.agent_dir, tmp_path / "raw.py")
    warned = []
    async with dispatching.open_face() as face:
        face.listen(lambda event: warned.append(event.text) if isinstance(event, Warned) else None)
        run = await face.spawn("helper", "Greet.")
        outcome = await run.wait(20)
    assert (outcome.text, results(run.run), run.run.worker) == ("greeted", ["hello"], "")
    assert warned == ["agent 'helper': its MCP servers are configured on this machine; using runner inprocess"]


@pytest.mark.sample(1)
@pytest.mark.parametrize("is_there", [pytest.param(True, marks=pytest.mark.slow), False])
async def test_missing_tool_is_told(dispatching, plain, tmp_path, is_there):
    (tmp_path / "raw.py").write_text(PROGRAM)
    agents = dispatching.agent_dir / "agents"
    agents.mkdir()
    (agents / "greeter.md").write_text("---\ndescription: Greets\ntools: read, raw:hi\n---\n\nGreet.\n")
    dispatching.settings["approvals"] = "bypass"
    play(dispatching, {"calls": [call("mcp__raw__hi")]}, {"text": "greeted"}, agent="greeter")
    add_server(dispatching.agent_dir, tmp_path / "raw.py")
    theirs = plain()
    if is_there:
        add_server(Path(theirs["PI_CODING_AGENT_DIR"]), tmp_path / "raw.py")
    dispatching.start_worker(**theirs)
    warned = []
    async with dispatching.open_face() as face:
        face.listen(lambda event: warned.append(event.text) if isinstance(event, Warned) else None)
        _, run = await run_main(face)
    told = [] if is_there else ["agent 'greeter' on its worker: there is no tool 'mcp__raw__hi' here; left out"]
    assert (bool(run.worker), (results(run) == ["hello"]), warned) == (True, is_there, told)


@pytest.mark.slow
async def test_dispatched_run_outlives_its_face(dispatching, plain, tmp_path):
    session = tmp_path / "main.jsonl"
    dispatching.settings["approvals"] = "bypass"
    told = [to("^and", text="Not yet."), to("task-notification", text="I was told.")]
    server = play(dispatching, effect(dispatching), {"text": "went on"}, more=told)
    first = dispatching.start_face(session, "begin")
    await wait_for(dispatching, dispatching.has_runs, "it is sent")
    first.kill()
    first.wait(20)
    async with dispatching.open_face(request=Request(session=SessionWish("named", str(session)))) as face:
        dispatching.start_worker(**plain())
        await face.prompt("and?", settle=True)
        [handle] = await face.runs()
    outcome = handle.run.outcome
    assert (outcome.status, outcome.text, bool(handle.run.worker)) == (Status.COMPLETED, "went on", True)
    last = str(server.requests[-1].json)
    assert ("task-notification" in last, "went on" in last, len(dispatching.effects)) == (True, True, 1)
    assert [label["agentName"] for label in find_labels(outcome.session_file)] == ["helper"]


@pytest.mark.sample(1)
@pytest.mark.parametrize("is_dispatched", [True, pytest.param(False, marks=pytest.mark.slow)])
async def test_loss_counts_under_all_names(dispatching, plain, is_dispatched):
    dispatching.settings["approvals"] = "bypass" if is_dispatched else "never"
    first = call("execute_command", command=f"echo acted >> {dispatching.log}; sleep 2")
    play(dispatching, {"calls": [first]}, effect(dispatching), {"text": "tried"})
    dispatching.start_worker(**plain())
    async with dispatching.open_face() as face, asyncio.TaskGroup() as group:
        work = face.prompt("begin") if is_dispatched else (await face.spawn("helper", "look around")).wait()
        task = group.create_task(work)
        await wait_for(dispatching, lambda: dispatching.effects, "it acts")
        [handle] = await face.runs()
        face.restrict("bash", run_id=handle.id)
        await task
    text = "bash was revoked from this agent while it worked"
    assert (results(handle.run)[1:], len(dispatching.effects), bool(handle.run.worker)) == ([text], 1, True)


async def test_resumed_run_keeps_its_session(dispatching, plain):
    play(dispatching, {"text": "one"}, more=[to("^more", text="two")])
    dispatching.start_worker(**plain())
    async with dispatching.open_face() as face:
        _, run = await run_main(face)
        before = read(run.outcome.session_file)[0]
        handle = await face.resume(run.id, "more")
        outcome = await handle.wait()
    assert (outcome.text, handle.run.attempt, bool(handle.run.worker)) == ("two", 2, True)
    assert (read(outcome.session_file)[0], len(find_labels(outcome.session_file))) == (before, 1)
