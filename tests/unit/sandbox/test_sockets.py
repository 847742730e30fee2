import socket
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from retinue.sandbox import sockets
from retinue.sandbox.profile import Profile

HEADER = "Num       RefCount Protocol Flags    Type St Inode Path\n"


class Town:
    """A home and a workspace, and what the kernel tells of sockets."""

    def __init__(self, root: Path, held: ExitStack) -> None:
        self.root, self.home, self._held = root, root / "home", held
        self.told: list[str] = []
        self.mounts: list[str] = []
        for name in ("home/d", "work", "run", "mnt"):
            (root / name).mkdir(parents=True)

    def bind(self, name: str, told: str | None = None) -> str:
        path = str(self.root / name)
        self._held.enter_context(socket.socket(socket.AF_UNIX)).bind(path)
        self.told.append(path if told is None else told)
        return path

    def find(self, **more: Any) -> set[str]:
        lines = [f"0000000000000000: 00000002 00000000 00010000 0001 01 123 {name}\n" for name in self.told]
        (self.root / "bound").write_text(HEADER + "".join(lines))
        (self.root / "mounts").write_text(
            "".join(f"1 2 0:3 / {path} rw - tmpfs x rw\n".replace(" a", "\\040a") for path in self.mounts)
        )
        given = {"workspace": str(self.root / "work"), "mode": "workspace_write", "home": str(self.home), **more}
        return {*sockets.list_foreign(Profile(**given))}


@pytest.fixture
def town(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(sockets, "_BOUND", str(tmp_path / "bound"))
    monkeypatch.setattr(sockets, "_MOUNTS", str(tmp_path / "mounts"))
    monkeypatch.setattr(sockets, "PRIVATE_DIRS", (str(tmp_path / "run"),))
    with ExitStack() as held:
        yield Town(tmp_path, held)


def test_sockets_in_the_home_are_found(town: Town) -> None:
    paths = {town.bind("home/one"), town.bind("home/d/with space")}
    town.bind("mnt/elsewhere")
    town.bind("work/own")
    town.told += ["@abstract", "", str(town.home / "d" / "gone" / "x")]
    (town.home / "file").touch()
    town.told.append(str(town.home / "file"))
    assert town.find() == paths
    assert town.find(home="") == set()


def test_named_places_are_no_foreign_ones(town: Town) -> None:
    path = town.bind("home/d/one")
    assert town.find() == {path}
    assert town.find(writable=(path,)) == set()
    assert town.find(writable=(str(town.home / "d"),)) == {path}
    assert town.find(secrets=(str(town.home / "d"),)) == set()


def test_workspace_has_sockets_of_its_own(town: Town) -> None:
    path = town.bind("home/d/one")
    assert town.find(workspace=str(town.home / "d")) == set()
    # Who works in the whole home has not made all that is in it.
    assert town.find(workspace=str(town.home)) == town.find(workspace=str(town.root)) == {path}


def test_private_places_are_out_of_sight(town: Town) -> None:
    path, place = town.bind("run/one"), str(town.root / "run")
    assert town.find(home=str(town.root)) == set()
    assert town.find(home=str(town.root), exposed=(place,)) == {path}
    assert town.find(home=str(town.root), writable=(place,)) == {path}


def test_mounted_socket_is_found_anywhere(town: Town) -> None:
    path = town.bind("mnt/b a", told="")
    town.mounts += ["/", path]
    assert town.find() == town.find(home="") == {path}


def test_renamed_socket_is_found_beside_its_name(town: Town) -> None:
    path = town.bind("home/d/now", told=str(town.home / "d" / "before"))
    town.bind("mnt/now", told=str(town.root / "mnt" / "before"))
    assert town.find() == {path}


def test_relative_name_is_looked_for_where_programs_work(town: Town, monkeypatch: pytest.MonkeyPatch) -> None:
    path = town.bind("home/d/one", told="one")
    assert town.find() == set()
    monkeypatch.chdir(town.home / "d")
    assert town.find() == {path}


def test_kernel_that_tells_nothing_is_no_failure(town: Town, monkeypatch: pytest.MonkeyPatch) -> None:
    town.bind("home/one")
    for name in ("_BOUND", "_MOUNTS"):
        monkeypatch.setattr(sockets, name, str(town.root / "missing"))
    assert town.find() == set()
