import errno
import fcntl
import os
import stat
import time
from pathlib import Path

import pytest

from retinue.sessions.linelog import LineLog


def test_lines_are_kept_and_read(tmp_path: Path) -> None:
    log = LineLog(tmp_path / "logs" / "activity")
    assert log.read(100) == []
    log.append(b"one", b"two", most=1000)
    log.append(b"three", most=1000)
    assert (log.read(100), log.read(8)) == ([b"one", b"two", b"three"], [b"o", b"three"])
    assert stat.S_IMODE(log.path.stat().st_mode) == 0o600


def test_torn_line_is_not_continued(tmp_path: Path) -> None:
    log = LineLog(tmp_path / "log")
    log.path.write_bytes(b"whole\nto")
    log.append(b"next", most=1000)
    assert log.path.read_bytes() == b"whole\nto\nnext\n"


def test_older_half_is_dropped(tmp_path: Path) -> None:
    log = LineLog(tmp_path / "log")
    for number in range(10):
        log.append(b"%03d" % number, most=40)
    assert log.path.read_bytes() == b"".join(b"%03d\n" % number for number in range(10))
    log.append(b"010", most=40)
    # Of the last twenty bytes those from the first whole line on.
    assert log.read(100) == [b"007", b"008", b"009", b"010"]
    assert (stat.S_IMODE(log.path.stat().st_mode), list(tmp_path.iterdir())) == (0o600, [log.path])


def test_what_cannot_be_written_stops_nobody(tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()
    log = LineLog(tmp_path / "log")
    log.append(b"one", most=100)
    log.append(b"two", most=100)
    assert (log.read(100), list((tmp_path / "log").iterdir())) == ([], [])


@pytest.mark.parametrize("start", [b"x", b"\n"])
def test_file_of_one_byte_is_continued_on_a_new_line(tmp_path: Path, start: bytes) -> None:
    log = LineLog(tmp_path / "log")
    log.path.write_bytes(start)
    log.append(b"next", most=1000)
    assert log.path.read_bytes() == start.strip() + b"\nnext\n"


def test_log_that_failed_is_not_tried_again(tmp_path: Path) -> None:
    log = LineLog(tmp_path / "log")
    log.path.mkdir()
    log.append(b"one", most=100)
    log.path.rmdir()
    log.append(b"two", most=100)
    assert not log.path.exists()


def test_log_is_never_a_link_or_a_pipe(tmp_path: Path) -> None:
    (tmp_path / "target").write_bytes(b"kept\n")
    (tmp_path / "link").symlink_to("target")
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    for name in ("link", "pipe"):
        log = LineLog(tmp_path / name)
        log.append(b"one", most=100)
        assert log.read(100) == []
    assert ((tmp_path / "target").read_bytes(), os.read(reader, 99)) == (b"kept\n", b"")
    os.close(reader)


def test_held_log_is_tried_again_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    monkeypatch.setattr(time, "sleep", waits.append)
    log = LineLog(tmp_path / "log")
    log.append(b"one", most=100)
    before = len(os.listdir("/proc/self/fd"))
    with open(log.path) as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        log.append(b"lost", most=100)
    assert (sum(waits), len(os.listdir("/proc/self/fd"))) == (pytest.approx(0.2), before)
    log.append(b"two", most=100)
    assert log.read(100) == [b"one", b"two"]


def test_log_made_anew_meanwhile_is_the_one_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = LineLog(tmp_path / "log")
    log.append(b"one", most=100)
    changes = [lambda: log.path.unlink(), lambda: (tmp_path / "fresh").replace(log.path)]
    (tmp_path / "fresh").write_bytes(b"fresh\n")
    real = fcntl.flock

    def change_first(descriptor: int, operation: int) -> None:
        real(descriptor, operation)
        if changes:
            changes.pop(0)()

    monkeypatch.setattr(fcntl, "flock", change_first)
    log.append(b"two", most=100)
    assert log.path.read_bytes() == b"fresh\ntwo\n"


def test_file_system_without_locks_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    log = LineLog(tmp_path / "log")
    log.append(b"one", most=100)
    assert log.read(100) == [b"one"]


def test_small_log_with_a_long_line_is_emptied(tmp_path: Path) -> None:
    log = LineLog(tmp_path / "log")
    log.append(b"x" * 30, most=20)
    assert log.path.read_bytes() == b""
    log.append(b"ab", b"cd", most=5)
    assert log.path.read_bytes() == b""
    log.append(b"ab", b"cd", most=6)
    assert log.path.read_bytes() == b"ab\ncd\n"
