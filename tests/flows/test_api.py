import json
from pathlib import Path

import pytest

from retinue import Limits, Outcome, Reason, Request, Retinue, SessionWish, Status
from retinue.core.errors import RetinueError
from retinue.core.model import ToolSpec
from retinue.core.tool import Effect, ToolResult


def script(tmp_path: Path, *replies: dict) -> str:
    path = tmp_path / "script.json"
    path.write_text(json.dumps({"replies": replies}))
    return f"scripted/{path}"


def to(words: str, **reply) -> dict:
    return {"match": {"last_user": words}, **reply}


@pytest.fixture
def work(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


async def test_prompt_returns_the_outcome(tmp_path, work):
    async with Retinue(work, model=script(tmp_path, {"text": "Hello"})) as crew:
        outcome = await crew.prompt("Hi")
    assert isinstance(outcome, Outcome)
    assert (outcome.status, outcome.text, outcome.cost) == (Status.COMPLETED, "Hello", 0)
    assert Path(outcome.session_file).exists()


async def test_spawned_run_is_followed_and_awaited(tmp_path, work):
    model = script(tmp_path, to("look", text="Found it", delay_ms=30))
    async with Retinue(work, model=model) as crew:
        run = await crew.spawn("Explore", "look around", description="a look")
        kinds = [type(event).__name__ async for event in run.events()]
        outcome = await run.wait()
    assert (outcome.status, outcome.text) == (Status.COMPLETED, "Found it")
    assert kinds[-1] == "RunFinished" and "MessageFinished" in kinds


async def test_runs_go_side_by_side(tmp_path, work):
    model = script(tmp_path, to("look", text="done", delay_ms=100))
    async with Retinue(work, model=model) as crew:
        runs = [await crew.spawn("Explore", f"look {number}") for number in range(4)]
        outcomes = [await run.wait(5) for run in runs]
        starts = [run.run.started_ms for run in runs]
        ends = [run.run.finished_ms for run in runs]
    assert [outcome.text for outcome in outcomes] == ["done"] * 4
    assert max(starts) < min(ends)


async def test_run_is_steered(tmp_path, work):
    replies = [
        to("look", calls=[{"name": "ls", "arguments": {}}], delay_ms=30),
        to("only tests", text="Only tests then"),
    ]
    async with Retinue(work, model=script(tmp_path, *replies)) as crew:
        run = await crew.spawn("Explore", "look")
        assert await run.steer("only tests")
        assert (await run.wait(5)).text == "Only tests then"


async def test_resumed_run_knows_what_was_said(tmp_path, work):
    model = script(tmp_path, to("look", text="First"), to("again", text="Second"))
    async with Retinue(work, model=model) as crew:
        run = await crew.spawn("Explore", "look")
        await run.wait(5)
        again = await crew.resume(run.id, "again")
        outcome = await again.wait(5)
    said = [json.loads(line) for line in Path(outcome.session_file).read_text().splitlines()]
    texts = [
        e["message"]["content"][0]["text"] for e in said if e.get("message", {}).get("role") in ("user", "assistant")
    ]
    assert (again.id, texts) == (run.id, ["look", "First", "again", "Second"])


async def test_run_is_resumed_by_the_next_process(tmp_path, work):
    model = script(tmp_path, {"text": "main"}, to("look", text="First"), to("again", text="Second"))
    wish = SessionWish("exact", "my-session")
    async with Retinue(work, model=model, request=Request(session=wish)) as crew:
        run = await crew.spawn("Explore", "look")
        await run.wait(5)
    async with Retinue(work, model=model, request=Request(session=wish)) as crew:
        assert [(known.id, known.status) for known in await crew.runs()] == [(run.id, Status.COMPLETED)]
        again = await crew.resume(run.id, "again")
        assert (await again.wait(5)).text == "Second"


async def test_stopped_run_says_so(tmp_path, work):
    async with Retinue(work, model=script(tmp_path, to("look", text="x", delay_ms=60_000))) as crew:
        run = await crew.spawn("Explore", "look")
        assert await run.stop()
        outcome = await run.wait(5)
    assert (outcome.status, outcome.reason) == (Status.STOPPED, Reason.USER)


async def test_closing_stops_what_works(tmp_path, work):
    async with Retinue(work, model=script(tmp_path, to("look", text="x", delay_ms=60_000))) as crew:
        run = await crew.spawn("Explore", "look")
    assert run.status is Status.STOPPED


async def test_unknown_agent_is_refused(tmp_path, work):
    async with Retinue(work, model=script(tmp_path)) as crew:
        with pytest.raises(RetinueError, match="Exlore"):
            await crew.spawn("Exlore", "look")


async def test_outcome_outlives_a_cleared_list(tmp_path, work):
    clear = to("clear", calls=[{"name": "clear_subagents", "arguments": {"older_than_minutes": 0}}])
    async with Retinue(work, model=script(tmp_path, to("look", text="Found it"), clear, {"text": "Cleared"})) as crew:
        run = await crew.spawn("Explore", "look")
        await run.wait(5)
        await crew.prompt("clear")
        assert await crew.runs() == []
        assert (await run.wait(5)).text == "Found it"


async def test_timeout_leaves_the_run_alone(tmp_path, work):
    async with Retinue(work, model=script(tmp_path, to("look", text="late", delay_ms=300))) as crew:
        run = await crew.spawn("Explore", "look")
        with pytest.raises(TimeoutError):
            await run.wait(0.05)
        assert (await run.wait(5)).text == "late"


class Dice:
    spec = ToolSpec("dice", "Throw dice", {"type": "object", "properties": {}})
    effect = Effect.READ
    hint = "throw dice"
    guidelines = ()

    async def call(self, arguments, context):
        return ToolResult.of("4")


async def test_own_tools_are_offered(tmp_path, work):
    model = script(tmp_path, {"calls": [{"name": "dice", "arguments": {}}]}, {"text": "It was a four."})
    async with Retinue(work, model=model, tools=[Dice()]) as crew:
        assert (await crew.prompt("Throw")).text == "It was a four."


async def test_limits_hold_for_the_main_agent(tmp_path, work):
    looks = [{"text": f"{n}", "calls": [{"name": "ls", "arguments": {}}]} for n in range(9)]
    request = Request(limits=Limits(max_turns=1, grace_turns=1))
    async with Retinue(work, model=script(tmp_path, *looks), request=request) as crew:
        outcome = await crew.prompt("go")
    assert (outcome.status, outcome.reason, outcome.turns) == (Status.STOPPED, Reason.TURN_LIMIT, 2)


async def test_main_agent_reacts_to_its_reports(tmp_path, work):
    call = {"name": "Agent", "arguments": {"subagent_type": "Explore", "prompt": "look", "description": "a look"}}
    replies = [
        to("^begin", calls=[call]),
        to("^begin", text="started"),
        to("^look", text="the report"),
        *(to("task-notification", text="Thank you") for _ in range(3)),
    ]
    async with Retinue(work, model=script(tmp_path, *replies)) as crew:
        outcome = await crew.prompt("begin", settle=True)
    assert (outcome.status, outcome.text) == (Status.COMPLETED, "Thank you")


async def test_closed_retinue_says_how_to_open_it(tmp_path, work):
    crew = Retinue(work, model=script(tmp_path))
    with pytest.raises(RetinueError, match="async with"):
        await crew.prompt("Hi")
