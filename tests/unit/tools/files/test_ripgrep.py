import os

import pytest

from retinue.core.launch import Territory
from retinue.tools.files.ripgrep import Recheck


@pytest.fixture
def folder(tmp_path):
    root = tmp_path / "w"
    (root / "a" / "b").mkdir(parents=True)
    (root / "a" / "b" / "f").write_text("text")
    (root / "keys").mkdir()
    (root / "keys" / "id").write_text("key")
    (root / "link").symlink_to(root / "a")
    (root / "a" / "g").symlink_to("b/f")
    os.mkfifo(root / "pipe")
    return root


def look(folder, *names):
    with Recheck(str(folder), Territory(hidden=(str(folder / "keys"),))) as again:
        handles = {name: again.open(name) for name in names}
        texts = {name: None if handle is None else os.read(handle, 10) for name, handle in handles.items()}
        found = [name for name in names if again.has(name)]
    for handle in filter(None, handles.values()):
        os.close(handle)
    return found, texts


def test_plain_files_are_opened(folder):
    assert look(folder, "a/b/f", "./a/b/f") == (["a/b/f", "./a/b/f"], {"a/b/f": b"text", "./a/b/f": b"text"})


@pytest.mark.attack("C3", "C4")
@pytest.mark.parametrize("name", ["link/b/f", "keys/id", "KEYS/id", "../w/keys/id", "a/missing", "a/b/f/x"])
def test_nothing_behind_links_is_known(folder, name):
    assert look(folder, name) == ([], {name: None})


@pytest.mark.attack("C10")
def test_only_files_are_opened(folder):
    assert look(folder, "pipe", "a", "a/g") == (["pipe", "a", "a/g"], {"pipe": None, "a": None, "a/g": None})


def test_replaced_root_is_refused(folder):
    folder.rename(folder.with_name("kept"))
    folder.symlink_to(folder.with_name("kept"))
    with pytest.raises(OSError, match=r"symbolic links|Not a directory"):
        look(folder)
