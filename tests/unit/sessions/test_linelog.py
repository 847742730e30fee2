import stat
from pathlib import Path

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
