"""Sessions in a real browser: reload, second tab, killed server, the list, a phone, a certificate, a full disk."""

import asyncio
import json
import os
import signal
import ssl
import subprocess
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import aiohttp
import pytest

from retinue.testing import open_cli, run_cli
from tests.needs import need_program
from tests.ui.browser_world import Page, listing, open_browser, open_session, served, split, start, wait_until
from tests.ui.terminal_world import call

SLOW = {"match": {"last_user": "^count"}, "text": "one two three FOUR", "chunk_ms": 300, "chunk_chars": 5}
ASKS = {"match": {"last_user": "^clean"}, "calls": [call("bash", command="echo $((40 + 2)) cleaned")]}
DONE = {"text": "All done."}


@asynccontextmanager
async def open_tab(page, address):
    """Another tab of the same browser."""
    made = await page.call("Target.createTarget", url="about:blank")
    url = f"ws://{page._socket._response.url.host}:{page._socket._response.url.port}/devtools/page/{made['targetId']}"
    async with aiohttp.ClientSession() as session, session.ws_connect(url, max_msg_size=0) as socket:
        tab = Page(socket)
        async with asyncio.TaskGroup() as group:
            listening = group.create_task(tab.listen())
            for domain in ("Page", "Network", "Runtime", "Log"):
                await tab.call(f"{domain}.enable")
            await tab.call("Page.navigate", url=address)
            yield tab
            listening.cancel()


async def test_reload_and_second_tab_return(mocked, tmp_path):
    with mocked(SLOW) as world, served(world) as (address, _):
        base, _ = split(address)
        async with open_browser(tmp_path) as page:
            name = await open_session(page, address, "count slowly")
            await page.see("one")
            page.received = ""
            await page.call("Page.reload")
            await page.see("count slowly")
            async with open_tab(page, f"{base}/s/{name}") as tab:  # without a token in its address
                await tab.see("FOUR")
                await page.see("FOUR")
                await wait_until(tab, "document.title == 'count slowly · retinue'")
                assert (tab.complaints, page.complaints) == ([], [])
                async with listing(address) as (_, hear):
                    _, rows = await hear("sessions")
        assert [(row["id"], row["title"], row["windows"]) for row in rows] == [(name, "count slowly", 2)]


async def test_killed_server_loses_nothing(mocked, tmp_path):
    with mocked(SLOW) as world:
        with served_until_killed(world) as (address, process):
            name = await start(address, "count slowly")
            async with open_browser(tmp_path) as page:
                await page.call("Page.navigate", url=f"{split(address)[0]}/s/{name}#{split(address)[1]}")
                await page.see("one")
                process.kill()
                await wait_until(page, "document.querySelector('#why')?.textContent.includes('Trying again')")
        with served(world) as (address, _):
            async with listing(address) as (send, hear):
                await hear("sessions", lambda _, rows: rows[0]["id"] == name and rows[0]["state"] == "finished")
                await send("command", "export", name)
                assert (await hear("file"))[0].endswith(".html")
                await hear("saved")
                await send("command", "stop", name)
                await hear("sessions", lambda _, rows: not rows[0]["isOpen"])


@contextmanager
def served_until_killed(world, *arguments):
    with open_cli(["serve", *world.model, *arguments], world.work, world.environment, home=world.home) as process:
        yield process.stdout.readline().decode().strip(), process


async def test_list_survives_its_server(mocked, tmp_path):
    with mocked(SLOW) as world, served_until_killed(world) as (address, process):
        name = await start(address, "count slowly")
        base, _ = split(address)
        port = base.rpartition(":")[2]
        async with open_browser(tmp_path) as page, open_tab(page, f"{base}/s/{name}#{split(address)[1]}") as tab:
            await page.call("Page.navigate", url=address)
            await wait_until(page, "document.querySelector('.say input')")
            await page.evaluate("document.querySelector('.say input').value = 'a draft'")
            await page.evaluate("document.querySelector('#task').value = 'x'.repeat(100001)")
            await page.evaluate("document.querySelector('#new').requestSubmit()")
            await wait_until(page, "document.querySelector('#message').innerText.includes('longer than 100,000')")
            await tab.see("one")
            os.kill(process.pid, signal.SIGHUP)  # its terminal is closed: the session continues
            assert process.wait(10) == 129
            await wait_until(page, "document.querySelector('#message').innerText.includes('Trying again')")
            await page.evaluate("document.querySelector('.say').requestSubmit()")
            await wait_until(page, "document.querySelector('#message').innerText.includes('not connected')")
            trying = "document.querySelector('.ended').innerText == document.querySelector('#why').textContent"
            await wait_until(tab, f"document.querySelector('#why').textContent && {trying}")  # and no button
            with served(world, "--port", port) as (address, _):
                refused = "document.body.innerText.includes('Open the address that retinue serve printed')"
                for each in (page, tab):
                    await wait_until(each, refused, 20)
                # One window with the new address is enough for all.
                async with open_tab(page, address):
                    await wait_until(page, "document.querySelector('article.running, article.finished')", 20)
                    await wait_until(tab, "document.body?.classList.contains('-first-byte')", 20)
                    assert await page.evaluate("document.querySelector('.say input').value") == "a draft"
                    assert await page.evaluate("document.querySelector('#task').value.length") == 100_001
                    await tab.see("FOUR")
                async with listing(address) as (send, hear):
                    await send("command", "stop", name)
                    await hear("sessions", lambda _, rows: not rows[0]["isOpen"])


@pytest.mark.attack("I10")
async def test_questions_hide_nothing(mocked):
    hidden = "echo fine " + " " * 200 + "\u202e; rm -rf ."
    replies = [
        {"match": {"last_user": "^hide"}, "calls": [call("bash", command=hidden)]},
        {
            "match": {"last_user": "^many"},
            "calls": [call("bash", command=f"echo {n} {'🙂' * 9000}") for n in range(40)],
        },
        {"match": {"last_user": "^long"}, "calls": [call("write", path="a.txt", content="x" * 1_200_000)]},
        DONE,
    ]
    with mocked(*replies) as world:
        (world.agent_dir / "subagents.json").write_text(json.dumps({"approvals": "ask"}))
        with served(world) as (address, _):
            names = [await start(address, task) for task in ("hide it", "long text", "many calls")]
            async with listing(address) as (_, hear):
                is_asked = lambda _, rows: len(rows) == 3 and all(row["questions"] for row in rows)  # noqa: E731
                _, rows = await hear("sessions", is_asked)
                asked = {row["id"]: row["questions"][0] for row in rows}
                assert sorted((len(row["questions"]), row["isOpen"]) for row in rows) == [
                    (1, True),
                    (1, True),
                    (16, True),
                ]
                assert asked[names[0]]["text"] == "echo fine ⟨201 blanks⟩ \\u202e; rm -rf ."
                assert "open the session" in asked[names[1]]["text"] and asked[names[1]]["options"] == []


async def test_list_shows_and_answers(mocked, tmp_path):
    with mocked(ASKS, DONE) as world:
        (world.agent_dir / "subagents.json").write_text(json.dumps({"approvals": "ask"}))
        with served(world) as (address, _):
            await start(address, "clean up <b>now</b>")
            async with open_browser(tmp_path) as page:
                await page.call(
                    "Emulation.setDeviceMetricsOverride", width=390, height=844, deviceScaleFactor=3, mobile=True
                )
                await page.call("Page.navigate", url=address)
                await wait_until(page, "document.querySelector('article.waiting .question button')")
                text = await page.evaluate("document.querySelector('article').innerText")
                for words in ("clean up <b>now</b>", "waiting for an answer", "$0.0000", "just now", "cleaned", "deny"):
                    assert words in text
                await page.evaluate("document.querySelector('.question button').click()")
                await wait_until(page, "document.querySelector('article.finished')")
                assert await page.evaluate("document.documentElement.scrollWidth") == 390
                await page.evaluate("document.querySelector('.say input').value = 'more'")
                await page.evaluate("document.querySelector('.say').requestSubmit()")
                await page.evaluate("document.querySelector('.open').click()")
                await wait_until(page, "document.body?.classList.contains('-first-byte')")
                await page.see("42 cleaned")
                # Keys of the page reach the session, and a phone draws what it is sent.
                await page.write("a draft")
                await page.see("a draft")
                await page.evaluate("document.querySelector('[data-keys=ETX]').click()")
                _, counts = await page.take_picture()
                assert counts.get("#dfaf68", 0) > 100
                assert await page.evaluate("document.documentElement.scrollWidth") == 390
                await page.call("Page.navigate", url=split(address)[0])
                await wait_until(page, "document.querySelector('[data-verb=stop]')")
                await page.evaluate("document.querySelector('[data-verb=stop]').click()")
                await wait_until(page, "document.querySelector('.open')?.textContent == 'Resume'")
                await page.evaluate("document.querySelector('.open').click()")
                await page.see("42 cleaned")
                assert page.complaints == []


async def test_killed_session_spares_the_others(mocked):
    with mocked({"text": "fine"}) as world, served(world) as (address, _):
        names = [await start(address, f"task {number}") for number in range(2)]
        async with listing(address) as (send, hear):
            _, rows = await hear("sessions", lambda _, rows: all(row["state"] == "finished" for row in rows))
            os.kill(next(row["pid"] for row in rows if row["id"] == names[0]), signal.SIGKILL)
            _, rows = await hear("sessions", lambda _, rows: any(row["state"] == "lost" for row in rows))
            assert {row["id"]: row["state"] for row in rows} == {names[0]: "lost", names[1]: "finished"}
            await send("say", names[0], "hello")
            assert "has ended" in (await hear("error"))[0]
            await send("command", "forget", names[0])
            await hear("sessions", lambda _, rows: [row["id"] for row in rows] == [names[1]])


async def test_wrong_start_is_explained(world):
    world.model = ["--model", "none/none"]
    with served(world) as (address, _):
        async with listing(address) as (send, hear):
            await send("start", "")
            assert "none/none" in (await hear("error"))[0]


@pytest.mark.parametrize(
    "flags, text",
    [
        (("--host", "192.0.2.1"), "needs --tls-cert and --tls-key"),
        (("--host", "example.org"), "ssh -L"),
        (("--host", "0.0.0.0", "--tls-cert", "a", "--tls-key", "b"), "the one name or address"),
        (("--tls-cert", "a"), "belong together"),
        (("--tls-cert", "a", "--tls-key", "b"), "--tls-cert a"),
    ],
)
def test_address_for_others_needs_a_certificate(world, flags, text):
    done = run_cli(["serve", *flags], world.work, world.environment, home=world.home)
    assert (done.status, done.stdout) == (2, "") and text in done.stderr and "Traceback" not in done.stderr


async def test_certificate_is_used(world, tmp_path):
    files = [str(tmp_path / name) for name in ("key.pem", "cert.pem")]
    made = "req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -addext subjectAltName=DNS:localhost"
    command = [need_program("openssl"), *made.split(), "-keyout", files[0], "-out", files[1]]
    subprocess.run(command, check=True, capture_output=True)
    with served(world, "--host", "localhost", "--tls-key", files[0], "--tls-cert", files[1]) as (address, _):
        base, token = split(address)
        trusted = ssl.create_default_context(cafile=files[1])
        async with aiohttp.ClientSession() as session:
            async with session.get(f"{base}/", ssl=trusted) as answer:
                assert answer.status == 200 and base.startswith("https://localhost:")
            url = base.replace("http", "ws") + "/ws"
            async with session.ws_connect(url, origin=base, protocols=("retinue", token), ssl=trusted) as socket:
                assert json.loads((await socket.receive()).data)[0] == "sessions"


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a small disk")
async def test_full_disk_is_explained(mocked):
    with mocked({"text": "word " * 50}) as world:
        folder = world.agent_dir / "retinue"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        mounted = ["mount", "-t", "tmpfs", "-o", "size=64k,mode=0700", "retinue-test", str(folder)]
        if subprocess.run(mounted, capture_output=True, check=False).returncode:
            pytest.skip("cannot mount here")
        try:
            with served(world) as (address, _):
                name = await start(address, "hello")
                (folder / "filler").write_bytes(b"")
                with open(folder / "filler", "wb", buffering=0) as filler:
                    try:
                        while True:
                            filler.write(b"x" * 512)
                    except OSError:
                        pass
                async with listing(address) as (send, hear):
                    await send("say", name, "still there?")
                    is_told = lambda _, rows: "could not be written: No space left" in rows[0]["note"]  # noqa: E731
                    _, rows = await hear("sessions", is_told)
                    assert (rows[0]["id"], rows[0]["isOpen"]) == (name, True)
                    await send("start", "another")  # works, although nothing about it can be stored
                    (other,) = await hear("started")
                    await hear("sessions", lambda _, rows: {row["id"] for row in rows} == {name, other})
                (folder / "filler").unlink()
        finally:
            subprocess.run(["umount", "-l", str(folder)], check=False)


def read_memory_mb(pid):
    return int(Path(f"/proc/{pid}/status").read_text().partition("VmRSS:")[2].split()[0]) / 1024


@pytest.mark.timeout(600)
@pytest.mark.parametrize("sessions, agents", [(2, 4), pytest.param(20, 50, marks=pytest.mark.slow)])
async def test_many_sessions_with_many_agents(mocked, sessions, agents):
    jobs = [call("Agent", prompt="look", description=f"job {n}", subagent_type="Explore") for n in range(agents)]
    replies = [
        {"match": {"last_user": "^begin$"}, "calls": jobs},
        {"match": {"last_user": "^begin$"}, "text": "They are on it."},
        {"match": {"last_user": "^look$"}, "text": "seen", "delay_ms": 300},
        {"match": {"last_user": "notification"}, "text": "All done."},
    ]
    with mocked(*replies) as world, served(world) as (address, process):
        names = {await start(address, "begin") for _ in range(sessions)}
        rows = []
        async with asyncio.timeout(500):
            while not rows or not all(row["state"] == "finished" for row in rows):
                await asyncio.sleep(0.5)
                async with listing(address) as (_, hear):
                    _, rows = await hear("sessions")
        assert {row["id"] for row in rows} == names
        files = [Path(row["file"]) for row in rows]
        assert [len(list(file.with_suffix("").glob("*/session.jsonl"))) for file in files] == [agents] * sessions
        assert read_memory_mb(process.pid) < 150 and max(read_memory_mb(row["pid"]) for row in rows) < 250
