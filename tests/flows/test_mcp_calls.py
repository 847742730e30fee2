"""Servers that behave: what their tools look like, what calls give, and how long connections last."""

import asyncio
from pathlib import Path

import pytest

from retinue.core.messages import ImageContent, TextContent
from retinue.core.tool import Effect, ToolContext, ToolResult
from retinue.testing.clock import FakeClock
from retinue.tools.selectors import Offer
from tests.flows.mcp_world import World, call, text_of, wait_gone


@pytest.fixture
def world(tmp_path):
    return World(tmp_path)


async def test_tool_is_listed_and_called(world):
    world.add(extra='TOOLS = [tool("add", "Adds.", a={"type": "integer"})]')
    async with world.open() as pool:
        tools = await world.list(pool)
        tool = tools["mcp__raw__add"]
        assert (tool.spec.description, tool.spec.parameters["properties"]) == ("Adds.", {"a": {"type": "integer"}})
        assert tool.offer == Offer(Effect.EXECUTE, "mcp", "raw", "add")
        assert await call(tool, world.root, a=1) == ToolResult([TextContent("hello")])
    assert world.told == []


async def test_library_server_answers_too(world):
    path = world.root / "library.py"
    path.write_text(
        "from mcp.server import MCPServer\nserver = MCPServer('echo')\n\n"
        "@server.tool()\ndef echo(text: str) -> str:\n    'Again.'\n    return text * 2\n\nserver.run()\n"
    )
    world.add("echo", args=(str(path),))
    async with world.open(initialise_s=20) as pool:
        tools = await world.list(pool, 20)
        assert text_of(await call(tools["mcp__echo__echo"], world.root, text="a")) == "aa"


@pytest.mark.spec("codingcode:30")
async def test_texts_are_joined_and_images_kept(world):
    world.add(
        extra="""
        def call(message):
            image = {"type": "image", "data": "aGk=", "mimeType": "image/png"}
            answer(message, {"content": [{"type": "text", "text": "one"}, image, {"type": "text", "text": "two"}]})
        """
    )
    async with world.open() as pool:
        result = await world.call(pool)
    assert result == ToolResult([TextContent("one\ntwo"), ImageContent("aGk=", "image/png")])


async def test_failure_names_the_tool(world):
    world.add(extra='def call(message):\n    say(message, "no luck", isError=True)')
    async with world.open() as pool:
        assert await world.call(pool) == ToolResult.of("MCP tool 'hi' failed: no luck", is_error=True)


async def test_protocol_error_is_failure(world):
    world.add(extra='def call(message):\n    send(id=message["id"], error={"code": -32000, "message": "broken"})')
    async with world.open() as pool:
        assert text_of(await world.call(pool)) == "MCP tool 'hi' failed: server 'raw': broken"


async def test_long_result_is_kept_elsewhere(world):
    world.add(extra='def call(message):\n    say(message, "a" * 100_000 + "z")')
    async with world.open() as pool:
        text = text_of(await world.call(pool))
    path = text.split("all of it: ")[1].split(" …]")[0]
    assert len(text) < 52_000 and text.endswith("z")
    assert Path(path).read_text() == "a" * 100_000 + "z"


async def test_calls_at_once_are_limited(world):
    world.add(
        concurrency=2,
        extra="""
        waiting = []
        def call(message):
            waiting.append(message)
            if len(waiting) == 2:
                time.sleep(0.1)
                for each in waiting:
                    say(each, str(len(waiting)))
                waiting.clear()
        """,
    )
    async with world.open() as pool:
        tool = (await world.list(pool))["mcp__raw__hi"]
        results = await asyncio.gather(*(call(tool, world.root) for _ in range(6)))
    assert [text_of(result) for result in results] == ["2"] * 6


async def test_call_ends_at_its_deadline(world):
    world.add(timeout_s=0.3, extra="def call(message):\n    pass")
    async with world.open() as pool:
        text = text_of(await world.call(pool))
    assert text == "MCP tool 'hi' failed: server 'raw': no answer within 0.3 s; its effect is unknown"


async def test_progress_extends_the_deadline(world):
    world.add(
        timeout_s=0.5,
        extra="""
        def call(message):
            token = message["params"]["_meta"]["progressToken"]
            for count in range(4):
                time.sleep(0.2)
                params = {"progressToken": token, "progress": count, "total": 4, "message": "\\x1b[31mstep"}
                send(method="notifications/progress", params=params)
            say(message, "done")
        """,
    )
    heard = []
    async with world.open() as pool:
        tool = (await world.list(pool))["mcp__raw__hi"]
        result = await tool.call({}, ToolContext(world.root, progress=lambda part: heard.append(text_of(part))))
    assert (text_of(result), heard[-1]) == ("done", "3 of 4 [31mstep")


async def test_cancelled_call_is_told_to_server(world):
    log = world.root / "log"
    world.add(
        extra=f"""
        def call(message):
            open({str(log)!r}, "a").write("called ")
        def other(message):
            if message["method"] == "notifications/cancelled":
                open({str(log)!r}, "a").write("cancelled")
        """
    )
    async with world.open() as pool:
        tool = (await world.list(pool))["mcp__raw__hi"]
        task = asyncio.ensure_future(call(tool, world.root))
        while not log.exists():
            await asyncio.sleep(0.01)
        task.cancel()
        for _ in range(100):
            if "cancelled" in log.read_text():
                break
            await asyncio.sleep(0.01)
    assert log.read_text() == "called cancelled"


@pytest.mark.spec("codingcode:30")
async def test_last_lease_closes_the_connection(world):
    world.add()
    async with world.open() as pool:
        await world.list(pool)
        second = pool.lease(["raw"])
        world.lease.release()
        await asyncio.sleep(0.05)
        kept = pool.connected
        second.release()
        while pool.connected:
            await asyncio.sleep(0.02)
    assert kept == ["raw"]


async def test_released_server_connects_again(world):
    world.add()
    async with world.open(FakeClock()) as pool:
        await world.list(pool)
        world.lease.release()
        again = pool.lease(["raw"])
        assert text_of(await world.call(pool)) == "hello"
        again.release()


@pytest.mark.parametrize("tree", ["supervisor", "plain", None])
async def test_nothing_is_left_at_exit(world, tree):
    world.add(
        extra="""
        import signal, subprocess
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
        def call(message):
            say(message, f"{child.pid} {os.getpid()}")
        """
    )
    path = world.root / "raw.py"
    path.write_text(path.read_text() + "\ntime.sleep(60)\n")
    inside = tree is None  # numbers of another namespace mean nothing here
    async with world.open(tree=tree) as pool:
        numbers = text_of(await world.call(pool)).split()
        found = [] if inside else [int(number) for number in numbers]
        begun = asyncio.get_running_loop().time()
    assert asyncio.get_running_loop().time() - begun < 2
    assert [await wait_gone(pid) for pid in found] == [True] * len(found)


async def test_fifty_servers_connect_side_by_side(world):
    for number in range(50):
        world.add(f"s{number}", extra="time.sleep(0.3)" if number % 2 else "")
    async with world.open() as pool:
        tools = await pool.list_tools(pool.servers, 25)
    assert (len(tools), world.told) == (50, [])


async def test_late_server_serves_the_next_run(world):
    world.add("slow", extra="time.sleep(0.5)")
    async with world.open() as pool:
        assert await world.list(pool, 0.1) == {}
        for _ in range(20):
            if tools := await world.list(pool):
                break
        assert list(tools) == ["mcp__slow__hi"]
    assert world.told == ["MCP server 'slow': not connected within 0.1 s; its tools are missing"]


async def test_late_server_holds_nobody_up_twice(world):
    world.add("slow", extra="time.sleep(60)")
    async with world.open() as pool:
        await world.list(pool, 0.1)
        begun = asyncio.get_running_loop().time()
        await world.list(pool)
        assert asyncio.get_running_loop().time() - begun < 1


async def test_same_name_of_two_servers(world):
    world.add("a", extra='TOOLS = [tool("b__c")]')
    world.add("a__b", extra='TOOLS = [tool("c"), tool("d")]')
    async with world.open() as pool:
        tools = await world.list(pool)
    assert [tool.offer.server for tool in tools.values()] == ["a", "a__b"]
    assert world.told == ["MCP server 'a__b': its tool mcp__a__b__c has the name of another server's tool: skipped"]
