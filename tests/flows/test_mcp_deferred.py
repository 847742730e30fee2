import json

import pytest

from retinue.core.events import ToolFinished
from retinue.features.mcp.server import McpServer
from tests.flows.test_mcp_crew import CHILD, crew, place

__all__ = ["place"]


@pytest.mark.spec("codingcode:41")
async def test_deferred_server_is_looked_for(place):
    path = place / "home" / ".pi" / "agent" / "mcp.json"
    entry = json.loads(path.read_text())["mcpServers"]["raw"]
    path.write_text(json.dumps({"mcpServers": {"raw": {**entry, "exposure": "deferred"}}}))
    use = {"calls": [{"name": "mcp__raw__hi", "arguments": {}}]}
    search = {"calls": [{"name": "tool_search", "arguments": {"query": "says raw"}}]}
    retinue, _ = crew(place, use, search, use, {"text": "done"})
    heard = []
    async with retinue:
        retinue.listen(lambda event: heard.append(event) if isinstance(event, ToolFinished) else None)
        await retinue.prompt("go")
    early, found, later = (event.result.content[0].text for event in heard)
    assert early.startswith("Tool 'mcp__raw__hi' not found")
    assert found.startswith("Loaded 1 tool(s).") and later == "hello"


@pytest.mark.spec("codingcode:41")
@pytest.mark.parametrize("vouched", [["hi"], []])
async def test_agent_looks_for_tools_of_servers(place, vouched):
    path = place / "home" / ".pi" / "agent" / "mcp.json"
    entry = json.loads(path.read_text())["mcpServers"]["raw"]
    path.write_text(json.dumps({"mcpServers": {"raw": {**entry, "exposure": "deferred", "readOnlyTools": vouched}}}))
    seeker = CHILD.replace("helper", "seeker").replace("[read_file]\nmcpServers: [raw]", "[read_file, tool_search]")
    agents = place / "home" / ".codingcode" / "agents"
    (agents / "seeker.md").write_text(seeker.replace("description: d", "description: d\nreadonly: true"))
    child = {"match": {"last_user": "^look"}}
    retinue, _ = crew(
        place,
        {**child, "calls": [{"name": "tool_search", "arguments": {"query": "raw"}}]},
        {**child, "calls": [{"name": "mcp__raw__hi", "arguments": {}}]},
        {**child, "text": "done"},
    )
    async with retinue:
        handle = await retinue.spawn("seeker", "look", surface="dispatch")
        heard = [event async for event in handle.events() if isinstance(event, ToolFinished)]
    found, used = (event.result.content[0].text for event in heard)
    assert (found.startswith("Loaded 1 tool(s)."), used == "hello") == (bool(vouched), bool(vouched)), (found, used)


@pytest.mark.parametrize(
    ("deferred", "direct", "waits"),
    [(("*",), (), True), (("*",), ("get_*",), False), (("get_a", "*"), ("get_*",), True), ((), (), False)],
)
def test_single_tools_are_exceptions(deferred, direct, waits):
    server = McpServer("s", deferred_tools=deferred, direct_tools=direct)
    assert server.is_deferred("get_a") is waits
