from pathlib import Path

import pytest

from retinue import Request, Retinue, SessionWish, Status
from retinue.core.errors import UsageError
from retinue.testing import EventCollector
from tests.flows.crew_world import SESSION, call, script, to

LOOK = [to("^look", text="Seen"), to("^again", text="More")]


def define(folder, **fields):
    folder.mkdir(parents=True)
    lines = "".join(f"{name}: {value}\n" for name, value in fields.items())
    (folder / "keeper.md").write_text(f"---\ndescription: d\n{lines}---\n\nWork.\n")


def start(**arguments):
    return call("Agent", prompt="look", description="a look", subagent_type="keeper", **arguments)


async def result(crew, prompt):
    """What the tool has answered to the main agent."""
    seen = EventCollector()
    crew.listen(seen)
    await crew.prompt(prompt, settle=True)
    (text,) = [event.result.content[0].text for event in seen.events if type(event).__name__ == "ToolFinished"]
    return text


@pytest.mark.parametrize(("written", "place"), [("kept/here", "work/kept/here"), ("~/kept", "home/kept")])
async def test_file_says_where_sessions_lie(tmp_path, agent_dir, home, written, place):
    define(agent_dir / "agents", persist_session="true", session_dir=written)
    work = tmp_path / "work"
    work.mkdir()
    folder = work / "kept/here" if place.startswith("work") else home / "kept"
    async with Retinue(work, model=script(tmp_path, {"text": "Hi"}, *LOOK), request=SESSION) as crew:
        await crew.prompt("hi")
        run = await crew.spawn("keeper", "look")
        assert (await run.wait(5)).session_file == str(folder / f"{run.id}.jsonl")
    async with Retinue(work, model=script(tmp_path, *LOOK), request=SESSION) as crew:
        assert (await (await crew.resume(run.id, "again")).wait(5)).text == "More"
    assert [path.name for path in folder.iterdir() if path.suffix == ".jsonl"] == [f"{run.id}.jsonl"]


async def test_file_wants_no_session(tmp_path, agent_dir):
    define(agent_dir / "agents", persist_session="false")
    async with Retinue(tmp_path, model=script(tmp_path, {"text": "Hi"}, *LOOK), request=SESSION) as crew:
        await crew.prompt("hi")
        run = await crew.spawn("keeper", "look")
        assert (await run.wait(5)).session_file == ""
        assert (await (await crew.resume(run.id, "again")).wait(5)).text == "More"


@pytest.mark.here("what was said on a worker is in the database, from where it goes on")
async def test_unkept_run_ends_with_its_process(tmp_path, agent_dir):
    define(agent_dir / "agents", persist_session="false")
    async with Retinue(tmp_path, model=script(tmp_path, {"text": "Hi"}, *LOOK), request=SESSION) as crew:
        await crew.prompt("hi")
        run = await crew.spawn("keeper", "look")
        await run.wait(5)
    async with Retinue(tmp_path, model=script(tmp_path, *LOOK), request=SESSION) as crew:
        outcome = await (await crew.resume(run.id, "again")).wait(5)
    assert (outcome.status, outcome.error) == (Status.FAILED, f'Agent "{run.id}" has no active session to resume.')


async def test_project_keeps_sessions_inside_itself(tmp_path):
    define(tmp_path / ".pi" / "agents", persist_session="true", session_dir="../out")
    model = script(tmp_path, to("^go", calls=[start()]), to("^go", text="Told"))
    async with Retinue(tmp_path, model=model, request=Request(approve=True)) as crew:
        assert "an agent of a project keeps its sessions inside" in await result(crew, "go")
        with pytest.raises(UsageError, match=r"keeper.md: session_dir '../out'"):
            await crew.spawn("keeper", "look")
        assert await crew.runs() == []


@pytest.mark.parametrize("budget", [{"max_tokens_total": 300}, {"max_tokens_total": 90_000}, {}])
async def test_call_limits_what_a_run_spends(tmp_path, agent_dir, budget):
    define(agent_dir / "agents", max_tokens_total=80_000)
    model = script(tmp_path, to("^go", calls=[start(**budget)]), *LOOK, to("", text="Told"))
    async with Retinue(tmp_path, model=model) as crew:
        await crew.prompt("go", settle=True)
        (run,) = await crew.runs()
    expected = Status.STOPPED if budget.get("max_tokens_total") == 300 else Status.COMPLETED
    assert run.status is expected


@pytest.mark.parametrize(
    ("options", "status"), [({"tokens": 300}, Status.STOPPED), ({"cost_usd": 5}, Status.COMPLETED)]
)
async def test_caller_limits_what_a_run_spends(tmp_path, options, status):
    async with Retinue(tmp_path, model=script(tmp_path, *LOOK)) as crew:
        assert (await (await crew.spawn("Explore", "look", **options)).wait(5)).status is status


async def test_nested_run_names_the_spent_budget(tmp_path, agent_dir):
    used = {"usage": {"input": 3000, "output": 500}}
    (agent_dir / "agents").mkdir(parents=True)
    for name, tools in (("outer", "read, Agent\nallowed_subagents: inner"), ("inner", "read")):
        text = f"---\nname: {name}\ndescription: d\ntools: {tools}\n---\n\nx\n"
        (agent_dir / "agents" / f"{name}.md").write_text(text)
    (agent_dir / "subagents.json").write_text('{"maxDepth": 2}')
    inner = call("Agent", subagent_type="inner", prompt="inner", description="i")
    outer = call("Agent", subagent_type="outer", prompt="outer", description="o", max_tokens_total=10500)
    slow = to("^inner", text="late", delay_ms=9000, **used)
    replies = [to("^go", calls=[outer]), to("^outer", calls=[inner], **used), slow, to("", text="Done", **used)]
    async with Retinue(tmp_path, model=script(tmp_path, *replies)) as crew:
        await crew.prompt("go", settle=True)
        ends = {run.agent: (str(run.outcome.reason), run.outcome.error) for run in crew.session_runs.runs}
    assert ends["inner"] == ("parent", "the budget of the agent that started it is spent")
    assert ends["outer"][0] == "budget"


async def test_nothing_is_scheduled_without_a_session(tmp_path, agent_dir):
    define(agent_dir / "agents")
    model = script(tmp_path, to("^go", calls=[start(schedule="5m")]), *LOOK, to("", text="Told"))
    async with Retinue(tmp_path, model=model, request=Request(session=SessionWish("none"))) as crew:
        text = await result(crew, "go")
    assert ("Scheduled" in text, Path(tmp_path, ".pi", "subagent-schedules").exists()) == (False, False)
