"""Control groups as plain files: what is written where. That the kernel heeds it, a flow shows where it is root's."""

import os
import threading
from functools import partial
from pathlib import Path

import pytest

from retinue.sandbox import cgroup
from retinue.sandbox.cgroup import ControlGroup
from retinue.sandbox.server import RestrictedThread, limit_thread


def list_groups(base: Path) -> list[str]:
    return sorted(path.name for path in base.iterdir() if path.is_dir())


@pytest.fixture
def unified(tmp_path: Path) -> Path:
    (tmp_path / "cgroup.procs").touch()
    return tmp_path


def test_second_version_takes_processes(unified: Path) -> None:
    control_group = ControlGroup(str(unified), most=7, is_root=True)
    assert (control_group.is_useful, control_group.takes_threads) == (True, False)
    (group,) = list_groups(unified)
    control_group.admit(4711)
    written = {path.name: path.read_text() for path in (unified / group).iterdir()}
    assert (group.split("-")[:2], written) == (
        ["retinue", str(os.getpid())],
        {"pids.max": "7", "cgroup.procs": "4711"},
    )


@pytest.mark.parametrize("name", ["pids", "unified"])
def test_first_version_has_groups_below(name: str, tmp_path: Path) -> None:
    (tmp_path / name).mkdir()
    (tmp_path / name / "cgroup.procs").touch()
    assert ControlGroup(str(tmp_path), is_root=True).is_useful
    assert [entry.rpartition("-")[0] for entry in list_groups(tmp_path / name)] == [f"retinue-{os.getpid()}"]


def test_untested_group_is_told(unified: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    told = [ControlGroup(str(unified), is_root=is_root).describe() for is_root in (True, False)]
    told.append(ControlGroup(str(tmp_path_factory.mktemp("none")), is_root=True).describe())
    assert told == [
        "a control group of version 2 (untested) limits the number of processes",
        "the kernel limits the processes of each sandbox",
        "processes are only counted from outside; a fork bomb of root may be faster",
    ]


def test_thread_enters_the_group(unified: Path) -> None:
    control_group = ControlGroup(str(unified), is_root=True)
    assert control_group.is_useful
    group = unified / list_groups(unified)[0]
    (group / "tasks").touch()
    pen = RestrictedThread(partial(limit_thread, control_group, scoped=False))
    inside = pen.run(threading.get_native_id)
    assert (control_group.takes_threads, (group / "tasks").read_text()) == (True, str(inside))
    assert pen.run(threading.get_native_id) == inside != threading.get_native_id()
    pen.close()


def test_ordinary_user_needs_none(unified: Path) -> None:
    control_group = ControlGroup(str(unified), is_root=False)
    control_group.admit(1)
    assert (control_group.is_useful, control_group.takes_threads, list_groups(unified)) == (False, False, [])


def test_machine_without_groups_has_none(tmp_path: Path) -> None:
    control_group = ControlGroup(str(tmp_path), is_root=True)
    assert (control_group.is_useful, list(tmp_path.iterdir())) == (False, [])


def test_leftovers_of_dead_are_removed(unified: Path) -> None:
    (unified / "retinue-999999999-dead").mkdir()
    (unified / f"retinue-{os.getpid()}-live").mkdir()
    (unified / "system.slice").mkdir()
    assert ControlGroup(str(unified), is_root=True).is_useful
    left = list_groups(unified)
    assert "retinue-999999999-dead" not in left
    assert {f"retinue-{os.getpid()}-live", "system.slice"} < {*left}


def test_empty_group_goes_at_the_end(unified: Path) -> None:
    control_group = ControlGroup(str(unified), is_root=True)
    assert control_group.is_useful
    (unified / list_groups(unified)[0] / "pids.max").unlink()  # the kernel's own files are no hindrance
    control_group.close()
    assert list_groups(unified) == []


def test_command_has_a_share_of_what_there_is() -> None:
    assert cgroup.find_bound() == int(cgroup.find_memory() * 0.75) > 0
    assert cgroup.find_bound(5) == 5


@pytest.mark.parametrize(("text", "bytes_"), [("4096\n", 4096), ("max\n", None), ("9223372036854771712\n", None)])
def test_container_may_have_less(
    text: str, bytes_: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "limit").write_text(text)
    monkeypatch.setattr(cgroup, "_LIMITS", (str(tmp_path / "missing"), str(tmp_path / "limit")))
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert cgroup.find_memory() == (bytes_ or machine)
