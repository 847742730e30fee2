import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from retinue.sessions.files import Files, UnsyncedFiles, make_private


@pytest.fixture(autouse=True)
def open_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def read_mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_folders_are_for_this_user_alone(tmp_path: Path) -> None:
    make_private(tmp_path / "a" / "b")
    Files().make_directory(tmp_path / "c")
    Files().make_directory(tmp_path / "d" / "e")
    Files().make_directory(tmp_path / "c")
    for name in ("a", "a/b", "c", "d", "d/e"):
        assert read_mode(tmp_path / name) == 0o700, name


def test_folder_that_appears_meanwhile_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [False, True]
    (tmp_path / "a").mkdir()
    monkeypatch.setattr(Path, "is_dir", lambda self: answers.pop(0) if answers else os.path.isdir(self))
    make_private(tmp_path / "a")
    assert (tmp_path / "a").is_dir()


def test_file_in_the_way_is_told(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"")
    with pytest.raises(OSError):
        Files().make_directory(tmp_path / "a" / "b")


def test_files_are_private_and_not_inherited(tmp_path: Path) -> None:
    fd = Files().open(tmp_path / "f", os.O_RDWR | os.O_CREAT)
    assert (read_mode(tmp_path / "f"), os.get_inheritable(fd)) == (0o600, False)
    os.close(fd)
    os.mkfifo(tmp_path / "pipe")
    os.close(Files().open(tmp_path / "pipe", os.O_RDONLY))


def test_disk_is_waited_for_unless_content_is_kept_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    for name in ("fsync", "fdatasync"):
        monkeypatch.setattr(os, name, lambda fd, name=name: synced.append(name))
    for files in (Files(), UnsyncedFiles()):
        fd = files.open(tmp_path / "f", os.O_RDWR | os.O_CREAT)
        files.sync(fd)
        files.sync_directory(tmp_path)
        files.close(fd)
    assert synced == ["fdatasync", "fsync"]
    with pytest.raises(NotADirectoryError):
        Files().sync_directory(tmp_path / "f")


def test_missing_name_is_removed_already(tmp_path: Path) -> None:
    Files().unlink(tmp_path / "none")
