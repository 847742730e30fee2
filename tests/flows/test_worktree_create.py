"""A run gets a whole copy of its repository, or an error and nothing at all."""

import asyncio
import os
import subprocess
from pathlib import Path

import pytest

from retinue.core.errors import IsolationFailed
from retinue.features.worktree.feature import recover_leftovers
from retinue.features.worktree.preparation import WorktreeOptions
from retinue.features.worktree.records import CopyRecord, Records
from retinue.features.worktree.saved_work import KeptCopy
from retinue.testing import make_repo
from retinue.tools.git import run_git
from tests.flows.worktree_world import World, git

REFUSED = 'Cannot run with isolation: "worktree": '


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World.make(tmp_path)


async def refuse(world: World, cwd: Path, **wishes: object) -> str:
    """The reason why there is no copy, after a look that nothing is left."""
    with pytest.raises(IsolationFailed) as caught:
        await world.create(cwd=cwd, **wishes)
    assert str(caught.value).startswith(REFUSED)
    assert (world.left, world.branches) == ([], ["main"])
    return str(caught.value).removeprefix(REFUSED)


async def use(world: World, cwd: Path, **wishes: object) -> str:
    """Change a file in a copy and give back the branch's version of it."""
    copy = await world.create(cwd=cwd, **wishes)
    (copy.root / "a.txt").write_text("by the agent\n")
    kept = await world.keep(copy)
    assert (kept, list(world.tmp.iterdir())) == (KeptCopy("pi-agent-r1"), [])
    return git(cwd, "show", f"{kept.branch}:a.txt")


@pytest.mark.spec("fleet:B92")
async def test_plain_directory_is_refused(world: World, tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    assert "is not in a git work tree (fatal: not a git repository" in await refuse(world, tmp_path / "plain")


@pytest.mark.spec("fleet:B92")
async def test_repository_without_commit_is_refused(world: World, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    git(tmp_path / "empty", "init", "-q")
    assert "has no commit yet; commit something first" in await refuse(world, tmp_path / "empty")


async def test_bare_repository_is_refused(world: World, tmp_path: Path) -> None:
    git(tmp_path, "clone", "-q", "--bare", "repo", "bare.git")
    assert "is not in a git work tree" in await refuse(world, tmp_path / "bare.git")
    assert "is not in a git work tree (it is bare, or inside of .git)" in await refuse(world, world.repo / ".git")


async def test_missing_directory_is_refused(world: World) -> None:
    assert "could not be started" in await refuse(world, world.repo / "missing")


@pytest.mark.attack("G7")
async def test_odd_ids_are_refused(world: World) -> None:
    for run_id in ("-x", "a/b", "", "x" * 65, "a\nb", "..", "a.lock"):
        with pytest.raises(IsolationFailed, match="cannot name a branch"):
            await world.create(run_id)
    assert world.left == []


async def test_foreign_checkout_is_refused(world: World, tmp_path: Path) -> None:
    (tmp_path / "victim").mkdir()
    git(world.repo, "config", "core.worktree", str(tmp_path / "victim"))
    with pytest.raises(IsolationFailed, match="is not where its repository says its checkout is"):
        await world.create()
    assert world.left == []


async def test_temporary_directory_inside_is_refused(world: World) -> None:
    world.tmp = world.repo / "src"
    with pytest.raises(IsolationFailed, match=r"is inside the checkout .*; set TMPDIR to another one"):
        await world.create()
    assert sorted(os.listdir(world.tmp)) == ["b.txt"]


@pytest.mark.parametrize("damage", ["config", "object", "full records"])
async def test_failure_leaves_nothing(world: World, damage: str) -> None:
    if damage == "config":
        (world.repo / ".git" / "config").write_text("[broken\n")
    elif damage == "object":
        blob = git(world.repo, "rev-parse", "HEAD:a.txt")
        (world.repo / ".git" / "objects" / blob[:2] / blob[2:]).unlink()
    else:
        world.records.directory.write_text("a file where a directory should be")
    with pytest.raises((IsolationFailed, OSError)):
        await world.create()
    assert [path.name for path in (*world.tmp.iterdir(), *(world.repo / ".git").glob("worktrees/*"))] == []


@pytest.mark.sample(3)
@pytest.mark.parametrize("delay_s", [0.0, 0.005, 0.01, 0.015, 0.02, 0.03])
async def test_cancel_leaves_nothing(world: World, delay_s: float) -> None:
    for number in range(300):
        (world.repo / f"f{number}").write_text("x")
    git(world.repo, "add", "-A")
    git(world.repo, "commit", "-qm", "many")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(delay_s):
            await world.create()
            await asyncio.sleep(1)
    left = world.left
    # A copy that was made in time is whole, and somebody owns it.
    assert left == [] or "r1.json" in left


@pytest.mark.attack("H3")
async def test_copy_is_private(world: World) -> None:
    (world.repo / "a.txt").write_text("uncommitted\n")
    copy = await world.create()
    assert (copy.root / "a.txt").read_text() == "one\n"
    assert (copy.root.stat().st_mode & 0o777, copy.root.parent, copy.cwd) == (0o700, world.tmp, copy.root)
    assert copy.root.name.startswith("pi-agent-r1-") and len(copy.root.name) == len("pi-agent-r1-") + 8
    branches = [(await run_git(["branch", "--show-current"], each)).text for each in (copy.root, world.repo)]
    assert branches == ["", "main"]


async def test_place_in_repository_is_kept(world: World) -> None:
    (world.repo / "not committed").mkdir()
    first = await world.create("r1", world.repo / "src", keeps_place=True)
    second = await world.create("r2", world.repo / "src")
    third = await world.create("r3", world.repo / "not committed", keeps_place=True)
    assert [copy.cwd.relative_to(copy.root).as_posix() for copy in (first, second, third)] == [
        "src",
        ".",
        "not committed",
    ]
    assert [await world.keep(copy) for copy in (first, second, third)] == [KeptCopy(), KeptCopy(), KeptCopy()]


async def test_link_out_of_copy_is_refused(world: World, tmp_path: Path) -> None:
    (world.repo / "out").symlink_to(tmp_path)
    git(world.repo, "add", "out")
    git(world.repo, "commit", "-qm", "link")
    (world.repo / "out").unlink()
    (world.repo / "out").mkdir()
    assert "is a link to a place outside the repository" in await refuse(world, world.repo / "out", keeps_place=True)


@pytest.mark.attack("G11")
async def test_missing_branch_is_refused(world: World) -> None:
    reason = await refuse(world, world.repo, branch="pi-agent-r1")
    assert reason.startswith("branch 'pi-agent-r1', which holds the work of run 'r1', is not in ")


async def test_shallow_clone_works(world: World, tmp_path: Path) -> None:
    git(world.repo, "commit", "-q", "--allow-empty", "-m", "second")
    git(tmp_path, "clone", "-q", "--depth=1", f"file://{world.repo}", "shallow")
    assert await use(world, tmp_path / "shallow") == "by the agent"


async def test_linked_worktree_of_bare_works(world: World, tmp_path: Path) -> None:
    git(tmp_path, "clone", "-q", "--bare", "repo", "bare.git")
    git(tmp_path / "bare.git", "worktree", "add", "-q", str(tmp_path / "linked"), "main")
    assert await use(world, tmp_path / "linked") == "by the agent"


@pytest.mark.parametrize("is_cone", [True, False])
async def test_sparse_checkout_works(world: World, tmp_path: Path, is_cone: bool) -> None:
    repo = make_repo(tmp_path / "wide", {"a.txt": "one\n", "in/f": "x\n", "out/f": "y\n"})
    git(repo, "sparse-checkout", "set", *(("--cone", "in") if is_cone else ("--no-cone", "/in", "/a.txt")))
    copy = await world.create(cwd=repo)
    assert sorted(path.name for path in copy.root.iterdir()) == [".git", "a.txt", "in"]
    (copy.root / "in" / "f").write_text("changed\n")
    (copy.root / "out").mkdir()
    (copy.root / "out" / "new").write_text("outside of what is checked out\n")
    assert await world.keep(copy) == KeptCopy("pi-agent-r1")
    changed = git(repo, "show", "--format=", "--name-status", "pi-agent-r1")
    assert (changed, git(repo, "status", "--porcelain")) == ("M\tin/f\nA\tout/new", "")


async def test_sparse_checkout_keeps_commits(world: World, tmp_path: Path) -> None:
    repo = make_repo(tmp_path / "wide", {"a.txt": "one\n", "in/f": "x\n", "out/f": "y\n"})
    git(repo, "checkout", "-qb", "other")
    (repo / "out" / "g").write_text("from afar\n")
    git(repo, "add", "-A")
    git(repo, "commit", "-qm", "other")
    git(repo, "checkout", "-q", "main")
    git(repo, "sparse-checkout", "set", "--cone", "in")
    copy = await world.create(cwd=repo)
    git(copy.root, "merge", "-q", "--no-ff", "other")
    (copy.root / "in" / "f").write_text("changed\n")
    assert await world.keep(copy) == KeptCopy("pi-agent-r1")
    assert git(repo, "diff", "--name-status", "main", "pi-agent-r1") == "M\tin/f\nA\tout/g"


async def test_names_need_not_be_text(world: World, tmp_path: Path) -> None:
    repo = make_repo(Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff dir")), {"a.txt": "one\n"})
    assert await use(world, repo, description="\ud800 " + "x" * 100_000, keeps_place=True) == "by the agent"


@pytest.mark.parametrize("command", ["merge", "rebase"])
async def test_repository_in_conflict_works(world: World, command: str) -> None:
    git(world.repo, "checkout", "-qb", "other")
    (world.repo / "a.txt").write_text("other\n")
    git(world.repo, "commit", "-qam", "other")
    git(world.repo, "checkout", "-q", "main")
    (world.repo / "a.txt").write_text("main\n")
    git(world.repo, "commit", "-qam", "main")
    git(world.repo, command, "other", check=False)
    before = git(world.repo, "status")
    assert (await use(world, world.repo), git(world.repo, "status")) == ("by the agent", before)


async def test_submodules_work(world: World, tmp_path: Path) -> None:
    inner = make_repo(tmp_path / "inner", {"a.txt": "inner\n"})
    git(world.repo, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(inner), "sub")
    git(world.repo, "commit", "-qm", "submodule")
    assert await use(world, world.repo) == "by the agent"
    git(world.repo, "branch", "-D", "pi-agent-r1")
    assert await use(world, world.repo / "sub") == "by the agent"
    assert git(world.repo / "sub", "branch", "--list", "pi-agent-*") == "pi-agent-r1"


async def test_several_repositories_work(world: World, tmp_path: Path) -> None:
    other = make_repo(tmp_path / "other", {"a.txt": "x\n"})
    copies = [await world.create("r1"), await world.create("r2", other), await world.create("r3", other)]
    for copy in copies:
        (copy.root / "a.txt").write_text(f"{copy.record.run_id}\n")
    assert [await world.keep(copy) for copy in copies] == [KeptCopy(f"pi-agent-r{number}") for number in (1, 2, 3)]
    shown = [git(repo, "show", f"pi-agent-{name}:a.txt") for repo, name in ((world.repo, "r1"), (other, "r3"))]
    assert (shown, world.left) == (["r1", "r3"], [])


async def test_many_copies_at_once(world: World) -> None:
    copies = await asyncio.gather(*(world.create(f"r{number}") for number in range(20)))
    for copy in copies:
        (copy.root / "a.txt").write_text(f"{copy.record.run_id}\n")
    kept = await asyncio.gather(*(world.keep(copy) for copy in copies))
    assert kept == [KeptCopy(f"pi-agent-r{number}") for number in range(20)]
    assert (world.left, world.show("pi-agent-r7", "a.txt"), len(world.branches)) == ([], "r7", 21)


async def test_half_made_copy_does_no_harm(world: World) -> None:
    # As a kill leaves it, in the middle of git's work.
    dead = Records(world.records.directory)
    notes = world.repo / ".git" / "worktrees" / "pi-agent-dead-01234567"
    fields = {"path": str(world.tmp / notes.name), "top": str(world.repo), "common": str(world.repo / ".git")}
    dead.save(dead.claim(CopyRecord(run_id="dead", state="creating", base="0" * 40, **fields)))
    dead.close()
    notes.mkdir(parents=True)
    (notes / "gitdir").write_text(f"{fields['path']}/.git\n")
    (notes / "commondir").write_text("")
    assert "failed to read" in await refuse_only(world)
    assert [left.run_id for left in await recover_leftovers(world.records)] == ["dead"]
    assert await use(world, world.repo) == "by the agent"


async def refuse_only(world: World) -> str:
    with pytest.raises(IsolationFailed) as caught:
        await world.create()
    return str(caught.value)


async def test_users_checkout_stays_untouched(world: World) -> None:
    (world.repo / "a.txt").write_text("uncommitted\n")
    (world.repo / "b.txt").write_text("staged\n")
    git(world.repo, "add", "b.txt")

    def look() -> list[str]:
        files = [path for path in (world.repo / ".git").rglob("*") if path.is_file()]
        names = [path.as_posix() for path in files if "objects" not in path.parts and "pi-agent" not in path.name]
        index = (world.repo / ".git" / "index").read_bytes().hex()
        return [
            *sorted(names),
            index,
            subprocess.getoutput(f"git -C {world.repo} status; cat {world.repo}/.git/config"),
        ]

    before = look()
    await use(world, world.repo)
    assert look() == before


async def test_changes_outside_of_cone_are_in_the_base(world: World, tmp_path: Path) -> None:
    repo = make_repo(tmp_path / "wide", {"a.txt": "one\n", "in/f": "x\n", "out/f": "y\n"})
    git(repo, "sparse-checkout", "set", "--cone", "in")
    (repo / "out").mkdir()
    (repo / "out" / "new").write_text("mine\n")
    copy = await world.create(cwd=repo, options=WorktreeOptions(base="HEAD+changes"))
    assert git(repo, "diff", "--name-status", "main", copy.record.base) == "A\tout/new"
    assert git(repo, "status", "--porcelain") == "?? out/new"
