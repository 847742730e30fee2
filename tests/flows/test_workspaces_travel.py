"""A workspace goes to another machine as it is, its changes are carried on, and they come back as a branch."""

import asyncio
import hashlib
import os
import random
import re
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest

from retinue.core.errors import RetinueError
from retinue.durable.cluster.checkout import Checkout
from retinue.durable.cluster.repository import BundleTooLarge
from retinue.durable.cluster.repository_cache import prune_cache
from retinue.durable.cluster.workspace_bundle import WorkspaceBundle, pack, release
from retinue.sandbox.stubs import Stubs
from retinue.testing import make_repo
from tests.flows.travel_world import BRANCH, CACHE, FILES, Journey, read_tree, take
from tests.flows.worktree_world import git


def make_dirty(repo: Path) -> None:
    (repo / "a.txt").write_text("changed, not committed\n")
    (repo / "src" / "b.txt").unlink()
    (repo / "ü new\nfile.bin").write_bytes(bytes(range(256)))
    (repo / "run.sh").write_text("#!/bin/sh\n")
    (repo / "run.sh").chmod(0o755)
    (repo / "away").symlink_to("/etc/hostname")
    (repo / "folder").symlink_to("src")
    (repo / "staged.txt").write_text("staged")
    git(repo, "add", "staged.txt")


def observe(repo: Path) -> tuple[object, ...]:
    """What packing must leave alone."""
    commands = (
        ("--no-optional-locks", "status", "--porcelain=v2"),
        ("stash", "list"),
        ("branch", "--list", "-v"),
        ("reflog",),
    )
    index = repo / ".git" / "index"
    return (*(git(repo, *words) for words in commands), index.read_bytes(), index.stat().st_mtime_ns, read_tree(repo))


async def test_dirty_state_arrives_whole(tmp_path: Path) -> None:
    repo = make_repo(tmp_path / "repo", FILES)
    make_dirty(repo)
    expected = read_tree(repo)
    (repo / "ignored.log").write_text("stays")
    before = observe(repo)
    journey = await Journey.begin(tmp_path, repo)
    checkout = await journey.open()
    assert observe(repo) == before
    assert (read_tree(checkout.root), checkout.path) == (expected, checkout.root)
    assert git(checkout.root, "status", "--porcelain") == ""
    assert msgspec.json.decode(msgspec.json.encode(journey.parcel), type=WorkspaceBundle) == journey.parcel


async def test_clean_tree_is_its_commit(tmp_path: Path) -> None:
    journey = await Journey.begin(tmp_path)
    head, sent = git(journey.repo, "rev-parse", "HEAD"), journey.parcel.sent_ref
    assert journey.parcel == WorkspaceBundle(
        commit=head,
        base=head,
        project=head,
        digest=hashlib.sha256(journey.bundle).hexdigest(),
        size=len(journey.bundle),
        author=("Test", "test@example.com"),
        sent_ref=sent,
    )
    await release(journey.repo, journey.parcel)
    assert journey.refs == ["refs/heads/main"]


@pytest.mark.parametrize(
    "prepare", ["git switch --detach -q", "git worktree add -q ../linked", "git checkout -qb 'x/ü'"]
)
async def test_any_head_can_be_sent(tmp_path: Path, prepare: str) -> None:
    repo = make_repo(tmp_path / "repo", FILES)
    subprocess.run(prepare, shell=True, cwd=repo, check=True, capture_output=True)
    place = tmp_path / "linked" if "linked" in prepare else repo
    (place / "new.txt").write_text("new")
    journey = await Journey.begin(tmp_path, place)
    checkout = await journey.open()
    (checkout.root / "more.txt").write_text("more")
    assert await journey.land(await take(checkout)) == BRANCH
    assert git(repo, "show", f"{BRANCH}:new.txt", f"{BRANCH}:more.txt") == "newmore"


async def test_run_works_in_same_subfolder(tmp_path: Path) -> None:
    repo = make_repo(tmp_path / "repo", FILES)
    for name in ("src", "line\nbreak ü"):
        (repo / name).mkdir(exist_ok=True)
        parcel, bundle = await pack(repo / name)
        checkout = await Checkout.open(parcel, bundle, tmp_path / "worker")
        assert (parcel.subfolder, checkout.path, checkout.path.is_dir()) == (name, checkout.root / name, True)


async def test_repository_without_commit_travels(tmp_path: Path) -> None:
    repo = tmp_path / "repo"
    git(tmp_path, "init", "-q", "repo")
    (repo / "a.txt").write_text("one")
    journey = await Journey.begin(tmp_path, repo)
    checkout = await journey.open()
    (checkout.root / "b.txt").write_text("two")
    assert await journey.land(await take(checkout)) == BRANCH
    shown = git(repo, "log", "--format=%an: %s", BRANCH)
    assert (journey.parcel.base, shown) == (
        "",
        "pi-agent: pi-agent: do it\npi-agent: pi-agent: what was not committed when the run was sent",
    )


async def test_folder_without_repository_is_empty(tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.mkdir()
    (plain / "a.txt").write_text("stays")
    journey = await Journey.begin(tmp_path, plain)
    assert (journey.parcel.commit, journey.bundle, journey.parcel.notes[0].partition(": ")[2]) == (
        "",
        b"",
        "the run begins in an empty folder. Run `git init` and commit to send them with the next run.",
    )
    checkout = await journey.open()
    assert (read_tree(checkout.root), await checkout.snapshot()) == ({}, None)
    (checkout.root / "made.txt").write_text("made")
    bundles = [await take(checkout)]
    (checkout.root / "more.txt").write_text("more")
    bundles.append(await take(checkout))
    again = await journey.open(*bundles, worker="other")
    assert read_tree(again.root) == {"made.txt": ("file", b"made"), "more.txt": ("file", b"more")}
    with pytest.raises(RetinueError, match="is not in a git repository; run `git init` there"):
        await journey.land(*bundles)
    git(plain, "init", "-q")
    assert await journey.land(*bundles) == BRANCH
    assert git(plain, "ls-tree", "-r", "--name-only", BRANCH) == "made.txt\nmore.txt"


async def test_unchanged_files_need_no_snapshot(tmp_path: Path) -> None:
    checkout = await (await Journey.begin(tmp_path)).open()
    os.utime(checkout.root / "a.txt", (1, 1))
    (checkout.root / "ignored.log").write_text("x")
    (checkout.root / "build").mkdir()
    git(checkout.root, "gc", "-q")
    assert [await checkout.snapshot() for _ in range(3)] == [None] * 3


def change_something(root: Path, dice: random.Random) -> None:
    """One step of an agent that also uses git."""
    name = f"{dice.choice(['', 'src/', 'deep/er/'])}{dice.choice('abcdef')}.txt"
    path = root / name
    match dice.randrange(7):
        case 0 | 1 | 2:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{dice.random()}\n" * dice.randrange(5))
        case 3:
            path.unlink(missing_ok=True)
        case 4:
            git(root, "add", "-A")
            git(root, "commit", "-q", "--allow-empty", "-m", f"step {dice.random()}")
        case 5:
            git(root, "checkout", "-q", "-B", f"topic-{dice.randrange(3)}")
        case 6:
            git(root, "reset", "-q", "--soft", "HEAD~1", check=False)


@pytest.mark.parametrize("seed", range(3))
async def test_lost_worker_is_replaced(tmp_path: Path, seed: int) -> None:
    dice = random.Random(seed)
    repo = make_repo(tmp_path / "repo", FILES)
    make_dirty(repo)
    journey = await Journey.begin(tmp_path, repo)
    checkout, bundles = await journey.open(), []
    for step in range(10):
        change_something(checkout.root, dice)
        if (taken := await checkout.snapshot()) is not None:
            bundles.append(taken.bundle)
        if step % 5 == 4:
            again = await journey.open(*bundles, worker=f"worker {step}")
            asked = ("rev-parse", "HEAD"), ("for-each-ref",), ("rev-parse", "--abbrev-ref", "HEAD")
            told = [[git(each.root, *words) for words in asked] for each in (checkout, again)]
            assert (told[0], read_tree(again.root)) == (told[1], read_tree(checkout.root)), f"seed {seed}"
            assert await again.snapshot() is None
            checkout = again
    assert await journey.land(*bundles) == BRANCH
    git(repo, "worktree", "add", "-q", str(tmp_path / "landed"), BRANCH)
    assert read_tree(tmp_path / "landed") == read_tree(checkout.root), f"seed {seed}"


async def test_work_lands_as_branch(tmp_path: Path) -> None:
    repo = make_repo(tmp_path / "repo", FILES)
    make_dirty(repo)
    journey = await Journey.begin(tmp_path, repo)
    before = observe(repo)[0]
    checkout = await journey.open()
    (checkout.root / "a.txt").write_text("by the agent\n")
    first = await take(checkout)
    git(checkout.root, "commit", "-qam", "own commit")
    (checkout.root / "rest.txt").write_text("rest")
    second = await take(checkout)
    assert await journey.land(first, second) == BRANCH
    assert git(repo, "log", "--format=%an: %s", BRANCH) == (
        "Test: pi-agent: do it\nTest: own commit\n"
        "Test: pi-agent: what was not committed when the run was sent\nTest: first"
    )
    assert (journey.refs, observe(repo)[0]) == (["refs/heads/main", f"refs/heads/{BRANCH}"], before)


async def test_landing_twice_is_landing_once(tmp_path: Path) -> None:
    journey = await Journey.begin(tmp_path)
    checkout = await journey.open()
    git(checkout.root, "branch", "pi-agent-child", git(checkout.root, "commit-tree", "HEAD^{tree}", "-m", "child"))
    (checkout.root / "x.txt").write_text("x")
    bundle = await take(checkout)
    await asyncio.sleep(1.1)
    assert [await journey.land(bundle) for _ in range(2)] == [BRANCH] * 2
    assert journey.refs == ["refs/heads/main", "refs/heads/pi-agent-child", f"refs/heads/{BRANCH}"]


async def test_no_change_lands_nothing(tmp_path: Path) -> None:
    journey = await Journey.begin(tmp_path)
    checkout = await journey.open()
    (checkout.root / "x.txt").write_text("x")
    first = await take(checkout)
    (checkout.root / "x.txt").unlink()
    assert await journey.land(first, await take(checkout)) == ""
    assert (await journey.land(), journey.refs) == ("", ["refs/heads/main"])


async def test_foreign_branch_is_not_moved(tmp_path: Path) -> None:
    journey = await Journey.begin(tmp_path)
    git(journey.repo, "branch", BRANCH)
    checkout = await journey.open()
    (checkout.root / "x.txt").write_text("x")
    name = await journey.land(await take(checkout))
    assert (name != BRANCH, name.rpartition("-")[0]) == (True, BRANCH)
    assert git(journey.repo, "rev-parse", BRANCH) == journey.parcel.base


async def test_resumed_run_moves_its_branch(tmp_path: Path) -> None:
    journey = await Journey.begin(tmp_path)
    for number in range(2):
        checkout = await journey.open()
        (checkout.root / f"{number}.txt").write_text("x")
        assert await journey.land(await take(checkout)) == BRANCH
        journey = await Journey.begin(tmp_path, journey.repo, branch=BRANCH)
    assert git(journey.repo, "ls-tree", "--name-only", BRANCH).split() == [
        ".gitignore",
        "0.txt",
        "1.txt",
        "a.txt",
        "src",
    ]
    assert (await journey.land(), journey.refs) == (BRANCH, ["refs/heads/main", f"refs/heads/{BRANCH}"])


async def test_resumed_run_moves_its_other_branch(tmp_path: Path) -> None:
    journey = await Journey.begin(tmp_path)
    git(journey.repo, "branch", BRANCH)
    own = ""
    for number in range(3):
        checkout = await journey.open()
        (checkout.root / f"{number}.txt").write_text("x")
        name = await journey.land(await take(checkout))
        assert name == own if own else name != BRANCH
        own = name
        journey = await Journey.begin(tmp_path, journey.repo, branch=own)
    assert git(journey.repo, "rev-list", "--count", f"{BRANCH}..{own}") == "3"


async def test_other_branches_are_kept(tmp_path: Path) -> None:
    journey = await Journey.begin(tmp_path)
    checkout = await journey.open()
    for branch in ("pi-agent-child", "idea"):
        git(checkout.root, "checkout", "-q", "-b", branch, journey.parcel.commit)
        git(checkout.root, "commit", "-q", "--allow-empty", "-m", branch)
    git(checkout.root, "checkout", "-q", "--detach", journey.parcel.commit)
    bundle = await take(checkout)
    tips = {git(checkout.root, "rev-parse", name): name for name in ("pi-agent-child", "idea")}
    assert await journey.land(bundle) == ""
    rows = [row.split() for row in git(journey.repo, "for-each-ref", "--format=%(objectname) %(refname)").split("\n")]
    found = {tips[sha]: name for sha, name in rows if sha in tips}
    idea = next(sha for sha, name in tips.items() if name == "idea")
    assert found == {"pi-agent-child": "refs/heads/pi-agent-child", "idea": f"refs/pi-agent/r1/{idea[:12]}"}


async def test_forgotten_commit_comes_from_bundle(tmp_path: Path) -> None:
    repo = make_repo(tmp_path / "repo", FILES)
    make_dirty(repo)
    journey = await Journey.begin(tmp_path, repo)
    git(repo, "gc", "-q", "--prune=now")
    assert git(repo, "cat-file", "-t", journey.parcel.commit) == "commit"
    checkout = await journey.open()
    (checkout.root / "x.txt").write_text("x")
    bundle = await take(checkout)
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "-q", "--no-local", "repo", "clone")
    journey.repo = clone
    with pytest.raises(RetinueError, match=r"is no longer in .*clone'"):
        await journey.land(bundle)
    asked = []

    async def find() -> bytes:
        asked.append("the bundle")
        return journey.bundle

    assert await journey.land(bundle, find_bundle=find) == BRANCH
    assert await journey.land(bundle, find_bundle=find) == BRANCH
    assert asked == ["the bundle"]
    assert git(clone, "show", f"{BRANCH}:a.txt", f"{BRANCH}:x.txt") == "changed, not committed\nx"


async def test_many_runs_share_one_cache(tmp_path: Path) -> None:
    journey = await Journey.begin(tmp_path)
    async with asyncio.TaskGroup() as group:
        opening = [group.create_task(journey.open()) for _ in range(6)]
    checkouts = [each.result() for each in opening]
    for number, checkout in enumerate(checkouts):
        git(checkout.root, "commit", "-q", "--allow-empty", "-m", f"run {number}")
        git(checkout.root, "branch", "same-name")
    async with asyncio.TaskGroup() as group:
        taking = [group.create_task(take(checkout)) for checkout in checkouts]
    assert len({each.result() for each in taking}) == 6
    assert len(list((tmp_path / "worker" / "cache").iterdir())) == 1
    for checkout in checkouts:
        await checkout.close()
    await checkouts[0].close()
    assert journey.left() == CACHE


async def test_inner_repositories_stay_out(tmp_path: Path) -> None:
    repo = make_repo(tmp_path / "repo", FILES)
    make_repo(repo / "vendor", {"v.txt": "v"})
    git(repo, "init", "-q", "void")
    git(repo, "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(repo / "vendor"), "sub")
    journey = await Journey.begin(tmp_path, repo)
    assert journey.parcel.notes == (
        "Submodules are not sent; their folders are empty: 'sub'",
        "Git repositories inside this one are not sent: 'vendor', 'void'",
    )
    checkout = await journey.open()
    git(checkout.root, "init", "-q", "inner")
    (checkout.root / "inner" / "i.txt").write_text("i")
    make_repo(checkout.root / "second", {"s.txt": "s"})
    (checkout.root / "x.txt").write_text("x")
    taken = await checkout.snapshot()
    assert taken is not None
    assert taken.notes == ("Git repositories inside the workspace are not saved: 'inner', 'second'",)
    assert await checkout.snapshot() is None
    again = await journey.open(taken.bundle, worker="other")
    assert sorted(read_tree(again.root)) == [".gitignore", ".gitmodules", "a.txt", "src/b.txt", "x.txt"]


async def test_nodes_of_sandbox_stay_out(tmp_path: Path) -> None:
    repo = make_repo(tmp_path / "repo", FILES)
    stubs = Stubs()
    stubs.hold([str(repo / ".mcp.json")], [str(repo / ".vscode")])
    journey = await Journey.begin(tmp_path, repo)
    assert journey.parcel.commit == journey.parcel.base
    checkout = await journey.open()
    stubs.hold([str(checkout.root / ".mcp.json")], [str(checkout.root / ".vscode")])
    assert await checkout.snapshot() is None
    (checkout.root / "x.txt").touch()
    bundle = await take(checkout)
    assert sorted(read_tree((await journey.open(bundle, worker="other")).root)) == [*sorted(FILES), "x.txt"]
    stubs.release()
    assert await checkout.snapshot() is None


async def test_large_workspace_is_refused(tmp_path: Path) -> None:
    repo = make_repo(tmp_path / "repo", FILES)
    (repo / "large.bin").write_bytes(random.Random(1).randbytes(300_000))
    with pytest.raises(BundleTooLarge) as caught:
        await pack(repo, max_bytes=100 * 1024)
    assert re.sub(r"29\d\.\d", "293.7", str(caught.value)) == (
        f"the workspace {str(repo)!r} is too large to be sent: it is about 293.7 kB, and at most 100.0 kB can be sent "
        "with a run; let git ignore large new files, or push the commit to a remote, and try again"
    )
    assert git(repo, "for-each-ref", "--format=%(refname)") == "refs/heads/main"


async def test_large_change_does_not_stop_others(tmp_path: Path) -> None:
    journey = await Journey.begin(tmp_path)
    checkout = await Checkout.open(journey.parcel, journey.bundle, tmp_path / "worker", max_bytes=100 * 1024)
    (checkout.root / "large.bin").write_bytes(random.Random(1).randbytes(300_000))
    for _ in range(2):
        with pytest.raises(BundleTooLarge, match=r"about 293.\d kB, .* remove large files, or let git ignore them$"):
            await checkout.snapshot()
    (checkout.root / "large.bin").unlink()
    assert await checkout.snapshot() is None
    (checkout.root / "small.txt").write_text("x")
    again = await journey.open(await take(checkout), worker="other")
    assert (again.root / "small.txt").read_text() == "x"


async def test_pointers_stay_pointers(tmp_path: Path) -> None:
    content = b"the real content"
    pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{hashlib.sha256(content).hexdigest()}\nsize 16\n"
    repo = make_repo(tmp_path / "repo", {"a.bin": pointer, "b.bin": pointer, ".gitattributes": "*.bin filter=lfs\n"})
    git(repo, "config", "filter.lfs.clean", "false")
    for name in ("a.bin", "b.bin"):
        (repo / name).write_bytes(content)
    journey = await Journey.begin(tmp_path, repo)
    assert (journey.parcel.commit, journey.parcel.notes) == (journey.parcel.base, ())
    (repo / "b.bin").write_bytes(b"something new")
    journey = await Journey.begin(tmp_path, repo)
    checkout = await journey.open()
    assert [(checkout.root / name).read_bytes() for name in ("a.bin", "b.bin")] == [pointer.encode(), b"something new"]
    assert journey.parcel.notes == ("Sent as they are, without the git filter configured for them: 'b.bin'",)


async def test_shallow_clone_travels(tmp_path: Path) -> None:
    source = make_repo(tmp_path / "source", FILES)
    git(source, "commit", "-q", "--allow-empty", "-m", "second")
    git(tmp_path, "clone", "-q", "--depth=1", f"file://{source}", "repo")
    journey = await Journey.begin(tmp_path, tmp_path / "repo")
    checkout = await journey.open()
    (checkout.root / "x.txt").write_text("x")
    bundles = [await take(checkout)]
    again = await journey.open(*bundles, worker="other")
    assert (journey.parcel.shallow, git(again.root, "log", "--format=%s")) == ((journey.parcel.base,), "second")
    assert await journey.land(*bundles) == BRANCH


async def test_long_ids_travel(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q", "--object-format=sha256", "repo")
    (tmp_path / "repo" / "a.txt").write_text("one")
    journey = await Journey.begin(tmp_path, tmp_path / "repo")
    checkout = await journey.open()
    (checkout.root / "x.txt").write_text("x")
    assert (len(journey.parcel.commit), await journey.land(await take(checkout))) == (64, BRANCH)


async def test_unused_caches_are_pruned(tmp_path: Path) -> None:
    used = await Journey.begin(tmp_path)
    checkout = await used.open()
    other = await Journey.begin(tmp_path, make_repo(tmp_path / "second", {"b": "b"}))
    await (await other.open()).close()
    dead = tmp_path / "worker" / "runs" / "dead"
    (dead / "tree").mkdir(parents=True)
    (dead / "lock").touch()
    freed = await prune_cache(tmp_path / "worker", 0)
    assert (freed > 0, dead.exists(), checkout.root.exists()) == (True, False, True)
    assert len(list((tmp_path / "worker" / "cache").iterdir())) == 1
    await checkout.close()
    assert (await prune_cache(tmp_path / "worker", 1 << 30), used.left()) == (0, CACHE)
    assert (await prune_cache(tmp_path / "worker", 0) > 0, used.left()) == (True, [])


WORKER = """
import asyncio, sys
from pathlib import Path
import msgspec
from retinue.durable.cluster.checkout import Checkout
from retinue.durable.cluster.workspace_bundle import WorkspaceBundle

async def work():
    home = Path(sys.argv[1])
    parcel = msgspec.json.decode((home / "parcel").read_bytes(), type=WorkspaceBundle)
    checkout = await Checkout.open(parcel, (home / "bundle").read_bytes(), home / "worker")
    while True:
        (checkout.root / "x.txt").write_text("x" * 100_000)
        await checkout.snapshot()
        print("works", flush=True)
        (checkout.root / "x.txt").unlink()
        await checkout.snapshot()

asyncio.run(work())
"""


async def test_killed_worker_is_tidied_up(tmp_path: Path) -> None:
    journey = await Journey.begin(tmp_path)
    (tmp_path / "parcel").write_bytes(msgspec.json.encode(journey.parcel))
    (tmp_path / "bundle").write_bytes(journey.bundle)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", WORKER, str(tmp_path), stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    await process.stdout.readline()
    assert (await prune_cache(tmp_path / "worker", 0), len(list((tmp_path / "worker" / "runs").iterdir()))) == (0, 1)
    process.kill()
    await process.communicate()
    async with asyncio.timeout(20):
        # A git that the worker was about to start has its locks until it begins.
        while (await prune_cache(tmp_path / "worker", 1 << 30), journey.left()) != (0, CACHE):
            await asyncio.sleep(0.02)


async def test_cancelled_opening_leaves_nothing(tmp_path: Path) -> None:
    journey = await Journey.begin(tmp_path, make_repo(tmp_path / "repo", {f"{i}.txt": str(i) for i in range(300)}))
    for delay_s in (0.0, 0.01, 0.03, 0.06, 0.1):
        opened = []
        with suppress(TimeoutError):
            async with asyncio.timeout(delay_s):
                opened.append(await journey.open())
        for checkout in opened:
            await checkout.close()
        assert list(tmp_path.glob("worker/runs/*")) == []
    assert set(journey.left()) <= set(CACHE)
