from pathlib import Path

import pytest

from retinue.sandbox.bwrap import CoveredPaths, build_arguments, sort_protected
from retinue.sandbox.profile import PRIVATE_DIRS, Profile
from retinue.sandbox.stubs import Stubs


def build(profile: Profile, **more: object) -> list[str]:
    return build_arguments("/usr/bin/bwrap", profile, profile.workspace, seccomp_fd=9, **more)  # type: ignore[arg-type]


def find(arguments: list[str], *wanted: str) -> list[int]:
    return [at for at in range(len(arguments)) if tuple(arguments[at : at + len(wanted)]) == wanted]


def test_readonly_profile_is_complete(tmp_path: Path) -> None:
    arguments = build(Profile(str(tmp_path)))
    parts = [
        *(("--ro-bind", "/", "/"), ("--ro-bind", "/proc/sys", "/proc/sys"), ("--cap-drop", "ALL"), ("--unshare-all",)),
        *(("--unshare-user",), ("--disable-userns",), ("--die-with-parent",), ("--new-session",), ("--seccomp", "9")),
    ]
    assert [part for part in parts if not find(arguments, *part)] == []
    assert "--bind" not in arguments
    assert "--share-net" not in arguments


def test_every_tmpfs_has_size(tmp_path: Path) -> None:
    arguments = build(Profile(str(tmp_path), tmp_bytes=4096, secrets=(str(tmp_path),)))
    places = [at for at, word in enumerate(arguments) if word == "--tmpfs"]
    assert len(places) >= 3
    assert all(arguments[at - 2 : at] == ["--size", "4096"] for at in places)


def test_old_version_goes_without(tmp_path: Path) -> None:
    arguments = build(Profile(str(tmp_path)), features=frozenset({"seccomp"}))
    assert {"--size", "--disable-userns"} & {*arguments} == set()


def test_workspace_comes_after_private_directories(tmp_path: Path) -> None:
    arguments = build(Profile(str(tmp_path)))
    workspace = find(arguments, "--ro-bind", str(tmp_path), str(tmp_path))[0]
    assert all(place < workspace for folder in PRIVATE_DIRS for place in find(arguments, "--tmpfs", folder))


def test_secrets_cover_what_is_bound(tmp_path: Path) -> None:
    (tmp_path / "secret").mkdir()
    (tmp_path / "key").write_text("x")
    secrets = (str(tmp_path / "secret"), str(tmp_path / "key"), str(tmp_path / "missing"))
    arguments = build(Profile(str(tmp_path), secrets=secrets))
    assert find(arguments, "--tmpfs", secrets[0])[0] > find(arguments, "--ro-bind", str(tmp_path))[0]
    assert find(arguments, "--ro-bind", "/dev/null", secrets[1])
    assert secrets[2] not in arguments


def test_parents_of_protected_are_mounts(tmp_path: Path) -> None:
    (tmp_path / ".git" / "hooks").mkdir(parents=True)
    profile = Profile(str(tmp_path), "workspace_write", protected=(str(tmp_path / ".git" / "hooks"),))
    arguments = build(profile)
    git, hooks = str(tmp_path / ".git"), str(tmp_path / ".git" / "hooks")
    assert find(arguments, "--bind", git, git)[0] < find(arguments, "--ro-bind", hooks, hooks)[0]


def test_protected_paths_are_sorted(tmp_path: Path) -> None:
    (tmp_path / ".pi").mkdir()
    (tmp_path / ".agents").symlink_to(".pi")
    names = (".pi", ".agents", ".mcp.json", ".git/config", ".config/git/hooks")
    (tmp_path / ".git").mkdir()
    profile = Profile(str(tmp_path), "workspace_write", protected=tuple(str(tmp_path / name) for name in names))
    at = str(tmp_path)
    found = CoveredPaths(
        (f"{at}/.pi",), (f"{at}/.git/config",), (f"{at}/.mcp.json", f"{at}/.config"), (f"{at}/.agents",)
    )
    assert sort_protected(profile) == found


def test_stand_in_counts_as_missing(tmp_path: Path) -> None:
    protected = (str(tmp_path / ".pi"), str(tmp_path / ".config" / "git"), str(tmp_path / ".config" / "fish"))
    profile = Profile(str(tmp_path), "workspace_write", protected=protected)
    alone = sort_protected(profile)
    neighbour = Stubs()
    neighbour.hold(alone.files, alone.folders)
    assert sort_protected(profile) == alone == CoveredPaths(folders=(str(tmp_path / ".pi"), str(tmp_path / ".config")))
    neighbour.release()


def test_temporary_files_have_a_place(tmp_path: Path) -> None:
    arguments = build(Profile(str(tmp_path), "workspace_write"), tmp="/own")
    assert [bool(find(arguments, "--bind", "/own", path)) for path in ("/tmp", "/var/tmp", "/run")] == [1, 1, 0]
    assert [bool(find(arguments, "--tmpfs", path)) for path in ("/tmp", "/var/tmp", "/run")] == [0, 0, 1]
    assert find(arguments, "--remount-ro", "/dev")


@pytest.mark.parametrize("kind", ["plain", "missing", "link", "hidden", "held", "protected", "reader"])
def test_writable_place_is_mounted_where_it_is_one(kind: str, tmp_path: Path) -> None:
    work, place = tmp_path / "w", tmp_path / ("w/place" if kind in ("held", "protected") else "place")
    work.mkdir()
    (place.symlink_to("w") if kind == "link" else place.mkdir()) if kind != "missing" else None
    profile = Profile(
        str(work),
        "read_only" if kind == "reader" else "workspace_write",
        writable=(str(place),),
        secrets=(str(place),) if kind == "hidden" else (),
        protected=(str(place.parent),) if kind == "protected" else (),
    )
    assert bool(find(build(profile), "--bind-try", str(place), str(place))) is (kind in ("plain", "protected"))


def test_hidden_folders_are_empty_and_stay_so(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    (secret / "inner").mkdir(parents=True)
    (secret / "shown").mkdir()
    profile = Profile(str(tmp_path), secrets=(str(secret), str(secret / "inner")), exposed=(str(tmp_path / "no"),))
    arguments = build(profile, visible=[str(tmp_path / "missing")])
    assert find(arguments, "--tmpfs", str(secret))[0] < find(arguments, "--remount-ro", str(secret))[0]
    assert [path for path in arguments if path in (str(secret / "inner"), str(tmp_path / "missing"))] == []


def test_exposed_place_is_seen_in_a_hidden_one(tmp_path: Path) -> None:
    work, shown = tmp_path / "w", tmp_path / "secret" / "shown"
    for folder in (work / "inner", shown, tmp_path / "other"):
        folder.mkdir(parents=True)
    exposed = (str(shown), str(work / "inner"), str(tmp_path / "secret" / "missing"))
    arguments = build(Profile(str(work), secrets=(str(tmp_path / "secret"),), exposed=exposed))
    assert find(arguments, "--ro-bind", str(shown), str(shown))
    assert [path for path in exposed[1:] if path in arguments] == []


def test_sockets_of_others_are_covered(tmp_path: Path) -> None:
    arguments = build(Profile(str(tmp_path), "workspace_write"), covers=CoveredPaths(sockets=("/home/x/sock",)))
    assert find(arguments, "--ro-bind", "/dev/null", "/home/x/sock")


def test_missing_files_of_git_are_shut(tmp_path: Path) -> None:
    at = str(tmp_path)
    covers = CoveredPaths(files=(f"{at}/config", f"{at}/.gitconfig"), folders=(f"{at}/.pi",))
    arguments = build(Profile(at, "workspace_write"), covers=covers)
    shut = [bool(find(arguments, "--ro-bind", "/dev/null", f"{at}/{name}")) for name in ("config", ".gitconfig", ".pi")]
    empty = [bool(find(arguments, "--ro-bind", *[f"{at}/{name}"] * 2)) for name in ("config", ".gitconfig", ".pi")]
    assert (shut, empty) == ([True, False, False], [False, True, True])


def test_path_behind_a_link_is_no_place(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    profile = Profile(str(tmp_path), "workspace_write", protected=(str(tmp_path / "link" / "hooks"),))
    assert sort_protected(profile) == CoveredPaths(links=profile.protected)


def test_path_below_a_file_needs_no_cover(tmp_path: Path) -> None:
    (tmp_path / ".git").touch()
    protected = (str(tmp_path / ".git" / "hooks"), str(tmp_path / ".pi"))
    found = sort_protected(Profile(str(tmp_path), "workspace_write", protected=protected))
    assert found == CoveredPaths(folders=protected[1:])


def test_what_is_around_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "private").mkdir()
    (tmp_path / "link").symlink_to("private")
    (tmp_path / "secret" / "work").mkdir(parents=True)
    places = [str(tmp_path / name) for name in ("private", "link", "missing")]
    monkeypatch.setattr("retinue.sandbox.bwrap.PRIVATE_DIRS", places)
    hidden, work = str(tmp_path / "secret"), str(tmp_path / "secret" / "work")
    arguments = build(Profile(work, secrets=(hidden,)))
    assert find(arguments, "--tmpfs", hidden)[0] < find(arguments, "--ro-bind", work, work)[0]
    assert [bool(find(arguments, "--tmpfs", path)) for path in places] == [True, False, False]


def test_folder_inside_a_protected_one_stays_protected(tmp_path: Path) -> None:
    (tmp_path / ".pi" / "a" / "b").mkdir(parents=True)
    protected = (str(tmp_path / ".pi"), str(tmp_path / ".pi" / "a" / "b"))
    arguments = build(Profile(str(tmp_path), "workspace_write", protected=protected))
    assert [bool(find(arguments, "--ro-bind", path, path)) for path in protected] == [True, True]
    assert not find(arguments, "--bind", str(tmp_path / ".pi" / "a"))
