"""Every system call of the storage layer fails once, fails from then on, or is the last one before a crash."""

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from retinue.core.errors import SessionError, SessionUnsaved
from retinue.core.messages import UserMessage
from retinue.sessions.files import Files, UnsyncedFiles
from retinue.sessions.log import Session
from retinue.sessions.tree import SessionTree
from retinue.testing.clock import FakeClock

OPERATIONS = ("open", "write", "pread", "fstat", "truncate", "sync", "sync_directory", "make_directory", "unlink")
ERRORS = (errno.EIO, errno.ENOSPC, errno.EACCES, errno.EROFS)


class Crash(BaseException):
    """The process is gone."""


class FaultyFiles(Files):
    """Calls `fault` at the nth operation (and, when persistent, at all later ones)."""

    def __init__(self, at: int, fault: Callable[[str, Callable[..., Any], Any], Any], *, persistent: bool) -> None:
        self.done = 0
        self.has_struck = False
        self._at = at
        self._fault = fault
        self._persistent = persistent
        for name in OPERATIONS:
            setattr(self, name, self._wrap(name, getattr(super(), name)))

    def _wrap(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            self.done += 1
            if self.done == self._at or (self._persistent and self.done > self._at):
                self.has_struck = True
                return self._fault(name, real, arguments)
            return real(*arguments)

        return call

    def heal(self) -> None:
        self._at = -1
        self._persistent = False


def new_session(path: Path, tree: SessionTree) -> Session:
    return Session.create(cwd="/", directory=None, path=path, clock=FakeClock(), new_id=lambda: "one", tree=tree)


def open_session(path: Path, tree: SessionTree | None = None) -> Session:
    return Session.open(path, clock=FakeClock(), new_id=lambda: "two", tree=tree)


def stored(session: Session) -> list[str]:
    return [str(m.content) for m in session.context().messages if isinstance(m, UserMessage)]


class Story:
    """Writes a session as a run would and remembers what was acknowledged."""

    def __init__(self, path: Path, files: Files) -> None:
        self.path = path
        self.files = files
        self.acked: list[str] = []
        self.refused: list[str] = []
        self.trees: list[SessionTree] = []

    def play(self) -> None:
        session = new_session(self.path, self.plant())
        for text in ("a1", "a2 " + "x" * 5000, "a3"):
            self.say(session, text, sync=text != "a2")
        self.trees[0].close()
        if not self.path.exists():
            return
        with open(self.path, "ab") as torn:
            torn.write(b'{"type":"message","id":"torn')
        for _ in range(2):
            try:
                session = open_session(self.path, self.plant())
            except SessionError:
                continue
            for text in ("b1", "b2", "b3"):
                self.say(session, text, sync=text == "b3")
            self.trees[-1].close()
            return

    def plant(self) -> SessionTree:
        self.trees.append(SessionTree(self.files))
        return self.trees[-1]

    def say(self, session: Session, text: str, *, sync: bool) -> None:
        try:
            session.append_message(UserMessage(text, 1), sync=sync)
        except SessionUnsaved as error:
            assert "cannot" in str(error) and "\n" not in str(error)
            self.refused.append(text)
        else:
            self.acked.append(text)

    def abandon(self) -> None:
        """What the kernel does for a dead process."""
        for tree in self.trees:
            tree.close()

    def check(self) -> None:
        """Nothing acknowledged is missing, nothing appears twice, and the file can be gone on with."""
        tree = SessionTree()
        session = open_session(self.path, tree) if self.path.exists() else new_session(self.path, tree)
        found = stored(session)
        assert [text for text in found if text in self.acked] == self.acked
        assert len(set(found)) == len(found)
        session.append_message(UserMessage("last", 1), sync=True)
        tree.close()
        again = open_session(self.path)
        assert stored(again) == [*found, "last"]
        assert again.damage.torn_bytes == 0
        again.close()


def sweep(tmp_path: Path, fault: Callable[[str, Callable[..., Any], Any], Any], *, persistent: bool) -> Iterator[Story]:
    for at in count(1):
        path = tmp_path / f"{at}" / "s.jsonl"
        files = FaultyFiles(at, fault, persistent=persistent)
        story = Story(path, files)
        with suppress(Crash):
            story.play()
        files.heal()
        story.abandon()
        yield story
        if not files.has_struck:
            assert story.refused == [] and at > 20
            return


def raise_error(code: int) -> Callable[[str, Callable[..., Any], Any], Any]:
    def fault(name: str, real: Callable[..., Any], arguments: Any) -> Any:
        if name == "write" and code == errno.ENOSPC:
            return real(arguments[0], arguments[1][: len(arguments[1]) // 2])
        raise OSError(code, os.strerror(code))

    return fault


@pytest.mark.sample(4)
@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("code", ERRORS)
def test_failing_operation_loses_nothing(tmp_path: Path, code: int, persistent: bool) -> None:
    for story in sweep(tmp_path, raise_error(code), persistent=persistent):
        story.check()


def crash_before(name: str, real: Callable[..., Any], arguments: Any) -> Any:
    raise Crash


def crash_after(name: str, real: Callable[..., Any], arguments: Any) -> Any:
    real(*arguments)
    raise Crash


def crash_within(name: str, real: Callable[..., Any], arguments: Any) -> Any:
    if name == "write":
        real(arguments[0], arguments[1][: len(arguments[1]) // 2])
    raise Crash


@pytest.mark.parametrize("fault", [crash_before, crash_after, crash_within])
def test_crash_at_any_operation_recovers(tmp_path: Path, fault: Callable[..., Any]) -> None:
    for story in sweep(tmp_path, fault, persistent=True):
        story.check()


def close(session: Session) -> None:
    assert session.tree is not None
    session.tree.close()


def write_half(name: str, real: Callable[..., Any], arguments: Any) -> Any:
    if name != "write":
        return real(*arguments)
    return real(arguments[0], arguments[1][: len(arguments[1]) // 2])


def test_full_disk_is_tried_again(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    files = FaultyFiles(-1, write_half, persistent=False)
    session = new_session(path, SessionTree(files))
    first = session.append_message(UserMessage("first", 1))
    before = path.read_bytes()
    files._at, files._persistent = files.done, True
    with pytest.raises(SessionUnsaved, match="No space left on device"):
        session.append_message(UserMessage("second", 1))
    assert (path.read_bytes(), session.leaf_id, len(session)) == (before, first, 1)
    files.heal()
    session.append_message(UserMessage("second", 1))
    assert stored(session) == ["first", "second"]
    close(session)


def test_unmendable_end_starts_new_line(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"

    def fault(name: str, real: Callable[..., Any], arguments: Any) -> Any:
        if name == "write":
            return real(arguments[0], arguments[1][:30])
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    files = FaultyFiles(-1, fault, persistent=False)
    session = new_session(path, SessionTree(files))
    session.append_message(UserMessage("first", 1))
    files._at, files._persistent = files.done + 2, True
    with pytest.raises(SessionUnsaved):
        session.append_message(UserMessage("second", 1))
    files.heal()
    session.append_message(UserMessage("third", 1))
    close(session)
    again = open_session(path)
    assert (stored(again), again.damage.bad_lines) == (["first", "third"], 1)
    again.close()


def test_failed_first_append_leaves_no_file(tmp_path: Path) -> None:
    path = tmp_path / "sessions" / "s.jsonl"
    files = FaultyFiles(-1, raise_error(errno.ENOSPC), persistent=False)
    session = new_session(path, SessionTree(files))
    files._at, files._persistent = 6, False
    with pytest.raises(SessionUnsaved):
        session.append_message(UserMessage("first", 1), sync=True)
    assert list(path.parent.glob("*.jsonl")) == []
    session.append_message(UserMessage("first", 1), sync=True)
    close(session)
    assert len(path.read_bytes().splitlines()) == 2


def test_sync_reaches_file_and_directory(tmp_path: Path) -> None:
    files = FaultyFiles(-1, crash_before, persistent=False)
    synced: list[str] = []
    files.sync = lambda fd: synced.append("file")  # type: ignore[method-assign]
    files.sync_directory = lambda path: synced.append("directory")  # type: ignore[method-assign]
    session = new_session(tmp_path / "s.jsonl", SessionTree(files))
    for sync in (False, True, False, True):
        session.append_message(UserMessage("hello", 1), sync=sync)
    assert synced == ["file", "directory", "file"]
    child = new_session(tmp_path / "s" / "r1" / "session.jsonl", session.tree or SessionTree())
    child.append_message(UserMessage("task", 1), sync=True)
    assert len(synced) == 3
    close(session)


def test_deleted_file_is_noticed(tmp_path: Path) -> None:
    session = new_session(tmp_path / "s.jsonl", SessionTree())
    session.append_message(UserMessage("first", 1))
    (tmp_path / "s.jsonl").unlink()
    with pytest.raises(SessionUnsaved, match="the file was deleted"):
        session.append_message(UserMessage("second", 1))
    close(session)


def test_strangers_line_is_not_continued(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    session = new_session(path, SessionTree())
    session.append_message(UserMessage("first", 1))
    with open(path, "ab") as stranger:
        stranger.write(b'{"type":"custom","id":"zz","parentId":null}')
    session.append_message(UserMessage("second", 1))
    assert stored(session) == ["first", "second"]
    close(session)
    again = open_session(path)
    assert (stored(again), len(again), str(again.damage)) == (["first", "second"], 3, "")
    again.close()


def test_power_cut_keeps_what_was_synced(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    session = new_session(path, SessionTree())
    session.append_message(UserMessage("kept", 1), sync=True)
    synced = path.stat().st_size
    session.append_message(UserMessage("maybe", 1))
    session.append_message(UserMessage("perhaps", 1))
    close(session)
    whole = path.read_bytes()
    for cut in range(synced, len(whole), 7):
        for tail in (whole[synced:cut], b"\0" * (cut - synced), b"\0" * (cut - synced) + whole[cut:]):
            path.write_bytes(whole[:synced] + tail)
            again = open_session(path)
            assert stored(again)[0] == "kept"
            again.append_message(UserMessage("next", 1))
            assert stored(again)[-1] == "next"
            again.close()


def test_strangers_bytes_are_never_cut(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"

    def interfere(name: str, real: Callable[..., Any], arguments: Any) -> Any:
        if name != "write":
            return real(*arguments)
        real(arguments[0], b'{"type":"custom","id":"zz","parentId":null}\n')
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    files = FaultyFiles(-1, interfere, persistent=False)
    session = new_session(path, SessionTree(files))
    session.append_message(UserMessage("first", 1))
    files._at, files._persistent = files.done + 1, True
    with pytest.raises(SessionUnsaved):
        session.append_message(UserMessage("second", 1))
    files.heal()
    session.append_message(UserMessage("second", 1))
    close(session)
    assert path.read_bytes().count(b'"zz"') == 1
    again = open_session(path)
    assert (stored(again), len(again)) == (["first", "second"], 3)
    again.close()


def test_unwritable_file_can_be_read(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    session = new_session(path, SessionTree())
    session.append_message(UserMessage("first", 1))
    close(session)
    tree = SessionTree(FaultyFiles(1, raise_error(errno.EROFS), persistent=False))
    session = open_session(path, tree)
    assert stored(session) == ["first"]
    with pytest.raises(SessionUnsaved, match="the file cannot be written"):
        session.append_message(UserMessage("second", 1))
    tree.close()


def test_fleeting_session_waits_for_no_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("fdatasync", "fsync"):
        monkeypatch.delattr(os, name)
    path = tmp_path / "s.jsonl"
    for number, make in enumerate((new_session, open_session)):
        session = make(path, SessionTree(UnsyncedFiles()))
        session.append_message(UserMessage(f"{number}", 1), sync=True)
        # With the lock: the next one would be refused else.
        session.close()
    assert stored(open_session(path)) == ["0", "1"]
