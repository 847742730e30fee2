import asyncio
import json
import os
import time

import pytest

from retinue import Request, Retinue
from retinue.core.events import ToolFinished
from retinue.core.messages import TextContent
from tests.flows.lsp_world import FOUND, World, fail

TIMEOUT = (False, "action: definition\nTimeout: LSP server did not respond. Try again.", {"timeout": True})


def find_marked(mark: str) -> list[str]:
    """The processes of this machine that were started with a word in their environment."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                if mark.encode() in file.read():
                    found.append(pid)
        except OSError:
            continue
    return found


async def test_server_answers(tmp_path):
    async with World(tmp_path).open() as world:
        assert await world.define() == FOUND


async def test_partial_frames_are_joined(tmp_path):
    slow = """
    def send(**message):
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        for byte in b"Content-Type: x\\r\\ncontent-length:%d\\r\\n\\r\\n" % len(body) + body:
            sys.stdout.buffer.write(bytes([byte]))
            sys.stdout.buffer.flush()
    """
    async with World(tmp_path, slow).open() as world:
        assert await world.define() == FOUND


async def test_crash_at_start_opens_circuit(tmp_path):
    async with World(tmp_path, 'note("begun"); sys.exit("no licence\\nnone at all")').open() as world:
        answers = [await world.define() for _ in range(6)]
    reason = "it exited with status 1: none at all"
    gone = fail(f"gopls server: gave up after 3 restarts: {reason}")
    assert answers == [fail(f"gopls server: {reason}")] * 4 + [gone] * 2
    assert world.notes == ["begun"] * 4


async def test_exit_at_once_is_told(tmp_path):
    async with World(tmp_path, "sys.exit(0)").open() as world:
        assert await world.define() == fail("gopls server: it exited with status 0")


async def test_given_up_server_is_tried_later(tmp_path):
    async with World(tmp_path, 'note("begun"); sys.exit(1)').open(restarts=0, rest_s=0.05) as world:
        await world.define()
        await world.define()
        await asyncio.sleep(0.06)
        await world.define()
    assert world.notes == ["begun"] * 2


async def test_silent_start_is_given_up(tmp_path):
    async with World(tmp_path, "def initialize(message): pass").open(init_s=0.3) as world:
        assert await world.define() == fail("gopls server: it was not ready within 0.3 s")


async def test_error_flood_harms_nobody(tmp_path):
    flood = """
    import threading
    def pour():
        while True:
            os.write(2, b"x" * 65536)
    threading.Thread(target=pour, daemon=True).start()
    """
    async with World(tmp_path, flood).open() as world:
        assert await world.define() == FOUND


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ("hello world\\n" * 500, r"no header but 'hello world\nhello world\nhello world\nhell'"),
        ("Content-Length: 99999999999\\r\\n\\r\\n", "a message of '99999999999' bytes"),
        ("Content-Type: x\\r\\n\\r\\n", "a header without a length: 'Content-Type: x'"),
        ("Content-Length: 2\\r\\n\\r\\n[]", "a message that is not an object"),
    ],
)
async def test_wrong_protocol_is_told(tmp_path, said, reason):
    async with World(tmp_path, f'print("{said}", end="", flush=True)\ntime.sleep(60)').open() as world:
        expected = f"gopls server: it does not speak the protocol: it sent {reason}"
        assert await world.define() == fail(expected)


async def test_answer_without_capabilities_fails(tmp_path):
    async with World(tmp_path, "def initialize(message): answer(message, 5)").open() as world:
        assert await world.define() == fail("gopls server: it does not say what it can do")


async def test_crashed_call_is_not_repeated(tmp_path):
    crash = """
    def ask(message):
        note("asked")
        os.kill(os.getpid(), 9)
    """
    async with World(tmp_path, crash).open() as world:
        assert await world.define() == fail("gopls server: it was killed by SIGKILL")
    assert world.notes == ["start", "asked"]


async def test_killed_server_starts_again(tmp_path):
    crash = """
    def ask(message):
        if not os.path.exists("once"):
            open("once", "w")
            sys.exit(3)
        answer(message, [])
    """
    async with World(tmp_path, crash).open() as world:
        assert (await world.define())[1] == "gopls server: it exited with status 3"
        assert (await world.define())[1] == "action: definition\nNo definition found."
    assert world.notes == ["start"] * 2


async def test_silent_request_times_out(tmp_path):
    async with World(tmp_path, "def ask(message): pass").open(request_s=0.2) as world:
        assert await world.define() == TIMEOUT


async def test_cancelled_request_is_taken_back(tmp_path):
    silent = """
    def ask(message):
        note("asked")
    def hear(message):
        note(message["method"])
    """
    async with World(tmp_path, silent).open() as world:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await world.define()
        while "$/cancelRequest" not in world.notes:
            await asyncio.sleep(0.01)
        assert world.notes == ["start", "initialized", "textDocument/didOpen", "asked", "$/cancelRequest"]


async def test_error_of_server_is_told(tmp_path):
    refuse = 'def ask(message): send(id=message["id"], error={"code": -1, "message": "not today"})'
    async with World(tmp_path, refuse).open() as world:
        assert await world.define() == fail("gopls server: the server says 'not today'")


async def test_many_callers_share_one_server(tmp_path):
    async with World(tmp_path).open() as world:
        answers = await asyncio.gather(*(world.define() for _ in range(50)))
        assert answers == [FOUND] * 50
    assert world.notes == ["start"]


async def test_nothing_is_left_of_its_children(tmp_path):
    mark = f"RETINUE_LEFT={tmp_path.name}"
    spawn = f"""
    import subprocess
    os.environ["RETINUE_LEFT"] = "{tmp_path.name}"
    for _ in range(3):
        subprocess.Popen(["sleep", "300"], start_new_session=True)
    """
    async with World(tmp_path, spawn).open() as world:
        assert await world.define() == FOUND
        assert len(find_marked(mark)) == 3
    async with asyncio.timeout(20):
        # The kernel ends the rest of a namespace a moment after its first process.
        while find_marked(mark):
            await asyncio.sleep(0.01)


async def test_hanging_end_is_short(tmp_path):
    stubborn = """
    import signal
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    def shutdown(message): pass
    def leave():
        time.sleep(300)
    """
    async with World(tmp_path, stubborn).open() as world:
        assert await world.define() == FOUND
        begun_s = time.monotonic()
        await world.pool.close()
        assert time.monotonic() - begun_s < 2


async def test_close_ends_a_start(tmp_path):
    async with World(tmp_path, "def initialize(message): pass").open() as world:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await world.define()
        begun_s = time.monotonic()
        await world.pool.close()
        assert time.monotonic() - begun_s < 2


async def test_idle_server_is_shut_down(tmp_path):
    async with World(tmp_path, 'def shutdown(message):\n    note("bye")\n    answer(message, None)').open(
        unused_s=0.1
    ) as world:
        assert await world.define() == FOUND
        while world.pool.list_sessions():
            await asyncio.sleep(0.01)
        assert await world.define() == FOUND
    assert world.notes == ["start", "bye", "start", "bye"]


async def test_idle_files_are_closed(tmp_path):
    tell = 'def hear(message): note(message["method"].rpartition("/")[2])'
    async with World(tmp_path, tell).open(file_unused_s=0.1) as world:
        await world.define()
        while "didClose" not in world.notes:
            await asyncio.sleep(0.01)
        await world.define()
        assert world.notes == ["start", "initialized", "didOpen", "didClose", "didOpen"]


async def test_few_files_are_open(tmp_path):
    tell = 'def hear(message): note(message["method"].rpartition("/")[2])'
    async with World(tmp_path, tell).open() as world:
        for number in range(35):
            (world.work / f"f{number}.go").write_text("package a\n")
            await world.define(file=f"f{number}.go")
        (session,) = world.pool.list_sessions()
        assert (len(session.documents), world.notes.count("didOpen"), world.notes.count("didClose")) == (30, 35, 5)


async def test_server_sees_file_as_it_is(tmp_path):
    tell = """
    def hear(message):
        params = message.get("params") or {}
        change = params.get("contentChanges") or [params.get("textDocument", {})]
        if "text" in change[0]:
            note(change[0]["text"].strip().replace("\\n", "|"))
    """
    async with World(tmp_path, tell).open() as world:
        await world.define()
        await world.define()
        world.file.write_text("package b\n")
        await world.define()
        assert world.notes == ["start", "package a||func greet() {}", "package b"]


async def test_server_hears_of_other_files(tmp_path, monkeypatch):
    monkeypatch.setattr("retinue.tools.lsp.session.WATCH_S", 0)
    tell = """
    def hear(message):
        for change in (message.get("params") or {}).get("changes", ()):
            note(f"{change['type']} {change['uri'].rpartition('/')[2]}")
    """
    async with World(tmp_path, tell).open() as world:
        (world.work / "old.go").write_text("package a\n")
        (world.work / "node_modules").mkdir()
        await world.define()
        (world.work / "new.go").write_text("package a\n")
        (world.work / "node_modules" / "x.go").write_text("package x\n")
        (world.work / "old.go").unlink()
        await world.define()
        assert sorted(world.notes) == ["1 new.go", "3 old.go", "start"]


async def test_wishes_of_server_are_refused(tmp_path):
    wish = """
    def ask(message):
        global asked
        asked = message
        edit = {"changes": {message["params"]["textDocument"]["uri"]: [{"range": place(0), "newText": "x"}]}}
        send(id="w1", method="workspace/applyEdit", params={"edit": edit})
        send(id="w2", method="workspace/configuration", params={"items": [1, 2]})
        send(id="w3", method="workspace/configuration", params=None)
        send(id="w4", method="evil/method", params=None)
        while (reply := read())["id"] != "w4":
            note(json.dumps(reply.get("result", reply.get("error", {}).get("code"))))
        note(str(reply["error"]["code"]))
        answer(message, [])
    """
    async with World(tmp_path, wish).open() as world:
        assert (await world.define())[1] == "action: definition\nNo definition found."
        refused = '{"applied": false, "failureReason": "nothing is changed here"}'
        assert world.notes == ["start", refused, "[null, null]", "-32603", "-32601"]


async def test_server_that_does_not_read(tmp_path):
    deaf = """
    def initialize(message):
        answer(message, {"capabilities": CAN})
        time.sleep(300)
    """
    async with World(tmp_path, deaf).open(request_s=0.2) as world:
        world.file.write_text("// " + "x" * 1_000_000)
        assert await world.define() == TIMEOUT


async def test_longest_idle_server_makes_room(tmp_path):
    async with World(tmp_path).open(servers=2) as world:
        for name in ("one", "two", "three"):
            (world.work / name).mkdir()
            (world.work / name / "go.mod").touch()
            (world.work / name / "a.go").write_text("package a\n")
            await world.define(file=f"{name}/a.go")
        roots = sorted(session.root.rpartition("/")[2] for session in world.pool.list_sessions())
        assert roots == ["three", "two"]


async def test_busy_servers_are_not_too_many(tmp_path):
    async with World(tmp_path, "def ask(message): pass").open(servers=1, request_s=1) as world:
        (world.work / "two").mkdir()
        (world.work / "two" / "go.mod").touch()
        (world.work / "two" / "a.go").write_text("package a\n")
        async with asyncio.TaskGroup() as group:
            first = group.create_task(world.define())
            while not any(session.is_busy for session in world.pool.list_sessions()):
                await asyncio.sleep(0.01)
            text = "1 language servers are at work, which is the limit; try again later"
            assert await world.define(file="two/a.go") == fail(text)
        assert first.result() == TIMEOUT


async def test_aborted_question_is_cancelled(tmp_path, monkeypatch):
    world = World(tmp_path, "def note(text): pass\ndef ask(message): open('asked', 'w').close()")
    monkeypatch.setenv("PATH", world.ground.environment["PATH"])
    call = {"name": "lsp", "arguments": {"action": "definition", "file": "a.go", "line": 1, "column": 1}}
    (tmp_path / "script.json").write_text(json.dumps({"replies": [{"calls": [call]}, {"text": "never"}]}))
    results = []
    async with Retinue(world.work, model=f"scripted/{tmp_path}/script.json", request=Request(approve=True)) as crew:
        crew.listen(lambda event: results.append(event.result) if isinstance(event, ToolFinished) else None)
        async with asyncio.TaskGroup() as group:
            group.create_task(crew.prompt("begin"))
            async with asyncio.timeout(8):
                while not (world.work / "asked").exists() and not results:
                    await asyncio.sleep(0.01)
            crew.abort()
    [result] = results
    assert (result.content, result.details, result.is_error) == ([TextContent("Cancelled")], {"cancelled": True}, False)
