import asyncio
import contextlib
import json
from pathlib import Path

import aiohttp
import pytest
from browser_world import open_browser
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


@pytest.mark.attack("D17")
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


async def test_browser_paints_and_is_answered(mocked, tmp_path):
    with mocked({"text": "The answer is FORTYTWO."}) as world, served(world) as (address, _):
        async with open_browser(tmp_path) as page:
            await page.call("Page.navigate", url=address)
            await page.see("mock-1")
            await page.write("what is it?")
            await page.see("what")
            _, before = await page.take_picture()
            await page.press("Enter", 13)
            await page.see("FORTYTWO")
            await page.see("↓")
            _, after = await page.take_picture()
            here = address.partition("/?")[0].removeprefix("http")
            asked = [url.partition(":")[2] for url in page.asked if not url.startswith("data:")]
            assert asked and [url for url in asked if not url.startswith(here.removeprefix(":"))] == []
            assert page.complaints == []
            assert await page.evaluate("document.title + document.cookie + location.search") == "retinue"
    background, accent, words = "#16161e", "#dfaf68", "#c0caf5"
    assert after[background] > 100_000 and after[accent] > 1000 and 0 < before[words] < after[words]


async def test_browser_says_when_it_ended(world, tmp_path):
    with served(world) as (address, _):
        async with open_browser(tmp_path) as page:
            await page.call("Page.navigate", url=address)
            await page.see("offline/rules")
            await page.write("/quit")
            await page.press("Enter", 13)
            async with asyncio.timeout(5):
                while not await page.evaluate("document.body.classList.contains('-closed')"):
                    await asyncio.sleep(0.05)
            assert "It has ended" in await page.evaluate("document.querySelector('.ended').innerText")


async def test_two_servers_share_a_browser(world, tmp_path):
    jar = aiohttp.CookieJar(unsafe=True)
    (tmp_path / "other").mkdir()
    with served(world) as (first, _), served(World(tmp_path / "other")) as (second, _):
        async with aiohttp.ClientSession(cookie_jar=jar) as session:
            for address in (first, second, first.partition("?")[0], second.partition("?")[0]):
                async with session.get(address) as page:
                    assert page.status == 200


STRANGERS = [
    {"Origin": "http://evil.example"},
    {"Origin": "null"},
    {"Origin": "http://localhost:PORT"},
    {"Origin": "https://127.0.0.1:PORT"},
    {"Host": "evil.example:PORT", "Origin": "http://evil.example:PORT"},
    {"Host": "localhost:PORT"},
    {"Cookie": "retinue-token-PORT=wrong"},
    {"Cookie": ""},
]


@pytest.mark.attack("D17")
async def test_socket_is_only_for_our_page(world):
    with served(world) as (address, _):
        port, token = address.split(":")[2].partition("/")[0], address.partition("token=")[2]
        ours = {"Origin": f"http://127.0.0.1:{port}", "Cookie": f"retinue-token-{port}={token}"}
        statuses = []
        async with aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as session:
            for change in [*STRANGERS, {}]:
                headers = ours | {name: value.replace("PORT", port) for name, value in change.items()}
                try:
                    async with session.ws_connect(f"http://127.0.0.1:{port}/ws", headers=headers):
                        statuses.append(101)
                except aiohttp.WSServerHandshakeError as error:
                    statuses.append(error.status)
    assert statuses == [403] * len(STRANGERS) + [101]


@pytest.mark.attack("D17")
@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="looks into /proc")
def test_only_loopback_listens(world):
    with served(world) as (address, _):
        port = int(address.split(":")[2].partition("/")[0])
        rows = [line.split() for name in ("tcp", "tcp6") for line in Path(f"/proc/net/{name}").read_text().split("\n")]
        assert [row[1] for row in rows if row[3:4] == ["0A"] and row[1].endswith(f":{port:04X}")] == [
            f"0100007F:{port:04X}"
        ]


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
