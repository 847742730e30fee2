import pytest

from retinue.core.model import Draft, Failure, ModelRequest
from retinue.core.tool import Refusing, ToolContext
from retinue.durable.recorded_run import RecordFeature
from retinue.durable.session_files import RecordError
from retinue.engine.model_choice import unwrap
from retinue.models.script_file import parse_script
from retinue.models.scripted import ScriptedModel
from retinue.tools.registry import ToolOptions, build_tools, rename_tools
from tests.run_setup import build_setup


class FakeKeeper:
    def __init__(self) -> None:
        self.done: list[str] = []

    async def keep(self) -> None:
        self.done.append("keep")

    async def look(self) -> None:
        self.done.append("look")


async def enter(tools, keeper, tmp_path):
    setup = build_setup("r", cwd=tmp_path, model=ScriptedModel(parse_script([{"text": "x"}])), tools=tools)
    return await RecordFeature(keeper).enter(setup)


async def test_renamed_tool_keeps_its_name(tmp_path):
    tools = rename_tools(build_tools(ToolOptions()), {"shell": "bash", "look": "read"})
    setup = await enter(tools, FakeKeeper(), tmp_path)
    assert {name: tool.spec.own_name for name, tool in setup.tools.items()} == {"shell": "bash", "look": "read"}


async def test_wrapper_adds_no_abilities(tmp_path):
    tools = build_tools(ToolOptions())
    setup = await enter(tools, FakeKeeper(), tmp_path)
    assert [isinstance(tool, Refusing) for tool in setup.tools.values()] == [
        isinstance(tool, Refusing) for tool in tools.values()
    ]


@pytest.mark.parametrize(("name", "expected"), [("write", ["keep", "look"]), ("ls", [])])
async def test_record_stands_around_acts(tmp_path, name, expected):
    keeper = FakeKeeper()
    setup = await enter(build_tools(ToolOptions()), keeper, tmp_path)
    arguments = {"path": "a.txt", "content": "x"} if name == "write" else {}
    await setup.tools[name].call(arguments, ToolContext(cwd=tmp_path))
    assert keeper.done == expected


class BrokenKeeper(FakeKeeper):
    async def keep(self) -> None:
        raise RecordError("the disk is full")


async def test_nothing_happens_off_the_record(tmp_path):
    setup = await enter(build_tools(ToolOptions()), BrokenKeeper(), tmp_path)
    result = await setup.tools["write"].call({"path": "a.txt", "content": "x"}, ToolContext(cwd=tmp_path))
    model = setup.model
    reply = await model.reply(ModelRequest(system="", messages=[]), Draft(model.info, started_ms=0))
    assert (result.is_error, result.content[0].text) == (True, "write was not run: the disk is full")
    assert (reply.failure, reply.message.stop_reason) == (Failure("record", "the disk is full"), "error")
    assert list(tmp_path.iterdir()) == []


async def test_child_does_not_inherit_the_record(tmp_path):
    setup = await enter({}, FakeKeeper(), tmp_path)
    assert isinstance(unwrap(setup.model), ScriptedModel)
