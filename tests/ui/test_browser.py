import asyncio
import contextlib
import json
import os
import re
import subprocess
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from retinue.testing import run_cli
from tests.needs import need_program
from tests.ui.browser_world import open_browser, open_session, served, split, start, wait_until
from tests.ui.terminal_world import World


@pytest.fixture
def world(tmp_path):
    return World(tmp_path)


async def fetch(address, path="/", **headers):
    async with aiohttp.ClientSession() as session, session.get(split(address)[0] + path, headers=headers) as answer:
        return answer.status, await answer.text()


PATHS = ("/", "/page.js", "/list.js", "/window.js", "/page.css", "/s/0123abcd", "/static/js/textual.js")


@pytest.mark.attack("D17", "I5")
async def test_only_the_token_opens_it(world):
    with served(world) as (address, _):
        base, token = split(address)
        port = base.rpartition(":")[2]
        assert base.startswith("http://127.0.0.1:") and len(token) >= 32
        pages = [await fetch(address, path) for path in PATHS]
        assert [status for status, _ in pages] == [200] * len(PATHS) and not any(token in text for _, text in pages)
        for path in (
            "/ws",
            "/ws/0123abcd",
            f"/ws?token={token}",
            f"/?token={token}",
            "/download/x",
            f"/download/x?token={token}",
        ):
            status, text = await fetch(address, path, Cookie=f"retinue-token-{port}={token}")
            assert status == 200 if path.startswith("/?") else status in (403, 404)
            assert token not in text
        for headers in ({"Host": "evil.example:80"}, {"Host": f"localhost:{port}"}, {"Origin": "http://evil.example"}):
            assert [(await fetch(address, path, **headers))[0] for path in ("/", "/page.js")] == [403, 403]


async def test_page_and_socket_answer(world):
    with served(world) as (address, _):
        base, token = split(address)
        async with aiohttp.ClientSession() as session:
            name = await start(address)
            async with session.get(f"{base}/s/{name}") as page:
                assert page.status == 200 and "textual-terminal" in await page.text()
                assert "frame-ancestors 'none'" in page.headers["Content-Security-Policy"]
                assert "Set-Cookie" not in page.headers
            url = base.replace("http", "ws") + f"/ws/{name}?width=90&height=30"
            async with session.ws_connect(url, origin=base, protocols=("retinue", token)) as socket:
                assert socket.protocol == "retinue"
                seen = b""
                async with asyncio.timeout(15):
                    while b"offline/rules" not in seen:
                        message = await socket.receive()
                        seen += message.data if isinstance(message.data, bytes) else str(message.data).encode()
                await socket.send_str(json.dumps({"type": "keys", "text": "hello"}))


@contextlib.asynccontextmanager
async def window(address, name=""):
    """A window without a browser: waits for a text, and types."""
    base, token = split(address)
    url = base.replace("http", "ws") + f"/ws/{name or await start(address)}?width=200&height=40"
    async with (
        aiohttp.ClientSession() as session,
        session.ws_connect(url, origin=base, protocols=("retinue", token)) as socket,
    ):
        seen = b""

        async def see(text):
            nonlocal seen
            async with asyncio.timeout(40):
                while text not in seen:
                    message = await socket.receive()
                    assert message.type is not aiohttp.WSMsgType.CLOSED, seen
                    seen += message.data if isinstance(message.data, bytes) else str(message.data).encode()
            seen = seen.partition(text)[2]

        yield see, lambda text: socket.send_str(json.dumps({"type": "keys", "text": text}))


@pytest.mark.attack("I1", "I4")
async def test_approval_is_for_the_folder_served(world):
    other = world.work.parent / "other"
    for folder in (world.work, other):
        (folder / ".pi" / "extensions").mkdir(parents=True)
        mark = f"open({str(folder / 'RAN')!r}, 'w')\n\ndef extension(api): pass\n"
        (folder / ".pi" / "extensions" / "e.py").write_text(mark)
    done = run_cli(["-p", "WHERE IS IT", *world.model], other, world.environment, home=world.home)
    assert (done.status, (other / "RAN").exists()) == (0, False), done.stderr
    for flags, is_trusted in (((), False), (("--approve",), True)):
        with served(world, *flags) as (address, _):
            async with window(address) as (see, write):
                if not is_trusted:  # it asks, and nothing counts before the answer
                    await see(b"extensions")
                    assert not (world.work / "RAN").exists()
                    continue
                await see(b"offline/rules")
                await write("/resume all\r")
                await see(b"WHERE IS IT")
                await write("\r")
                await see(b"is not trusted")
    assert ((world.work / "RAN").exists(), (other / "RAN").exists()) == (True, False)


async def test_browser_paints_and_is_answered(mocked, tmp_path):
    with mocked({"text": "The answer is FORTYTWO."}) as world, served(world) as (address, _):
        async with open_browser(tmp_path) as page:
            await open_session(page, address)
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
            await wait_until(page, "document.title === 'what is it? · retinue'")
            assert await page.evaluate("document.cookie + location.search + location.hash") == ""
    background, accent, words = "#16161e", "#dfaf68", "#c0caf5"
    assert after[background] > 100_000 and after[accent] > 1000 and 0 < before[words] < after[words]


PASTE = """
const clip = new DataTransfer(), box = document.querySelector(".xterm-helper-textarea");
clip.setData("text/plain", "x".repeat(1200000) + "\\nEND");
box.dispatchEvent(new ClipboardEvent("paste", { clipboardData: clip, bubbles: true }));
"""


async def test_large_paste_arrives(world, tmp_path):
    with served(world) as (address, _):
        async with open_browser(tmp_path) as page:
            await open_session(page, address)
            await page.see("offline/rules")
            await page.evaluate(PASTE)
            await page.see("[paste #1 +2 lines]", 20)


async def test_browser_says_when_it_ended(world, tmp_path):
    with served(world) as (address, _):
        async with open_browser(tmp_path) as page:
            await open_session(page, address)
            await page.see("offline/rules")
            await page.write("/quit")
            await page.press("Enter", 13)
            await wait_until(page, "document.body.classList.contains('-closed')")
            assert "This session has ended" in await page.evaluate("document.querySelector('.ended').innerText")


async def test_page_is_opened_again(world, tmp_path):
    with served(world) as (address, _):
        async with open_browser(tmp_path) as page:
            base, token = split(address)
            name = await open_session(page, address)
            for steps in (("reload", {}), ("navigate", {"url": f"{base}/s/{name}"})):
                page.received = ""
                await page.call(f"Page.{steps[0]}", **steps[1])
                await page.see("offline/rules")
            # A wrong token, then the right one, in the same window: only the fragment changes.
            for path in ("/", f"/s/{name}"):
                await page.call("Page.navigate", url=f"{base}{path}#wrong")
                await wait_until(page, "document.body?.innerText.includes('address that retinue serve printed')")
                page.received = ""
                await page.call("Page.navigate", url=f"{base}{path}#{token}")
                await page.see(name if path == "/" else "offline/rules")


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
            await open_session(page, address)
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


HEAD = b"Host: HOST\r\nOrigin: http://HOST\r\n"
SHAKE = HEAD + b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Protocol: retinue, TOKEN\r\n"
KEY = b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: MTIzNDU2Nzg5MDEyMzQ1Ng==\r\n\r\n"
OPEN = b"GET /ws/ID HTTP/1.1\r\n" + SHAKE + KEY
GARBAGE = {
    "noise": (bytes(range(256)) * 8, b"400"),
    "TLS": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200), b"400"),
    "later noise": (b"GET / HTTP/1.1\r\n" + HEAD + b"\r\n" + b"\x00\xff\r\n\r\n", b"400"),
    "method": (b"G(T / HTTP/1.1\r\n\r\n", b"400"),
    "version": (b"GET / HTTP/x\r\n\r\n", b"400"),
    "target": (b"GET http://[::1 HTTP/1.1\r\n" + HEAD + b"\r\n", b"400"),
    "no slash": (b"GET x HTTP/1.1\r\n" + HEAD + b"\r\n", b"40"),
    "header": (b"GET / HTTP/1.1\r\nHost HOST\r\n\r\n", b"400"),
    "control characters": (b"GET / HTTP/1.1\r\nHost: HOST\r\nX: a\x00b\r\n\r\n", b"400"),
    "long header": (b"GET / HTTP/1.1\r\nX: " + b"a" * 70_000 + b"\r\n\r\n", b"400"),
    "many headers": (b"GET / HTTP/1.1\r\n" + b"X: a\r\n" * 30_000 + b"\r\n", b"4"),
    "length": (b"POST / HTTP/1.1\r\n" + HEAD + b"Content-Length: -5\r\n\r\nx", b"400"),
    "chunk": (b"POST / HTTP/1.1\r\n" + HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n", b"4"),
    "both": (b"POST / HTTP/1.1\r\n" + HEAD + b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0", b"400"),
    "escapes": (b"GET /static/%00%ff HTTP/1.1\r\n" + HEAD + b"\r\n", b"40"),
    "long name": (b"GET /static/" + b"a" * 5000 + b" HTTP/1.1\r\n" + HEAD + b"\r\n", b"40"),
    "compression": (b"POST / HTTP/1.1\r\n" + HEAD + b"Content-Encoding: gzip\r\nContent-Length: 3\r\n\r\nabc", b"4"),
    "expectation": (b"POST / HTTP/1.1\r\n" + HEAD + b"Expect: x\r\nContent-Length: 3\r\n\r\nabc", b"4"),
    "no upgrade": (b"GET /ws HTTP/1.1\r\n" + HEAD + b"Sec-WebSocket-Protocol: retinue, TOKEN\r\n\r\n", b"400"),
    "no key": (b"GET /ws HTTP/1.1\r\n" + SHAKE + b"Sec-WebSocket-Version: 13\r\n\r\n", b"400"),
    "bad key": (b"GET /ws HTTP/1.1\r\n" + SHAKE + KEY.replace(b"MTIz", b"!!!!"), b"400"),
    "old version": (b"GET /ws HTTP/1.1\r\n" + SHAKE + KEY.replace(b"13", b"99"), b"4"),
    "size": (OPEN.replace(b"/ws/ID", b"/ws/0123abcd?width=99999&height=x"), b"400"),
    "no size": (OPEN.replace(b"/ws/ID", b"/ws/0123abcd?width=0"), b"400"),
    "no id": (OPEN.replace(b"/ws/ID", b"/ws/..%2f..%2fetc"), b"400"),
    "method of socket": (OPEN.replace(b"GET", b"POST"), b"4"),
}


def mask(text):
    """A frame as browsers send it, with a mask of zeros."""
    size = bytes((128 + len(text),)) if len(text) < 126 else b"\xfe" + len(text).to_bytes(2, "big")
    return b"\x81" + size + bytes(4) + text


FRAMES = {
    "noise": bytes(range(128, 256)),
    "no mask": b"\x81\x02hi",
    "no JSON": mask(b"{"),
    "deep": mask(b"[" * 20_000),
}
CLOSED = b"\x88\x02" + aiohttp.WSCloseCode.POLICY_VIOLATION.to_bytes(2, "big")
MESSAGES = [
    *("", "{", "null", "[]", "{}", "[[]]", "[" * 20_000, '{"type":"keys"}', '{"type":"keys","text":5}'),
    *('{"type":"keys","text":"\\ud800"}', '["stdin", "x"]', '{"type":"say","text":"x"}', '{"type":"close"}'),
    *('{"type":"report"}', '{"type":"open","kind":"browser","width":80,"height":24}', '{"type":"focus"}'),
    *('{"type":"resize","width":-1,"height":9}', '{"type":"resize","width":80,"height":99999999999}'),
]


COMMANDS = [
    *('["start"]', '["start", 1]', '["command", "stop", "../../x"]', '["command", "kill", "0123abcd"]'),
    *('["answer", "0123abcd", "q"]', '["say", "x", "y"]', '["say", "0123abcd", "' + "x" * 200_000 + '"]'),
]


async def throw(address, data, more=b"", name=""):
    """What comes back for raw bytes; after more of them the other side must have ended it."""
    base, token = split(address)
    host = base.removeprefix("http://")
    reader, writer = await asyncio.open_connection(*host.split(":"))
    # The token is last: it may contain the other words.
    writer.write(data.replace(b"ID", name.encode()).replace(b"HOST", host.encode()).replace(b"TOKEN", token.encode()))
    answer = b""
    with contextlib.suppress(ConnectionError):
        answer = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10)
    if more:
        writer.write(more)
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            await asyncio.wait_for(reader.readuntil(CLOSED), 10)
    writer.close()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()
    return answer


def end(process):
    """What a server has said of all that."""
    process.terminate()
    said = (process.stdout.read() + process.stderr.read()).decode()
    assert "Traceback" not in said and 'File "' not in said, said
    return [line for line in said.splitlines() if "ctrl+c ends it" not in line]


@pytest.mark.attack("D17")
async def test_garbage_is_refused_quietly(world):
    with served(world) as (address, process):
        answers = {name: await throw(address, data) for name, (data, _) in GARBAGE.items()}
        wrong = {name for name, (_, code) in GARBAGE.items() if not answers[name][9:].startswith(code)}
        assert ({name: answers[name] for name in wrong}, (await fetch(address))[0]) == ({}, 200)
        lines, token = end(process), split(address)[1]
    assert (len(lines) <= len(GARBAGE), [line for line in lines if token in line]) == (True, []), lines


@pytest.mark.attack("D17")
async def test_broken_frames_end_their_window(world):
    with served(world) as (address, process):
        name = await start(address)
        answers = [await throw(address, OPEN, frame, name) for frame in FRAMES.values()]
        answers += [await throw(address, OPEN.replace(b"/ID", b""), frame) for frame in FRAMES.values()]
        assert ([answer[9:12] for answer in answers], (await fetch(address))[0]) == ([b"101"] * len(answers), 200)
        lines = end(process)
    assert len(lines) <= len(answers), lines


@pytest.mark.attack("D17")
async def test_odd_messages_end_their_window(world):
    with served(world) as (address, _):
        base, token = split(address)
        name, codes = await start(address), []
        async with aiohttp.ClientSession() as session:
            for path, texts in ((f"/ws/{name}", MESSAGES), ("/ws", [*MESSAGES, *COMMANDS])):
                for text in texts:
                    url = base.replace("http", "ws") + path
                    async with session.ws_connect(url, origin=base, protocols=("retinue", token)) as socket:
                        await socket.send_str(text)
                        while not (message := await socket.receive(10)).type & aiohttp.WSMsgType.CLOSE:
                            assert message.type in (aiohttp.WSMsgType.BINARY, aiohttp.WSMsgType.TEXT), (text, message)
                        codes.append(socket.close_code)
        async with window(address, name) as (see, write):  # the session has not noticed
            await write("still here")
            await see(b"still here")
    assert codes == [aiohttp.WSCloseCode.POLICY_VIOLATION] * len(codes)


@pytest.mark.attack("D17")
async def test_flood_of_connections_is_survived(world):
    with served(world) as (address, process):
        host, port = split(address)[0].removeprefix("http://").split(":")
        subprocess.run([need_program("prlimit"), f"--pid={process.pid}", "--nofile=40:40"], check=True)
        ends = [await asyncio.open_connection(host, port) for _ in range(60)]
        async with asyncio.timeout(20):
            while len(os.listdir(f"/proc/{process.pid}/fd")) < 40:
                await asyncio.sleep(0.02)
        for _, writer in ends:
            writer.close()
        async with asyncio.timeout(20):
            assert (await fetch(address))[0] == 200
        said = end(process)
    assert len(said) < 5 and any("Too many open files" in line for line in said), said


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
