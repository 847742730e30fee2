import asyncio

from retinue.core.messages import ToolResultMessage
from retinue.core.tool import ToolResult
from tests.flows.test_run import Tool, start


async def test_results_are_kept_in_source_order():
    done = {name: asyncio.Event() for name in "abc"}
    waits = {"a": "b", "b": None, "c": "a"}

    def make(name):
        async def work(arguments):
            if waits[name] is not None:
                await done[waits[name]].wait()
                await asyncio.sleep(0.01)
            done[name].set()
            return ToolResult.of(name)

        return Tool(name, work)

    calls = [{"name": name, "arguments": {}} for name in "abc"]
    run, _ = start([{"calls": calls}, {"text": "done"}], [make(name) for name in "abc"])
    await run.prompt("Begin.")
    kept = [each.tool_name for each in run.session.context().messages if isinstance(each, ToolResultMessage)]
    assert kept == ["a", "b", "c"]
