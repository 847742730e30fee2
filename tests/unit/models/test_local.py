import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack

import pytest

from retinue.models.catalog import LocalServer
from retinue.models.local import find_local_models

LIST = b'{"object":"list","data":[{"id":"tiny:1b"},{"id":"nomic-embed-text"},{"id":"big","meta":{"n_ctx":4096}},5]}'

CHUNKS = b"5\r\n" + LIST[:5] + b"\r\n%x\r\n" % len(LIST[5:]) + LIST[5:] + b"\r\n0\r\n\r\n"


def reply(body: bytes, extra: bytes = b"", status: bytes = b"200 OK") -> bytes:
    return b"HTTP/1.1 " + status + b"\r\nContent-Type: application/json\r\n" + extra + b"\r\n" + body


def sized(body: bytes) -> bytes:
    return reply(body, b"Content-Length: %d\r\n" % len(body))


@pytest.fixture
async def serve() -> AsyncIterator[Callable[..., object]]:
    async with AsyncExitStack() as stack:

        async def start(answer: bytes, *, closes: bool = True) -> int:
            async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                await reader.readuntil(b"\r\n\r\n")
                for start in range(0, len(answer), 50):
                    writer.write(answer[start : start + 50])
                    await writer.drain()
                if closes:
                    writer.close()
                else:
                    stack.callback(writer.close)

            server = await asyncio.start_server(handle, "127.0.0.1", 0)
            stack.push_async_callback(server.wait_closed)
            stack.callback(server.close)
            return server.sockets[0].getsockname()[1]

        yield start


async def probe(*ports: int, timeout_s: float = 1.0) -> list[tuple[str, int]]:
    servers = [LocalServer(f"s{index}", port, "S") for index, port in enumerate(ports)]
    found = await asyncio.to_thread(find_local_models, servers, timeout_s=timeout_s)
    return [(model.ref, model.context_window) for model in found]


@pytest.mark.parametrize(
    ("answer", "closes"),
    [(sized(LIST), False), (reply(LIST), True), (reply(CHUNKS, b"Transfer-Encoding: chunked\r\n"), True)],
)
async def test_models_of_an_answering_server(serve, answer: bytes, closes: bool) -> None:
    port = await serve(answer, closes=closes)
    assert await probe(port) == [("s0/tiny:1b", 32_768), ("s0/big", 4096)]


async def test_all_servers_are_asked_at_once(serve) -> None:
    silent = await serve(b"", closes=False)
    good = await serve(sized(b'{"data":[{"id":"m"}]}'))
    started = time.monotonic()
    assert await probe(silent, good, silent, timeout_s=1) == [("s1/m", 32_768)]
    assert time.monotonic() - started < 2


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"\0\xff",
        b"SSH-2.0-x\r\n",
        reply(b"no", status=b"404 No"),
        sized(b"{"),
        sized(b"[]"),
        sized(b'{"data":{}}'),
    ],
)
async def test_other_services_have_no_models(serve, answer: bytes) -> None:
    assert await probe(await serve(answer)) == []


async def test_closed_port_is_quick(serve) -> None:
    started = time.monotonic()
    assert await probe(1, 2, timeout_s=20) == []
    assert time.monotonic() - started < 10
