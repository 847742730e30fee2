"""A browser without a window, driven over its own protocol: what it paints, what it asks for, what it complains of."""

import asyncio
import base64
import json
import os
import shutil
import signal
import subprocess
from contextlib import asynccontextmanager, contextmanager, suppress

import aiohttp
import pytest

from retinue.testing import open_cli

CHROMIUM = shutil.which("chromium")
_FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--remote-debugging-port=0"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage"),
    "--window-size=1000,640",
)
_COUNT = """
(async () => {
    const image = new Image();
    image.src = "data:image/png;base64," + %s;
    await image.decode();
    const canvas = new OffscreenCanvas(image.width, image.height), context = canvas.getContext("2d");
    context.drawImage(image, 0, 0);
    const bytes = new Uint32Array(context.getImageData(0, 0, image.width, image.height).data.buffer);
    const counts = {};
    for (const each of bytes) {
        const color = "#" + [each, each >> 8, each >> 16].map(v => (v & 255).toString(16).padStart(2, "0")).join("");
        counts[color] = (counts[color] || 0) + 1;
    }
    return JSON.stringify(counts);
})()
"""


class Page:
    """One window."""

    def __init__(self, socket):
        self._socket = socket
        self._number = 0
        self._answers = {}
        self.asked = []
        """Addresses it has asked for."""
        self.complaints = []
        """Errors of its console."""
        self.received = ""
        """What came over its websockets."""

    async def listen(self):
        async for message in self._socket:
            data = json.loads(message.data)
            if "id" in data:
                self._answers.pop(data["id"]).set_result(data)
            else:
                self._hear(data["method"], data["params"])

    def _hear(self, method, params):
        if method in ("Network.requestWillBeSent", "Network.webSocketCreated"):
            self.asked.append(params["url"] if "url" in params else params["request"]["url"])
        elif method == "Network.webSocketFrameReceived":
            frame = params["response"]
            text = base64.b64decode(frame["payloadData"]) if frame["opcode"] == 2 else frame["payloadData"].encode()
            self.received += text.decode(errors="replace")
        elif method == "Log.entryAdded" and params["entry"]["level"] == "error":
            self.complaints.append(params["entry"])
        elif method == "Runtime.exceptionThrown":
            self.complaints.append(params["exceptionDetails"])
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "assert"):
            self.complaints.append(params["args"])

    async def call(self, method, **params):
        self._number += 1
        answer = self._answers[self._number] = asyncio.get_running_loop().create_future()
        await self._socket.send_str(json.dumps({"id": self._number, "method": method, "params": params}))
        done = await asyncio.wait_for(answer, 8)
        assert "error" not in done, done
        return done["result"]

    async def evaluate(self, script):
        done = await self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in done, done
        return done["result"].get("value")

    async def write(self, text):
        await self.call("Input.insertText", text=text)

    async def press(self, key, code):
        for kind in ("rawKeyDown", "char", "keyUp"):
            text = {"text": "\r"} if kind == "char" else {}
            await self.call("Input.dispatchKeyEvent", type=kind, key=key, windowsVirtualKeyCode=code, **text)

    async def see(self, wanted, timeout_s=8):
        async with asyncio.timeout(timeout_s):
            while wanted not in self.received:
                await asyncio.sleep(0.02)

    async def take_picture(self):
        """What is painted, as a PNG, and how many pixels have which colour."""
        data = (await self.call("Page.captureScreenshot"))["data"]
        return base64.b64decode(data), json.loads(await self.evaluate(_COUNT % json.dumps(data)))


@asynccontextmanager
async def open_browser(folder):
    """A browser with a profile of its own, at an empty page."""
    if CHROMIUM is None:
        if os.environ.get("CI"):
            pytest.fail("chromium is missing; .ci/run installs it")
        pytest.skip("chromium is not installed")
    profile = folder / "profile"
    profile.mkdir()
    environment = {"PATH": os.environ["PATH"], "HOME": str(profile)}
    process = subprocess.Popen(
        [CHROMIUM, *_FLAGS, f"--user-data-dir={profile}", "about:blank"],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        port = await _wait_for_port(profile / "DevToolsActivePort")
        async with aiohttp.ClientSession() as session:
            async with session.get(f"http://127.0.0.1:{port}/json/list") as answer:
                pages = [each for each in await answer.json() if each["type"] == "page"]
            async with session.ws_connect(pages[0]["webSocketDebuggerUrl"], max_msg_size=0) as socket:
                page = Page(socket)
                async with asyncio.TaskGroup() as group:
                    listening = group.create_task(page.listen())
                    for domain in ("Page", "Network", "Runtime", "Log"):
                        await page.call(f"{domain}.enable")
                    yield page
                    listening.cancel()
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


async def _wait_for_port(path):
    async with asyncio.timeout(15):
        while not (path.exists() and path.read_text().count("\n")):
            await asyncio.sleep(0.05)
    return int(path.read_text().split("\n")[0])


@contextmanager
def served(world, *arguments):
    """`retinue serve` in its own process; gives the address it prints."""
    with open_cli(["serve", *world.model, *arguments], world.work, world.environment, home=world.home) as process:
        yield process.stdout.readline().decode().strip(), process
        with suppress(ProcessLookupError):  # whoever reads all that it said has ended it
            process.terminate()
        assert process.wait(10) == 143
    assert world.wait_until_alone(10) == []


def split(address):
    """What stands before the token, and the token."""
    base, _, token = address.partition("/#")
    return base, token


@asynccontextmanager
async def listing(address):
    """The list of sessions without a browser: sends, and waits for a message of a kind that fits."""
    base, token = split(address)
    url = base.replace("http", "ws") + "/ws"
    async with (
        aiohttp.ClientSession() as session,
        session.ws_connect(url, origin=base, protocols=("retinue", token)) as socket,
    ):

        async def hear(kind, fits=lambda *words: True):
            async with asyncio.timeout(20):
                while True:
                    message = await socket.receive()
                    if message.type is aiohttp.WSMsgType.BINARY:
                        continue
                    found, *words = json.loads(message.data)
                    if found == kind and fits(*words):
                        return words
                    assert kind == "error" or found != "error", words

        yield lambda *words: socket.send_str(json.dumps(words)), hear


async def start(address, task=""):
    """Start a session; gives its id."""
    async with listing(address) as (send, hear):
        await send("start", task)
        return (await hear("started"))[0]


async def wait_until(page, script, timeout_s=8):
    async with asyncio.timeout(timeout_s):
        while not await page.evaluate(f"!!({script})"):
            await asyncio.sleep(0.05)


async def open_session(page, address, task=""):
    """Start a session with the list's form; gives its id."""
    await page.call("Page.navigate", url=address)
    await wait_until(page, "document.body?.classList.contains('-loaded')")
    await page.evaluate(f"document.querySelector('#task').value = {json.dumps(task)}")
    await page.evaluate("document.querySelector('#new button').click()")
    await wait_until(
        page, "location.pathname.startsWith('/s/') && document.body?.classList.contains('-first-byte')", 20
    )
    return (await page.evaluate("location.pathname"))[3:]
