import asyncio
import contextlib
import json
import re
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
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


def split(address):
    """What stands before the token, and the token."""
    base, _, token = address.partition("/#")
    return base, token


async def fetch(address, path="/", **headers):
    async with aiohttp.ClientSession() as session, session.get(split(address)[0] + path, headers=headers) as answer:
        return answer.status, await answer.text()


@pytest.mark.attack("D17", "I5")
async def test_only_the_token_opens_it(world):
    with served(world) as (address, _):
        base, token = split(address)
        port = base.rpartition(":")[2]
        assert base.startswith("http://127.0.0.1:") and len(token) >= 32
        pages = [await fetch(address, path) for path in ("/", "/page.js", "/static/js/textual.js")]
        assert [status for status, _ in pages] == [200] * 3 and not any(token in text for _, text in pages)
        for path in ("/ws", f"/ws?token={token}", f"/?token={token}", "/download/x", f"/download/x?token={token}"):
            status, text = await fetch(address, path, Cookie=f"retinue-token-{port}={token}")
            assert status == 200 if path.startswith("/?") else status in (403, 404)
            assert token not in text
        for headers in ({"Host": "evil.example:80"}, {"Host": f"localhost:{port}"}, {"Origin": "http://evil.example"}):
            assert [(await fetch(address, path, **headers))[0] for path in ("/", "/page.js")] == [403, 403]


async def test_page_and_socket_answer(world):
    with served(world) as (address, _):
        base, token = split(address)
        async with aiohttp.ClientSession() as session:
            async with session.get(base) as page:
                assert page.status == 200 and "textual-terminal" in await page.text()
                assert "frame-ancestors 'none'" in page.headers["Content-Security-Policy"]
                assert "Set-Cookie" not in page.headers
            url = base.replace("http", "ws") + "/ws?width=90&height=30"
            async with session.ws_connect(url, origin=base, protocols=("retinue", token)) as socket:
                assert socket.protocol == "retinue"
                seen = b""
                async with asyncio.timeout(15):
                    while b"offline/rules" not in seen:
                        message = await socket.receive()
                        seen += message.data if isinstance(message.data, bytes) else str(message.data).encode()
                await socket.send_str(json.dumps(["stdin", "hello"]))
                await socket.send_str(json.dumps(["ping", "1"]))


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
            here = split(address)[0].removeprefix("http")
            asked = [url.partition(":")[2] for url in page.asked if not url.startswith("data:")]
            assert asked and [url for url in asked if not url.startswith(here.removeprefix(":"))] == []
            assert page.complaints == []
            told = await page.evaluate("document.title + document.cookie + location.search + location.hash")
            assert told == "retinue"
    background, accent, words = "#16161e", "#dfaf68", "#c0caf5"
    assert after[background] > 100_000 and after[accent] > 1000 and 0 < before[words] < after[words]


async def test_browser_says_when_it_ended(world, tmp_path):
    with served(world) as (address, _):
        async with open_browser(tmp_path) as page:
            await page.call("Page.navigate", url=address)
            await page.see("offline/rules")
            await page.write("/quit")
            await page.press("Enter", 13)
            await wait_until(page, "document.body.classList.contains('-closed')")
            assert "It has ended" in await page.evaluate("document.querySelector('.ended').innerText")


async def test_page_is_opened_again(world, tmp_path):
    with served(world) as (address, _):
        async with open_browser(tmp_path) as page:
            for steps in (("navigate", {"url": address}), ("reload", {}), ("navigate", {"url": split(address)[0]})):
                page.received = ""
                await page.call(f"Page.{steps[0]}", **steps[1])
                await page.see("offline/rules")
            # A wrong token, then the right one, in the same window: only the fragment changes.
            await page.call("Page.navigate", url=split(address)[0] + "/#wrong")
            await wait_until(page, "document.body?.classList.contains('-closed')")
            assert "address that retinue serve printed" in await page.evaluate("document.body.innerText")
            page.received = ""
            await page.call("Page.navigate", url=address)
            await page.see("offline/rules")


async def wait_until(page, script):
    async with asyncio.timeout(8):
        while not await page.evaluate(script):
            await asyncio.sleep(0.05)


@contextlib.asynccontextmanager
async def stranger():
    """Another program's server on this machine: its address, and all that it was sent."""
    heard = []

    async def answer(request):
        heard.append(f"{request.path_qs} {dict(request.headers)} {await request.text()}")
        return web.Response(text="<title>stranger</title>", content_type="text/html")

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{site._server.sockets[0].getsockname()[1]}", heard
    finally:
        await runner.cleanup()


ENTER = """
new Promise(done => {
    const socket = new WebSocket(%s, %s);
    socket.onopen = () => done("open");
    socket.onerror = () => done("refused");
})
"""


@pytest.mark.attack("I5")
async def test_other_port_gets_nothing(world, tmp_path):
    with served(world) as (address, _):
        base, _ = split(address)
        # The token, wherever it stands in the address.
        secret = max(re.findall(r"[\w-]+", address), key=len)
        inside = json.dumps(base.partition("/?")[0].replace("http", "ws") + "/ws")
        async with stranger() as (other, heard), open_browser(tmp_path) as page:
            await page.call("Page.navigate", url=address)
            await page.see("offline/rules")
            tries = [f"fetch({json.dumps(other)}, {{credentials: 'include', mode: 'no-cors'}}).catch(String)"]
            tries += [f"void window.open({json.dumps(other + '/opened')})"]
            for script in tries:
                with contextlib.suppress(AssertionError):  # the page's own rules may refuse it
                    await page.evaluate(script)
            await page.call("Page.navigate", url=other + "/visited")
            await wait_until(page, "document.title == 'stranger'")
            assert await page.evaluate("fetch('/asked', {credentials: 'include'}).then(answer => answer.status)") == 200
            kept = "JSON.stringify([document.cookie, {...sessionStorage}, {...localStorage}, document.referrer])"
            assert secret not in await page.evaluate(kept)
            # Without the token, and for a page of another origin even with it.
            for protocols in ("[]", "['retinue']", json.dumps(["retinue", secret])):
                assert await page.evaluate(ENTER % (inside, protocols)) == "refused"
    assert len(heard) >= 2 and [each for each in heard if secret in each] == []


STRANGERS = [
    {"Origin": "http://evil.example"},
    {"Origin": None},
    {"Origin": "null"},
    {"Origin": ""},
    {"Origin": "http://localhost:PORT"},
    {"Origin": "https://127.0.0.1:PORT"},
    {"Origin": "http://127.0.0.1:1PORT"},
    {"Host": "evil.example:PORT", "Origin": "http://evil.example:PORT"},
    {"Host": "localhost:PORT"},
    {"Sec-WebSocket-Protocol": "retinue, wrong"},
    {"Sec-WebSocket-Protocol": "retinue, "},
    {"Sec-WebSocket-Protocol": "retinue"},
    {"Sec-WebSocket-Protocol": ""},
    {"Sec-WebSocket-Protocol": "", "Cookie": "retinue-token-PORT=TOKEN"},
    {"Sec-WebSocket-Protocol": "", "Authorization": "Bearer TOKEN"},
]


@pytest.mark.attack("D17", "I5")
async def test_socket_is_only_for_our_page(world):
    with served(world) as (address, process):
        base, token = split(address)
        port = base.rpartition(":")[2]
        ours = {"Origin": base, "Sec-WebSocket-Protocol": f"retinue, {token}"}
        statuses = []
        async with aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as session:
            for change in [*STRANGERS, {}]:
                wanted = {name: value for name, value in (ours | change).items() if value is not None}
                headers = {n: value.replace("PORT", port).replace("TOKEN", token) for n, value in wanted.items()}
                try:
                    async with session.ws_connect(f"{base}/ws?token={token}", headers=headers):
                        statuses.append(101)
                except aiohttp.WSServerHandshakeError as error:
                    statuses.append(error.status)
        process.terminate()
        said = process.stdout.read() + process.stderr.read()
    assert statuses == [403] * len(STRANGERS) + [101] and token not in said.decode()


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
