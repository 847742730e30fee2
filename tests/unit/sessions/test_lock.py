import errno
import fcntl
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from retinue.core.errors import SessionLocked
from retinue.core.messages import UserMessage
from retinue.sessions import lock
from retinue.sessions.files import Files
from retinue.sessions.lock import STALE_AFTER_S, Lock, LockHolder, note_path, read_note, read_start_time
from retinue.sessions.log import Session
from retinue.sessions.tree import SessionTree, find_main
from retinue.testing.clock import FakeClock

HERE = socket.gethostname()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "s.jsonl"
    path.write_bytes(b"")
    return path


@pytest.fixture
def no_flock(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(fd: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(lock, "take_flock", refuse)


def write_note(path: Path, pid: int, host: str = HERE, started: str = "") -> Path:
    note_path(path).write_bytes(msgspec.json.encode(LockHolder(pid, started, host)))
    return note_path(path)


def test_process_is_told_by_its_start() -> None:
    me = LockHolder.me()
    assert (me.pid, me.host, me.is_alive) == (os.getpid(), HERE, True)
    assert [LockHolder(me.pid, "1", host).is_alive for host in (HERE, "elsewhere")] == [False, True]
    assert [LockHolder(pid, "", HERE).is_alive for pid in (me.pid, 2**22 + 1)] == [True, False]
    assert read_start_time(2**22 + 1) == ""


def test_process_of_another_user_is_alive() -> None:
    child = os.fork()
    if child == 0:
        if os.geteuid() == 0:  # who may signal every process
            os.setresuid(61_899, 61_899, 61_899)
        os._exit(0 if LockHolder(1, "", HERE).is_alive else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_start_is_in_ticks_since_boot() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        started_s = int(read_start_time(process.pid)) / os.sysconf("SC_CLK_TCK")
        uptime_s = float(Path("/proc/uptime").read_text().split()[0])
    assert uptime_s - 60 < started_s <= uptime_s


def test_living_holder_is_not_waited_for(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    holder = SessionTree()
    holder.lock(path)
    assert (holder.is_locked, holder.warning) == (True, "")
    monkeypatch.setattr(time, "sleep", lambda seconds: pytest.fail("it waits"))
    with pytest.raises(SessionLocked, match="is being written by another run of this program"):
        SessionTree().lock(path)
    holder.unlock()
    assert (holder.is_locked, note_path(path).exists()) == (False, False)
    SessionTree().lock(path)


def test_refused_lock_leaves_nothing_open(path: Path) -> None:
    holder = SessionTree()
    holder.lock(path)
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        with pytest.raises(SessionLocked):
            SessionTree().lock(path)
    assert len(os.listdir("/proc/self/fd")) == before
    holder.close()
    assert len(os.listdir("/proc/self/fd")) == before - 1


ORPHAN = """
import fcntl, os, sys, time
held = open(sys.argv[1])
fcntl.flock(held, fcntl.LOCK_EX)
if os.fork() == 0:
    print(os.getpid(), flush=True)
    time.sleep(60)
    os._exit(0)
"""


def test_lock_of_a_dead_process_is_waited_for_a_moment(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = subprocess.Popen([sys.executable, "-c", ORPHAN, str(path)], stdout=subprocess.PIPE)
    assert told.stdout is not None
    orphan = int(told.stdout.readline())
    try:
        told.wait()
        monkeypatch.setattr(lock, "ORPHAN_S", 0.2)
        before_s = time.monotonic()
        with pytest.raises(SessionLocked):
            SessionTree().lock(path)
        assert time.monotonic() - before_s >= 0.2
    finally:
        os.kill(orphan, signal.SIGKILL)
        told.stdout.close()


def test_holder_without_note_is_found(path: Path) -> None:
    with open(path) as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        if f" {os.getpid()} {_name_inode(path)} " not in Path("/proc/locks").read_text():
            pytest.skip("the kernel's list names the files of this file system in another way")
        with pytest.raises(SessionLocked, match="another run of this program"):
            SessionTree().lock(path)


def _name_inode(path: Path) -> str:
    info = path.stat()
    return f"{os.major(info.st_dev):02x}:{os.minor(info.st_dev):02x}:{info.st_ino}"


def test_impossible_process_holds_nothing(path: Path) -> None:
    write_note(path, 2**62)
    assert read_note(path) is None


def test_note_of_another_process_is_left(path: Path) -> None:
    tree = SessionTree()
    tree.lock(path)
    assert read_note(path) == LockHolder.me()
    note = write_note(path, os.getppid())
    tree.close()
    assert note.exists()


@pytest.mark.usefixtures("no_flock")
class TestNoteAsLock:
    def test_note_is_the_lock(self, path: Path) -> None:
        tree = SessionTree()
        tree.lock(path)
        assert tree.warning == f"{path.parent} has no file locks: do not write this session from two machines at once"
        with pytest.raises(SessionLocked, match="another run of this program"):
            SessionTree().lock(path)
        tree.close()
        SessionTree().lock(path)

    @pytest.mark.parametrize("content", [b"", b"{}", msgspec.json.encode(LockHolder(2**22 + 1, "", HERE))])
    def test_note_of_nobody_is_replaced(self, path: Path, content: bytes) -> None:
        note_path(path).write_bytes(content)
        SessionTree().lock(path)
        assert read_note(path) == LockHolder.me()

    def test_living_process_is_named(self, path: Path) -> None:
        note = write_note(path, os.getppid())
        os.utime(note, (1, 1))
        with pytest.raises(SessionLocked, match=f"is being written by process {os.getppid()}; stop that process"):
            SessionTree().lock(path)

    def test_note_of_another_machine_grows_old(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        os.utime(write_note(path, 5, "elsewhere"), (1000, 1000))
        monkeypatch.setattr(time, "time", lambda: 1900.0)
        with pytest.raises(SessionLocked, match="by process 5 on elsewhere;"):
            SessionTree().lock(path)
        monkeypatch.setattr(time, "time", lambda: 1900.5)
        SessionTree().lock(path)
        assert read_note(path) == LockHolder.me()

    @pytest.mark.parametrize(("others", "is_refused"), [(2, False), (3, True)])
    def test_race_for_the_note_ends(self, path: Path, others: int, is_refused: bool) -> None:
        class Contested(Files):
            left = others

            def open(self, path: Path, flags: int, mode: int = 0o600) -> int:
                if flags & os.O_EXCL and self.left:
                    self.left -= 1
                    raise FileExistsError
                return super().open(path, flags, mode)

        tree = SessionTree(Contested())
        if is_refused:
            with pytest.raises(SessionLocked, match="is being written by another process;"):
                tree.lock(path)
        else:
            tree.lock(path)
        assert tree.is_locked is not is_refused

    def test_note_is_touched_now_and_then(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        now = [1000.0]
        monkeypatch.setattr(time, "monotonic", lambda: now[0])
        session = Session.create(cwd="/", directory=tmp_path, clock=FakeClock(), new_id=lambda: "s")
        session.append_message(UserMessage("hello", 1))
        assert session.path is not None
        note = note_path(session.path)
        touched = []
        for after_s in (90, 0.5, 90, 0.5):
            now[0] += after_s
            os.utime(note, (1, 1))
            session.append_message(UserMessage("more", 1))
            touched.append(note.stat().st_mtime != 1)
        assert (touched, STALE_AFTER_S) == ([False, True, False, True], 900)
        session.close()


def test_flock_needs_no_touching(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open(path) as file:
        held = Lock.take(path, file.fileno(), Files())
        os.utime(note_path(path), (1, 1))
        late_s = time.monotonic() + 10_000
        monkeypatch.setattr(time, "monotonic", lambda: late_s)
        held.touch()
    assert note_path(path).stat().st_mtime == 1


def test_main_session_of_a_child_is_found(tmp_path: Path) -> None:
    main = tmp_path / "m.jsonl"
    main.write_bytes(b"")
    below = tmp_path / "m" / "r1"
    assert find_main(below / "session.jsonl") == main
    assert find_main(below / "other.jsonl") == below / "other.jsonl"
    assert find_main(tmp_path / "n" / "r1" / "session.jsonl") == tmp_path / "n" / "r1" / "session.jsonl"
