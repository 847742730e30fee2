import errno
import os
import socket
from pathlib import Path

import pytest

from retinue.core.errors import SessionError, SessionNotFound
from retinue.core.messages import UserMessage
from retinue.sessions.files import Files
from retinue.sessions.log import Session
from retinue.sessions.store import open_descriptor
from retinue.sessions.tree import SessionTree
from retinue.testing.clock import FakeClock

TORN = b'{"type":"message","id":"torn'


class Disk(Files):
    """Refuses what `codes` names, by operation; `takes` so much of what is written."""

    def __init__(self, takes: int | None = None, **codes: int) -> None:
        self.takes, self.codes = takes, codes
        self.synced: list[int] = []

    def _check(self, operation: str) -> None:
        if operation in self.codes:
            raise OSError(self.codes[operation], os.strerror(self.codes[operation]))

    def open(self, path: Path, flags: int, mode: int = 0o600) -> int:
        self._check("open" if flags & os.O_RDWR else "read")
        return super().open(path, flags, mode)

    def pread(self, fd: int, length: int, offset: int) -> bytes:
        self._check("pread")
        return super().pread(fd, length, offset)

    def write(self, fd: int, data: bytes) -> int:
        self._check("write")
        return super().write(fd, data[: self.takes])

    def sync(self, fd: int) -> None:
        self.synced.append(os.fstat(fd).st_ino)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    session = Session.create(cwd="/", directory=None, path=tmp_path / "s.jsonl", clock=FakeClock(), new_id=lambda: "s")
    session.append_message(UserMessage("one", 1))
    session.close()
    return tmp_path / "s.jsonl"


def open_session(path: Path, disk: Files | None = None) -> Session:
    return Session.open(path, clock=FakeClock(), new_id=lambda: "two", tree=SessionTree(disk))


@pytest.mark.parametrize("code", [errno.EACCES, errno.EPERM, errno.EROFS])
def test_file_that_cannot_be_written_is_read(path: Path, code: int) -> None:
    session = open_session(path, Disk(open=code))
    assert session.read_only == f"the file cannot be written ({os.strerror(code)})"
    assert session.context().messages == [UserMessage("one", 1)]
    session.close()


@pytest.mark.parametrize(
    ("codes", "told"),
    [
        ({"open": errno.EACCES, "read": errno.EACCES}, "cannot open session .*s.jsonl: Permission denied"),
        ({"open": errno.EIO}, "cannot open session .*s.jsonl: Input/output error"),
        ({"pread": errno.EIO}, "cannot read session .*s.jsonl: Input/output error"),
    ],
)
def test_failure_is_told(path: Path, codes: dict[str, int], told: str) -> None:
    with pytest.raises(SessionError, match=told):
        open_session(path, Disk(**codes))


def test_other_things_are_no_sessions(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to("loop")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "socket"))
        for reason in ("", "it is read"):
            told = []
            for place in (tmp_path, tmp_path / "pipe", tmp_path / "socket", Path("/dev/null")):
                with pytest.raises(SessionError, match="is not a session file: it is ") as refusal:
                    open_descriptor(place, SessionTree(), reason)
                told.append(str(refusal.value).partition(": it is ")[2])
            folder = "a directory" if reason else "a directory or a socket"
            assert told == [folder, "a pipe", "a directory or a socket", "a device"]
            for name in ("none", "loop", "pipe/x", "x" * 300, "a\0b"):
                with pytest.raises(SessionNotFound, match="there is no session file"):
                    open_descriptor(tmp_path / name, SessionTree(), reason)


def test_file_that_is_no_session_is_left(tmp_path: Path) -> None:
    (tmp_path / "notes.jsonl").write_bytes(b"my notes\n")
    with pytest.raises(SessionError, match="none of its lines is a session entry; it was left unchanged"):
        open_session(tmp_path / "notes.jsonl")
    assert (tmp_path / "notes.jsonl").read_bytes() == b"my notes\n"


def test_torn_end_is_kept_aside_before_it_is_cut(path: Path) -> None:
    sound, side = path.read_bytes(), path.with_name("s.jsonl.damaged")
    before = len(os.listdir("/proc/self/fd"))
    for count in (1, 2):
        path.write_bytes(sound + TORN)
        disk = Disk()
        session = open_session(path, disk)
        assert (path.read_bytes(), side.read_bytes()) == (sound, (TORN + b"\n") * count)
        assert (session.damage.saved_to, disk.synced) == (side.name, [side.stat().st_ino])
        session.close()
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("disk", [Disk(takes=5), Disk(write=errno.ENOSPC)])
def test_torn_end_that_cannot_be_kept_is_not_cut(path: Path, disk: Disk) -> None:
    whole = path.read_bytes() + TORN
    path.write_bytes(whole)
    session = open_session(path, disk)
    assert (path.read_bytes(), session.damage.saved_to, len(session)) == (whole, "", 1)
    disk.takes, disk.codes = None, {}
    session.append_message(UserMessage("two", 1))
    assert path.read_bytes().startswith(whole + b'\n{"type":"message"')
    session.close()


def test_block_of_nothing_is_cut_without_a_side_file(path: Path) -> None:
    sound = path.read_bytes()
    path.write_bytes(sound + b"\0" * 9)
    open_session(path).close()
    assert (path.read_bytes(), path.with_name("s.jsonl.damaged").exists()) == (sound, False)


def test_last_line_is_ended(path: Path) -> None:
    sound = path.read_bytes()
    path.write_bytes(sound[:-1])
    session = open_session(path)
    assert path.read_bytes() == sound
    session.append_message(UserMessage("two", 1))
    assert path.read_bytes().startswith(sound + b'{"type":"message"')
    session.close()
    path.write_bytes(sound[:-1])
    disk = Disk(takes=0)
    session = open_session(path, disk)
    disk.takes = None
    session.append_message(UserMessage("two", 1))
    assert path.read_bytes().startswith(sound + b'{"type":"message"')
    session.close()
