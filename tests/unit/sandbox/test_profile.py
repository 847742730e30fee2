import os
import subprocess
from pathlib import Path

import pytest

from retinue.sandbox.gitdirs import GitDirs, read_git_dirs
from retinue.sandbox.profile import (
    Profile,
    SandboxSettings,
    build_environment,
    build_readonly,
    build_writing,
    is_below,
    list_secrets,
)
from retinue.sandbox.survey import Survey
from retinue.testing import make_repo


@pytest.fixture
def settings(home: Path) -> SandboxSettings:
    return SandboxSettings(home=str(home), agent_dir=str(home / ".pi" / "agent"))


def test_readonly_has_no_network(tmp_path: Path, settings: SandboxSettings) -> None:
    profile = build_readonly(tmp_path, settings)
    assert (profile.mode, profile.network, profile.writable, profile.protected) == ("read_only", False, (), ())


def test_writing_follows_wishes(tmp_path: Path, settings: SandboxSettings, home: Path) -> None:
    profile = build_writing(tmp_path, settings)
    assert (profile.mode, profile.network, profile.writable) == ("workspace_write", True, (str(home / ".cache"),))


@pytest.mark.attack("C8")
def test_missing_files_are_protected(tmp_path: Path, settings: SandboxSettings) -> None:
    repo = make_repo(tmp_path / "repo", {"a.txt": "x"})
    names = [os.path.relpath(path, repo) for path in build_writing(repo, settings).protected]
    assert {".pi", ".agents", ".vscode", ".mcp.json", ".git/hooks", ".git/config", ".git/config.worktree"} <= {*names}
    assert ".git" not in names


@pytest.mark.attack("C8", "G1")
def test_nested_submodules_are_protected(tmp_path: Path, settings: SandboxSettings) -> None:
    repo = make_repo(tmp_path / "repo", {"a.txt": "x"})
    names = ("plain", "vendor/deep/lib", "plain/modules/in/side")
    for name in names:
        for part in ("objects", "refs"):
            (repo / ".git" / "modules" / name / part).mkdir(parents=True, exist_ok=True)
        (repo / ".git" / "modules" / name / "HEAD").touch()
    (repo / ".git" / "modules" / "link").symlink_to(tmp_path)
    paths = Survey().begin(build_writing(repo, settings).grounds, "").protected
    found = {os.path.relpath(path, repo / ".git") for path in paths}
    wanted = {f"modules/{name}/{each}" for name in names for each in ("hooks", "config")}
    assert {path for path in found if path.startswith("modules")} == wanted


@pytest.mark.attack("I7", "C8")
def test_own_configuration_is_protected_where_links_lead(tmp_path: Path, settings: SandboxSettings, home: Path) -> None:
    places = (".pi/agent/subagents.json", ".pi/agent/extensions/x.py", ".codingcode/hooks.yaml")
    for name in places:
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / Path(name).name).touch()
        (home / name).symlink_to(tmp_path / Path(name).name)
    assert {str(tmp_path / Path(name).name) for name in places} <= {*build_writing(tmp_path, settings).protected}


def test_folder_without_repository_stays_one(tmp_path: Path, settings: SandboxSettings) -> None:
    assert str(tmp_path / ".git") in build_writing(tmp_path, settings).protected


def test_copy_writes_its_own_part(tmp_path: Path, settings: SandboxSettings) -> None:
    repo = make_repo(tmp_path / "repo", {"a.txt": "x"})
    copy = tmp_path / "copy"
    subprocess.run(["git", "-C", repo, "worktree", "add", "-q", "--detach", copy], check=True)
    (repo / ".git" / "refs" / "heads" / "pi-agent-1").write_text("")
    profile = build_writing(copy, settings)
    common = repo / ".git"
    parts = ["objects", "logs", "worktrees/copy"]
    assert profile.writable[1:] == tuple(str(common / part) for part in parts)
    assert {str(copy / ".git"), str(common / "worktrees" / "copy" / "commondir")} <= {*profile.protected}


@pytest.mark.attack("A5")
def test_foreign_pointer_grants_nothing(tmp_path: Path, settings: SandboxSettings) -> None:
    repo = make_repo(tmp_path / "repo", {"a.txt": "x"})
    subprocess.run(["git", "-C", repo, "worktree", "add", "-q", "--detach", tmp_path / "copy"], check=True)
    thief = tmp_path / "thief"
    thief.mkdir()
    (thief / ".git").write_text(f"gitdir: {repo}/.git/worktrees/copy\n")
    profile = build_writing(thief, settings)
    assert [path for path in profile.writable if is_below(path, [str(repo)])] == []


def make_pointer(work: Path, own: Path, common: Path) -> None:
    """A checkout that points at a record, which points back, and where the record says the repository is."""
    for folder in (work, own, common / "objects", common / "refs" / "heads" / "pi-agent-1", common / "logs"):
        folder.mkdir(parents=True, exist_ok=True)
    for file, text in (
        (work / ".git", f"gitdir: {own}\n"),
        (own / "HEAD", "x"),
        (own / "commondir", f"{common}\n"),
        (own / "gitdir", f"{work}/.git\n"),
        (common / "HEAD", "x"),
    ):
        file.write_text(text)


@pytest.mark.attack("I10", "A5")
def test_folder_called_worktrees_widens_nothing(tmp_path: Path, settings: SandboxSettings) -> None:
    work = make_repo(tmp_path / "worktrees", {"a.txt": "x"})
    (work / ".git" / "commondir").write_text("../..\n")
    for folder in ("objects", "logs", "refs"):
        (tmp_path / folder).mkdir()
    (tmp_path / "HEAD").write_text("x")
    profile = build_writing(work, settings)
    assert (profile.writable, [path for path in profile.visible if is_below(path, [str(tmp_path)])]) == (
        (os.path.join(settings.home, ".cache"),),
        [],
    )


@pytest.mark.attack("I10", "A5")
@pytest.mark.parametrize("kind", ["elsewhere", "no repository", "linked", "in the cache", "in the workspace"])
def test_crafted_record_widens_nothing(tmp_path: Path, settings: SandboxSettings, home: Path, kind: str) -> None:
    work, common = tmp_path / "w", tmp_path / "main"
    common = {"in the cache": home / ".cache" / "r", "in the workspace": work / "r"}.get(kind, common)
    own = work / "record" if kind == "elsewhere" else common / "worktrees" / "x"
    make_pointer(work, own, common)
    if kind == "no repository":
        (common / "HEAD").unlink()
    if kind not in ("elsewhere", "no repository"):
        for name in ("objects", "logs"):
            (common / name).rmdir()
            (common / name).symlink_to(home)
    found = [build_writing(work, settings), build_readonly(work, settings)]
    seen = {path for profile in found for path in profile.visible if is_below(path, [str(tmp_path)])}
    written = {*found[0].writable} - {str(home / ".cache")}
    assert (seen - {str(own)}, written) == (set(), set())


@pytest.mark.attack("I10")
def test_pointer_alone_shows_nothing(tmp_path: Path, settings: SandboxSettings) -> None:
    other = make_repo(tmp_path / "other", {"a.txt": "x"})
    work = tmp_path / "w"
    work.mkdir()
    (work / ".git").write_text(f"gitdir: {other}/.git\n")
    assert [path for path in build_readonly(work, settings).visible if is_below(path, [str(tmp_path)])] == []


def test_submodule_shows_its_repository(tmp_path: Path, settings: SandboxSettings) -> None:
    source, top = make_repo(tmp_path / "source", {"a.txt": "x"}), make_repo(tmp_path / "top", {"b.txt": "x"})
    add = ["submodule", "add", "-q", str(source), "sub"]
    subprocess.run(["git", "-C", top, "-c", "protocol.file.allow=always", *add], check=True)
    assert str(top / ".git" / "modules" / "sub") in build_readonly(top / "sub", settings).visible


def test_pipe_is_no_pointer(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / ".git")
    assert read_git_dirs(str(tmp_path)) == GitDirs()


def test_secrets_are_real_paths(tmp_path: Path, home: Path, settings: SandboxSettings) -> None:
    (tmp_path / "keys").mkdir()
    (home / ".ssh").symlink_to(tmp_path / "keys")
    found = list_secrets(SandboxSettings(home=str(home), secrets=("~/own", "/etc/x")))
    assert {str(tmp_path / "keys"), str(home / "own"), "/etc/x", str(home / ".netrc")} <= {*found}


@pytest.mark.attack("F1")
def test_environment_is_allowed_by_name() -> None:
    inherited = {"PATH": "/bin", "LC_ALL": "C", "OPENAI_API_KEY": "k", "MINE": "1", "GIT_DIR": "/x", "AWS_X": "y"}
    found = build_environment(Profile("/w", environment=("PATH", "LC_*", "MINE", "GIT_*")), inherited)
    assert found == {
        **{"PATH": "/bin", "LC_ALL": "C", "MINE": "1", "TMPDIR": "/tmp", "PYTHONDONTWRITEBYTECODE": "1"},
        **{"GIT_OPTIONAL_LOCKS": "0", "GIT_PAGER": "cat", "GIT_EDITOR": "true", "GIT_TERMINAL_PROMPT": "0"},
    }


def test_proxy_with_password_is_dropped() -> None:
    inherited = {"http_proxy": "http://me:secret@proxy:1", "HTTPS_PROXY": "http://proxy:1"}
    profile = Profile("/w", "workspace_write", environment=("http_proxy", "HTTPS_PROXY"))
    assert "http_proxy" not in build_environment(profile, inherited)
    assert build_environment(profile, inherited)["HTTPS_PROXY"] == "http://proxy:1"


@pytest.mark.attack("C2")
@pytest.mark.parametrize(("path", "answer"), [("/x/proj", True), ("/x/proj/a", True), ("/x/proj-evil/a", False)])
def test_prefix_is_no_parent(path: str, answer: bool) -> None:
    assert is_below(path, ["/x/proj"]) is answer


def test_named_place_is_not_protected(tmp_path: Path) -> None:
    around = build_writing(tmp_path, SandboxSettings(writable=(str(tmp_path),)))
    itself = build_writing(tmp_path, SandboxSettings(writable=(str(tmp_path / ".git"),)))
    assert [str(tmp_path / ".git") in profile.protected for profile in (around, itself)] == [True, False]
    assert {*around.protected} - {*itself.protected} == {str(tmp_path / ".git")}


@pytest.mark.parametrize(
    ("secrets", "exposed", "answer"),
    [
        ((), (), False),
        (("/w",), (), False),
        (("/w/keys",), (), True),
        (("/w/keys",), ("/w/keys",), False),
        (("/w/keys",), ("/w/keys/a",), False),
        (("/w/keys/a",), ("/w/keys",), True),
    ],
)
def test_nearest_word_counts(secrets: tuple[str, ...], exposed: tuple[str, ...], answer: bool) -> None:
    assert Profile("/w", secrets=secrets, exposed=exposed).is_hidden("/w/keys/a/b") is answer
    assert Profile("/w", protected=secrets, writable=exposed).is_protected("/w/keys/a/b") is answer


def test_missing_pointer_of_a_repository_is_forbidden(tmp_path: Path, settings: SandboxSettings) -> None:
    repo = make_repo(tmp_path / "repo", {"a.txt": "x"})
    pointer = repo / ".git" / "commondir"
    assert build_writing(repo, settings).forbidden == (str(pointer),)
    with open(repo / ".git" / "config", "a") as file:
        file.write("[include]\n\tpath = ../more\n")
    assert build_writing(repo, settings).forbidden == (str(pointer), str(repo / "more"))
    (repo / "more").touch()
    pointer.write_text(".\n")
    assert build_writing(repo, settings).forbidden == ()
    assert build_writing(tmp_path, settings).forbidden == ()


def test_repository_of_a_copy_is_writable(tmp_path: Path, settings: SandboxSettings, home: Path) -> None:
    work, own = tmp_path / "work", home / ".pi" / "agent" / "retinue" / "worktrees" / "one.git"
    work.mkdir()
    for name in ("objects/info", "refs"):
        (own / name).mkdir(parents=True)
    (own / "HEAD").touch()
    (own / "config").write_text(f"[core]\n\tworktree = {work}\n")
    (work / ".git").write_text(f"gitdir: {own}\n")
    profile = build_writing(work, settings)
    assert str(own) in profile.writable
    protected = {os.path.relpath(path, own) for path in profile.protected if is_below(path, [str(own)])}
    assert {"hooks", "config", "objects/info/alternates"} <= protected
