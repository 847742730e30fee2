"""Whatever an agent does in its copy, the work is on a branch afterwards, or the copy is still there."""

import os
import subprocess
import time
from pathlib import Path

import pytest

from retinue.core.errors import IsolationFailed
from retinue.features.worktree.copies import CopyRequest, create_copy
from retinue.features.worktree.feature import recover_leftovers, resume_copy
from retinue.features.worktree.records import Records
from retinue.features.worktree.saved_work import KeptCopy
from retinue.testing import make_repo
from tests.flows.worktree_world import World, git

BRANCH = "pi-agent-r1"
IDENTITY = ("-c", "user.name=Agent", "-c", "user.email=agent@example.com")


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World.make(tmp_path)


@pytest.mark.spec("fleet:B92")
async def test_no_change_leaves_nothing(world: World) -> None:
    copy = await world.create()
    assert await world.keep(copy) == KeptCopy()
    assert (world.left, world.branches, copy.root.exists()) == ([], ["main"], False)


@pytest.mark.spec("fleet:B92")
async def test_changes_become_branch(world: World) -> None:
    copy = await world.create(description="fix the parser\n" + "x" * 300)
    (copy.root / "a.txt").write_text("changed\n")
    (copy.root / "src" / "b.txt").unlink()
    (copy.root / "new dir").mkdir()
    (copy.root / "new dir" / "ü\n.bin").write_bytes(bytes(range(256)))
    assert await world.keep(copy) == KeptCopy(BRANCH)
    shown = git(world.repo, "show", "--format=%an %ae%n%s", "--name-status", "-z", BRANCH).replace("\0", "|")
    message = ("pi-agent: fix the parser " + "x" * 300)[: len("pi-agent: ") + 200]
    assert shown == f"Test test@example.com\n{message}|\nM|a.txt|A|new dir/ü\n.bin|D|src/b.txt|"
    stored = subprocess.run(["git", "show", f"{BRANCH}:new dir/ü\n.bin"], cwd=world.repo, capture_output=True).stdout
    assert (stored, world.left) == (bytes(range(256)), [])


@pytest.mark.spec("fleet:B92")
async def test_own_commits_are_kept(world: World) -> None:
    copy = await world.create()
    (copy.root / "a.txt").write_text("mine\n")
    git(copy.root, "commit", "-qam", "by the agent")
    head = git(copy.root, "rev-parse", "HEAD")
    assert await world.keep(copy) == KeptCopy(BRANCH)
    assert (git(world.repo, "rev-parse", BRANCH), world.left) == (head, [])


@pytest.mark.attack("G9")
async def test_own_branch_stays_in_copy(world: World) -> None:
    copy = await world.create()
    git(copy.root, "checkout", "-qb", "feature")
    (copy.root / "a.txt").write_text("mine\n")
    git(copy.root, "commit", "-qam", "by the agent")
    head = git(copy.root, "rev-parse", "HEAD")
    (copy.root / "a.txt").write_text("and more\n")
    await world.keep(copy)
    assert (world.branches, git(world.repo, "rev-parse", f"{BRANCH}^")) == (["main", BRANCH], head)
    assert (world.show(BRANCH, "a.txt"), world.left) == ("and more", [])


@pytest.mark.spec("fleet:B92")
async def test_existing_branch_is_not_overwritten(world: World) -> None:
    git(world.repo, "branch", BRANCH)
    before = git(world.repo, "rev-parse", BRANCH)
    copy = await world.create()
    (copy.root / "a.txt").write_text("changed\n")
    started_ms = time.time_ns() // 1_000_000
    kept = await world.keep(copy)
    suffix = int(kept.branch.removeprefix(f"{BRANCH}-"))
    assert started_ms <= suffix <= started_ms + 10_000
    assert (git(world.repo, "rev-parse", BRANCH), world.show(kept.branch, "a.txt")) == (before, "changed")


@pytest.mark.attack("G1", "G8")
@pytest.mark.spec("fleet:B92")
async def test_failing_hooks_do_not_block(world: World) -> None:
    for name in ("pre-commit", "commit-msg", "post-checkout", "reference-transaction"):
        hook = world.repo / ".git" / "hooks" / name
        hook.write_text("#!/bin/sh\nexit 1\n")
        hook.chmod(0o755)
    copy = await world.create()
    (copy.root / "a.txt").write_text("changed\n")
    assert (await world.keep(copy), world.show(BRANCH, "a.txt")) == (KeptCopy(BRANCH), "changed")


@pytest.mark.parametrize(
    "settings", [(), (("user.name", "<>"), ("user.email", "<>")), (("user.useConfigOnly", "true"),)]
)
async def test_missing_author_becomes_ours(world: World, settings: tuple[tuple[str, str], ...]) -> None:
    for key in ("user.name", "user.email"):
        git(world.repo, "config", "--unset", key)
    for key, value in settings:
        git(world.repo, "config", key, value)
    copy = await world.create()
    (copy.root / "a.txt").write_text("changed\n")
    assert await world.keep(copy) == KeptCopy(BRANCH)
    assert git(world.repo, "log", "-1", "--format=%an %ae %cn", BRANCH) == "pi-agent pi-agent@localhost pi-agent"


async def test_author_of_home_is_found(world: World, home: Path) -> None:
    for key in ("user.name", "user.email"):
        git(world.repo, "config", "--unset", key)
    (home / ".gitconfig").write_text("[include]\npath = more\n")
    (home / "more").write_text("[user]\nname = Ann Other\nemail = ann@example.com\n")
    copy = await world.create()
    (copy.root / "a.txt").write_text("changed\n")
    await world.keep(copy)
    assert git(world.repo, "log", "-1", "--format=%an %ae", BRANCH) == "Ann Other ann@example.com"


async def test_ignored_files_do_not_count(world: World) -> None:
    copy = await world.create()
    (copy.root / "build").mkdir()
    for name in ("build/out.txt", "x.log", "__pycache__"):
        (copy.root / name).write_text("x")
    (copy.root / "__pycache__").unlink()
    assert await world.keep(copy) == KeptCopy(notes=("Files that git ignores were not kept: 'build/', 'x.log'",))
    assert (world.left, world.branches) == ([], ["main"])


@pytest.mark.attack("G9")
async def test_hidden_changes_are_found(world: World) -> None:
    copy = await world.create()
    for flag, name in (("--assume-unchanged", "a.txt"), ("--skip-worktree", "src/b.txt")):
        git(copy.root, "update-index", flag, name)
        (copy.root / name).write_text("changed\n")
    git(copy.root, "config", "status.showUntrackedFiles", "no")
    (copy.root / "new.txt").write_text("new\n")
    assert git(copy.root, "status", "--porcelain") == ""
    await world.keep(copy)
    assert [world.show(BRANCH, name) for name in ("a.txt", "src/b.txt", "new.txt")] == ["changed", "changed", "new"]


async def test_untracking_is_not_undone(world: World) -> None:
    copy = await world.create()
    git(copy.root, "rm", "-q", "--cached", "a.txt")
    (copy.root / ".gitignore").write_text("a.txt\n")
    git(copy.root, "commit", "-qam", "stop tracking")
    assert (await world.keep(copy)).branch == BRANCH
    assert git(world.repo, "ls-tree", "-r", "--name-only", BRANCH).split() == [".gitignore", "src/b.txt"]


async def test_conflicting_merge_is_kept(world: World) -> None:
    copy = await world.create()
    git(copy.root, "checkout", "-qb", "left")
    (copy.root / "a.txt").write_text("left\n")
    git(copy.root, "commit", "-qam", "left")
    git(copy.root, "checkout", "-q", "--detach", "main")
    (copy.root / "a.txt").write_text("right\n")
    git(copy.root, "commit", "-qam", "right")
    git(copy.root, "merge", "left", check=False)
    parents = [git(copy.root, "rev-parse", name) for name in ("HEAD", "left")]
    assert (await world.keep(copy), world.left) == (KeptCopy(BRANCH), [])
    assert git(world.repo, "log", "-1", "--format=%P", BRANCH).split() == parents
    assert "<<<<<<<" in world.show(BRANCH, "a.txt")


async def test_interrupted_rebase_is_kept(world: World) -> None:
    git(world.repo, "checkout", "-qb", "other")
    (world.repo / "a.txt").write_text("theirs\n")
    git(world.repo, "commit", "-qam", "theirs")
    git(world.repo, "checkout", "-q", "main")
    copy = await world.create()
    for text in ("one more\n", "two more\n"):
        (copy.root / "a.txt").write_text(text)
        git(copy.root, "commit", "-qam", text)
    tip = git(copy.root, "rev-parse", "HEAD")
    git(copy.root, "rebase", "other", check=False)
    kept = await world.keep(copy)
    assert f"Commits that the agent had left behind are kept as `refs/pi-agent/r1/{tip[:12]}`" in kept.notes
    assert (git(world.repo, "rev-parse", f"refs/pi-agent/r1/{tip[:12]}"), world.left) == (tip, [])


@pytest.mark.attack("G9")
async def test_abandoned_commits_are_kept(world: World) -> None:
    copy = await world.create()
    git(copy.root, "checkout", "-qb", "gone")
    (copy.root / "a.txt").write_text("precious\n")
    git(copy.root, "commit", "-qam", "draft")
    git(copy.root, "commit", "-q", "--amend", "-m", "final")
    tip = git(copy.root, "rev-parse", "HEAD")
    git(copy.root, "checkout", "-q", "--detach", "main")
    git(copy.root, "branch", "-qD", "gone")
    name = f"refs/pi-agent/r1/{tip[:12]}"
    assert await world.keep(copy) == KeptCopy(notes=(f"Commits that the agent had left behind are kept as `{name}`",))
    assert (git(world.repo, "for-each-ref", "--format=%(refname)", "refs/pi-agent"), world.left) == (name, [])


@pytest.mark.attack("G9")
async def test_history_without_commit_is_kept(world: World) -> None:
    copy = await world.create()
    git(copy.root, "checkout", "-q", "--orphan", "fresh")
    git(copy.root, "rm", "-rqf", ".")
    (copy.root / "only.txt").write_text("only\n")
    assert (await world.keep(copy), world.left) == (KeptCopy(BRANCH), [])
    assert git(world.repo, "ls-tree", "-r", "--name-only", BRANCH) == "only.txt"


@pytest.mark.attack("G9")
async def test_deleted_copy_keeps_commits(world: World) -> None:
    copy = await world.create()
    (copy.root / "a.txt").write_text("mine\n")
    git(copy.root, "commit", "-qam", "by the agent")
    subprocess.run(["rm", "-rf", str(copy.root)], check=True)
    assert (await world.keep(copy), world.left, world.show(BRANCH, "a.txt")) == (KeptCopy(BRANCH), [], "mine")


async def test_lost_link_does_no_harm(world: World) -> None:
    copy = await world.create()
    (copy.root / ".git").unlink()
    (copy.root / "a.txt").write_text("changed\n")
    assert (await world.keep(copy), world.left, world.show(BRANCH, "a.txt")) == (KeptCopy(BRANCH), [], "changed")


@pytest.mark.attack("G10")
async def test_removed_registration_keeps_copy(world: World) -> None:
    copy = await world.create()
    (copy.root / "a.txt").write_text("changed\n")
    subprocess.run(["rm", "-rf", copy.record.git_dir], check=True)
    kept = await world.keep(copy)
    assert kept == KeptCopy("", str(copy.root), "git does not know it any more: its registration was removed")
    assert (copy.root / "a.txt").read_text() == "changed\n"


@pytest.mark.parametrize("has_commit", [True, False])
async def test_nested_repository_keeps_copy(world: World, has_commit: bool) -> None:
    copy = await world.create()
    git(copy.root, "init", "-q", "src/inner")
    (copy.root / "src" / "inner" / "f").write_text("precious")
    if has_commit:
        git(copy.root / "src" / "inner", "add", "f")
        git(copy.root / "src" / "inner", *IDENTITY, "commit", "-qm", "x")
    (copy.root / "a.txt").write_text("changed\n")
    kept = await world.keep(copy)
    problem = "git repositories inside of it cannot be put on a branch: 'src/inner'"
    assert (kept, world.show(BRANCH, "a.txt")) == (KeptCopy(BRANCH, str(copy.root), problem), "changed")
    assert (copy.root / "src" / "inner" / "f").read_text() == "precious"


async def test_own_repository_in_place_keeps_copy(world: World) -> None:
    copy = await world.create()
    (copy.root / ".git").unlink()
    git(copy.root, "init", "-q")
    git(copy.root, "add", "-A")
    git(copy.root, *IDENTITY, "commit", "-qm", "elsewhere")
    (copy.root / "a.txt").write_text("changed\n")
    kept = await world.keep(copy)
    assert (kept.branch, kept.path, world.show(BRANCH, "a.txt")) == (BRANCH, str(copy.root), "changed")


@pytest.mark.attack("G8")
@pytest.mark.spec("fleet:B93")
@pytest.mark.parametrize("damage", ["objects", "lock", "config", "head lock"])
async def test_failed_commit_keeps_copy(world: World, damage: str) -> None:
    copy = await world.create()
    (copy.root / "a.txt").write_text("precious\n")
    spoilt = {
        "objects": world.repo / ".git" / "objects",
        "lock": world.records.directory / "r1.index.lock",
        "config": world.repo / ".git" / "config",
        "head lock": Path(copy.record.git_dir) / "HEAD.lock",
    }[damage]
    if damage == "objects":
        spoilt.rename(world.repo / "moved")
    elif damage == "config":
        before = spoilt.read_text()
        spoilt.write_text("[broken\n")
    else:
        spoilt.write_text("")
    kept = await world.keep(copy)
    assert (kept.branch, kept.path, kept.problem != "") == ("", str(copy.root), True)
    assert (copy.root / "a.txt").read_text() == "precious\n"
    # Once the cause is gone, the next start finds it.
    if damage == "objects":
        (world.repo / "moved").rename(spoilt)
    elif damage == "config":
        spoilt.write_text(before)
    world.records.close()
    again = Records(world.records.directory)
    assert [(each.run_id, each.kept) for each in await recover_leftovers(again)] == [("r1", KeptCopy(BRANCH))]
    assert (world.show(BRANCH, "a.txt"), world.left) == ("precious", [])


@pytest.mark.attack("G10")
@pytest.mark.skipif(os.getuid() == 0, reason="root may read everything")
async def test_unreadable_file_keeps_copy(world: World) -> None:
    copy = await world.create()
    (copy.root / "secret").write_text("precious")
    (copy.root / "secret").chmod(0)
    kept = await world.keep(copy)
    assert (kept.path, (copy.root / "secret").exists()) == (str(copy.root), True)


async def test_readonly_directories_are_removed(world: World) -> None:
    copy = await world.create()
    (copy.root / "build" / "mod").mkdir(parents=True)
    (copy.root / "build" / "mod" / "f").write_text("x")
    (copy.root / "build" / "mod").chmod(0o555)
    git(world.repo, "worktree", "lock", str(copy.root))
    assert (await world.keep(copy), world.left) == (
        KeptCopy(notes=("Files that git ignores were not kept: 'build/'",)),
        [],
    )


@pytest.mark.attack("G3")
async def test_filtered_files_keep_their_bytes(world: World) -> None:
    (world.repo / ".gitattributes").write_text("*.bin filter=lfs\n")
    (world.repo / "big.bin").write_text("pointer\n")
    git(world.repo, "add", "-A")
    git(world.repo, "commit", "-qm", "attributes")
    for key, value in (("clean", "git-lfs clean"), ("smudge", "git-lfs smudge"), ("required", "true")):
        git(world.repo, "config", f"filter.lfs.{key}", value)
    copy = await world.create()
    assert (copy.root / "big.bin").read_text() == "pointer\n"
    (copy.root / "big.bin").write_text("bytes\n")
    (copy.root / "a.txt").write_text("changed\n")
    note = "Saved as they are, without the git filter that is configured for them: 'big.bin'"
    assert (await world.keep(copy), world.show(BRANCH, "big.bin")) == (KeptCopy(BRANCH, notes=(note,)), "bytes")


async def test_resume_continues_branch(world: World) -> None:
    copy = await world.create()
    (copy.root / "a.txt").write_text("first\n")
    await world.keep(copy)
    first = git(world.repo, "rev-parse", BRANCH)
    again = await world.create(branch=BRANCH)
    assert (again.root / "a.txt").read_text() == "first\n"
    (again.root / "a.txt").write_text("second\n")
    assert (await world.keep(again), world.left) == (KeptCopy(BRANCH), [])
    assert git(world.repo, "log", "-3", "--format=%H", f"{BRANCH}^", "-1") == first
    third = await world.create(branch=BRANCH)
    assert await world.keep(third) == KeptCopy(BRANCH)


async def test_checked_out_branch_is_not_moved(world: World) -> None:
    copy = await world.create()
    (copy.root / "a.txt").write_text("first\n")
    await world.keep(copy)
    git(world.repo, "checkout", "-q", BRANCH)
    again = await world.create(branch=BRANCH)
    (again.root / "a.txt").write_text("second\n")
    kept = await world.keep(again)
    assert (kept.branch.startswith(f"{BRANCH}-"), git(world.repo, "status", "--porcelain")) == (True, "")


async def test_resume_continues_kept_copy(world: World) -> None:
    copy = await world.create()
    git(copy.root, "init", "-q", "inner")
    assert (await world.keep(copy)).path == str(copy.root)
    request = CopyRequest("r1", world.repo, "do it")
    again = await resume_copy(request, world.records, tmp=world.tmp)
    assert again.root == copy.root
    subprocess.run(["rm", "-rf", str(copy.root / "inner")], check=True)
    assert (await world.keep(again), world.left) == (KeptCopy(), [])


async def test_second_copy_of_run_is_refused(world: World) -> None:
    await world.create()
    with pytest.raises(IsolationFailed, match="run 'r1' has a copy already"):
        await create_copy(CopyRequest("r1", world.repo), world.records, tmp=world.tmp)
    with pytest.raises(IsolationFailed, match=r"run 'r1' already works in .*, in process"):
        await resume_copy(CopyRequest("r1", world.repo), Records(world.records.directory), tmp=world.tmp)


@pytest.mark.attack("G12")
async def test_resume_takes_dead_owners_copy(world: World) -> None:
    copy = await world.create()
    (copy.root / "a.txt").write_text("half done\n")
    world.records.close()
    again = await resume_copy(CopyRequest("r1", world.repo), Records(world.records.directory), tmp=world.tmp)
    assert ((again.root / "a.txt").read_text(), again.record.base) == ("half done\n", copy.record.base)


@pytest.mark.attack("G11")
async def test_resume_after_lost_copy_has_commits(world: World) -> None:
    copy = await world.create()
    (copy.root / "a.txt").write_text("committed\n")
    git(copy.root, "commit", "-qam", "by the agent")
    subprocess.run(["rm", "-rf", str(copy.root)], check=True)
    again = await resume_copy(CopyRequest("r1", world.repo), world.records, tmp=world.tmp)
    assert ((again.root / "a.txt").read_text(), again.record.branch) == ("committed\n", BRANCH)


@pytest.mark.sample(3)
@pytest.mark.attack("G9")
@pytest.mark.parametrize("touch", ["nothing", "file", "hidden file", "new file", "commit", "stash"])
async def test_submodules_stay_when_touched(world: World, tmp_path: Path, touch: str) -> None:
    inner = make_repo(tmp_path / "inner", {"f": "inner\n"})
    allow = ("-c", "protocol.file.allow=always")
    git(world.repo, *allow, "submodule", "--quiet", "add", str(inner), "sub")
    git(world.repo, "commit", "-qm", "submodule")
    copy = await world.create()
    git(copy.root, *allow, "submodule", "--quiet", "update", "--init")
    sub = copy.root / "sub"
    if touch in ("file", "commit", "stash", "hidden file"):
        (sub / "f").write_text("changed\n")
    if touch == "hidden file":
        git(sub, "update-index", "--assume-unchanged", "f")
    if touch == "new file":
        (sub / "new").write_text("new\n")
    if touch in ("commit", "stash"):
        git(sub, *IDENTITY, *(("commit", "-qam", "x") if touch == "commit" else ("stash", "-q")))
        git(sub, "checkout", "-q", "--detach", "origin/main")
    kept = await world.keep(copy)
    problem = "git repositories inside of it cannot be put on a branch: 'sub'"
    assert kept == (KeptCopy() if touch == "nothing" else KeptCopy("", str(copy.root), problem))
    assert sub.exists() == (touch != "nothing")


async def test_odd_files_do_no_harm(world: World) -> None:
    copy = await world.create()
    os.mkfifo(copy.root / "pipe")
    (copy.root / "empty").mkdir()
    (copy.root / "link").symlink_to("/nowhere")
    (copy.root / "run.sh").write_text("#!/bin/sh\n")
    (copy.root / "run.sh").chmod(0o755)
    with open(os.fsencode(copy.root) + b"/\xff\\*", "w") as file:
        file.write("odd name\n")
    assert (await world.keep(copy), world.left) == (KeptCopy(BRANCH), [])
    listed = git(world.repo, "ls-tree", BRANCH).split("\n")
    assert [line.split()[0] + " " + line.split("\t")[1] for line in listed if ".txt" not in line] == [
        "100644 .gitignore",
        "120000 link",
        "100755 run.sh",
        "040000 src",
        '100644 "\\377\\\\*"',
    ]
