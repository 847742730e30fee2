import errno
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from retinue.core.errors import SessionLocked
from retinue.core.messages import UserMessage
from retinue.sessions import lock
from retinue.sessions.log import Session
from retinue.sessions.tree import SessionTree
from retinue.testing.clock import FakeClock

HOLD = """
import sys
from retinue.core.errors import SessionLocked
from retinue.sessions.log import Session
from retinue.testing.clock import FakeClock
try:
    session = Session.open(sys.argv[1], clock=FakeClock(), new_id=lambda: "held")
except SessionLocked as error:
    print("refused", error, flush=True)
else:
    print("open", flush=True)
    sys.stdin.read()
"""


def open_session(path: Path, tree: SessionTree | None = None) -> Session:
    return Session.open(path, clock=FakeClock(), new_id=lambda: "fixed", tree=tree)


def start_holder(path: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", HOLD, str(path)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def read_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "2026_s.jsonl"
    session = Session.create(cwd="/", directory=None, path=path, clock=FakeClock(), new_id=lambda: "s")
    session.append_message(UserMessage("hello", 1))
    session.close()
    return path


@pytest.fixture
def holder(path: Path) -> Iterator[subprocess.Popen[str]]:
    process = start_holder(path)
    assert read_line(process) == "open\n"
    yield process
    end(process)


def test_second_process_is_refused(path: Path, holder: subprocess.Popen[str]) -> None:
    with pytest.raises(SessionLocked, match=rf"is being written by process {holder.pid};"):
        open_session(path)


def test_reading_needs_no_lock(path: Path, holder: subprocess.Popen[str]) -> None:
    session = Session.open(path, clock=FakeClock(), new_id=lambda: "r", read_only=True)
    assert len(session.context().messages) == 1
    session.close()


def test_killed_holder_frees_the_lock(path: Path, holder: subprocess.Popen[str]) -> None:
    os.kill(holder.pid, signal.SIGKILL)
    holder.wait()
    assert lock.note_path(path).exists()
    session = open_session(path)
    session.close()
    assert not lock.note_path(path).exists()


ORPHAN = """
import os, sys, time
from retinue.sessions.log import Session
from retinue.testing.clock import FakeClock
session = Session.open(sys.argv[1], clock=FakeClock(), new_id=lambda: "held")
if os.fork() == 0:
    time.sleep(0.4)  # a process that has not executed its program yet shares the lock
    os._exit(0)
print("open", flush=True)
time.sleep(60)
"""


def test_lock_of_a_dead_holder_is_waited_for(path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", ORPHAN, str(path)], stdout=subprocess.PIPE, text=True)
    assert read_line(process) == "open\n"
    end(process)
    open_session(path).close()


def test_removed_note_changes_nothing(path: Path, holder: subprocess.Popen[str]) -> None:
    lock.note_path(path).unlink()
    with pytest.raises(SessionLocked, match=rf"process {holder.pid};|another process"):
        open_session(path)


def test_reused_process_id_is_not_named(path: Path, holder: subprocess.Popen[str]) -> None:
    stale = lock.LockHolder(os.getpid(), "1", lock.LockHolder.me().host)
    lock.note_path(path).write_bytes(msgspec.json.encode(stale))
    with pytest.raises(SessionLocked) as refusal:
        open_session(path)
    assert f"process {os.getpid()};" not in str(refusal.value)


def test_one_of_many_openers_wins(path: Path) -> None:
    processes = [start_holder(path) for _ in range(6)]
    lines = [read_line(process) for process in processes]
    for process in processes:
        end(process)
    assert sorted(line.split()[0] for line in lines) == ["open", *["refused"] * 5]


def test_lock_is_not_inherited(path: Path) -> None:
    session = open_session(path)
    with subprocess.Popen(["sleep", "20"], close_fds=False) as sleeper:
        session.close()
        open_session(path).close()
        sleeper.kill()


def test_lock_holds_from_first_append(tmp_path: Path) -> None:
    session = Session.create(cwd="/", directory=tmp_path, clock=FakeClock(), new_id=lambda: "s")
    assert list(tmp_path.iterdir()) == []
    session.append_message(UserMessage("hello", 1))
    assert session.path is not None
    with pytest.raises(SessionLocked, match="another run of this program"):
        open_session(session.path)
    session.close()
    assert list(tmp_path.iterdir()) == [session.path]


def test_child_needs_no_lock_of_its_own(path: Path) -> None:
    main = open_session(path)
    assert main.tree is not None
    child_path = main.tree.child_path("r1")
    child = Session.create(
        cwd="/", directory=None, path=child_path, clock=FakeClock(), new_id=lambda: "c", tree=main.tree
    )
    child.append_custom("any", None)
    assert child_path == path.with_suffix("") / "r1" / "session.jsonl"
    assert [item.name for item in child_path.parent.iterdir()] == ["session.jsonl"]
    with pytest.raises(SessionLocked):
        open_session(child_path)
    child.close()
    main.close()
    open_session(child_path).close()


def test_relative_paths_are_understood(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    session = Session.create(cwd="/", directory=None, path=Path("session.jsonl"), clock=FakeClock(), new_id=lambda: "c")
    session.append_message(UserMessage("task", 1))
    monkeypatch.chdir("/")
    session.append_message(UserMessage("more", 1))
    session.close()
    monkeypatch.chdir(tmp_path)
    again = open_session(Path("session.jsonl"))
    assert (again.path, len(again)) == (tmp_path / "session.jsonl", 2)
    again.close()


def test_run_without_parent_locks_itself(tmp_path: Path) -> None:
    path = tmp_path / "runs" / "r1" / "session.jsonl"
    session = Session.create(cwd="/", directory=None, path=path, clock=FakeClock(), new_id=lambda: "c")
    session.append_message(UserMessage("task", 1))
    with pytest.raises(SessionLocked):
        open_session(path)
    session.close()


@pytest.fixture
def no_flock(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(fd: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(lock, "take_flock", refuse)


@pytest.mark.usefixtures("no_flock")
def test_note_locks_without_flock(path: Path) -> None:
    session = open_session(path)
    assert session.tree is not None
    assert "has no file locks" in session.tree.warning
    with pytest.raises(SessionLocked, match="another run of this program"):
        open_session(path)
    session.close()
    open_session(path).close()


@pytest.mark.usefixtures("no_flock")
@pytest.mark.parametrize("note", [b"", b"garbage", b'{"pid":1,"started":"0","host":"HOST"}'])
def test_stale_note_is_replaced(path: Path, note: bytes) -> None:
    lock.note_path(path).write_bytes(note.replace(b"HOST", lock.LockHolder.me().host.encode()))
    open_session(path).close()


@pytest.mark.usefixtures("no_flock")
def test_foreign_note_holds_while_fresh(path: Path) -> None:
    note = lock.note_path(path)
    note.write_bytes(msgspec.json.encode(lock.LockHolder(1, "0", "elsewhere")))
    with pytest.raises(SessionLocked, match="process 1 on elsewhere"):
        open_session(path)
    os.utime(note, (1, 1))
    open_session(path).close()
