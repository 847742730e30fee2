import json

import pytest

from retinue import Request, Retinue
from retinue.core.errors import UsageError
from retinue.testing import EventCollector
from tests.flows.crew_world import call, script, to

COUNTER = """
heard = []

def register(api):
    @api.tool(name="count", description="Counts.", effect="read")
    def count():
        return f"{len(heard)} runs"

    @api.on("RunFinished")
    def note(event):
        heard.append(event.run_id)
"""
LONER = "---\nname: loner\ndescription: d\nextensions: false\n---\n\nWork.\n"


@pytest.fixture
def extensions(agent_dir):
    folder = agent_dir / "extensions"
    folder.mkdir()
    (folder / "counter.py").write_text(COUNTER)
    return folder


async def results(crew, prompt):
    """What the tools have answered to the main agent."""
    seen = EventCollector()
    crew.listen(seen)
    await crew.prompt(prompt, settle=True)
    return [event.result.content[0].text for event in seen.events if type(event).__name__ == "ToolFinished"]


COUNT = [to("^count", calls=[call("count")]), to("^count", text="Counted")]


async def test_main_agent_gets_tools_and_handlers(tmp_path, extensions):
    model = script(tmp_path, to("^hi", text="Hi"), *COUNT)
    async with Retinue(tmp_path, model=model) as crew:
        await crew.prompt("hi")
        assert await results(crew, "count") == ["1 runs"]


@pytest.mark.parametrize(("name", "answer"), [("read", "Tool 'count' not found. Available: read"), ("count", "0 runs")])
async def test_exact_tools_are_exact(tmp_path, extensions, name, answer):
    async with Retinue(tmp_path, model=script(tmp_path, *COUNT), request=Request(tools=[name])) as crew:
        assert await results(crew, "count") == [answer]


@pytest.mark.parametrize(("agent", "answer"), [("general-purpose", "0 runs"), ("loner", "Tool 'count' not found")])
async def test_child_gets_what_its_file_wants(tmp_path, agent_dir, extensions, agent, answer):
    (agent_dir / "agents").mkdir()
    (agent_dir / "agents" / "loner.md").write_text(LONER)
    async with Retinue(tmp_path, model=script(tmp_path, *COUNT)) as crew:
        run = await crew.spawn(agent, "count")
        told = [event.result.content[0].text async for event in run.events() if type(event).__name__ == "ToolFinished"]
    assert [text.partition(".")[0] for text in told] == [answer]


WATCHER = """
from pathlib import Path

def register(api):
    api.on("ToolFinished", lambda event: Path({told!r}).touch())
"""


@pytest.mark.parametrize("runner", [{}, {"runner": "process"}])
@pytest.mark.parametrize(("agent", "is_told"), [("general-purpose", True), ("loner", False)])
async def test_unwanted_extension_sees_nothing(tmp_path, agent_dir, extensions, agent, is_told, runner):
    told = agent_dir / "told"
    (extensions / "watcher.py").write_text(WATCHER.format(told=str(told)))
    (agent_dir / "agents").mkdir()
    (agent_dir / "agents" / "loner.md").write_text(LONER)
    (agent_dir / "subagents.json").write_text(json.dumps(runner))
    model = script(tmp_path, to("^look", calls=[call("ls")]), to("^look", text="Seen"))
    async with Retinue(tmp_path, model=model) as crew:
        await (await crew.spawn(agent, "look")).wait(20)
    assert told.exists() == is_told


async def test_caller_adds_a_file(tmp_path):
    (tmp_path / "mine.py").write_text(COUNTER)
    async with Retinue(tmp_path, model=script(tmp_path, *COUNT), extensions=["mine.py"]) as crew:
        assert await results(crew, "count") == ["0 runs"]


@pytest.mark.parametrize(
    ("lines", "is_given"),
    [("", True), ("extensions: [mine]", True), ("extensions: [other]", False), ("exclude_extensions: mine", False)],
)
async def test_file_of_the_caller_reaches_children(tmp_path, agent_dir, lines, is_given):
    (tmp_path / "mine.py").write_text(COUNTER)
    (agent_dir / "agents").mkdir(parents=True)
    (agent_dir / "agents" / "a.md").write_text(f"---\ndescription: d\n{lines}\n---\n\nWork.\n")
    async with Retinue(tmp_path, model=script(tmp_path, *COUNT), extensions=["mine.py"]) as crew:
        run = await crew.spawn("a", "count")
        told = [event.result.is_error async for event in run.events() if type(event).__name__ == "ToolFinished"]
    assert told == [not is_given]


async def test_broken_extension_is_told_once(tmp_path, extensions):
    (extensions / "broken.py").write_text("def register(api):\n    raise ValueError('oh')\n")
    said = []
    model = script(tmp_path, *COUNT, to("^look", text="Seen"))
    async with Retinue(tmp_path, model=model, say=said.append) as crew:
        await (await crew.spawn("Explore", "look")).wait(5)
        assert await results(crew, "count") == ["1 runs"]
    assert len([text for text in said if "broken.py" in text and "oh" in text]) == 1


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        ("extensions: [silent]\nexclude_extensions: [counter]", []),
        ("extensions: [broken]", ["extension 'broken' is not loaded"]),
        ("exclude_extensions: [cuonter]", ["excluded extension 'cuonter' is not there (did you mean 'counter'?)"]),
    ],
)
async def test_idle_extension_words_are_told(tmp_path, agent_dir, extensions, lines, told):
    (extensions / "silent.py").write_text("def register(api):\n    api.on('Warned', print)\n")
    (extensions / "broken.py").write_text("def register(api):\n    raise ValueError\n")
    (agent_dir / "agents").mkdir()
    (agent_dir / "agents" / "a.md").write_text(f"---\ndescription: d\n{lines}\n---\n\nWork.\n")
    seen = EventCollector()
    async with Retinue(tmp_path, model=script(tmp_path, to("look", text="Seen"))) as crew:
        crew.listen(seen)
        await (await crew.spawn("a", "look")).wait(5)
    warned = [event.text for event in seen.events if type(event).__name__ == "Warned"]
    assert warned == [f"agent 'a': {text}" for text in told]


async def test_unknown_tool_names_those_of_extensions(tmp_path, extensions):
    with pytest.raises(UsageError, match=r"available: .*, count, "):
        await Retinue(tmp_path, model=script(tmp_path), request=Request(tools=["cout"])).__aenter__()
