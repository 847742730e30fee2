import os
import sys

import pytest

from retinue.sandbox.server import SYSTEM_PYTHONS, ForkedProcess, find_python


def open_remote() -> tuple[ForkedProcess, int]:
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    return ForkedProcess(reading), writing


def test_command_is_heard_line_by_line() -> None:
    remote, told = open_remote()
    seen = [(remote.pid, remote.poll())]
    for data in (b"pid 1", b"2\nex", b"it 3\n"):
        os.write(told, data)
        seen.append((remote.pid, remote.poll()))
    assert seen == [(0, None), (0, None), (12, None), (12, 3)]
    remote.close()
    os.close(told)


def test_killed_warden_counts_as_a_kill() -> None:
    remote, told = open_remote()
    os.write(told, b"pid 12\n")
    os.close(told)
    assert (remote.pid, remote.poll()) == (12, -9)
    remote.close()


def test_failure_is_raised() -> None:
    remote, told = open_remote()
    os.write(told, b"error no such program\n")
    with pytest.raises(OSError, match=r"^no such program$"):
        remote.poll()
    remote.close()
    os.close(told)


def test_closed_pipe_is_closed_once() -> None:
    remote, told = open_remote()
    number = remote.fileno()
    remote.close()
    with pytest.raises(BrokenPipeError):
        os.write(told, b"x")
    taken = os.open(os.devnull, os.O_RDONLY)
    remote.close()
    assert (taken, os.fstat(taken).st_rdev, remote.poll()) == (number, os.stat(os.devnull).st_rdev, None)
    os.close(taken)
    os.close(told)


def test_own_python_is_preferred(monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_python() == sys.executable
    monkeypatch.setattr(sys, "executable", "/missing/python")
    assert find_python() in (*SYSTEM_PYTHONS, "/missing/python")
