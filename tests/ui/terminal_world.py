"""The real program in a real terminal, with the mock server for a model: shared by the tests of the terminal."""

import itertools
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from retinue.testing.process import fresh_home
from tests.terminal import open_terminal

PROGRAM = [sys.executable, "-m", "retinue"]
TMUX = shutil.which("tmux")
PROMPT = "╭"


def call(name, **arguments):
    return {"name": name, "arguments": arguments}


class World:
    """A home, a folder to work in, and a terminal there."""

    def __init__(self, root: Path, server=None):
        self.server = server
        self.home = fresh_home(root, None if server is None else server.models_json())
        self.agent_dir = self.home / ".pi" / "agent"
        self.work = root / "work"
        self.work.mkdir()
        kept = {name: os.environ[name] for name in ("PATH", "TMPDIR", "VIRTUAL_ENV") if name in os.environ}
        self.environment = {
            **kept,
            "HOME": str(self.home),
            "PI_CODING_AGENT_DIR": str(self.agent_dir),
            "RETINUE_NO_LOCAL": "1",
            "GIT_CONFIG_NOSYSTEM": "1",
            "PYTHONFAULTHANDLER": "1",
            "TERM": "xterm-256color",
            "LANG": "C.UTF-8",
        }
        self.model = ["--model", "offline/rules" if server is None else "mock/mock-1"]

    def open(self, *arguments, env=None, before=(), columns=100, rows=30):
        """The program in a pty: every byte, and how the terminal is left."""
        words = [*before, *PROGRAM, *self.model, *arguments]
        return open_terminal(words, self.work, {**self.environment, **(env or {})}, columns=columns, rows=rows)

    def tmux(self, *arguments, columns=100, rows=30, style=""):
        """The program in tmux: what a person sees. `style` is that of the window, such as `bg=#ffffff`."""
        return Tmux(self, arguments, columns, rows, style)

    def find_left_behind(self):
        """Processes that still have this home."""
        mark = f"HOME={self.home}".encode()
        return [pid for pid in os.listdir("/proc") if pid.isdigit() and mark in read(f"/proc/{pid}/environ")]

    def wait_until_alone(self, timeout_s=20):
        deadline = time.monotonic() + timeout_s
        while (left := self.find_left_behind()) and time.monotonic() < deadline:
            time.sleep(0.02)
        return [read(f"/proc/{pid}/cmdline") for pid in left]


def read(path):
    try:
        return Path(path).read_bytes()
    except OSError:
        return b""


_COUNT = itertools.count()


class Tmux:
    """One window with a shell that runs the program; how it ended stands in files beside."""

    def __init__(self, world, arguments, columns, rows, style=""):
        if TMUX is None:
            if os.environ.get("CI"):
                pytest.fail("tmux is missing; .ci/run installs it")
            pytest.skip("tmux is not installed")
        # A new session on the socket of a server that is just ending would end with it.
        self._world, self._socket = world, world.home.parent / f"tmux{next(_COUNT)}"
        script = self.build_script([*PROGRAM, *world.model, *arguments])
        begin = ("new-session", "-d", "-x", str(columns), "-y", str(rows), script)
        self._run(*begin, *((";", "set", "-g", "window-style", style) if style else ()), cwd=world.work)

    def build_script(self, words):
        line = " ".join(f"'{word}'" for word in words)
        return f"stty -g >../before; {line}; echo $? >../status; stty -g >../after; exec cat"

    def __enter__(self):
        self.see(PROMPT)
        return self

    def __exit__(self, *error):
        self._run("kill-server")

    def _run(self, *words, cwd=None):
        environment = {**self._world.environment, "TMUX_TMPDIR": str(self._world.home.parent)}
        command = [TMUX, "-S", str(self._socket), "-f", "/dev/null", *words]
        done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=40)
        return done.stdout

    def keys(self, *names):
        """Press keys by tmux's names for them; other words are typed."""
        self._run("send-keys", *names)

    def say(self, text):
        self._run("send-keys", "-l", text)
        self.see(text[-20:])
        self._run("send-keys", "Enter")

    def click(self, words, *, drag=0):
        """Press and release the left button on words of the screen, as a terminal tells it; `drag`: columns between."""
        lines = self.see(words).splitlines()
        row = next(at for at, line in enumerate(lines) if words in line)
        column = lines[row].index(words) + 1
        for code, x, end in ((0, column, "M"), *(((32, column + drag, "M"),) if drag else ()), (0, column + drag, "m")):
            told = f"\x1b[<{code};{x};{row + 1}{end}"
            self._run("send-keys", "-H", *(f"{byte:02x}" for byte in told.encode()))

    def resize(self, columns, rows):
        self._run("resize-window", "-x", str(columns), "-y", str(rows))

    @property
    def screen(self):
        return self._run("capture-pane", "-p")

    @property
    def is_rung(self):
        return self._run("display-message", "-p", "#{window_bell_flag}").strip() == "1"

    @property
    def colours(self):
        """The screen with the sequences that colour it."""
        return self._run("capture-pane", "-p", "-e")

    @property
    def state(self):
        """Whether the other screen, the cursor and the mouse are on."""
        return self._run("display-message", "-p", "#{alternate_on} #{cursor_flag} #{mouse_any_flag}").strip()

    def see(self, wanted, timeout_s=40):
        """Wait until something is on the screen, and give the screen back."""
        return self.wait(lambda screen: wanted in screen, f"{wanted!r} is not there", timeout_s)

    def miss(self, wanted, timeout_s=40):
        """Wait until something is not on the screen any more."""
        return self.wait(lambda screen: wanted not in screen, f"{wanted!r} is still there", timeout_s)

    def wait(self, is_there, complaint, timeout_s=40):
        deadline = time.monotonic() + timeout_s
        while not is_there(screen := self.screen):
            if time.monotonic() > deadline:
                pytest.fail(f"{complaint}:\n{screen}")
            time.sleep(0.03)
        return screen

    def end(self, timeout_s=40):
        """Wait for the program's end: its status, and whether the terminal is as it was."""
        status, after = self._world.home.parent / "status", self._world.home.parent / "after"
        deadline = time.monotonic() + timeout_s
        while not (after.exists() and after.read_text()):
            if time.monotonic() > deadline:
                pytest.fail(f"it has not ended:\n{self.screen}")
            time.sleep(0.03)
        is_same = after.read_text() == (after.parent / "before").read_text()
        return int(status.read_text()), is_same, self.state
