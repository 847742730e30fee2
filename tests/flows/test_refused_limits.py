import json
import math
from itertools import product

import pytest

from retinue import Request, Retinue, Status
from retinue.core.errors import ConfigError, RetinueError, UsageError
from retinue.core.events import RunQueued, ToolFinished
from retinue.engine.limits import Limits
from retinue.testing import run_cli
from tests.flows.crew_world import call, repository, script

NUMBERS = [math.nan, math.inf, -math.inf, -1, "many", True]
TASKS = ["", "  \n", None, 5, ["look"]]
LIMITS = ("tokens", "cost_usd", "wall_s", "idle_s", "tool_s", "max_turns")
ASKER = """
import json

def register(api):
    @api.tool(name="ask", description="Asks.", effect="read")
    async def ask():
        return json.dumps(await api.events.request("subagents:rpc:spawn", {request}))
"""


@pytest.fixture
def work(tmp_path):
    return repository(tmp_path)


def open_crew(work, **options) -> Retinue:
    model = options.pop("model", None) or script(work.parent, {"text": "Done."})
    return Retinue(work, model=model, **options)


async def refuse(crew, *words, **limits) -> str:
    seen = list[RunQueued]()
    crew.listen(lambda event: seen.append(event) if isinstance(event, RunQueued) else None)
    with pytest.raises(RetinueError) as caught:
        await crew.spawn("general-purpose", *words, **limits)
    assert seen == []
    return str(caught.value)


@pytest.mark.sample(9)
@pytest.mark.parametrize("value", NUMBERS)
@pytest.mark.parametrize("name", LIMITS)
async def test_python_refuses_what_is_no_limit(work, name, value):
    async with open_crew(work, budget={"tokens": 5_000}) as crew:
        text = await refuse(crew, "look", **{name: value})
    assert text.startswith(f"Cannot spawn agent: {name} is ") and ": expected a " in text


@pytest.mark.parametrize("task", TASKS)
async def test_python_refuses_what_is_no_task(work, task):
    async with open_crew(work) as crew:
        assert "the task is" in await refuse(crew, task)
        with pytest.raises(UsageError, match="the task is"):
            await crew.prompt(task)
        done = await crew.spawn("general-purpose", "look")
        await done.wait()
        with pytest.raises(RetinueError, match="the task is"):
            await crew.resume(done.id, task)


@pytest.mark.sample(5)
@pytest.mark.parametrize("value", NUMBERS)
@pytest.mark.parametrize("name", ["tokens", "cost_usd"])
async def test_settings_refuse_what_is_no_limit(work, name, value):
    with pytest.raises(UsageError, match="budget"):
        async with open_crew(work, budget={name: value}):
            pass


@pytest.mark.parametrize("value", NUMBERS)
async def test_limits_of_the_main_agent_are_checked(work, value):
    with pytest.raises(UsageError, match="tokens is"):
        open_crew(work, request=Request(limits=Limits(tokens=value)))


@pytest.mark.sample(5)
@pytest.mark.parametrize("value", ["1e999", "-1", '"many"', "true", '"60000"', "NaN"])
@pytest.mark.parametrize("name", ["tokens", "costUsd"])
async def test_no_run_starts_without_a_budget_that_was_meant(work, agent_dir, name, value):
    (agent_dir / "subagents.json").write_text(f'{{"budget": {{"{name}": {value}}}}}')
    with pytest.raises(ConfigError, match=r"subagents\.json.*.*nothing is started until this is fixed"):
        async with open_crew(work):
            pass


def test_agent_file_with_no_limit_is_disabled(work, agent_dir):
    (agent_dir / "agents").mkdir()
    values = [".nan", ".inf", "-.inf", "-1", "many", "true"]
    names = ["max_tokens_total", "max_cost", "max_turns"]
    for number, (name, value) in enumerate(product(names, values)):
        text = f"---\nname: a{number}\ndescription: d\n{name}: {value}\n---\nx\n"
        (agent_dir / "agents" / f"a{number}.md").write_text(text)
    done = run_cli(["agents", "--json"], work, {"PI_CODING_AGENT_DIR": str(agent_dir)})
    report = json.loads(done.stdout)
    told = [item["message"] for item in report["diagnostics"]]
    agents = [agent["enabled"] for agent in report["agents"] if agent["source"] == "user"]
    assert (len(told), agents) == (18, [False] * 18)
    assert all(text.endswith("; the agent is disabled") for text in told)


@pytest.mark.parametrize("folder", ["agents", "subagents"])
async def test_start_tells_the_unusable_limit(work, agent_dir, folder):
    (agent_dir / folder).mkdir()
    (agent_dir / folder / "odd.md").write_text("---\nname: odd\ndescription: d\nmax_turns: ten\n---\nx\n")
    text = await answer(work, call("Agent", subagent_type="odd", prompt="x", description="d"))
    assert "is disabled" in text and "max_turns: found 'ten'" in text


async def answer(work, *calls, **options) -> str:
    """What a tool has answered to a call of the main agent."""
    heard = list[str]()
    model = script(work.parent, {"calls": list(calls)}, {"text": "Done."})
    async with open_crew(work, model=model, **options) as crew:
        crew.listen(lambda event: heard.append(event.result.content[0].text) if type(event) is ToolFinished else None)
        await crew.prompt("go")
    return heard[0]


@pytest.mark.parametrize(
    ("name", "value"), [("max_cost", -1), ("max_cost", 0), ("max_tokens_total", "many"), ("max_turns", -3)]
)
async def test_call_with_no_limit_is_refused(work, name, value):
    arguments = {"subagent_type": "general-purpose", "prompt": "x", "description": "d", name: value}
    text = await answer(work, call("Agent", **arguments))
    assert name in text and "started" not in text


@pytest.mark.parametrize("prompt", ["", "  "])
async def test_call_without_a_task_is_refused(work, prompt):
    text = await answer(work, call("Agent", subagent_type="general-purpose", prompt=prompt, description="d"))
    assert "started" not in text and ("prompt" in text or "task" in text)


@pytest.mark.sample(5)
@pytest.mark.parametrize("value", ["float('nan')", "float('inf')", "-1", "'many'"])
@pytest.mark.parametrize("name", ["maxCost", "maxTokensTotal", "maxTurns"])
async def test_extension_with_no_limit_is_refused(work, agent_dir, name, value):
    (agent_dir / "extensions").mkdir()
    request = f'{{"type": "general-purpose", "prompt": "x", "options": {{"{name}": {value}}}}}'
    (agent_dir / "extensions" / "asker.py").write_text(ASKER.replace("{request}", request))
    reply = await answer(work, call("ask"))
    assert reply.startswith("ask failed: max_") and ": expected a " in reply


@pytest.mark.parametrize("value", [5, ["x"], object()])
async def test_what_is_no_text_is_told(work, value):
    async with open_crew(work) as crew:
        for options in ({"agent": value}, {"model": value}, {"description": value}, {"thinking": value}):
            with pytest.raises(UsageError, match=f"{next(iter(options))} is .*: expected a text"):
                await crew.spawn(**{"agent": "Explore", "task": "look", **options})
        for words in ((value, "look"), ("Explore", value)):
            with pytest.raises(UsageError, match="expected a text"):
                await crew.call_subagent(*words)
        with pytest.raises(RetinueError):
            await crew.spawn(None, "look")
        assert (await (await crew.spawn("Explore", "look", model="")).wait()).status is Status.COMPLETED
