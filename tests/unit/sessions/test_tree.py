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
