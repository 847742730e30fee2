import ctypes
import errno
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from retinue.sandbox import open_beneath as beneath
from retinue.sandbox.open_beneath import enter_parent, open_below, open_beneath, remove_file, remove_tree

STRANGER = 61_899
_PR_SET_DUMPABLE = 4


@pytest.fixture
def place() -> Iterator[Path]:
    """Where every user can go."""
    folder = Path(tempfile.mkdtemp(prefix="retinue-beneath-"))
    folder.chmod(0o777)
    yield folder
    shutil.rmtree(folder)


@contextmanager
def become_ordinary() -> Iterator[None]:
    """No right is refused to root."""
    before, libc = os.geteuid(), ctypes.CDLL(None)
    if before == 0:
        os.seteuid(STRANGER)
        libc.prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0)  # else /proc/self is root's
    try:
        yield
    finally:
        os.seteuid(before)
        libc.prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0)


def test_tree_without_rights_is_removed(place: Path) -> None:
    with become_ordinary():
        (place / "tree" / "inner" / "deep").mkdir(parents=True)
        (place / "tree" / "inner" / "file").touch()
        for folder in ("tree/inner/deep", "tree/inner", "tree"):
            (place / folder).chmod(0)
        before = len(os.listdir("/proc/self/fd"))
        remove_tree(str(place / "tree"))
        assert len(os.listdir("/proc/self/fd")) == before
    assert list(place.iterdir()) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can own what is in the way")
def test_first_failure_is_told(place: Path) -> None:
    with become_ordinary():
        (place / "tree").mkdir()
    (place / "tree" / "inner").mkdir()
    (place / "tree" / "inner" / "file").touch()
    with become_ordinary(), pytest.raises(PermissionError):
        remove_tree(str(place / "tree"))
    assert (place / "tree" / "inner" / "file").exists()


def test_tree_that_changes_meanwhile_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tree" / "inner").mkdir(parents=True)
    real, passes = shutil.rmtree, []

    def remove(name: str, *, dir_fd: int, onerror: Callable[..., None]) -> None:
        passes.append(name)
        if len(passes) == 1:  # another process was quicker with one file, and made others
            onerror(os.unlink, "tree/file", (FileNotFoundError, FileNotFoundError(), None))
        else:
            real(name, dir_fd=dir_fd, onerror=onerror)

    monkeypatch.setattr(shutil, "rmtree", remove)
    remove_tree(str(tmp_path / "tree"))
    assert (passes, list(tmp_path.iterdir())) == (["tree", "tree"], [])


def test_only_directories_are_trees(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("folder")
    remove_tree(str(tmp_path / "missing"))
    for name in ("file", "link"):
        with pytest.raises(OSError):
            remove_tree(str(tmp_path / name))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder", "link"]


@pytest.mark.parametrize("is_new", [True, False])
def test_link_leads_nowhere(is_new: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not is_new:  # a kernel without openat2
        monkeypatch.setattr(beneath, "_find_openat2", lambda: None)
    (tmp_path / "real" / "inner").mkdir(parents=True)
    (tmp_path / "real" / "file").touch()
    (tmp_path / "link").symlink_to("real")
    before = len(os.listdir("/proc/self/fd"))
    for make in (False, True):
        with pytest.raises(OSError, match=f"{os.strerror(errno.ELOOP)}|{os.strerror(errno.ENOTDIR)}"):
            open_beneath(str(tmp_path), "link/inner", make=make)
    with pytest.raises(OSError):
        remove_file(str(tmp_path / "link" / "file"))
    with pytest.raises(OSError):
        remove_tree(str(tmp_path / "link" / "inner"))
    with pytest.raises(OSError):
        open_beneath(str(tmp_path / "link"), "inner")
    assert (tmp_path / "real" / "file").exists()
    assert len(os.listdir("/proc/self/fd")) == before


def test_missing_directories_are_made_when_asked(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(FileNotFoundError):
        open_beneath(str(tmp_path), "a/b")
    for wrong in ("a/../b", "c//d", "e/./f"):
        with pytest.raises(OSError, match="not a plain path"):
            open_beneath(str(tmp_path), wrong, make=True)
    for folder in ("", "x/y"):
        handle = open_beneath(str(tmp_path), folder, make=True)
        assert os.path.samestat(os.fstat(handle), (tmp_path / folder).stat())
        os.close(handle)
    with enter_parent(str(tmp_path / "z" / "file"), make=True) as (folder, name):
        assert (os.path.samestat(os.fstat(folder), (tmp_path / "z").stat()), name) == (True, "file")
    assert len(os.listdir("/proc/self/fd")) == before


def test_file_is_removed_once(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for _ in range(2):
        remove_file(str(tmp_path / "file"))
    remove_file(str(tmp_path / "missing" / "file"))
    assert list(tmp_path.iterdir()) == []


def test_other_disks_are_within_reach(tmp_path: Path) -> None:
    top = os.open("/", os.O_RDONLY)
    handle = open_below(top, f"proc/{os.getpid()}/task")
    assert str(os.getpid()) in os.listdir(f"/proc/self/fd/{handle}")
    os.close(handle)
    with pytest.raises(FileNotFoundError):
        open_below(top, str(tmp_path / "missing").strip("/"))
    os.close(top)
