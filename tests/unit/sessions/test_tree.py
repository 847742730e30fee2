import errno
import os
from pathlib import Path

import pytest

from retinue.sessions.files import Files
from retinue.sessions.tree import SessionTree


class Scarce(Files):
    """A machine on which a process may have two session files open, or which refuses for another reason."""

    def __init__(self, code: int = errno.EMFILE) -> None:
        self.code = code
        self.count = 0

    def open(self, path: Path, flags: int) -> int:
        if self.count == 2:
            raise OSError(self.code, os.strerror(self.code))
        self.count += 1
        return super().open(path, flags)

    def close(self, fd: int) -> None:
        self.count -= 1
        super().close(fd)


def make_files(folder: Path) -> list[Path]:
    paths = [folder / name for name in "abc"]
    for path in paths:
        path.write_text(path.name)
    return paths


def test_files_are_closed_when_there_are_too_many(tmp_path: Path) -> None:
    tree = SessionTree(Scarce())
    seen = [os.read(tree.descriptor(path), 9) for path in make_files(tmp_path) * 2]
    assert seen == [b"a", b"b", b"c", b"a", b"b", b"c"]


def test_other_failures_are_told(tmp_path: Path) -> None:
    tree = SessionTree(Scarce(errno.EACCES))
    *paths, last = make_files(tmp_path)
    kept = [tree.descriptor(path) for path in paths]
    with pytest.raises(PermissionError):
        tree.descriptor(last)
    assert [tree.descriptor(path) for path in paths] == kept


def test_longest_unused_file_is_closed(tmp_path: Path) -> None:
    first, second, third = make_files(tmp_path)
    tree = SessionTree(max_descriptors=2)
    kept = tree.descriptor(first)
    tree.descriptor(second)
    tree.descriptor(first)
    tree.descriptor(third)
    assert tree.descriptor(first) == kept
    assert os.read(tree.descriptor(second), 9) == b"b"


def test_synced_directory_is_closed(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        Files().sync_directory(tmp_path)
    assert len(os.listdir("/proc/self/fd")) == before


def test_open_files_are_bounded_and_given_back(tmp_path: Path) -> None:
    first, second, third = make_files(tmp_path)
    before = len(os.listdir("/proc/self/fd"))
    tree = SessionTree(max_descriptors=2)
    os.read(tree.descriptor(first), 9)
    for path in (second, first, third):
        tree.descriptor(path)
    # It was used after the second one, and so is the same one that has been read to its end.
    assert os.read(tree.descriptor(first), 9) == b""
    assert len(os.listdir("/proc/self/fd")) == before + 2
    tree.forget(first)
    tree.forget(second)
    assert len(os.listdir("/proc/self/fd")) == before + 1
    tree.lock(first)
    assert tree.main == first
    tree.close()
    assert len(os.listdir("/proc/self/fd")) == before


def test_descriptor_writes_at_the_end(tmp_path: Path) -> None:
    first, *_ = make_files(tmp_path)
    tree = SessionTree()
    os.write(tree.descriptor(first), b"more")
    assert first.read_text() == "amore"
    tree.close()


def test_children_lie_below_their_main_session(tmp_path: Path) -> None:
    tree = SessionTree()
    assert tree.child_path("r1") is None
    for name in ("one.x", "two"):
        tree.main = tmp_path / f"{name}.jsonl"
        assert tree.child_path("r1") == tmp_path / name / "r1" / "session.jsonl"
    tree.touch()
    assert (tree.warning, tree.is_locked) == ("", False)
