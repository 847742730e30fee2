import os
from pathlib import Path

import pytest

from retinue.core.errors import SessionError, SessionUnsaved
from retinue.sessions.files import Files
from retinue.sessions.store import FileStore, MemoryStore
from retinue.sessions.tree import SessionTree


class Disk(Files):
    """A disk that can be full, refuse to remove names, or be written by somebody else at the same time."""

    def __init__(self) -> None:
        self.takes: int | None = None
        self.stranger = b""
        self.keeps_names = False
        self.done: list[str] = []
        self.flags: list[int] = []

    def open(self, path: Path, flags: int, mode: int = 0o600) -> int:
        self.flags.append(flags)
        return super().open(path, flags, mode)

    def write(self, fd: int, data: bytes) -> int:
        if self.stranger:
            os.write(fd, self.stranger)
            return 0
        return super().write(fd, data[: self.takes])

    def unlink(self, path: Path) -> None:
        if self.keeps_names:
            raise PermissionError(13, "Permission denied")
        super().unlink(path)

    def sync(self, fd: int) -> None:
        self.done.append("file")

    def sync_directory(self, path: Path) -> None:
        self.done.append(path.name)


@pytest.fixture
def disk() -> Disk:
    return Disk()


@pytest.fixture
def tree(disk: Disk) -> SessionTree:
    return SessionTree(disk)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "folder" / "s.jsonl"


@pytest.fixture
def store(path: Path, tree: SessionTree) -> FileStore:
    store = FileStore(path, tree, is_made=False)
    store.append(b"a\n", sync=False)
    return store


def test_waiting_lines_come_with_the_first_that_does_not(path: Path, tree: SessionTree) -> None:
    store = FileStore(path, tree, is_made=False)
    assert [store.append(line, sync=False, waits=True) for line in (b"a\n", b"bc\n")] == [0, 2]
    assert (store.read(2, 2), path.exists()) == (b"bc", False)
    assert [store.append(line, sync=False) for line in (b"d\n", b"ef\n")] == [5, 7]
    assert store.append(b"g\n", sync=False, waits=True) == 10
    assert (path.read_bytes(), store.read(7, 2)) == (b"a\nbc\nd\nef\ng\n", b"ef")


def test_memory_keeps_lines() -> None:
    store = MemoryStore()
    assert [store.append(line, sync=True) for line in (b"a\n", b"bc\n")] == [0, 2]
    assert (store.read(2, 2), store.read(0, 99)) == (b"bc", b"a\nbc\n")


def test_name_is_synced_once(path: Path, tree: SessionTree, disk: Disk, store: FileStore) -> None:
    assert disk.done == []
    store.append(b"b\n", sync=True)
    store.append(b"c\n", sync=True)
    assert disk.done == ["file", "folder", "file"]
    FileStore(path, tree).append(b"d\n", sync=True)
    FileStore(path.with_name("t.jsonl"), tree, is_made=False).append(b"a\n", sync=True)
    assert disk.done[3:] == ["file", "file", "folder"]


@pytest.mark.parametrize("takes", [0, 1, 3])
def test_line_is_written_whole_or_not(path: Path, disk: Disk, store: FileStore, takes: int) -> None:
    disk.takes = takes
    with pytest.raises(SessionUnsaved, match=r"s.jsonl: No space left on device; what follows is not on disk"):
        store.append(b"bcd\n", sync=False)
    assert path.read_bytes() == b"a\n"
    disk.takes = None
    assert (store.append(b"e\n", sync=False), path.read_bytes()) == (2, b"a\ne\n")


@pytest.mark.parametrize("stranger", [b"z", b"zzz", b"zzzzzzzzz"])
def test_line_of_another_program_is_not_cut(path: Path, disk: Disk, store: FileStore, stranger: bytes) -> None:
    disk.stranger = stranger
    with pytest.raises(SessionUnsaved):
        store.append(b"bcd\n", sync=False)
    disk.stranger = b""
    assert store.append(b"e\n", sync=False) == 2 + len(stranger) + 1
    assert path.read_bytes() == b"a\n" + stranger + b"\ne\n"


@pytest.mark.parametrize("foreign", [b"x", b"x\n"])
def test_line_of_another_program_is_not_continued(path: Path, tree: SessionTree, foreign: bytes) -> None:
    path.parent.mkdir()
    path.write_bytes(foreign)
    store = FileStore(path, tree)
    assert [store.append(line, sync=False) for line in (b"b\n", b"c\n")] == [2, 4]
    path.write_bytes(path.read_bytes() + foreign)
    assert store.append(b"d\n", sync=False) == 8
    assert path.read_bytes() == b"x\nb\nc\nx\nd\n"


def test_empty_file_is_begun(path: Path, tree: SessionTree) -> None:
    path.parent.mkdir()
    path.write_bytes(b"")
    assert (FileStore(path, tree).append(b"a\n", sync=False), path.read_bytes()) == (0, b"a\n")


def test_deleted_file_is_told(path: Path, store: FileStore) -> None:
    path.unlink()
    with pytest.raises(SessionUnsaved, match="the file was deleted"):
        store.append(b"b\n", sync=False)
    assert not path.exists()


def test_file_that_could_not_be_made_is_made_later(path: Path, tree: SessionTree, disk: Disk) -> None:
    store = FileStore(path, tree, is_made=False)
    disk.takes = 1
    with pytest.raises(SessionUnsaved):
        store.append(b"a\n", sync=False)
    assert (path.exists(), tree.is_locked) == (False, False)
    disk.takes = None
    assert (store.append(b"a\n", sync=False), path.read_bytes(), tree.is_locked) == (0, b"a\n", True)


def test_name_that_stays_is_used(path: Path, tree: SessionTree, disk: Disk) -> None:
    store = FileStore(path, tree, is_made=False)
    disk.takes, disk.keeps_names = 1, True
    with pytest.raises(SessionUnsaved):
        store.append(b"a\n", sync=False)
    assert path.read_bytes() == b""
    disk.takes = None
    assert (store.append(b"b\n", sync=False), path.read_bytes()) == (0, b"b\n")


def test_failure_of_a_child_frees_no_lock(path: Path, tree: SessionTree, disk: Disk, store: FileStore) -> None:
    assert (tree.main, tree.is_locked) == (path, True)
    child = FileStore(path.with_name("child.jsonl"), tree, is_made=False)
    disk.takes = 0
    with pytest.raises(SessionUnsaved):
        child.append(b"a\n", sync=False)
    assert (tree.main, tree.is_locked) == (path, True)


def test_taken_name_is_not_written_to(path: Path, tree: SessionTree) -> None:
    path.parent.mkdir()
    path.write_bytes(b"other\n")
    with pytest.raises(SessionUnsaved, match="File exists"):
        FileStore(path, tree, is_made=False).append(b"a\n", sync=False)
    assert path.read_bytes() == b"other\n"


def test_what_cannot_be_read_is_told(path: Path, tree: SessionTree) -> None:
    with pytest.raises(SessionError, match=r"cannot read session .*: No such file or directory"):
        FileStore(path, tree).read(0, 1)


def test_reader_opens_for_reading(path: Path, tree: SessionTree, disk: Disk, store: FileStore) -> None:
    for is_reader, flags in ((True, os.O_RDONLY), (False, os.O_RDWR | os.O_APPEND)):
        store.close()
        FileStore(path, tree, read_only=is_reader).read(0, 1)
        assert disk.flags[-1] == flags


def test_closed_store_gives_its_descriptor_back(store: FileStore) -> None:
    before = len(os.listdir("/proc/self/fd"))
    store.close()
    assert len(os.listdir("/proc/self/fd")) == before - 1


def test_failure_without_words_is_named(store: FileStore, disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(fd: int) -> None:
        raise TimeoutError

    monkeypatch.setattr(disk, "sync", fail)
    with pytest.raises(SessionUnsaved, match="TimeoutError; what follows"):
        store.append(b"b\n", sync=True)
    assert store.append(b"c\n", sync=False) == 2
