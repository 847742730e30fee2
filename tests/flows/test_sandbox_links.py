import os
import subprocess
from pathlib import Path

import pytest

from retinue.features.transcript import append_lines, prepare_folder
from retinue.sandbox.confinement import remove_forbidden
from retinue.sandbox.open_beneath import remove_tree
from retinue.sandbox.profile import Profile
from retinue.sandbox.status import Backend
from retinue.sandbox.stubs import Stubs
from tests.flows.sandbox_world import BACKENDS, Box, list_users, open_box


@pytest.mark.attack("I6", "C4")
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("kind", ["last", "middle"])
def test_forbidden_is_not_removed_through_links(backend: Backend, kind: str) -> None:
    with open_box(backend, list_users()[0]) as plain:
        work, home = plain.world.workspace, plain.world.home
        subprocess.run(["git", "config", "--file", ".git/config", "include.path", "../a/b/more"], cwd=work, check=True)
        (work / "a" / "b").mkdir(parents=True)
        (home / "b").mkdir()
        for path in (home / "more", home / "b" / "more"):
            path.write_text("mine\n")
        box = Box(plain.world, plain.status, writing=True)
        box.run("rm -r a; ln -s $H a" if kind == "middle" else "rmdir a/b; ln -s $H a/b")
        box.close()
        assert os.path.realpath(work / "a" / "b") in (str(home / "b"), str(home))
        assert [path.read_text() for path in (home / "more", home / "b" / "more")] == ["mine\n", "mine\n"]


@pytest.mark.attack("I6")
@pytest.mark.parametrize("backend", BACKENDS)
def test_swapped_repository_leads_nowhere(backend: Backend) -> None:
    with open_box(backend, list_users()[0], writing=True) as box:
        (box.world.home / "commondir").write_text("mine\n")
        box.run("mv .git g; ln -s $H .git")
        assert (box.world.home / "commondir").read_text() == "mine\n"


@pytest.mark.attack("I6", "C3")
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("place", ["$W/out", "$H/a/b"])
def test_writable_folder_turned_link_opens_nothing(backend: Backend, place: str) -> None:
    with open_box(backend, list_users()[0]) as plain:
        work, home = plain.world.workspace, plain.world.home
        (home / "private").mkdir()
        for folder in (work / "out", home / "a" / "b"):
            folder.mkdir(parents=True)
        box = Box(plain.world, plain.status, writing=True, extra=(str(work / "out"), str(home / "a")))
        inner = Box(plain.world, plain.status, writing=True, extra=(str(home / "a"), str(home / "a" / "b")))
        box.run(f"rmdir {place}; ln -s $H/private {place}")
        for each in (box, inner):
            each.run(f"echo x >{place}/x; echo x >$H/private/y")
            each.close()
        assert list((home / "private").iterdir()) == []


def test_forbidden_file_is_removed(tmp_path: Path) -> None:
    (tmp_path / "more").write_text("x")
    remove_forbidden(Profile(str(tmp_path), forbidden=(str(tmp_path / "more"), str(tmp_path / "none"))))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.attack("I6")
def test_stand_in_is_not_made_through_link(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "a").symlink_to("home")
    stubs = Stubs()
    for files, folders in (([str(tmp_path / "a" / "config")], []), ([], [str(tmp_path / "a" / "hooks")])):
        with pytest.raises(OSError, match="symbolic links"):
            stubs.hold(files, folders)
    assert list((tmp_path / "home").iterdir()) == []


@pytest.mark.attack("I6")
def test_stand_in_is_not_removed_through_link(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    stubs = Stubs()
    stubs.hold([], [str(tmp_path / "a" / "hooks")])
    (tmp_path / "a").rename(tmp_path / "home")
    (tmp_path / "a").symlink_to("home")
    stubs.release()
    assert [path.name for path in (tmp_path / "home").iterdir()] == ["hooks"]


@pytest.mark.attack("I6")
def test_locked_trees_are_removed_alone(tmp_path: Path) -> None:
    tree, home = tmp_path / "tree", tmp_path / "home"
    home.mkdir()
    (home / "key").write_text("mine\n")
    home.chmod(0o555)
    deep = tree / "a" / "b" / "c"
    deep.mkdir(parents=True)
    (deep / "f").write_text("x")
    (deep / "link").symlink_to(home)
    for folder in (deep, deep.parent, deep.parent.parent):
        folder.chmod(0)
    remove_tree(str(tree))
    assert (tree.exists(), home.stat().st_mode & 0o777, (home / "key").read_text()) == (False, 0o555, "mine\n")


@pytest.mark.attack("I6")
def test_tree_behind_link_is_left(tmp_path: Path) -> None:
    (tmp_path / "home" / "tree").mkdir(parents=True)
    (tmp_path / "a").symlink_to("home")
    with pytest.raises(OSError, match="symbolic links"):
        remove_tree(str(tmp_path / "a" / "tree"))
    assert (tmp_path / "home" / "tree").exists()


@pytest.mark.attack("I6")
@pytest.mark.parametrize("name", [".pi", ".pi/output"])
def test_transcript_follows_no_link(tmp_path: Path, name: str) -> None:
    folder, home = tmp_path / ".pi" / "output", tmp_path / "home"
    prepare_folder(folder)
    append_lines(str(folder / "agent-1.jsonl"), b"one\n")
    (tmp_path / name).rename(tmp_path / "old")
    (home / "output").mkdir(parents=True)
    (tmp_path / name).symlink_to(home)
    with pytest.raises(OSError, match="symbolic links"):
        append_lines(str(folder / "agent-1.jsonl"), b"two\n")
    assert [path for path in home.rglob("*") if path.is_file()] == []
