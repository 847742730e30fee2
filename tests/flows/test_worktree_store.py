"""Whatever a run makes of its own repository, the user's gets whole commits or nothing, and no work is lost."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from retinue.core.errors import IsolationFailed
from retinue.features.worktree.copies import Copy, CopyRequest
from retinue.features.worktree.feature import recover_leftovers, resume_copy
from retinue.features.worktree.records import Records
from retinue.features.worktree.saved_work import KeptCopy
from retinue.sandbox.profile import SandboxSettings, build_readonly, build_writing
from retinue.testing import make_repo
from tests.flows.test_worktree_attacks import Canary
from tests.flows.worktree_world import World, git

BRANCH = "pi-agent-r1"
IDENTITY = ("-c", "user.name=Agent", "-c", "user.email=agent@example.com")


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World.make(tmp_path)


def own(world: World, run_id: str = "r1") -> Path:
    return Path(world.records.repository_path(run_id))


def commit(copy: Copy, name: str = "mine.txt", text: str = "mine\n") -> str:
    (copy.root / name).write_text(text)
    git(copy.root, "add", "-A")
    git(copy.root, *IDENTITY, "commit", "-qm", f"add {name}")
    return git(copy.root, "rev-parse", "HEAD")


def find_loose(repository: Path, sha: str) -> Path:
    return repository / "objects" / sha[:2] / sha[2:]


def hash_literally(copy: Copy, kind: str, data: bytes) -> str:
    argv = ["git", "hash-object", "-w", "--literally", "-t", kind, "--stdin"]
    return subprocess.run(argv, cwd=copy.root, input=data, capture_output=True, check=True).stdout.decode().strip()


def lend_secret(world: World, copy: Copy, *, link: bool) -> None:
    """Go to a commit of a repository that the run itself may not read."""
    secret = make_repo(world.tmp.parent / "secret", {"key": "SECRET\n"})
    if link:
        for folder in (secret / ".git" / "objects").iterdir():
            place = own(world) / "objects" / folder.name
            if not place.exists():
                place.symlink_to(folder)
    else:
        with open(own(world) / "objects" / "info" / "alternates", "a") as file:
            file.write(f"{secret}/.git/objects\n")
    (own(world) / "HEAD").write_text(git(secret, "rev-parse", "HEAD") + "\n")


def link_each(world: World, copy: Copy) -> None:
    secret = make_repo(world.tmp.parent / "secret", {"key": "SECRET\n"})
    for path in (secret / ".git" / "objects").glob("??/*"):
        place = own(world) / "objects" / path.parent.name
        place.mkdir(exist_ok=True)
        (place / path.name).symlink_to(path)
    (own(world) / "HEAD").write_text(git(secret, "rev-parse", "HEAD") + "\n")


def forge_blob(world: World, copy: Copy) -> None:
    commit(copy)
    path = find_loose(own(world), git(copy.root, "rev-parse", "HEAD:mine.txt"))
    other = find_loose(own(world), hash_literally(copy, "blob", b"other\n"))
    path.unlink()
    path.write_bytes(other.read_bytes())
    (copy.root / "mine.txt").unlink()


def cut_commit(world: World, copy: Copy) -> None:
    path = find_loose(own(world), commit(copy))
    path.chmod(0o644)
    path.write_bytes(path.read_bytes()[:20])


def drop_tree(world: World, copy: Copy) -> None:
    commit(copy)
    find_loose(own(world), git(copy.root, "rev-parse", "HEAD^{tree}")).unlink()


def hide_evil_tree(world: World, copy: Copy) -> None:
    """Behind the last commit, a tree that would write into .git where it is checked out; its name is right."""
    blob = git(copy.root, "rev-parse", "HEAD:a.txt")
    tree = hash_literally(copy, "tree", b"100644 .git\0" + bytes.fromhex(blob))
    evil = git(copy.root, *IDENTITY, "commit-tree", tree, "-p", "HEAD", "-m", "evil")
    last = git(copy.root, *IDENTITY, "commit-tree", "HEAD^{tree}", "-p", evil, "-m", "last")
    git(copy.root, "update-ref", "HEAD", last)


def break_commit(world: World, copy: Copy) -> None:
    """Behind the last commit, one that git itself would not have made."""
    whole = git(copy.root, "cat-file", "commit", "HEAD").replace("author Test <", "author evil")
    evil = hash_literally(copy, "commit", whole.encode())
    last = git(copy.root, *IDENTITY, "commit-tree", "HEAD^{tree}", "-p", evil, "-m", "last")
    git(copy.root, "update-ref", "HEAD", last)


def spoil_pack(world: World, copy: Copy) -> None:
    commit(copy)
    git(copy.root, "gc", "-q")
    [pack] = (own(world) / "objects" / "pack").glob("*.pack")
    data = bytearray(pack.read_bytes())
    data[len(data) // 2] ^= 0xFF
    pack.chmod(0o644)
    pack.write_bytes(bytes(data))


REFUSED: dict[str, Callable[[World, Copy], None]] = {
    "lent objects": lambda world, copy: lend_secret(world, copy, link=False),
    "linked folders": lambda world, copy: lend_secret(world, copy, link=True),
    "linked objects": link_each,
    "forged blob": forge_blob,
    "cut commit": cut_commit,
    "missing tree": drop_tree,
    "evil tree": hide_evil_tree,
    "broken commit": break_commit,
    "spoilt pack": spoil_pack,
}


@pytest.mark.sample(5)
@pytest.mark.attack("I10")
@pytest.mark.parametrize("how", REFUSED)
async def test_unsound_commits_are_not_taken(how: str, world: World) -> None:
    copy = await world.create()
    REFUSED[how](world, copy)
    (copy.root / "a.txt").write_text("precious\n")
    kept = await world.keep(copy)
    assert (kept.branch, kept.path, (copy.root / "a.txt").read_text()) == ("", str(copy.root), "precious\n")
    assert (world.branches, git(world.repo, "fsck", "--full", "--strict", "--no-dangling")) == (["main"], "")
    argv = ["git", "cat-file", "--batch-all-objects", "--batch"]
    everything = subprocess.run(argv, cwd=world.repo, capture_output=True, check=True).stdout
    assert [word for word in (b"SECRET", b"other", b"evil") if word in everything] == []
    assert not [name for name in os.listdir(world.records.directory) if ".objects-" in name]


def forge_known(world: World, copy: Copy) -> None:
    """Other content under the name of a tree and of a blob that the user's repository has."""
    for name in ("HEAD^{tree}", "HEAD:a.txt"):
        sha = git(world.repo, "rev-parse", name)
        other = find_loose(own(world), hash_literally(copy, "blob", b"forged\n"))
        find_loose(own(world), sha).parent.mkdir(exist_ok=True)
        find_loose(own(world), sha).write_bytes(other.read_bytes())


def add_pipes(world: World, copy: Copy) -> None:
    for name in ("objects/aa", "refs/heads/pipe", "refs/x", "logs/HEAD", "MERGE_HEAD", "packed-refs", "ORIG_HEAD"):
        path = own(world) / name
        path.unlink(missing_ok=True)
        path.parent.mkdir(exist_ok=True)
        os.mkfifo(path)
    (own(world) / "objects" / "bb").mkdir()
    os.mkfifo(own(world) / "objects" / "bb" / ("0" * 38))


def add_links(world: World, copy: Copy) -> None:
    for name, target in (("refs/out", "/"), ("logs", "/etc"), ("worktrees", "/"), ("objects/cc", "/"), ("x", "/")):
        (own(world) / name).symlink_to(target)


def add_replacements(world: World, copy: Copy) -> None:
    head, other = (
        git(copy.root, "rev-parse", "HEAD"),
        git(copy.root, *IDENTITY, "commit-tree", "HEAD^{tree}", "-m", "o"),
    )
    git(copy.root, "replace", head, other)
    (own(world) / "info" / "grafts").write_text(f"{head} {other}\n")
    (own(world) / "shallow").write_text(f"{head}\n")


def add_lies(world: World, copy: Copy) -> None:
    """What git believes about objects without looking at them."""
    git(copy.root, "commit-graph", "write", "--reachable", check=False)
    for name in ("objects/info/commit-graph", "objects/pack/multi-pack-index", "objects/info/packs"):
        (own(world) / name).unlink(missing_ok=True)
        (own(world) / name).write_bytes(b"junk")
    (own(world) / "objects" / "pack" / f"pack-{'0' * 40}.idx").write_bytes(b"junk")


PASSED = {
    "forged names": forge_known,
    "pipes": add_pipes,
    "links": add_links,
    "replacements": add_replacements,
    "lies": add_lies,
}


@pytest.mark.attack("I10")
@pytest.mark.parametrize("how", PASSED)
async def test_traps_do_not_mislead(how: str, world: World) -> None:
    copy = await world.create()
    PASSED[how](world, copy)
    (copy.root / "a.txt").write_text("changed\n")
    (copy.root / "new.txt").write_text("new\n")
    kept = await world.keep(copy)
    assert (kept.branch, kept.path, world.left) == (BRANCH, "", [])
    shown = [world.show(BRANCH, name) for name in ("a.txt", "new.txt", "src/b.txt")]
    assert (shown, git(world.repo, "rev-parse", f"{BRANCH}^")) == (["changed", "new", "two"], copy.record.base)
    assert git(world.repo, "fsck", "--full", "--strict", "--no-dangling") == ""


@pytest.mark.attack("I10", "G1", "G2", "G3", "G4")
async def test_own_configuration_runs_nothing(world: World, tmp_path: Path) -> None:
    canary = Canary(tmp_path / "canary")
    copy = await world.create()
    settings = ("core.fsmonitor", "filter.f.clean", "core.pager", "diff.external", "uploadpack.packObjectsHook")
    for key in (*settings, "core.alternateRefsCommand"):
        git(copy.root, "config", "--file", str(own(world) / "config"), key, str(canary.program))
    git(copy.root, "config", "--file", str(own(world) / "config"), "core.hooksPath", str(canary.program.parent))
    (canary.program.parent / "reference-transaction").symlink_to(canary.program)
    (copy.root / ".gitattributes").write_text("* filter=f\n")
    kept = await world.keep(copy)
    assert (kept.branch, canary.has_run, world.left) == (BRANCH, False, [])


@pytest.mark.attack("I10")
async def test_links_are_not_written_through(world: World, tmp_path: Path) -> None:
    copy = await world.create()
    victim = tmp_path / "victim"
    victim.write_text("precious\n")
    (own(world) / "HEAD").unlink()
    (own(world) / "HEAD").symlink_to(victim)
    (copy.root / "new.txt").write_text("new\n")
    assert (await world.keep(copy), victim.read_text(), world.left) == (KeptCopy(BRANCH), "precious\n", [])


KILLED = """
import asyncio, os, signal, sys
from pathlib import Path
from retinue.features.worktree import repository
from retinue.features.worktree import saved_work as keeping
from retinue.features.worktree.records import Records
from retinue.features.worktree.feature import resume_copy
from retinue.features.worktree.copies import CopyRequest

repo, tmp, step, when = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[4], sys.argv[5]
records = Records(Path(sys.argv[3]))
owner, name = {
    "bring": (repository.ObjectStore, "bring"), "import": (repository.ObjectStore, "_copy"),
    "head": (keeping, "write_ref"),
    "abandoned": (keeping._Saver, "_save_abandoned"), "branch": (keeping._Saver, "_save_branch"),
    "proof": (keeping._Saver, "_prove"), "removal": (keeping, "discard_copy"),
}[step]
inner = getattr(owner, name)

def die():
    os.kill(os.getpid(), signal.SIGKILL)

async def wrapped(*arguments):
    if when == "before":
        die()
    await inner(*arguments)
    die()

def plain(*arguments):
    if when == "before":
        die()
    inner(*arguments)
    die()

setattr(owner, name, wrapped if asyncio.iscoroutinefunction(inner) else plain)

async def main():
    copy = await resume_copy(CopyRequest("r1", repo), records, tmp=tmp)
    await keeping.keep_work(copy.record, records)

asyncio.run(main())
"""


@pytest.mark.sample(9)
@pytest.mark.attack("I10")
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("step", ["bring", "import", "head", "abandoned", "branch", "proof", "removal"])
async def test_kill_between_steps_loses_nothing(step: str, when: str, world: World) -> None:
    copy = await world.create()
    made = commit(copy)
    (copy.root / "more.txt").write_text("more\n")
    world.records.close()
    argv = [sys.executable, "-c", KILLED, str(world.repo), str(world.tmp), str(world.records.directory), step, when]
    assert subprocess.run(argv, check=False).returncode == -signal.SIGKILL
    # Whatever moment it was: no ref of the user's repository leads to nothing.
    assert git(world.repo, "fsck", "--full", "--no-dangling") == ""
    await recover_leftovers(Records(world.records.directory))
    assert (world.branches, world.left) == (["main", BRANCH], [])
    assert [world.show(BRANCH, name) for name in ("mine.txt", "more.txt")] == ["mine", "more"]
    assert made in git(world.repo, "rev-list", BRANCH).split()
    assert git(world.repo, "fsck", "--full", "--strict", "--no-dangling") == ""


async def test_many_objects_become_a_pack(world: World) -> None:
    copy = await world.create()
    for number in range(150):
        (copy.root / f"f{number}").write_text(f"{number}\n")
    commit(copy)
    assert (await world.keep(copy), world.show(BRANCH, "f149")) == (KeptCopy(BRANCH), "149")
    assert [path.suffix for path in (world.repo / ".git" / "objects" / "pack").iterdir()].count(".pack") == 1


async def test_resumed_copy_has_its_commits(world: World) -> None:
    made = commit(await world.create())
    world.records.close()
    again = Records(world.records.directory)
    copy = await resume_copy(CopyRequest("r1", world.repo), again, tmp=world.tmp)
    assert git(copy.root, "rev-parse", "HEAD") == made
    (copy.root / "more.txt").write_text("more\n")
    world.records = again
    assert (await world.keep(copy), git(world.repo, "rev-parse", f"{BRANCH}^")) == (KeptCopy(BRANCH), made)


async def test_lost_objects_keep_files(world: World) -> None:
    copy = await world.create()
    commit(copy)
    subprocess.run(["rm", "-rf", str(own(world))], check=True)
    (copy.root / "more.txt").write_text("more\n")
    assert (await world.keep(copy), world.left) == (KeptCopy(BRANCH), [])
    assert [world.show(BRANCH, name) for name in ("mine.txt", "more.txt")] == ["mine", "more"]


async def test_users_clearing_up_does_no_harm(world: World) -> None:
    (world.repo / "a.txt").write_text("second\n")
    git(world.repo, "commit", "-qam", "second")
    copy = await world.create()
    # Nothing but the copy needs the commit any more.
    git(world.repo, "reset", "-q", "--hard", "HEAD^")
    git(world.repo, "reflog", "expire", "--expire=now", "--all")
    git(world.repo, "worktree", "prune")
    git(world.repo, "gc", "-q", "--prune=now")
    assert str(copy.root) in git(world.repo, "worktree", "list")
    made = commit(copy)
    assert (await world.keep(copy), git(world.repo, "rev-parse", BRANCH)) == (KeptCopy(BRANCH), made)
    assert git(world.repo, "fsck", "--full", "--no-dangling") == ""


async def test_stash_and_other_branches_are_kept(world: World) -> None:
    copy = await world.create()
    (copy.root / "a.txt").write_text("stashed\n")
    git(copy.root, *IDENTITY, "stash", "-q")
    git(copy.root, "checkout", "-qb", "side")
    side = commit(copy)
    git(copy.root, "checkout", "-q", "--detach", "main")
    git(copy.root, "pack-refs", "--all")
    kept = await world.keep(copy)
    names = git(world.repo, "for-each-ref", "--format=%(refname)", "refs/pi-agent").split()
    assert (kept.branch, len(kept.notes), f"refs/pi-agent/r1/{side[:12]}" in names) == ("", 2, True)
    assert (world.left, git(world.repo, "fsck", "--no-dangling")) == ([], "")


async def test_deleted_branch_does_not_return(world: World) -> None:
    git(world.repo, "checkout", "-qb", "other")
    git(world.repo, "commit", "-q", "--allow-empty", "-m", "other")
    git(world.repo, "checkout", "-q", "main")
    copy = await world.create()
    git(world.repo, "branch", "-qD", "other")
    assert (git(copy.root, "log", "-1", "--format=%s", "other"), await world.keep(copy)) == ("other", KeptCopy())
    assert git(world.repo, "for-each-ref", "--format=%(refname)") == "refs/heads/main"


async def test_copy_of_copy_has_its_commits(world: World) -> None:
    outer = await world.create("r1")
    made = commit(outer)
    inner = await world.create("r2", outer.root)
    assert (inner.record.base, inner.record.common) == (made, outer.record.common)
    commit(inner, "inner.txt", "inner\n")
    assert await world.keep(inner) == KeptCopy("pi-agent-r2")
    # Who asked for the work can merge it where it is.
    git(outer.root, "merge", "-q", "pi-agent-r2")
    assert (await world.keep(outer), world.left) == (KeptCopy(BRANCH), [])
    assert [world.show(BRANCH, name) for name in ("mine.txt", "inner.txt")] == ["mine", "inner"]
    assert (world.branches, git(world.repo, "fsck", "--no-dangling")) == (["main", BRANCH, "pi-agent-r2"], "")


@pytest.mark.attack("I10")
async def test_copy_of_bent_copy_is_refused(world: World) -> None:
    outer = await world.create("r1")
    lend_secret(world, outer, link=False)
    with pytest.raises(IsolationFailed, match="of run 'r1' cannot be used"):
        await world.create("r2", outer.root)
    assert ("r2.json" in world.left, git(world.repo, "fsck", "--no-dangling")) == (False, "")


async def test_copy_outlives_the_one_around(world: World) -> None:
    outer = await world.create("r1")
    commit(outer)
    inner = await world.create("r2", outer.root)
    await world.keep(outer)
    made = commit(inner, "inner.txt")
    assert (await world.keep(inner), git(world.repo, "rev-parse", "pi-agent-r2")) == (KeptCopy("pi-agent-r2"), made)


async def test_copy_of_earlier_version_is_kept(world: World) -> None:
    copy = await world.create()
    subprocess.run(["rm", "-rf", str(own(world)), str(world.records.refs_path("r1"))], check=True)
    (copy.root / ".git").write_text(f"gitdir: {copy.record.git_dir}\n")
    made = commit(copy)
    (copy.root / "more.txt").write_text("more\n")
    assert (await world.keep(copy), world.left) == (KeptCopy(BRANCH), [])
    assert (git(world.repo, "rev-parse", f"{BRANCH}^"), world.show(BRANCH, "more.txt")) == (made, "more")


@pytest.mark.attack("I10")
async def test_boundary_of_copy_leaves_repository_out(world: World, home: Path) -> None:
    agent = home / ".pi" / "agent"
    world.records = Records(agent / "retinue" / "worktrees")
    copy = await world.create()
    wishes = SandboxSettings(home=str(home), agent_dir=str(agent), writable=())
    writing, common = build_writing(copy.root, wishes), str(world.repo / ".git")
    assert (writing.writable, common in writing.visible) == ((str(own(world)),), True)
    assert common in build_readonly(copy.root, wishes).visible
    # Whatever `.git` of a copy, or of another folder, is made to say.
    other = world.tmp / "other"
    other.mkdir()
    (other / ".git").write_text(f"gitdir: {own(world)}\n")
    (copy.root / ".git").write_text(f"gitdir: {copy.record.git_dir}\n")
    assert [build_writing(place, wishes).writable for place in (other, copy.root)] == [(), ()]


@pytest.mark.attack("I10")
async def test_repository_elsewhere_is_no_copys(world: World, home: Path) -> None:
    copy = await world.create()
    profile = build_writing(
        copy.root, SandboxSettings(home=str(home), agent_dir=str(home / ".pi" / "agent"), writable=())
    )
    assert (profile.writable, str(world.repo / ".git") in profile.visible) == ((), False)


async def test_long_names_of_objects_work(world: World, tmp_path: Path) -> None:
    repo = tmp_path / "long"
    git(tmp_path, "init", "-q", "--object-format=sha256", "-b", "main", str(repo))
    (repo / "a.txt").write_text("one\n")
    git(repo, "add", "-A")
    git(repo, *IDENTITY, "commit", "-qm", "first")
    copy = await world.create(cwd=repo)
    made = commit(copy)
    assert (await world.keep(copy), git(repo, "rev-parse", BRANCH), len(made)) == (KeptCopy(BRANCH), made, 64)
    assert git(repo, "fsck", "--strict", "--no-dangling") == ""


async def test_users_git_does_not_remove_copy(world: World) -> None:
    copy = await world.create()
    git(world.repo, "worktree", "remove", "--force", str(copy.root), check=False)
    made = commit(copy)
    assert (await world.keep(copy), git(world.repo, "rev-parse", BRANCH)) == (KeptCopy(BRANCH), made)


async def test_broken_ref_does_no_harm(world: World) -> None:
    (world.repo / ".git" / "refs" / "heads" / "broken").write_text("1" * 40 + "\n")
    copy = await world.create()
    made = commit(copy)
    assert (await world.keep(copy), git(world.repo, "rev-parse", BRANCH)) == (KeptCopy(BRANCH), made)


async def test_repaired_link_does_no_harm(world: World) -> None:
    copy = await world.create()
    made = commit(copy)
    git(world.repo, "worktree", "repair")
    assert (await world.keep(copy), git(world.repo, "rev-parse", BRANCH), world.left) == (KeptCopy(BRANCH), made, [])


async def test_hooks_and_author_are_the_users(world: World, home: Path) -> None:
    for key in ("user.name", "user.email"):
        git(world.repo, "config", "--unset", key)
    (home / ".gitconfig").write_text(f'[includeIf "gitdir:{world.repo}/"]\npath = work\n')
    (home / "work").write_text("[user]\nname = Ann Work\nemail = ann@work.example\n")
    hook = world.repo / ".git" / "hooks" / "pre-commit"
    hook.write_text("#!/bin/sh\necho hooked >hooked.txt\n")
    hook.chmod(0o755)
    copy = await world.create()
    (copy.root / "a.txt").write_text("mine\n")
    git(copy.root, "commit", "-qam", "mine")
    assert git(copy.root, "log", "-1", "--format=%an %ae") == "Ann Work ann@work.example"
    assert (copy.root / "hooked.txt").exists()
