import os

import pytest

from retinue import Request, Retinue
from retinue.core.errors import DisabledAgent
from tests.flows.crew_world import call, script, to

OFF = "subagent:\n  disabledAgents:\n    Helper: true\n    explore: true\n"
HELPER = "---\nname: helper\ndescription: d\n{}---\n\nHelp.\n"


@pytest.fixture
def own(home):
    (home / ".codingcode" / "agents").mkdir(parents=True)
    return home / ".codingcode"


def write(folder, text):
    path = folder / "config.yaml"
    path.write_text(text)
    # Two edits within one tick of a coarse clock are still two.
    os.utime(path, ns=(path.stat().st_atime_ns, path.stat().st_mtime_ns + len(text)))


@pytest.mark.parametrize("name", ["helper", "Explore", "EXPLORE"])
async def test_switched_off_agent_cannot_run(tmp_path, own, name):
    (own / "agents" / "helper.md").write_text(HELPER.format(""))
    write(own, OFF)
    async with Retinue(tmp_path, model=script(tmp_path)) as crew:
        with pytest.raises(DisabledAgent):
            await crew.spawn(name, "look")


@pytest.mark.parametrize(("approve", "runs"), [(True, True), (False, False)])
async def test_trusted_project_has_the_last_word(tmp_path, own, approve, runs):
    (own / "agents" / "helper.md").write_text(HELPER.format(""))
    write(own, OFF)
    (tmp_path / ".codingcode").mkdir()
    write(tmp_path / ".codingcode", "subagent:\n  disabledAgents:\n    helper: false\n")
    model = script(tmp_path, to("look", text="Seen"))
    async with Retinue(tmp_path, model=model, request=Request(approve=approve)) as crew:
        if runs:
            assert (await (await crew.spawn("helper", "look")).wait(5)).text == "Seen"
        else:
            with pytest.raises(DisabledAgent):
                await crew.spawn("helper", "look")


async def test_switch_counts_at_once(tmp_path, own):
    (own / "agents" / "helper.md").write_text(HELPER.format(""))
    async with Retinue(tmp_path, model=script(tmp_path, to("look", text="Seen"))) as crew:
        await crew.spawn("helper", "look")
        write(own, OFF)
        with pytest.raises(DisabledAgent):
            await crew.spawn("helper", "look")
        write(own, "subagent: {}\n")
        await crew.spawn("helper", "look")


async def test_agent_of_codingcode_keeps_a_list(tmp_path, own):
    (own / "agents" / "helper.md").write_text(HELPER.format("tools: [todo_write]\n"))
    todos = [{"content": "look", "status": "completed"}]
    model = script(tmp_path, to("^look", calls=[call("todo_write", todos=todos)]), to("^look", text="Done"))
    async with Retinue(tmp_path, model=model) as crew:
        run = await crew.spawn("helper", "look")
        told = [event.result.content[0].text async for event in run.events() if type(event).__name__ == "ToolFinished"]
    assert told == ["1 of 1 done:\n[x] look"]
