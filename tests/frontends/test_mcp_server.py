"""`retinue mcp` as a black box: the official client drives it, and so do lines that no client would send."""

import asyncio
import json
import re
import time

import anyio
import pytest

from retinue.testing.process import open_cli
from tests.frontends.client_world import open_mcp_client


def host(place, *replies):
    return open_mcp_client(place, "--model", place.script(*replies))


def text_of(result):
    return "\n".join(block.text for block in result.content)


DELEGATION = [
    *("Agent", "get_subagent_result", "steer_subagent", "answer_subagent"),
    *("list_subagents", "clear_subagents", "list_models"),
    "subagent",
]
CALL = {"subagent_type": "general-purpose", "prompt": "look", "description": "a look"}


@pytest.mark.fresh
async def test_tools_of_all_surfaces_are_listed(place):
    async with host(place) as client:
        tools = (await client.list_tools()).tools
        info, version = client.server_info, client.protocol_version
    assert [tool.name for tool in tools][:8] == DELEGATION
    assert all(tool.description and tool.input_schema["type"] == "object" for tool in tools)
    assert info is not None and (info.name, version) == ("retinue", "2026-07-28")


async def test_background_run_is_waited_for(place, crew_runner):
    heard = []

    async def hear(progress, total, message):
        heard.append((progress, message))

    async with host(place, {"text": "the report", "delay_ms": 2500}) as client:
        started = text_of(await client.call_tool("Agent", CALL))
        run_id = re.search(r"Agent ID: (\w+)", started)[1]
        asked = {"agent_id": run_id, "wait": True}
        result = await client.call_tool("get_subagent_result", asked, progress_callback=hear)
    assert text_of(result).endswith("the report") and not result.is_error
    # On a worker it begins a little later.
    numbers = [number for number, _ in heard]
    assert numbers == ([1.0, 2.0] if crew_runner != "cluster" else [float(n) for n in range(1, len(heard) + 1)])
    assert heard[-1][1] == f"general-purpose {run_id[:8]} running"


async def test_foreground_run_gives_its_report(place):
    async with host(place, {"text": "found it"}) as client:
        result = await client.call_tool("subagent", {"agent": "Explore", "task": "look"})
    assert (text_of(result), result.is_error) == ("found it", False)
    assert result.meta["retinue/details"]["results"][0]["exitCode"] == 0


async def test_failed_call_is_an_error(place):
    from mcp.shared.exceptions import MCPError

    async with host(place) as client:
        wrong = await client.call_tool("subagent", {"agent": "nobody", "task": "look"})
        missing = await client.call_tool("Agent", {"prompt": 7})
        with pytest.raises(MCPError, match="unknown tool 'nope'; available: Agent"):
            await client.call_tool("nope", {})
    assert (wrong.is_error, missing.is_error) == (True, True)


async def wait_for(client, words, there):
    """Whether the list of agents comes to have these words, or not to have them."""
    for _ in range(100):
        if (words in text_of(await client.call_tool("list_subagents", {}))) is there:
            return True
        await asyncio.sleep(0.05)
    return False


async def test_cancelled_call_stops_its_run(place):
    async with host(place, {"text": "late", "delay_ms": 20_000}) as client, anyio.create_task_group() as group:
        group.start_soon(client.call_tool, "subagent", {"agent": "Explore", "task": "look"})
        assert await wait_for(client, "running", True)
        group.cancel_scope.cancel()
        with anyio.CancelScope(shield=True):
            assert await wait_for(client, "running", False)


class Wire:
    """The program and lines to and from it."""

    def __init__(self, process):
        self.process = process

    def send(self, *messages):
        for message in messages:
            text = message if isinstance(message, str) else json.dumps(message)
            self.process.stdin.write(text.encode() + b"\n")
        self.process.stdin.flush()

    def read(self):
        return json.loads(self.process.stdout.readline())

    def ask(self, method, request_id=1, **params):
        self.send({"jsonrpc": "2.0", "id": request_id, "method": method, "params": params})
        return self.read()


@pytest.fixture
def wire(place):
    model = place.script({"text": "x", "delay_ms": 20_000})
    with open_cli(["mcp", "--model", model], place.work, home=place.home, has_stdin=True) as process:
        yield Wire(process)


@pytest.mark.sample(5)
@pytest.mark.parametrize(
    ("line", "code", "request_id"),
    [
        ("{", -32700, None),
        ("[]", -32600, None),
        ('{"jsonrpc": "2.0", "id": 5}', -32600, 5),
        ('{"jsonrpc": "2.0", "id": true, "method": "ping"}', -32600, None),
        ('{"jsonrpc": "2.0", "id": 5, "method": "ping", "params": 3}', -32600, 5),
        ('{"jsonrpc": "2.0", "id": "a", "method": "resources/list"}', -32601, "a"),
        ('{"jsonrpc": "2.0", "id": 5, "method": "tools/call", "params": {"name": 1}}', -32602, 5),
        ('{"jsonrpc": "2.0", "id": 5, "method": "tools/call", "params": {"name": ["Agent"]}}', -32602, 5),
        ('{"jsonrpc": "2.0", "id": 5, "method": "tools/call", "params": null}', -32602, 5),
        (
            '{"jsonrpc": "2.0", "id": 5, "method": "tools/call", "params": {"name": "Agent", "arguments": []}}',
            -32602,
            5,
        ),
    ],
)
def test_bad_line_gets_an_error(wire, line, code, request_id):
    wire.send(line)
    answer = wire.read()
    assert (answer["id"], answer["error"]["code"]) == (request_id, code)
    assert wire.ask("ping") == {"jsonrpc": "2.0", "id": 1, "result": {}}


@pytest.mark.parametrize("asked", ["2024-11-05", "2025-06-18", "2099-01-01"])
def test_version_is_agreed_on(wire, asked):
    result = wire.ask("initialize", protocolVersion=asked, capabilities={}, clientInfo={})["result"]
    assert result["protocolVersion"] == (asked if asked != "2099-01-01" else "2025-11-25")
    assert result["capabilities"] == {"tools": {"listChanged": False}}


def test_end_of_input_ends_it(place, wire):
    wire.send({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "Agent", "arguments": CALL}})
    assert "Agent started" in wire.read()["result"]["content"][0]["text"]
    begun = time.monotonic()
    wire.process.stdin.close()
    assert wire.process.wait(5) == 0
    assert time.monotonic() - begun < 3


def test_call_under_way_ends_with_the_input(wire):
    arguments = {"agent": "Explore", "task": "look"}
    wire.send(
        {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "subagent", "arguments": arguments}}
    )
    wire.ask("ping", 2)
    wire.process.stdin.close()
    assert wire.process.wait(5) == 0


@pytest.mark.attack("E6")
def test_deep_server_starts_no_agent(place):
    depth = {"PI_SUBAGENT_DEPTH": "4"}
    with open_cli(["mcp"], place.work, depth, home=place.home, has_stdin=True) as process:
        result = Wire(process).ask("tools/call", name="Agent", arguments=CALL)["result"]
    assert (result["isError"], "maximum recursive subagent depth" in result["content"][0]["text"]) == (True, True)


def test_signal_ends_it(wire):
    wire.ask("ping")
    wire.process.terminate()
    assert wire.process.wait(5) == 143


async def test_host_is_promised_no_notification(place):
    replies = [{"text": "the report", "delay_ms": 60_000}]
    async with host(place, *replies) as client:
        tools = (await client.list_tools()).tools
        started = text_of(await client.call_tool("Agent", CALL))
        run_id = re.search(r"Agent ID: (\w+)", started)[1]
        looked = text_of(await client.call_tool("get_subagent_result", {"agent_id": run_id}))
    described = {tool.name: tool.description for tool in tools}
    assert "You are not notified when the agent is done" in described["Agent"]
    assert "get_subagent_result with wait: true waits for it" in started
    assert "call this again with wait to get its result" in looked
    texts = [*described.values(), started, looked]
    assert [text for text in texts if re.search(r"(will be|are|were) notified|notification|notify", text)] == []


ENVELOPE = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {"extensions": {"io.modelcontextprotocol/tasks": {}}},
}


def test_newest_revision_needs_no_handshake(wire):
    found = wire.ask("server/discover", _meta=ENVELOPE)["result"]
    assert "2026-07-28" in found["supportedVersions"]
    assert found["capabilities"]["extensions"] == {"io.modelcontextprotocol/tasks": {}}
    for line, code in (("{", -32700), ("[]", -32600), ('{"id": 2, "method": 3}', -32600)):
        wire.send(line)
        assert wire.read()["error"]["code"] == code
    assert wire.ask("initialize", 3, protocolVersion="2025-11-25")["error"]["code"] == -32022
    call = {"name": "subagent", "arguments": {"agent": "Explore", "task": "look"}}
    task_id = wire.ask("tools/call", 4, _meta=ENVELOPE, **call)["result"]["taskId"]
    assert wire.ask("tasks/get", 5, _meta=ENVELOPE, taskId=task_id)["result"]["status"] == "working"
    wire.process.stdin.close()
    assert wire.process.wait(5) == 0
    assert wire.process.stderr.read() == b""
