from pathlib import Path

from retinue.core.model import ToolSpec
from retinue.core.tool import Effect, Refusing, ToolContext, ToolResult
from retinue.tools.renamed import rename_tools


class Shy:
    """A tool with all a tool may have besides."""

    spec = ToolSpec("shy", "Says what it was told.", {"type": "object"})
    effect = Effect.NETWORK
    hint = "say it"
    guidelines = ("Be quiet.",)
    deferred = True

    def refuse(self, arguments, problem):
        return ToolResult.of(f"no: {problem}", is_error=True)

    async def call(self, arguments, context):
        return ToolResult.of(arguments["text"])


def test_name_is_the_only_difference():
    tool = rename_tools({"shy": Shy()}, {"whisper": "shy"})["whisper"]
    assert tool.spec == ToolSpec("whisper", Shy.spec.description, Shy.spec.parameters, alias_of="shy")
    assert (tool.effect, tool.hint, tool.guidelines, tool.deferred) == (Effect.NETWORK, "say it", ("Be quiet.",), True)


async def test_renamed_tool_acts_and_refuses():
    tool = rename_tools({"shy": Shy()}, {"whisper": "shy"})["whisper"]
    assert await tool.call({"text": "hi"}, ToolContext(Path())) == ToolResult.of("hi")
    assert isinstance(tool, Refusing)
    assert tool.refuse({}, "late") == ToolResult.of("no: late", is_error=True)


def test_name_of_a_name_leads_home():
    once = rename_tools({"shy": Shy()}, {"whisper": "shy"})
    twice = rename_tools(once, {"mumble": "whisper"})
    assert (twice["mumble"].spec.name, twice["mumble"].spec.own_name) == ("mumble", "shy")


def test_unchanged_name_keeps_its_tool():
    tools = {"shy": Shy()}
    assert rename_tools(tools, {"shy": "shy"}) == tools
