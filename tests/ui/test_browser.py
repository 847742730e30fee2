import asyncio
import contextlib
import json

import aiohttp
import pytest
from terminal_world import World

from retinue.testing import open_cli, run_cli


@contextlib.contextmanager
def served(world, *arguments):
    """`retinue serve` in its own process; gives the address it prints."""
    with open_cli(["serve", *world.model, *arguments], world.work, world.environment, home=world.home) as process:
        yield process.stdout.readline().decode().strip(), process
        process.terminate()
        assert process.wait(10) == 143
    assert world.wait_until_alone() == []


@pytest.fixture
def world(tmp_path):
    return World(tmp_path)


async def fetch(address, path="/", **headers):
    base = address.partition("/?")[0]
    async with aiohttp.ClientSession() as session, session.get(base + path, headers=headers) as answer:
        return answer.status


async def test_only_the_token_opens_it(world):
    with served(world) as (address, _):
        host = address.split("/")[2]
        assert address.startswith("http://127.0.0.1:") and len(address.partition("token=")[2]) >= 32
        assert await fetch(address) == 403
        assert await fetch(address, "/?token=wrong") == 403
        assert await fetch(address, "/static/js/textual.js") == 403
        assert await fetch(address, "/ws") == 403
        path = "/?token=" + address.partition("token=")[2]
        assert await fetch(address, path, Host="evil.example:80") == 403
        assert await fetch(address, path, Host=f"localhost:{host.split(':')[1]}") == 403
        assert await fetch(address, path, Origin="http://evil.example") == 403


async def test_page_and_socket_answer(world):
    with served(world) as (address, _):
        jar = aiohttp.CookieJar(unsafe=True)
        async with aiohttp.ClientSession(cookie_jar=jar) as session:
            async with session.get(address) as page:
                text = await page.text()
                assert page.status == 200 and "token" not in str(page.url) and "textual-terminal" in text
                assert "frame-ancestors 'none'" in page.headers["Content-Security-Policy"]
            url = address.partition("/?")[0].replace("http", "ws") + "/ws?width=90&height=30"
            async with session.ws_connect(url) as socket:
                seen = b""
                async with asyncio.timeout(15):
                    while b"offline/rules" not in seen:
                        message = await socket.receive()
                        seen += message.data if isinstance(message.data, bytes) else str(message.data).encode()
                await socket.send_str(json.dumps(["stdin", "hello"]))
                await socket.send_str(json.dumps(["ping", "1"]))
            with pytest.raises(aiohttp.WSServerHandshakeError):
                await session.ws_connect(url, origin="http://evil.example")


@pytest.mark.parametrize("port", ["0", "x", "70000"])
def test_bad_port_is_refused(world, port):
    done = run_cli(["serve", "--port", port], world.work, home=world.home)
    assert (done.status, done.stdout) == (2, "") and "1 to 65535" in done.stderr


def test_taken_port_is_named(world):
    with served(world) as (address, _):
        port = address.split(":")[2].partition("/")[0]
        done = run_cli(["serve", "--port", port], world.work, home=world.home)
    assert done.status == 2 and f"--port {port}" in done.stderr and "Traceback" not in done.stderr


def test_missing_extra_is_named(world, tmp_path):
    (tmp_path / "textual_serve.py").write_text("raise ImportError('not there')\n")
    done = run_cli(["serve"], world.work, {"PYTHONPATH": str(tmp_path)}, home=world.home)
    assert (done.status, done.stdout) == (2, "") and 'pip install "retinue[serve]"' in done.stderr
