"""Runs a program in a pseudo-terminal: sends keys, keeps all output, and checks the terminal's state.

It renders nothing, and answers only the query about synchronized output, which separates frames.
"""

import fcntl
import os
import pty
import select
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

FRAME = b"\x1b[?2026h"
"""Starts each frame once the program knows that the terminal supports synchronized output."""
_QUESTION, _ANSWER = b"\x1b[?2026$p", b"\x1b[?2026;2$y"


class Terminal:
    def __init__(self, process: subprocess.Popen[bytes], leader: int) -> None:
        self.process = process
        self.leader = leader
        self.first_attributes: list[Any] = []
        """The terminal attributes before the program started."""
        self.output = bytearray()
        self.begun_s = time.perf_counter()
        self._is_asked = False

    def read(self, seconds: float) -> bytes:
        """Read output for some seconds; ends early when the program does."""
        begun, start = time.perf_counter(), len(self.output)
        while (left := seconds - (time.perf_counter() - begun)) > 0:
            if not self._pump(left):
                break
        return bytes(self.output[start:])

    def wait_for(self, wanted: bytes | str, timeout_s: float = 40, *, since: int = 0) -> float:
        """Read until the output contains something; return the seconds it took. Raises TimeoutError."""
        data = wanted.encode() if isinstance(wanted, str) else wanted
        begun, looked = time.perf_counter(), since
        while True:
            if self.output.find(data, max(since, looked - len(data))) >= 0:
                return time.perf_counter() - begun
            looked = len(self.output)
            left = timeout_s - (time.perf_counter() - begun)
            if not self._pump(min(left, 0.1)) and (left <= 0 or self.process.poll() is not None):
                raise TimeoutError(f"{wanted!r} did not come; the end of what did: {bytes(self.output[-2000:])!r}")

    def type(self, text: bytes | str) -> None:
        os.write(self.leader, text.encode() if isinstance(text, str) else text)

    def resize(self, columns: int, rows: int) -> None:
        fcntl.ioctl(self.leader, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def hang_up(self) -> None:
        """Close the terminal."""
        if self.leader >= 0:
            os.close(self.leader)
            self.leader = -1

    def wait(self, timeout_s: float = 40) -> int:
        """Wait for the program to exit while reading its output; return the status, negative for a signal."""
        begun = time.perf_counter()
        while self.process.poll() is None:
            if time.perf_counter() - begun > timeout_s:
                raise TimeoutError(f"still running after {timeout_s} s: {bytes(self.output[-500:])!r}")
            if self.leader < 0 or not self._pump(0.02):
                time.sleep(0.005)
        while self.leader >= 0 and self._pump(0):
            pass
        return self.process.returncode

    @property
    def attributes(self) -> list[Any]:
        """The terminal attributes, as `stty -a` shows them."""
        return termios.tcgetattr(self.leader)

    @property
    def modes(self) -> dict[int, bool]:
        """The private modes as last set: 25 cursor, 1049 alternate screen, 1000 mouse…"""
        found: dict[int, bool] = {}
        for part in bytes(self.output).split(b"\x1b[?")[1:]:
            digits = part[: len(part) - len(part.lstrip(b"0123456789;"))]
            end = part[len(digits) : len(digits) + 1]
            if end in (b"h", b"l"):
                found.update({int(mode): end == b"h" for mode in digits.split(b";") if mode})
        return found

    def close(self) -> None:
        """Kill the program if it still runs."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.hang_up()

    def _pump(self, seconds: float) -> bool:
        """Read once; return False if there was no output."""
        ready, _, _ = select.select([self.leader], [], [], max(0.0, seconds))
        if not ready:
            return False
        data = os.read(self.leader, 1 << 16)
        self.output += data
        if not self._is_asked and self.output.find(_QUESTION, max(0, len(self.output) - len(data) - 16)) >= 0:
            self._is_asked = True
            os.write(self.leader, _ANSWER)
        return bool(data)


def start_there(command: Sequence[str], cwd: Path, env: Mapping[str, str], terminal: str) -> "subprocess.Popen[bytes]":
    """Start a program as the leader of a session in this terminal."""
    # A new session leader gets the first terminal it opens as its controlling terminal.
    script = 'tty=$1; shift; exec "$@" <"$tty" >"$tty" 2>&1'
    words = ["/bin/sh", "-c", script, "sh", terminal, *command]
    return subprocess.Popen(words, cwd=cwd, env=env, start_new_session=True)


start: Callable[..., "subprocess.Popen[bytes]"] = start_there
"""Starts the program; can be replaced by a faster way."""


@contextmanager
def open_terminal(
    command: Sequence[str], cwd: Path, env: Mapping[str, str], *, columns: int = 100, rows: int = 30
) -> Iterator[Terminal]:
    """Start a program in a terminal; it is killed at the end if it still runs."""
    leader, follower = pty.openpty()
    fcntl.ioctl(leader, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    before = termios.tcgetattr(leader)
    with start(command, cwd, dict(env), os.ttyname(follower)) as process:
        terminal = Terminal(process, leader)
        terminal.first_attributes = before
        try:
            yield terminal
        finally:
            terminal.close()
            os.close(follower)
