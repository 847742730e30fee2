"""Sessions in the background: started with --detach, opened with attach in a real terminal, killed and resumed."""

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from retinue.core.window import Keys, Open, Report, Resize, read_answer, write_line
from retinue.testing import run_cli
from tests.needs import need_backend
from tests.ui.terminal_world import Tmux, call

SLOW = {"text": "one two three FOUR", "chunk_ms": 400, "chunk_chars": 5}


def detach(world, *words):
    done = run_cli(["--detach", *world.model, *words], world.work, world.environment, home=world.home)
    assert done.status == 0, done.stderr
    command, verb, name = done.stdout.split()
    assert (command, verb) == ("retinue", "attach")
    return name


def list_rows(world):
    done = run_cli(["attach", "--list", "--json"], world.work, world.environment, home=world.home)
    return json.loads(done.stdout)["sessions"]


def wait_for(world, is_there, timeout_s=30):
    deadline = time.monotonic() + timeout_s
    while not is_there(rows := list_rows(world)):
        assert time.monotonic() < deadline, rows
        time.sleep(0.05)
    return rows


def end_all(world):
    """Stop what the test has left running."""
    for row in list_rows(world):
        if row["isOpen"]:
            os.kill(row["pid"], signal.SIGTERM)
    wait_for(world, lambda rows: not any(row["isOpen"] for row in rows))


@pytest.fixture
def attach():
    """Open sessions in tmux."""

    def open_window(world, *words, **size):
        for name in ("status", "after"):  # of an earlier window
            (world.home.parent / name).unlink(missing_ok=True)
        world.model, model = ["attach", *words], world.model
        try:
            return world.tmux(**size)
        finally:
            world.model = model

    return open_window


def test_task_goes_on_without_its_window(mocked, attach):
    with mocked(SLOW, {"text": "The second answer."}) as world:
        name = detach(world, "count slowly")
        with attach(world, name) as tmux:
            tmux.see("count slowly")
            tmux.keys("C-d")
            assert tmux.end()[:2] == (0, True)
            assert f"retinue attach {name}" in tmux.screen
        wait_for(world, lambda rows: rows[0]["state"] == "finished" and rows[0]["isOpen"])
        with attach(world) as tmux:  # the only one needs no name
            tmux.see("FOUR")
            tmux.say("and again")
            tmux.see("The second answer.")
            tmux.keys("C-d")  # nothing is left to do, so the session ends
            assert tmux.end()[:2] == (0, True)
            assert "The second answer." in tmux.screen and "retinue --session" in tmux.screen
        row = wait_for(world, lambda rows: not rows[0]["isOpen"])[0]
        assert (row["id"], row["state"], row["isOpen"], row["title"]) == (name, "finished", False, "count slowly")
        with attach(world, name) as tmux:  # resumed under the same id
            tmux.see("FOUR")
            tmux.keys("C-d")
            assert tmux.end()[:2] == (0, True)


def test_two_windows_show_the_same(mocked, attach):
    with mocked({"text": "SAME ANSWER"}) as world:
        detach(world, "hello")
        with attach(world, columns=110, rows=35) as wide, attach(world, columns=70, rows=25) as narrow:
            narrow.see("SAME ANSWER")
            wide.wait(lambda screen: "╭" in screen and max(map(len, screen.splitlines())) <= 70, "not as narrow")
            narrow.keys("some words")
            wide.see("some words")
            narrow.keys("C-c")
            wide.miss("some words")
            narrow.keys("C-d")
            wide.wait(lambda screen: max(map(len, screen.splitlines())) > 100, "not as wide again")
            wide.see("SAME ANSWER")
        end_all(world)


def test_closed_terminal_only_detaches(mocked, attach):
    with mocked({"text": "still here"}) as world:
        detach(world, "hello")
        with attach(world) as tmux:
            tmux.see("still here")
            tmux.keys("a draft")
            tmux.see("a draft")
        with attach(world) as tmux:
            tmux.see("a draft")
            tmux.keys("C-\\")
            assert tmux.end()[:2] == (0, True)
        end_all(world)


def test_killed_session_is_lost_and_resumed(mocked, attach):
    begin = {"match": {"last_user": "^hello"}, "text": "before the end", "calls": [call("bash", command="true")]}
    after = {"match": {"last_user": "^go on"}, "text": "after it"}
    with mocked(begin, after, {"text": "never", "delay_ms": 60_000}) as world:
        models = json.loads((world.agent_dir / "models.json").read_text())
        price = {"input": 9000, "output": 9000, "cacheRead": 0, "cacheWrite": 0}
        models["providers"]["mock"]["models"][0]["cost"] = price
        (world.agent_dir / "models.json").write_text(json.dumps(models))
        name = detach(world, "hello")
        before = wait_for(world, lambda rows: rows[0]["cost"] > 0)[0]
        os.kill(before["pid"], signal.SIGKILL)
        rows = wait_for(world, lambda rows: rows[0]["state"] == "lost")
        assert (rows[0]["id"], rows[0]["isOpen"], rows[0]["cost"]) == (name, False, before["cost"])
        assert "can be resumed" in rows[0]["note"]
        with attach(world, name) as tmux:
            tmux.see("before the end")
            tmux.say("go on")
            tmux.see("after it")
        end_all(world)


def test_second_process_changes_nothing(mocked):
    with mocked({"text": "still here"}) as world:
        name = detach(world, "hello")
        wait_for(world, lambda rows: rows[0]["state"] == "finished")
        done = run_cli(world.model, world.work, {**world.environment, "RETINUE_SERVED": name}, home=world.home)
        assert done.status == 2 and "already runs" in done.stderr
        row = list_rows(world)[0]
        assert (row["id"], row["state"], row["isOpen"]) == (name, "finished", True)
        end_all(world)


def test_terminal_is_restored_without_errors(mocked):
    with mocked({"text": "still here"}) as world:
        name = detach(world, "hello")
        world.model = ["attach", name]
        with SilentTmux(world, (), 100, 30) as tmux:
            tmux.see("still here")
            tmux.keys("C-\\")
            assert tmux.end() == (0, True, "0 1 0")
        end_all(world)


class SilentTmux(Tmux):
    def build_script(self, words):
        return super().build_script(words).replace("; echo", " 2>../errors; echo", 1)


def test_session_closes_when_its_time_is_over(mocked):
    with mocked({"text": "slow", "delay_ms": 30_000}) as world:
        (world.agent_dir / "subagents.json").write_text(json.dumps({"detachedSeconds": 0.5}))
        detach(world, "hello")
        rows = wait_for(world, lambda rows: not rows[0]["isOpen"])
        assert rows[0]["state"] == "finished"


def test_folder_is_not_trusted_without_answer(world):
    (world.work / ".pi" / "extensions").mkdir(parents=True)
    (world.work / ".pi" / "extensions" / "e.py").write_text(f"open({str(world.work / 'RAN')!r}, 'w')\n")
    done = run_cli(["--detach", *world.model, "hello"], world.work, world.environment, home=world.home)
    assert done.status == 0 and "not trusted" in done.stderr and not (world.work / "RAN").exists()
    end_all(world)


@pytest.mark.parametrize(
    "words, text",
    [
        (["--detach"], "the prompt is empty"),
        (["--detach", "--print", "x y"], "contradict"),
        (["--detach", "--model", "mock/none", "x y"], "mock/none"),
        (["attach"], "needs a terminal"),
        (["attach", "--list", "x", "y"], "takes no argument"),
    ],
)
def test_mistakes_are_explained(world, words, text):
    done = run_cli(words, world.work, world.environment, home=world.home)
    assert done.status == 2 and text in done.stderr and "Traceback" not in done.stderr
    assert world.wait_until_alone(10) == []


def test_unknown_session_is_named(world):
    world.model = ["attach", "nothere"]
    with world.open() as terminal:
        assert terminal.wait() == 2 and b"no session in the background is named" in terminal.output


def find_socket(world, name):
    return world.agent_dir / "retinue" / "processes" / f"{name}.sock"


def ask(path, data):
    """What a process answers to raw bytes."""
    with socket.socket(socket.AF_UNIX) as end:
        end.settimeout(10)
        at = os.open(path.parent, os.O_RDONLY)
        end.connect(f"/proc/self/fd/{at}/{path.name}")
        os.close(at)
        end.sendall(data)
        end.shutdown(socket.SHUT_WR)
        answer = b""
        while piece := end.recv(65536):
            answer += piece
        return answer


GARBAGE = [b"\0" * 1000, b"{}\n", b"[]\n", b'{"type":"keys","text":5}\n', b"[" * 50_000 + b"\n", b"x" * 3_000_000]


def test_garbage_ends_its_connection_only(mocked):
    with mocked({"text": "fine"}) as world:
        path = find_socket(world, detach(world, "hello"))
        for data in [*GARBAGE, write_line(Open("browser", 80, 24)) + write_line(Report())]:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it did not want to read all of it
                ask(path, data)
        keys = bytes(range(1, 128)).replace(b"\x03", b"").replace(b"\x04", b"").decode()
        messages = (Open("terminal", 999, 999), Keys(keys), Keys("\x1b[<0;9999;9999M"))
        ask(path, b"".join(map(write_line, messages)))
        record = read_answer(ask(path, write_line(Report())))
        assert (record.state, record.windows) in {("finished", 0), ("running", 0)}
        end_all(world)


def test_slow_window_is_bounded(mocked):
    with mocked({"text": "word " * 200}) as world:
        path = find_socket(world, detach(world, "hello"))
        rows = wait_for(world, lambda rows: rows[0]["state"] == "finished")

        async def stall():
            at = os.open(path.parent, os.O_RDONLY)
            reader, writer = await asyncio.open_unix_connection(f"/proc/self/fd/{at}/{path.name}", limit=2**22)
            reader._transport.pause_reading()
            writer.write(write_line(Open("browser", 400, 200)))
            before = read_memory(rows[0]["pid"])
            for index in range(150):  # each makes it paint everything again
                writer.write(write_line(Resize(400 - index % 2, 200)))
                await asyncio.sleep(0.01)
            grown = read_memory(rows[0]["pid"]) - before
            reader._transport.resume_reading()
            seen = ""
            async with asyncio.timeout(20):
                while "word word" not in seen or "\x1b[?1049h" not in seen[100:]:
                    seen += getattr(read_answer(await reader.readline()), "text", "")
            writer.close()
            return grown

        assert asyncio.run(stall()) < 60_000
        end_all(world)


def read_memory(pid):
    """Resident kilobytes."""
    return int(Path(f"/proc/{pid}/status").read_text().partition("VmRSS:")[2].split()[0])


@pytest.mark.attack("I10")
@pytest.mark.skipif(os.geteuid() != 0, reason="needs two users")
def test_other_user_cannot_connect(mocked):
    with mocked({"text": "mine"}) as world:
        path = find_socket(world, detach(world, "hello"))
        assert (path.parent.stat().st_mode & 0o777, path.stat().st_mode & 0o777) == (0o700, 0o600)
        path.chmod(0o777)  # as if somebody had opened everything
        path.parent.chmod(0o755)
        at = os.open(path.parent, os.O_RDONLY)
        script = (
            "import os, socket; os.setgid(65534); os.setuid(65534); s = socket.socket(socket.AF_UNIX);"
            f"s.connect('/proc/self/fd/{at}/{path.name}'); print(s.recv(9999))"  # it is refused before it asks
        )
        done = subprocess.run([sys.executable, "-c", script], pass_fds=[at], capture_output=True, text=True, timeout=40)
        # The process may close the connection before or after the question arrives.
        is_closed = "refused" in done.stdout or done.stderr.rstrip().endswith(("Broken pipe", "reset by peer"))
        assert is_closed and "record" not in done.stdout, done.stdout + done.stderr
        path.parent.chmod(0o700)
        end_all(world)


@pytest.mark.attack("I10")
def test_agent_cannot_reach_its_own_socket(mocked):
    need_backend("bwrap")
    script = (
        "cd ~/.pi/agent/retinue/processes && for f in *.sock; do python3 -c "
        "\"import socket; s = socket.socket(socket.AF_UNIX); s.connect('$f'); print('CONN' + 'ECTED')\"; done; ls"
    )
    with mocked({"calls": [call("bash", command=script)]}, {"text": "tried"}) as world:
        detach(world, "try it")
        rows = wait_for(world, lambda rows: rows[0]["state"] == "finished")
        text = Path(rows[0]["file"]).read_text()
        assert "tried" in text and "CONNECTED" not in text and ".sock\\n" not in text
        end_all(world)
