from retinue.core.messages import ToolCall
from retinue.engine.restraint import Restrained, Restraint
from retinue.tools.registry import ToolOptions, build_tools
from retinue.tools.renamed import rename_tools


async def test_tool_is_lost_under_all_names():
    tools = rename_tools(build_tools(ToolOptions()), {"execute_command": "bash", "read_file": "read"})
    restraint = Restraint()
    guard = Restrained(restraint, "r")
    restraint.lower("r", ["bash"])
    answers = [await guard.before(ToolCall("1", name, {}), tool) for name, tool in tools.items()]
    assert [answer and answer.content[0].text for answer in answers] == [
        "bash was taken from this agent while it worked",
        None,
    ]
