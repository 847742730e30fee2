import json

import pytest
from test_mcp_crew import crew, place

from retinue.core.events import ToolFinished
from retinue.features.mcp.server import McpServer

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


@pytest.mark.parametrize(
    ("deferred", "direct", "waits"),
    [(("*",), (), True), (("*",), ("get_*",), False), (("get_a", "*"), ("get_*",), True), ((), (), False)],
)
def test_single_tools_are_exceptions(deferred, direct, waits):
    server = McpServer("s", deferred_tools=deferred, direct_tools=direct)
    assert server.is_deferred("get_a") is waits
