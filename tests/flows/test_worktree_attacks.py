"""A repository names programs wherever git would run one; our own git calls run none of them."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from retinue.tools.git import run_git
from tests.flows.worktree_world import World, git


class Vector(NamedTuple):
    """A way to make git run a program, and plain git commands that fall for it."""

    settings: tuple[tuple[str, str], ...] = ()
    """CANARY stands for the program."""
    attributes: str = ""
    trigger: str = "git status"
    files: tuple[tuple[str, str], ...] = ()


PAGED = "python3 -c \"import pty; pty.spawn(['git', 'log'])\""
EDIT = "echo more >> a.txt; "
HOOKS = ("post-checkout", "pre-commit", "commit-msg", "reference-transaction", "post-index-change")
SUBMODULE = (
    "git init -q s; commit='git -C s -c user.name=x -c user.email=x@y commit -q --allow-empty -m x'; $commit; "
    "git update-index --add --cacheinfo 160000,$(git -C s rev-parse HEAD),s; $commit; "
    "printf '[submodule \"s\"]\\npath=s\\nurl=./s\\n' > .gitmodules; git submodule update"
)
VECTORS = {
    "hooks": Vector(
        files=tuple((f".git/hooks/{name}", "CANARY") for name in HOOKS),
        trigger="git commit -q --allow-empty -m x",
    ),
    "hooks path": Vector(
        (("core.hooksPath", ".hooks"),),
        files=((".hooks/post-checkout", "CANARY"), (".hooks/pre-commit", "CANARY")),
        trigger="git commit -q --allow-empty -m x",
    ),
    "fsmonitor": Vector((("core.fsmonitor", "CANARY"),)),
    "clean filter": Vector((("filter.f.clean", "CANARY"),), "* filter=f", EDIT + "git add -A"),
    "filter name with equals sign": Vector((("filter.f=g.clean", "CANARY"),), "* filter=f=g", EDIT + "git add -A"),
    "smudge filter": Vector((("filter.f.smudge", "CANARY"),), "* filter=f", "rm a.txt; git checkout -- a.txt"),
    "required filter": Vector(
        (("filter.f.clean", "CANARY"), ("filter.f.required", "true")), "* filter=f", EDIT + "git add -A"
    ),
    "process filter": Vector((("filter.f.process", "CANARY"),), "* filter=f", EDIT + "git add -A"),
    "pager": Vector((("core.pager", "CANARY"), ("pager.log", "CANARY")), trigger=PAGED),
    "external diff": Vector((("diff.external", "CANARY"),), trigger=EDIT + "git diff"),
    "diff driver": Vector((("diff.d.command", "CANARY"),), "* diff=d", EDIT + "git diff"),
    "textconv": Vector((("diff.d.textconv", "CANARY"),), "* diff=d", EDIT + "git diff"),
    "ssh command": Vector((("core.sshCommand", "CANARY"),), trigger="git ls-remote ssh://localhost/x"),
    "alias": Vector((("alias.zz", "!CANARY"), ("alias.status", "!CANARY")), trigger="git zz"),
    "credential helper": Vector(
        (("credential.helper", "!CANARY"),),
        trigger="printf 'protocol=https\\nhost=localhost\\n\\n' | GIT_TERMINAL_PROMPT=0 git credential fill",
    ),
    "include": Vector((("include.path", "../.gitmore"),), "* filter=f", EDIT + "git add -A", ((".gitmore", "FILTER"),)),
    "attributes in info": Vector(
        (("filter.f.clean", "CANARY"),), "", EDIT + "git add -A", ((".git/info/attributes", "* filter=f\n"),)
    ),
    "submodule update": Vector(
        (("submodule.s.update", "!CANARY"), ("submodule.s.url", "./s"), ("submodule.recurse", "true")),
        trigger=SUBMODULE,
    ),
    "editor": Vector((("core.editor", "CANARY"),), trigger="git commit --allow-empty"),
    "sequence editor": Vector(
        (("sequence.editor", "CANARY"),), trigger="git commit -q --allow-empty -m x; git rebase -i HEAD~1"
    ),
    "gpg program": Vector(
        (("gpg.program", "CANARY"), ("commit.gpgsign", "true"), ("log.showSignature", "true")),
        trigger="git commit -q --allow-empty -m x",
    ),
    "merge driver": Vector(
        (("merge.m.driver", "CANARY"),),
        "* merge=m",
        "git checkout -qb x; echo x > a.txt; git commit -qam x; git checkout -q main; echo y > a.txt; "
        "git commit -qam y; git merge -q x",
    ),
}


def spread_scopes() -> list[Any]:
    """Every vector, in turn in the repository's own configuration and in the user's; the other way round in soaks."""
    scopes = ("--local", "--global")
    return [
        pytest.param(name, scopes[place], marks=() if place == number % 2 else pytest.mark.slow)
        for number, name in enumerate(VECTORS)
        for place in (0, 1)
    ]


class Canary:
    """A program that leaves a feather when it runs."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.program, self._feather = folder / "canary", folder / "feather"
        self.program.write_text(f'#!/bin/sh\necho "$0 $*" >> {self._feather}\nexec cat 2>/dev/null </dev/null\n')
        self.program.chmod(0o755)

    @property
    def has_run(self) -> bool:
        return self._feather.exists()

    def plant(self, repo: Path, vector: Vector, *, scope: str = "--local") -> None:
        # The attributes are committed, so that they are in every copy.
        (repo / ".gitattributes").write_text(vector.attributes + "\n")
        git(repo, "add", "-A")
        git(repo, "commit", "-qm", "attributes")
        for name, content in vector.files:
            path = repo / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if content == "CANARY":
                path.symlink_to(self.program)
            else:
                path.write_text(content.replace("FILTER", f'[filter "f"]\nclean = {self.program}\n'))
        for key, value in vector.settings:
            git(repo, "config", scope, key, value.replace("CANARY", str(self.program)))


@pytest.fixture
def canary(tmp_path: Path) -> Canary:
    return Canary(tmp_path / "canary")


@pytest.mark.sample(7)
@pytest.mark.attack("SEC-10")
@pytest.mark.parametrize("name", VECTORS)
def test_plain_git_runs_program(name: str, tmp_path: Path, canary: Canary) -> None:
    repo = World.make(tmp_path).repo
    canary.plant(repo, VECTORS[name])
    subprocess.run(
        ["bash", "-c", VECTORS[name].trigger], cwd=repo, capture_output=True, timeout=40, stdin=subprocess.DEVNULL
    )
    assert canary.has_run


async def use_everything(world: World) -> None:
    """Every call that we make of git, on a repository with changes in it."""
    (world.repo / "a.txt").write_text("changed\n")
    for command in (["status"], ["diff"], ["diff", "HEAD"], ["log", "-p"], ["show"], ["add", "a.txt"], ["ls-files"]):
        assert (await run_git(command, world.repo)).ok, command
    copy = await world.create()
    (copy.root / "a.txt").write_text("by the agent\n")
    (copy.root / "new.txt").write_text("new\n")
    kept = await world.keep(copy)
    assert (kept.branch, kept.path, world.left) == ("pi-agent-r1", "", [])
    assert world.show("pi-agent-r1", "new.txt") == "new"


@pytest.mark.attack("G1", "G2", "G3", "G4", "SEC-10")
@pytest.mark.parametrize(("name", "scope"), spread_scopes())
async def test_our_git_runs_nothing(
    name: str, scope: str, tmp_path: Path, canary: Canary, measure: Callable[..., None]
) -> None:
    world = World.make(tmp_path)
    canary.plant(world.repo, VECTORS[name], scope=scope)
    canary._feather.unlink(missing_ok=True)
    await use_everything(world)
    measure("SEC-10", f"{name}, {scope}", ran=int(canary.has_run), **({"vectors": 1} if scope == "--local" else {}))
    assert not canary.has_run


@pytest.mark.attack("G5", "SEC-10")
async def test_embedded_bare_repository_is_refused(tmp_path: Path, canary: Canary) -> None:
    world = World.make(tmp_path)
    bare = world.repo / "docs"
    git(world.repo, "init", "-q", "--bare", "docs")
    for key, value in (("core.bare", "false"), ("core.worktree", "."), ("core.fsmonitor", str(canary.program))):
        git(bare, "config", "--file", "config", key, value)
    git(bare, "status", check=False)
    assert canary.has_run
    canary._feather.unlink()
    results = [await run_git(command, bare) for command in (["status"], ["diff"], ["rev-parse", "HEAD"])]
    assert ([result.ok for result in results], canary.has_run) == ([False] * 3, False)


@pytest.mark.attack("G6", "SEC-10")
async def test_inherited_variables_are_ignored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, canary: Canary) -> None:
    world = World.make(tmp_path)
    (tmp_path / "other").mkdir()
    git(tmp_path / "other", "init", "-q")
    git_dir = str(tmp_path / "other" / ".git")
    for name in ("GIT_EXTERNAL_DIFF", "GIT_SSH_COMMAND", "GIT_PAGER", "GIT_EDITOR", "GIT_ASKPASS", "GIT_PROXY_COMMAND"):
        monkeypatch.setenv(name, str(canary.program))
    with monkeypatch.context() as patch:
        patch.setenv("GIT_DIR", git_dir)
        patch.setenv("GIT_INDEX_FILE", str(tmp_path / "index"))
        patch.setenv("GIT_WORK_TREE", str(tmp_path / "other"))
        copy = await world.create()
        (copy.root / "a.txt").write_text("by the agent\n")
        kept = await world.keep(copy)
    assert (kept.branch, world.show(kept.branch, "a.txt"), canary.has_run) == ("pi-agent-r1", "by the agent", False)


def plant_nested(root: Path, canary: Canary) -> None:
    nested = root / "vendor"
    git(root, "init", "-q", "vendor")
    (nested / "f").write_text("x")
    (nested / ".gitattributes").write_text("* filter=f\n")
    git(nested, "add", "-A")
    git(nested, "-c", "user.name=x", "-c", "user.email=x@y", "commit", "-qm", "x")
    git(nested, "config", "filter.f.clean", str(canary.program))
    git(nested, "config", "core.fsmonitor", str(canary.program))
    (nested / "f").write_text("changed")


def plant_commondir(root: Path, canary: Canary) -> None:
    # An agent may write git's notes about its own copy, and so could send us to a configuration of its making.
    evil = root.parent.parent / "evil"
    repo = root.parent.parent / "repo"
    subprocess.run(["cp", "-r", str(repo / ".git"), str(evil)], check=True)
    git(evil, "config", "--file", "config", "filter.f.clean", str(canary.program))
    git(evil, "config", "--file", "config", "core.fsmonitor", str(canary.program))
    (root / ".gitattributes").write_text("* filter=f\n")
    (next((repo / ".git" / "worktrees").iterdir()) / "commondir").write_text(f"{evil}\n")


def plant_link(root: Path, canary: Canary) -> None:
    (root / ".git").unlink()
    git(root, "init", "-q")
    git(root, "config", "core.fsmonitor", str(canary.program))
    git(root, "config", "filter.f.clean", str(canary.program))
    (root / ".gitattributes").write_text("* filter=f\n")


@pytest.mark.attack("G1", "G2", "G3", "G4")
@pytest.mark.parametrize("plant", [plant_nested, plant_commondir, plant_link])
async def test_agent_cannot_plant_program(
    plant: Callable[[Path, Canary], None], tmp_path: Path, canary: Canary
) -> None:
    world = World.make(tmp_path)
    copy = await world.create()
    (copy.root / "new.txt").write_text("new\n")
    plant(copy.root, canary)
    canary._feather.unlink(missing_ok=True)
    kept = await world.keep(copy)
    assert (canary.has_run, kept.branch, world.show(kept.branch, "new.txt")) == (False, "pi-agent-r1", "new")


@pytest.mark.attack("A14")
async def test_git_of_workspace_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, canary: Canary) -> None:
    world = World.make(tmp_path)
    (world.repo / "bin").mkdir()
    (world.repo / "bin" / "git").symlink_to(canary.program)
    monkeypatch.setenv("PATH", f"{world.repo / 'bin'}:bin:{os.environ['PATH']}")
    assert ((await run_git(["rev-parse", "HEAD"], world.repo)).ok, canary.has_run) == (True, False)


@pytest.mark.attack("G4")
async def test_unknown_commands_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="'zz' is not one that is known"):
        await run_git(["zz"], tmp_path)


async def test_endless_configuration_times_out(tmp_path: Path) -> None:
    world = World.make(tmp_path)
    os.mkfifo(world.repo / "endless")
    git(world.repo, "config", "include.path", str(world.repo / "endless"))
    result = await run_git(["rev-parse", "HEAD"], world.repo, timeout_s=0.3)
    assert result.problem == "git rev-parse did not end within 0.3 s"


async def test_links_in_notes_are_not_followed(tmp_path: Path) -> None:
    world = World.make(tmp_path)
    copy = await world.create()
    victim = tmp_path / "victim"
    victim.write_text("precious\n")
    notes = Path(copy.record.git_dir)
    for name in ("logs/HEAD", "commondir", "ORIG_HEAD"):
        (notes / name).unlink(missing_ok=True)
        (notes / name).symlink_to(victim)
    (copy.root / "new.txt").write_text("new\n")
    kept = await world.keep(copy)
    assert (kept.branch, victim.read_text(), world.left) == ("pi-agent-r1", "precious\n", [])


@pytest.mark.attack("G12")
async def test_copy_replaced_by_link_is_left(tmp_path: Path) -> None:
    world = World.make(tmp_path)
    copy = await world.create()
    victim = tmp_path / "victim"
    copy.root.rename(victim)
    copy.root.symlink_to(victim)
    kept = await world.keep(copy)
    assert (kept.problem, kept.path, world.branches) == ("it was replaced by a link", str(copy.root), ["main"])
    assert (victim / "a.txt").read_text() == "one\n"
