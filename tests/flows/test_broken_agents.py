"""A mistake in an agent file is told where its agent is asked for, one in an extension that a program names at once."""

import pytest
from msgspec.structs import replace

from retinue import Request, Retinue
from retinue.core.errors import ConfigError, RetinueError
from retinue.core.events import Warned
from retinue.testing import EventCollector
from tests.flows.crew_world import SESSION, call, script, to

BROKEN = "---\nname: [smith\ndescription: d\n---\n\nWork.\n"
SURFACES = ("fleet", "subagent", "dispatch")
CALLS = {
    "fleet": call("Agent", subagent_type="smith", prompt="look", description="d"),
    "subagent": call("subagent", agent="smith", task="look"),
    "dispatch": call("dispatch_agent", agent="smith", prompt="look"),
}
APPROVED = replace(SESSION, approve=True)


@pytest.fixture
def work(tmp_path):
    (tmp_path / "work" / ".pi" / "agents").mkdir(parents=True)
    return tmp_path / "work"


@pytest.mark.parametrize("surface", SURFACES)
async def test_unknown_agent_names_its_broken_file(tmp_path, work, surface):
    path = work / ".pi" / "agents" / "smith.md"
    path.write_text(BROKEN)
    replies = [to("^go", calls=[CALLS[surface]]), to("", text="Done")]
    seen = EventCollector()
    async with Retinue(work, model=script(tmp_path, *replies), request=APPROVED, surfaces=[surface]) as crew:
        crew.listen(seen)
        await crew.prompt("go")
        with pytest.raises(RetinueError, match=str(path)):
            await crew.spawn("smith", "look")
    (said,) = [event.result.content[0].text for event in seen.events if type(event).__name__ == "ToolFinished"]
    assert f"{path}:2" in said


async def test_run_warns_of_the_file_it_does_not_use(tmp_path, work):
    path = work / ".pi" / "agents" / "Explore.md"
    path.write_text(BROKEN)
    seen = EventCollector()
    async with Retinue(work, model=script(tmp_path, to("", text="Seen")), request=APPROVED) as crew:
        crew.listen(seen)
        run = await crew.spawn("Explore", "look")
        assert (await run.wait(5)).text == "Seen"
    (text,) = [event.text for event in seen.events if isinstance(event, Warned)]
    assert f"{path}:2" in text


async def test_main_agent_warns_too(tmp_path, work):
    path = work / ".pi" / "agents" / "Explore.md"
    path.write_text(BROKEN)
    said = []
    request = Request(agent="Explore", approve=True)
    async with Retinue(work, model=script(tmp_path, to("", text="Seen")), request=request, say=said.append) as crew:
        assert (await crew.prompt("look")).text == "Seen"
    assert [text for text in said if f"{path}:2" in text]


@pytest.mark.parametrize(
    ("source", "reason"),
    [(None, "no such file"), ("def register(api):\n    raise ValueError('bad day')\n", "bad day"), ("x =", "x.py:1")],
)
async def test_named_extension_that_fails_is_an_error(tmp_path, work, source, reason):
    path = work / "x.py"
    if source is not None:
        path.write_text(source)
    with pytest.raises(ConfigError, match=rf"(?s){path}.*{reason}|{reason}"):
        async with Retinue(work, model=script(tmp_path), extensions=[path]):
            pass
