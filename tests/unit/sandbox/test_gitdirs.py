import os
import tempfile
from itertools import pairwise
from pathlib import Path

from retinue.sandbox.gitdirs import is_hidden, list_steering, read_lender, read_settings


def test_included_configuration_is_followed(tmp_path: Path) -> None:
    names = [tmp_path / f"config{number}" for number in range(9)]
    for path, following in pairwise(names):
        path.write_text(f"[include]\n\tpath = {following.name}\n[core]\n\thooksPath = hooks-{path.name}\n")
    hooks, files = list_steering([str(names[0])], str(tmp_path), "/home")
    # Five files behind the first: as deep as git would go is not needed, and a loop must end.
    assert list(map(Path, files)) == names[1:7]
    assert [Path(place).name for place in hooks] == [f"hooks-config{number}" for number in range(6)]


def test_circle_of_inclusions_ends(tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text("[include]\n" + "\tpath = config\n" * 30)
    assert set(list_steering([str(path)], str(tmp_path), "/home")[1]) == {str(path)}


def test_folder_beside_generated_hooks_counts(tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text('[core]\n\thooksPath = .husky/_\n[includeIf "gitdir:~/x"]\n\tpath = ~/more\n')
    hooks, files = list_steering([str(path)], str(tmp_path), "/home/me")
    assert (hooks, files) == ((f"{tmp_path}/.husky", f"{tmp_path}/.husky/_"), ("/home/me/more",))


def test_setting_may_follow_its_section_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text("[core] hooksPath = steps ; as usual\n\tworktree = ../x\n")
    assert list(read_settings(str(path))) == [("core.hookspath", "steps"), ("core.worktree", "../x")]


def test_borrowed_objects_lead_to_their_repository(tmp_path: Path) -> None:
    own, lender = tmp_path / "own", tmp_path / "lender"
    for folder in (own / "objects" / "info", lender / "objects", lender / "other"):
        folder.mkdir(parents=True)
    assert read_lender(str(own)) == ""
    for name, found in (("objects", str(lender)), ("other", ""), ("missing", "")):
        (own / "objects" / "info" / "alternates").write_text(f"{lender}/{name}\n")
        assert read_lender(str(own)) == found


def test_only_an_unreadable_file_is_hidden() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path, before = Path(folder, "config"), os.geteuid()
        path.touch()
        assert not is_hidden(str(path))
        path.chmod(0)
        os.chmod(folder, 0o711)
        if before == 0:  # no right is refused to root
            os.seteuid(61_899)
        try:
            assert (is_hidden(str(path)), is_hidden(f"{folder}/missing")) == (True, False)
        finally:
            os.seteuid(before)
