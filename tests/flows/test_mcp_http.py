"""Servers at an address: the same calls over loopback HTTP, and answers that are too much."""

import asyncio
import gzip
import json
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from retinue.features.mcp.server import McpServer
from tests.flows.mcp_world import World, call, text_of

FAILED = "MCP tool 'hi' failed: server 'site': "
TOOLS = [{"name": "hi", "description": "Says it.", "inputSchema": {"type": "object"}}]


@pytest.fixture
def world(tmp_path):
    return World(tmp_path)


class Site:
    """A server by hand: `call` answers a tools/call with a result or a whole response."""

    def __init__(self, call=None, first=None) -> None:
        self.call = call or (lambda message: {"content": [{"type": "text", "text": "hello"}]})
        self.first = first
        self.requests: list[tuple[str, str]] = []
        self.headers: list[dict[str, str]] = []
        self.url = ""

    @asynccontextmanager
    async def open(self):
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self.answer)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}/mcp"
        try:
            yield self
        finally:
            await runner.cleanup()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.requests.append((request.method, request.path))
        self.headers.append(dict(request.headers))
        if self.first is not None:
            return self.first()
        if request.method != "POST":
            return web.Response(status=405)
        message = await request.json()
        if "id" not in message or "method" not in message:
            return web.Response(status=202)
        method, result = message["method"], None
        if method == "initialize":
            info = {"name": "site", "version": "1"}
            result = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": info}
        elif method == "tools/list":
            result = {"tools": TOOLS}
        elif method == "tools/call":
            result = self.call(message)
        if isinstance(result, web.StreamResponse):
            return result
        error = {"code": -32601, "message": "no such method"}
        body = {"error": error} if result is None else {"result": result}
        return web.json_response({"jsonrpc": "2.0", "id": message["id"], **body})


def to_answer(message, text):
    return {"jsonrpc": "2.0", "id": message["id"], "result": {"content": [{"type": "text", "text": text}]}}


async def run(world: World, site: Site, **fields) -> str:
    async with site.open():
        world.servers.append(McpServer("site", url=site.url, **fields))
        async with world.open() as pool:
            tools = await world.list(pool)
            return text_of(await call(tools["mcp__site__hi"], world.root)) if tools else "no tools"


async def test_call_over_http(world):
    site = Site()
    assert await run(world, site, headers={"Authorization": "Bearer abc"}) == "hello"
    assert {each["Authorization"] for each in site.headers} == {"Bearer abc"}


async def test_answer_as_events(world):
    def stream(message):
        text = f"event: message\ndata: {json.dumps(to_answer(message, 'news'))}\n\n"
        return web.Response(text=text, content_type="text/event-stream")

    assert await run(world, Site(stream)) == "news"


@pytest.mark.attack("F4")
@pytest.mark.parametrize("kind", ["application/json", "text/event-stream"])
@pytest.mark.parametrize("size", [10_000_000, 10_485_760])
async def test_large_answer_is_refused(world, kind, size):
    def tell(message):
        text = json.dumps(to_answer(message, "x" * size))
        return web.Response(text=f"data: {text}\n\n" if "event" in kind else text, content_type=kind)

    text = await run(world, Site(tell))
    assert text.startswith(f"{FAILED}the answer has more than" if size > 10_000_000 else "xxx"), text[:300]


NOTICE = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "x"}}
SAMPLE = {"jsonrpc": "2.0", "id": 1, "method": "sampling/createMessage", "params": {"messages": [], "maxTokens": 5}}
STREAMS = {
    "flood": ([NOTICE] * 2001, f"{FAILED}it sent more than 2000 notifications within 10 s"),
    "nonsense": (["nonsense"], f"{FAILED}Failed to parse SSE message"),
    "question": ([SAMPLE], "hello"),
}


@pytest.mark.attack("F4", "F3")
@pytest.mark.parametrize("case", STREAMS)
async def test_stream_is_watched(world, case):
    sent, result = STREAMS[case]

    def stream(message):
        text = "".join(f"data: {json.dumps(each)}\n\n" for each in (*sent, to_answer(message, "hello")))
        return web.Response(text=text, content_type="text/event-stream")

    assert (await run(world, Site(stream))).startswith(result)
    asked = "MCP server 'site' sent the request 'sampling/createMessage', which is refused"
    assert world.told == ([asked] if case == "question" else [])


@pytest.mark.attack("F4")
async def test_answer_to_another_question_is_refused(world):
    site = Site(lambda message: web.json_response(to_answer({"id": 4711}, "hello")))
    assert await run(world, site) == f"{FAILED}it answered a request that was never sent"


@pytest.mark.attack("F4")
async def test_packed_answer_is_refused(world):
    def pack(message):
        body = gzip.compress(json.dumps(to_answer(message, "hello")).encode())
        return web.Response(body=body, content_type="application/json", headers={"Content-Encoding": "gzip"})

    assert await run(world, Site(pack)) == f"{FAILED}the answer is compressed, although no compression was requested"


@pytest.mark.attack("F4")
async def test_no_json_is_failure(world):
    def garble(message):
        return web.Response(text=f"x{json.dumps(to_answer(message, 'hello'))}", content_type="application/json")

    assert (await run(world, Site(garble))).startswith(FAILED)


@pytest.mark.attack("F5")
async def test_sign_in_is_never_followed(world):
    link = 'Bearer resource_metadata="file:///etc/passwd", authorization_uri="javascript:alert(1)"'
    site = Site(first=lambda: web.Response(status=401, headers={"WWW-Authenticate": link}))
    assert await run(world, site) == "no tools"
    assert {path for _, path in site.requests} == {"/mcp"}
    assert "it refuses access (HTTP 401)" in world.told[0]


@pytest.mark.attack("F5")
async def test_redirect_elsewhere_is_not_followed(world):
    other = Site()
    async with other.open():
        site = Site(first=lambda: web.Response(status=307, headers={"Location": other.url}))
        assert await run(world, site, headers={"Authorization": "Bearer abc"}) == "no tools"
    assert other.requests == []


async def test_nobody_listens(world):
    world.servers.append(McpServer("site", url="http://127.0.0.1:9/mcp"))
    async with world.open() as pool:
        assert await world.list(pool) == {}
    assert "MCP server 'site': " in world.told[0]


async def test_half_open_server_is_given_up(world):
    async def hold(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    server = await asyncio.start_server(hold, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        world.servers.append(McpServer("site", url=f"http://127.0.0.1:{port}/mcp"))
        async with world.open(initialise_s=0.5) as pool:
            assert await world.list(pool) == {}
    assert world.told == ["MCP server 'site': it did not answer within 0.5 s"]


async def test_restarted_server_is_found_again(world):
    site = Site()
    async with site.open():
        world.servers.append(McpServer("site", url=site.url))
        async with world.open() as pool:
            tool = (await world.list(pool))["mcp__site__hi"]
            site.first = lambda: web.Response(status=404)
            assert "failed" in text_of(await call(tool, world.root))
            site.first = None
            assert text_of(await call(tool, world.root)) == "hello"
