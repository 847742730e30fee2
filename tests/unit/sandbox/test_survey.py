import os
import shutil
from pathlib import Path

import pytest

from retinue.sandbox import survey
from retinue.sandbox.survey import Survey, find_branch, find_guard
from retinue.testing import make_repo


def list_names(paths: tuple[str, ...], root: Path) -> set[str]:
    return {os.path.relpath(path, root) for path in paths}


def test_what_appears_while_a_command_runs_is_its_own(tmp_path: Path) -> None:
    found, roots = Survey(), (str(tmp_path),)
    found.begin(roots, "")
    found.look(roots)
    (tmp_path / "a" / ".pi").mkdir(parents=True)
    found.look(roots)
    assert found.made == {str(tmp_path / "a" / ".pi")}
    found.end(roots)
    (tmp_path / "b" / ".pi").mkdir(parents=True)
    assert list_names(found.begin(roots, "").protected, tmp_path) == {"b/.pi"}
    found.end(roots)


def test_second_command_keeps_the_first_ones_right(tmp_path: Path) -> None:
    found, roots = Survey(), (str(tmp_path),)
    for _ in range(2):
        found.begin(roots, "")
    found.end(roots)
    (tmp_path / "a" / ".pi").mkdir(parents=True)
    found.end(roots)
    assert (found.made, found.list_guarded(roots, "")) == ({str(tmp_path / "a" / ".pi")}, ())


def test_what_is_removed_is_forgotten(tmp_path: Path) -> None:
    found, roots, place = Survey(), (str(tmp_path),), tmp_path / "a" / ".pi"
    place.mkdir(parents=True)
    assert found.list_guarded(roots, "") == (str(place),)
    shutil.rmtree(place)
    found.begin(roots, "")
    place.mkdir()
    found.end(roots)
    assert (found.list_guarded(roots, ""), found.made) == ((), {str(place)})


def test_kinds_of_places(tmp_path: Path) -> None:
    for name in ("x/.PI/deep", "y/.claude", "z/plain"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("x/.mcp.json", "y/mcp.json"):
        (tmp_path / name).touch()
    (tmp_path / "y" / ".git").write_text("gitdir: ../z\n")
    (tmp_path / "z" / ".vscode").symlink_to("plain")
    guarded = Survey().list_guarded((str(tmp_path),), "")
    assert list_names(guarded, tmp_path) == {"x/.PI", "x/.mcp.json", "y/.claude", "y/.git"}


def test_repository_of_another_is_guarded(tmp_path: Path) -> None:
    repo = make_repo(tmp_path / "inner", {"a": "b"})
    (repo / "hooks").mkdir()
    (repo / ".git" / "config").write_text("[core]\n\thooksPath = hooks\n[include]\n\tpath = ../missing\n")
    found = Survey().begin((str(tmp_path),), "")
    assert list_names(found.protected, repo) == {"hooks", ".git/hooks", ".git/config"}
    assert list_names(found.forbidden, repo) == {".git/commondir", "missing"}
    (repo / ".git" / "config").write_text("[extensions]\n\tworktreeConfig = true\n")
    assert ".git/config.worktree" in list_names(Survey().begin((str(tmp_path),), "").protected, repo)


def test_many_places_close_their_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(survey, "MOST_PATHS", 3)
    for name in ("a/1", "a/2", "a/3", "b/1", "c"):
        (tmp_path / name / ".pi").mkdir(parents=True)
    found = Survey().begin((str(tmp_path),), "")
    assert (list_names(found.protected, tmp_path), list_names(found.closed, tmp_path)) == (
        {"a", "b/1/.pi", "c/.pi"},
        {"a"},
    )
    monkeypatch.setattr(survey, "MOST_PATHS", 5)
    assert Survey().begin((str(tmp_path),), "").closed == ()


def test_what_was_not_looked_at_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a/b/c", "d"):
        (tmp_path / name).mkdir(parents=True)
    monkeypatch.setattr(survey, "MOST_FOLDERS", 3)
    assert list_names(Survey().begin((str(tmp_path),), "").closed, tmp_path) == {"a"}
    monkeypatch.setattr(survey, "MOST_FOLDERS", 5)
    assert Survey().begin((str(tmp_path),), "").closed == ()


@pytest.mark.parametrize(
    ("path", "branch"), [("/r/a/b/c", "/r/a"), ("/r/a", "/r/a"), ("/r/.git/modules/x", "/r/.git/modules")]
)
def test_branch_is_the_first_folder(path: str, branch: str) -> None:
    assert (find_branch("/r", path), find_branch("/r/", path)) == (branch, branch)


def test_tools_leave_what_others_made(tmp_path: Path) -> None:
    repo = make_repo(tmp_path / "inner", {"a": "b"})
    (tmp_path / "x" / ".pi").mkdir(parents=True)
    (repo / ".git" / "config").write_text("[core]\n\thooksPath = steps\n")
    (tmp_path / "x" / ".git").write_text("gitdir: ../inner/.git\n")
    made: set[str] = set()
    names = {
        "x/.git": "x/.git",
        "x/.pi/a": "x/.pi",
        "x/a": "",
        "inner/.git/hooks/pre": "inner/.git/hooks",
        "inner/.git/index": "",
        "inner/steps/pre": "inner/steps",
        "inner/stepsize": "",
        "y/hooks/a": "",
    }
    found = {name: find_guard(str(tmp_path / name), str(tmp_path), made) for name in names}
    assert found == {name: str(tmp_path / guard) if guard else "" for name, guard in names.items()}
    assert made == set()


def test_new_configuration_is_the_agents_own(tmp_path: Path) -> None:
    made: set[str] = set()
    path, place = str(tmp_path / "x" / ".pi" / "a"), tmp_path / "x" / ".pi"
    assert (find_guard(path, str(tmp_path), made), made) == ("", {str(place)})
    place.mkdir(parents=True)
    assert find_guard(path, str(tmp_path), made) == ""
    assert find_guard(path, str(tmp_path), set()) == str(place)


@pytest.mark.parametrize(("few", "pause_s", "is_seen"), [(1, 1e6, False), (1, 0.0, True), (2, 1e6, True)])
def test_long_look_is_not_repeated_at_once(
    few: int, pause_s: float, is_seen: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(survey, "_FEW", few)
    monkeypatch.setattr(survey, "_PAUSE_S", pause_s)
    place, found, roots = tmp_path / "a" / ".pi", Survey(), (str(tmp_path),)
    place.parent.mkdir()
    found.look(roots)
    place.mkdir()
    assert found.list_guarded(roots, "") == ((str(place),) if is_seen else ())
