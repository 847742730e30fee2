import asyncio
import json
import random
import shutil
import sqlite3
from pathlib import Path

import pytest

from bench.crew_crash import LANES, sweep
from retinue import Reason, Request, Retinue, SessionWish, Status
from retinue.core.messages import ToolResultMessage
from retinue.core.model import ModelInfo
from retinue.core.transcript import INTERRUPTED
from retinue.models.scripted import ScriptedModel, parse_script
from retinue.testing import EventCollector, open_cli
from tests.flows.crew_world import SESSION, call, git, repository, script, to

SAMPLE = 1
"""Crews of twenty runs each."""
WAIT = {"text": "late", "delay_ms": 60_000}


@pytest.fixture
def copy_home(agent_dir, tmp_path):
    """What a process that is killed now would leave, as the home of another."""

    def copy(*, is_moved=True):
        left = tmp_path / "left"
        shutil.copytree(agent_dir, left, symlinks=True, ignore=shutil.ignore_patterns("*.lock"))
        if is_moved:
            with sqlite3.connect(left / "retinue" / "runs.db") as database:
                database.execute("UPDATE runs SET main = replace(main, ?, ?)", (str(agent_dir), str(left)))
        return {"PI_CODING_AGENT_DIR": str(tmp_path / "left")}

    return copy


def leave(token, then=""):
    return [call("bash", command=f"echo {token} >> effects; {then}")]


def durable(folder, model, environment=None, **options):
    return Retinue(folder, model=model, request=SESSION, environment=environment, runner="durable", **options)


async def until(test):
    async with asyncio.timeout(10):
        while not test():
            await asyncio.sleep(0.01)


def effects(folder):
    path = folder / "effects"
    return path.read_text().split() if path.exists() else []


def messages(path, role):
    entries = [json.loads(line) for line in Path(path).read_text().splitlines()]
    found = [entry["message"] for entry in entries if entry.get("message", {}).get("role") == role]
    return [message["content"][0].get("text", "") for message in found]


def on_record(agent_dir):
    with sqlite3.connect(agent_dir / "retinue" / "runs.db") as database:
        return [database.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in ("runs", "pieces")]


STEPS = (to("^work", calls=leave("one")), to("^work", calls=leave("two", "sleep 20")), to("^work", text="Both"))


async def cut_off(folder, copy_home, *, model=None):
    """A run that was killed after it had left two tokens; what its process leaves."""
    async with durable(folder, model or script(folder, {"text": "Hi"}, *STEPS)) as crew:
        await crew.prompt("hi")
        run = await crew.spawn("general-purpose", "work")
        await until(lambda: effects(folder)[-1:] == ["two"])
        left = copy_home()
    return run.id, left


@pytest.mark.timeout(120)
@pytest.mark.parametrize("part", range(SAMPLE))
def test_killed_crew_goes_on(part):
    seed = random.SystemRandom().randrange(2**32)
    assert sweep(1, seed, runner="durable").all == [], f"seed {seed}"


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_two_hundred_killed_crews_go_on():
    seed = random.SystemRandom().randrange(2**32)
    found = sweep(200, seed, lanes=LANES, runner="durable")
    assert (found.all, found.interrupted) == ([], 0), f"seed {seed}"
    assert min(found.landed, found.requeued, found.saved) > 120


async def test_run_goes_on_by_itself(tmp_path, copy_home):
    run_id, left = await cut_off(tmp_path, copy_home)
    async with durable(tmp_path, script(tmp_path, *STEPS), left) as crew:
        (run,) = await crew.runs()
        outcome = await run.wait(20)
    assert (run.id, outcome.status, outcome.text, effects(tmp_path)) == (
        run_id,
        Status.COMPLETED,
        "Both",
        ["one", "two"],
    )
    assert (outcome.turns, outcome.tool_calls) == (3, 2)
    assert messages(outcome.session_file, "user") == ["work"]


async def test_receipts_before_a_crash_count(tmp_path, copy_home, agent_dir):
    folder = repository(tmp_path)
    _, left = await cut_off(folder, copy_home)
    async with durable(folder, script(tmp_path, *STEPS), left) as crew:
        outcome = await (await crew.runs())[0].wait(20)
    assert [(each.command[:8], each.exit_code) for each in outcome.receipts.commands] == [
        ("echo one", 0),
        ("echo two", None),
    ]
    assert ("effects", "created") in [(file.path, file.change) for file in outcome.receipts.files]
    assert not list((Path(left["PI_CODING_AGENT_DIR"]) / "retinue" / "receipts").iterdir())


async def test_spending_before_a_crash_counts(tmp_path, copy_home):
    steps = [{**step, "usage": {"input": 28_000, "output": 10}} for step in STEPS]
    async with durable(tmp_path, script(tmp_path, *steps)) as crew:
        run = await crew.spawn("general-purpose", "work", tokens=60_000)
        await until(lambda: effects(tmp_path)[-1:] == ["two"])
        left = copy_home()
    async with durable(tmp_path, script(tmp_path, *steps), left) as crew:
        (run,) = await crew.runs()
        outcome = await run.wait(20)
    assert (outcome.reason, outcome.turns, outcome.usage.total_tokens) == (Reason.BUDGET, 3, 56_020)


class Hearing:
    """A model of the caller's own that notes what it is told about calls."""

    info = ModelInfo("own", "hearing", "scripted", "Hearing")

    def __init__(self, *replies):
        self.heard = []
        self._player = ScriptedModel(parse_script(list(replies)), self.info)

    async def reply(self, request, draft):
        results = [message for message in request.messages if isinstance(message, ToolResultMessage)]
        self.heard.append([message.content[0].text for message in results])
        return await self._player.reply(request, draft)


async def test_call_without_result_is_told(tmp_path, copy_home):
    _, left = await cut_off(tmp_path, copy_home, model=Hearing({"text": "Hi"}, *STEPS))
    model = Hearing(*STEPS)
    async with durable(tmp_path, model, left) as crew:
        await (await crew.runs())[0].wait(20)
    assert model.heard == [["(no output)", INTERRUPTED]]


async def test_lost_end_of_session_is_restored(tmp_path, copy_home):
    run_id, left = await cut_off(tmp_path, copy_home)
    (file,) = Path(left["PI_CODING_AGENT_DIR"]).glob(f"sessions/*/*/{run_id}/session.jsonl")
    whole = file.read_bytes()
    file.write_bytes(b"".join(whole.splitlines(keepends=True)[:3]))
    async with durable(tmp_path, script(tmp_path, *STEPS), left) as crew:
        (run,) = await crew.runs()
        assert (await run.wait(20)).text == "Both"
    assert (file.read_bytes()[: len(whole)], effects(tmp_path)) == (whole, ["one", "two"])


async def test_lost_session_is_restored(tmp_path, copy_home):
    run_id, left = await cut_off(tmp_path, copy_home)
    (file,) = Path(left["PI_CODING_AGENT_DIR"]).glob(f"sessions/*/*/{run_id}/session.jsonl")
    file.write_bytes(bytes(file.stat().st_size))
    async with durable(tmp_path, script(tmp_path, *STEPS), left) as crew:
        (run,) = await crew.runs()
        assert (await run.wait(20)).text == "Both"
    assert effects(tmp_path) == ["one", "two"]


async def test_lost_start_repeats_nothing(tmp_path, copy_home):
    run_id, left = await cut_off(tmp_path, copy_home)
    (main,) = Path(left["PI_CODING_AGENT_DIR"]).glob("sessions/*/*.jsonl")
    lines = main.read_bytes().splitlines(keepends=True)
    (asked,) = [place for place, line in enumerate(lines) if b'"RunQueued"' in line]
    main.write_bytes(b"".join(lines[: asked + 1]))
    (file,) = Path(left["PI_CODING_AGENT_DIR"]).glob(f"sessions/*/*/{run_id}/session.jsonl")
    file.unlink()
    async with durable(tmp_path, script(tmp_path, *STEPS), left) as crew:
        (run,) = await crew.runs()
        assert (await run.wait(20)).text == "Both"
    assert effects(tmp_path) == ["one", "two"]


async def test_run_without_reply_begins(tmp_path, copy_home):
    async with durable(tmp_path, script(tmp_path, {"text": "Hi"}, to("^work", **WAIT))) as crew:
        await crew.prompt("hi")
        run = await crew.spawn("general-purpose", "work")
        await until(lambda: run.run.turns == 1)
        await run.steer("quickly")
        left = copy_home()
    async with durable(tmp_path, script(tmp_path, to("quickly", text="Done"), to("^work", text="Done")), left) as crew:
        (run,) = await crew.runs()
        outcome = await run.wait(20)
    assert (outcome.text, messages(outcome.session_file, "user")) == ("Done", ["work", "quickly"])


async def test_resumed_run_goes_on_too(tmp_path, copy_home):
    steps = (to("^first", text="One"), *STEPS)
    async with durable(tmp_path, script(tmp_path, {"text": "Hi"}, *steps)) as crew:
        await crew.prompt("hi")
        run = await crew.spawn("general-purpose", "first")
        await run.wait(20)
        await crew.resume(run.id, "work")
        await until(lambda: effects(tmp_path)[-1:] == ["two"])
        left = copy_home()
    async with durable(tmp_path, script(tmp_path, *steps), left) as crew:
        (run,) = await crew.runs()
        outcome = await run.wait(20)
    assert (outcome.text, outcome.turns, run.run.attempt) == ("Both", 3, 2)
    assert messages(outcome.session_file, "user") == ["first", "work"]


async def test_limits_count_from_the_beginning(tmp_path, copy_home, agent_dir):
    (agent_dir / "agents").mkdir()
    (agent_dir / "agents" / "brief.md").write_text("---\nname: brief\ndescription: d\nmax_turns: 3\n---\n\nWork.\n")
    steps = (*STEPS[:2], *(to("^work|wrap|limit", calls=leave("more")) for _ in range(20)))
    async with durable(tmp_path, script(tmp_path, {"text": "Hi"}, *steps)) as crew:
        await crew.prompt("hi")
        await crew.spawn("brief", "work")
        await until(lambda: effects(tmp_path)[-1:] == ["two"])
        left = copy_home()
    async with durable(tmp_path, script(tmp_path, *steps), left, grace_turns=1) as crew:
        (run,) = await crew.runs()
        outcome = await run.wait(20)
    assert (outcome.status, outcome.turns) == (Status.STOPPED, 4)


async def test_end_is_told_once(tmp_path, copy_home):
    _, left = await cut_off(tmp_path, copy_home)
    noted = [to("task-notification", text="Noted")] * 3
    seen = EventCollector()
    async with durable(tmp_path, script(tmp_path, to("^and", text="Waiting"), *noted, *STEPS), left) as crew:
        crew.listen(seen)
        await crew.prompt("and?", settle=True)
        main = crew.session_file
    told = [line for line in main.read_text().splitlines() if '"subagent-notification"' in line]
    ends = [line for line in main.read_text().splitlines() if '"RunFinished"' in line]
    assert (len(told), len(ends)) == (1, 1)


async def test_finished_runs_are_off_the_record(tmp_path, agent_dir):
    async with durable(
        tmp_path, script(tmp_path, {"text": "Hi"}, *(to("^work", text="Done") for _ in range(9)))
    ) as crew:
        await crew.prompt("hi")
        for run in [await crew.spawn("general-purpose", "work") for _ in range(5)]:
            await run.wait(20)
        stopped = await crew.spawn("general-purpose", "never")
    assert (on_record(agent_dir), stopped.status.is_final) == ([0, 0], True)
    assert oct((agent_dir / "retinue" / "runs.db").stat().st_mode & 0o777) == "0o600"


async def test_other_sessions_runs_stay_alone(tmp_path, copy_home):
    _, left = await cut_off(tmp_path, copy_home)
    agent_dir = Path(left["PI_CODING_AGENT_DIR"])
    other = Request(session=SessionWish("exact", "other"))
    async with Retinue(tmp_path, model=script(tmp_path, {"text": "Hi"}), request=other, environment=left) as crew:
        await crew.prompt("hi")
        assert await crew.runs() == []
    assert on_record(agent_dir)[0] == 1


async def test_copied_session_leaves_runs_alone(tmp_path, copy_home):
    steps = script(tmp_path, {"text": "Hi"}, *STEPS)
    async with durable(tmp_path, steps) as crew:
        await crew.prompt("hi")
        await crew.spawn("general-purpose", "work")
        await until(lambda: effects(tmp_path)[-1:] == ["two"])
        left = copy_home(is_moved=False)
        async with durable(tmp_path, steps, left) as copy:
            assert [run.status for run in await copy.runs()] == [Status.INTERRUPTED]


async def test_runs_of_deleted_sessions_are_dropped(tmp_path, copy_home):
    _, left = await cut_off(tmp_path, copy_home)
    agent_dir = Path(left["PI_CODING_AGENT_DIR"])
    with sqlite3.connect(agent_dir / "retinue" / "runs.db") as database:
        database.execute("INSERT INTO runs SELECT 'gone', run, attempt, began, '/nowhere.jsonl' FROM runs")
    async with durable(tmp_path, script(tmp_path, *STEPS), left) as crew:
        await (await crew.runs())[0].wait(20)
    assert on_record(agent_dir) == [0, 0]


async def test_damaged_record_stops_nobody(tmp_path, copy_home):
    _, left = await cut_off(tmp_path, copy_home)
    folder = Path(left["PI_CODING_AGENT_DIR"]) / "retinue"
    for path in folder.glob("runs.db*"):
        path.unlink()
    (folder / "runs.db").write_bytes(b"no database at all, " * 500)
    seen = EventCollector()
    async with durable(tmp_path, script(tmp_path, {"text": "Hi"}, to("^again", calls=leave("three"))), left) as crew:
        crew.listen(seen)
        (run,) = await crew.runs()
        fresh = await crew.spawn("general-purpose", "again")
        outcome = await fresh.wait(20)
    assert (run.status, outcome.status, effects(tmp_path)) == (Status.INTERRUPTED, Status.FAILED, ["one", "two"])
    assert "runs.db: it is damaged" in outcome.error and "move it away" in outcome.error


async def test_nested_runs_go_on(tmp_path, copy_home, agent_dir):
    ask = call("Agent", subagent_type="general-purpose", prompt="work", description="d")
    upper = (to("^lead", calls=[ask]), to("^lead", text="Waiting"), to("task-notification", text="Led"))
    (agent_dir / "agents").mkdir()
    (agent_dir / "agents" / "lead.md").write_text("---\nname: lead\ndescription: d\ntools: Agent, bash\n---\n\nLead.\n")
    async with durable(tmp_path, script(tmp_path, {"text": "Hi"}, *upper, *STEPS)) as crew:
        await crew.prompt("hi")
        await crew.spawn("lead", "lead")
        await until(lambda: effects(tmp_path)[-1:] == ["two"])
        left = copy_home()
    async with durable(tmp_path, script(tmp_path, *upper, *STEPS), left) as crew:
        runs = {run.run.depth: run for run in await crew.runs()}
        outcome = await runs[1].wait(20)
    assert (outcome.status, outcome.text, runs[2].run.outcome.text) == (Status.COMPLETED, "Led", "Both")
    (transcript,) = (tmp_path / ".pi" / "output").glob("*.jsonl")
    assert transcript.read_text().count('"type":"user"') == 1
    assert effects(tmp_path) == ["one", "two"]


def is_start(event, crew):
    return type(event).__name__ == "RunStarted" and event.run_id != crew.run_id


async def test_awaited_run_is_told_after_a_crash(tmp_path, copy_home, agent_dir):
    (agent_dir / "agents").mkdir()
    (agent_dir / "agents" / "looker.md").write_text("---\nname: looker\ndescription: d\ntools: ls\n---\n\nLook.\n")
    ask = [call("subagent", agent="looker", task="look")]
    begin = (to("^go", calls=ask), to("^go", text="Never"))
    async with durable(tmp_path, script(tmp_path, *begin, to("look", **WAIT)), surfaces=["subagent"]) as crew:
        started = []
        crew.listen(lambda event: started.append(event) if is_start(event, crew) else None)
        async with asyncio.TaskGroup() as group:
            prompt = group.create_task(crew.prompt("go"))
            await until(lambda: started)
            left = copy_home()
            prompt.cancel()
    again = script(tmp_path, to("^and", text="Waiting"), to("task-notification", text="Told"), to("look", text="Seen"))
    async with durable(tmp_path, again, left, surfaces=["subagent"]) as crew:
        outcome = await crew.prompt("and?", settle=True)
        told = [line for line in crew.session_file.read_text().splitlines() if '"subagent-notification"' in line]
    assert (outcome.text, len(told)) == ("Told", 1)


@pytest.mark.parametrize("is_tidied", [False, True])
async def test_killed_run_goes_on_in_its_copy(tmp_path, home, is_tidied):
    repo = repository(tmp_path)
    (home / ".pi" / "agent").mkdir(parents=True, exist_ok=True)
    (home / ".pi" / "agent" / "subagents.json").write_text('{"runner": "durable"}')
    asked = {"subagent_type": "general-purpose", "prompt": "make", "description": "it", "isolation": "worktree"}
    begin = [to("^begin", calls=[call("Agent", **asked)]), to("^begin", text="started")]
    made = [call("bash", command="echo new > new.txt; sleep 20")]
    steps = [to("^make", calls=made), to("^make", calls=[call("bash", command="cat new.txt > seen.txt")])]
    model = script(tmp_path, *begin, *steps, to("^make", text="Made"))
    with open_cli(["--model", model, "--session-id", "my-session", "-p", "begin"], repo, home=home) as process:
        while not any(map(_has_file, (home / ".pi/agent/retinue/worktrees").glob("*.json"))):
            await asyncio.sleep(0.02)
            assert process.poll() is None
        process.kill()
        process.communicate()
    if is_tidied:  # by another session, which saves what it finds
        async with Retinue(repo, model=model, request=Request(session=SessionWish("exact", "other"))) as crew:
            await (await crew.spawn("Explore", "look")).wait(20)
    async with Retinue(repo, model=model, request=SESSION) as crew:
        (run,) = await crew.runs()
        outcome = await run.wait(20)
    assert (outcome.status, outcome.text, outcome.branch) == (Status.COMPLETED, "Made", f"pi-agent-{run.id}")
    assert git(repo, "show", f"{outcome.branch}:seen.txt") == "new"


def _has_file(record):
    try:
        # There with its content: the shell makes the file before it writes it.
        return bool((Path(json.loads(record.read_text())["path"]) / "new.txt").read_text())
    except (OSError, ValueError):
        return False


async def test_left_run_goes_on(tmp_path):
    async with durable(tmp_path, script(tmp_path, {"text": "Hi"}, *STEPS)) as crew:
        await crew.prompt("hi")
        run = await crew.spawn("general-purpose", "work")
        await until(lambda: effects(tmp_path)[-1:] == ["two"])
        assert crew.session_runs.can_leave
        crew.session_runs.leave()
    async with durable(tmp_path, script(tmp_path, *STEPS)) as crew:
        (again,) = await crew.runs()
        outcome = await again.wait(20)
    assert (again.id, outcome.status, outcome.text, effects(tmp_path)) == (
        run.id,
        Status.COMPLETED,
        "Both",
        ["one", "two"],
    )
    assert messages(outcome.session_file, "user") == ["work"]


async def test_run_without_record_cannot_be_left(tmp_path):
    async with Retinue(tmp_path, model=script(tmp_path, {"text": "Hi"}, to("^work", **WAIT)), request=SESSION) as crew:
        await crew.prompt("hi")
        run = await crew.spawn("general-purpose", "work")
        assert not crew.session_runs.can_leave
        crew.session_runs.leave()
        await run.wait(5)
    assert run.status is Status.STOPPED
