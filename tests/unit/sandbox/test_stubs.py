import fcntl
import os
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from retinue.sandbox import stubs as stubs_module
from retinue.sandbox.stubs import KeptStubs, Stubs, is_stub

HOLD = """
import sys
from retinue.sandbox.stubs import Stubs
stubs = Stubs()
stubs.hold([], [sys.argv[1]])
print("held", flush=True)
sys.stdin.readline()
if len(sys.argv) > 2:
    __import__("os").kill(__import__("os").getpid(), 9)
stubs.release()
"""


def test_nodes_come_and_go(tmp_path: Path) -> None:
    stubs = Stubs()
    stubs.hold([str(tmp_path / "file")], [str(tmp_path / "folder")])
    assert [is_stub(str(tmp_path / name)) for name in ("file", "folder")] == [True, True]
    stubs.release()
    assert list(tmp_path.iterdir()) == []


def test_real_files_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "folder").mkdir()
    stubs = Stubs()
    stubs.hold([str(tmp_path / "file")], [str(tmp_path / "folder")])
    stubs.release()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder"]


def test_filled_node_stays(tmp_path: Path) -> None:
    stubs = Stubs()
    stubs.hold([str(tmp_path / "file")], [])
    (tmp_path / "file").write_text("somebody else's")
    stubs.release()
    assert (tmp_path / "file").read_text() == "somebody else's"


def test_last_user_removes_node(tmp_path: Path) -> None:
    one, other, path = Stubs(), Stubs(), tmp_path / "folder"
    one.hold([], [str(path)])
    other.hold([], [str(path)])
    one.release()
    assert path.exists()
    other.release()
    assert not path.exists()


@pytest.mark.parametrize("dies", [False, True])
def test_other_process_keeps_node(tmp_path: Path, dies: bool) -> None:
    path = tmp_path / "folder"
    argv = [sys.executable, "-c", HOLD, str(path), *(["die"] if dies else [])]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.readline()
        stubs = Stubs()
        stubs.hold([], [str(path)])
        stubs.release()
        assert path.exists()
        process.stdin.close()
        process.wait(5)
    again = Stubs()
    again.hold([], [str(path)])
    again.release()
    assert not path.exists()


def test_node_is_known_at_once(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir(0o1755)
    os.close(os.open(tmp_path / "file", os.O_CREAT, 0o1644))
    assert [is_stub(str(tmp_path / name)) for name in ("file", "folder")] == [True, True]
    stubs = Stubs()
    stubs.hold([str(tmp_path / "file")], [str(tmp_path / "folder")])
    stubs.release()
    assert list(tmp_path.iterdir()) == []


def test_filled_folder_becomes_real(tmp_path: Path) -> None:
    stubs, path = Stubs(), tmp_path / "folder"
    stubs.hold([], [str(path)])
    (path / "file").write_text("somebody else's")
    stubs.release()
    assert (is_stub(str(path)), path.stat().st_mode & stat.S_ISVTX) == (False, 0)


def test_foreign_lock_is_not_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "folder"
    path.mkdir(0o1755)
    handle = os.open(path, os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_EX)
    with pytest.raises(OSError, match="another program keeps it locked"):
        Stubs().hold([], [str(path)])
    os.close(handle)


def test_unwritable_place_is_told(tmp_path: Path) -> None:
    with pytest.raises(OSError):
        Stubs().hold([], [str(tmp_path / "missing" / "folder")])
    assert os.listdir(tmp_path) == []


def test_failed_hold_keeps_the_others(tmp_path: Path) -> None:
    stubs = Stubs()
    stubs.hold([], [str(tmp_path / "folder")])
    with pytest.raises(OSError):
        stubs.hold([], [str(tmp_path / "new"), str(tmp_path / "missing" / "folder")])
    assert os.listdir(tmp_path) == ["folder"]
    stubs.release()


def test_next_command_finds_the_node(tmp_path: Path) -> None:
    standby, path = KeptStubs(rest_s=60), tmp_path / "folder"
    standby.hold([], [str(path)])
    standby.let_go()
    first = path.stat().st_ino
    standby.hold([], [str(path)])
    assert path.stat().st_ino == first
    standby.close()
    assert not path.exists()


def test_node_goes_after_a_while(tmp_path: Path) -> None:
    standby, path = KeptStubs(rest_s=0.02), tmp_path / "folder"
    standby.hold([], [str(path)])
    standby.hold([], [str(path)])
    standby.let_go()
    time.sleep(0.05)
    assert path.exists()
    standby.let_go()
    deadline_s = time.monotonic() + 2
    while path.exists() and time.monotonic() < deadline_s:
        time.sleep(0.01)
    assert not path.exists()


def test_removed_node_is_made_again(tmp_path: Path) -> None:
    standby, path = KeptStubs(), tmp_path / "folder"
    standby.hold([], [str(path)])
    path.rmdir()
    standby.hold([], [str(path)])
    assert is_stub(str(path))
    standby.close()
    assert not path.exists()


def test_content_is_never_a_node(tmp_path: Path) -> None:
    stubs, path = Stubs(), tmp_path / "folder"
    stubs.hold([], [str(path)])
    when = path.stat().st_mtime_ns
    (path / "file").touch()
    os.utime(path, ns=(when, when))
    assert not is_stub(str(path))
    stubs.release()
    assert (path / "file").exists()


def test_node_that_a_neighbour_takes_away_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make, path, made = stubs_module._make, tmp_path / "folder", []

    def make_and_lose(place: str, *, is_dir: bool) -> None:
        make(place, is_dir=is_dir)
        made.append(place)
        if len(made) == 1:
            path.rmdir()

    monkeypatch.setattr(stubs_module, "_make", make_and_lose)
    stubs = Stubs()
    stubs.hold([], [str(path)])
    assert (len(made), is_stub(str(path)), stubs.is_holding) == (2, True, True)
    stubs.release()
    assert not path.exists()


def test_program_ends_without_waiting_for_kept_stubs(tmp_path: Path) -> None:
    lines = (
        "from retinue.sandbox.stubs import KeptStubs",
        "kept = KeptStubs(60)",
        f"kept.hold([], [{str(tmp_path / 'folder')!r}])",
        "kept.let_go()",
    )
    subprocess.run([sys.executable, "-c", "\n".join(lines)], check=True, timeout=20)
    assert is_stub(str(tmp_path / "folder"))
