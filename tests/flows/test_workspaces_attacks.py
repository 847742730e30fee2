"""A repository, an agent or a sender that means harm: nothing of theirs is executed, on the face or on a worker."""

import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest

from retinue.core.errors import RetinueError
from retinue.durable.cluster.checkout import Checkout
from retinue.durable.cluster.repository import Repository
from retinue.durable.cluster.snapshots import SUBJECT, apply_chain
from retinue.durable.cluster.workspace_bundle import WorkspaceBundle
from retinue.testing import make_repo
from tests.flows.test_worktree_attacks import VECTORS, Canary, spread_scopes
from tests.flows.travel_world import BRANCH, FILES, Journey, read_tree, take
from tests.flows.worktree_world import git


@pytest.fixture
def canary(tmp_path: Path) -> Canary:
    return Canary(tmp_path / "canary")


@pytest.mark.sample(13)
@pytest.mark.attack("G1", "G2", "G3", "G4")
@pytest.mark.parametrize(("name", "scope"), spread_scopes())
async def test_repository_runs_nothing(name: str, scope: str, tmp_path: Path, canary: Canary) -> None:
    repo = make_repo(tmp_path / "repo", FILES)
    canary.plant(repo, VECTORS[name], scope=scope)
    canary._feather.unlink(missing_ok=True)
    (repo / "a.txt").write_text("changed\n")
    journey = await Journey.begin(tmp_path, repo)
    checkout = await journey.open()
    (checkout.root / "a.txt").write_text("by the agent\n")
    again = await journey.open(first := await take(checkout), worker="other")
    (again.root / "new.txt").write_text("new")
    assert (await journey.land(first, await take(again)), canary.has_run) == (BRANCH, False)


@pytest.mark.sample(8)
@pytest.mark.attack("G1", "G2", "G3", "G4")
@pytest.mark.parametrize("name", VECTORS)
async def test_agent_makes_us_run_nothing(name: str, tmp_path: Path, canary: Canary) -> None:
    checkout = await (await Journey.begin(tmp_path)).open()
    canary.plant(checkout.root, VECTORS[name])
    shutil.copy(checkout.root / ".git" / "config", checkout.root.parent / "git" / "config")
    canary._feather.unlink(missing_ok=True)
    (checkout.root / "a.txt").write_text("by the agent\n")
    assert (await take(checkout) != b"", await checkout.snapshot(), canary.has_run) == (True, None, False)
    await checkout.close()
    assert not canary.has_run


@pytest.mark.attack("G4")
async def test_spoiled_cache_runs_nothing(tmp_path: Path, canary: Canary) -> None:
    journey = await Journey.begin(tmp_path)
    await (await journey.open()).close()
    (cache,) = (tmp_path / "worker" / "cache").glob("*/git")
    for key in ("core.gitProxy", "core.sshCommand", "core.fsmonitor", "credential.helper"):
        git(cache, "config", "--file", "config", key, str(canary.program))
    for address in ("git://127.0.0.1:1/a", "ssh://127.0.0.1:1/a"):
        parcel = WorkspaceBundle(commit="1" * 40, remote=address, known=("1" * 40,))
        shutil.copytree(cache.parent, cache.parent.with_name(cache_name(parcel)))
        with pytest.raises(RetinueError, match="cannot be fetched from"):
            await Checkout.open(parcel, None, tmp_path / "worker")
    assert not canary.has_run


def cache_name(parcel: WorkspaceBundle) -> str:
    return hashlib.sha256(msgspec.json.encode([parcel.remote, parcel.shallow])).hexdigest()[:32]


def replace_git(root: Path, way: str, other: Path) -> None:
    kept = root / ".git"
    match way:
        case "link":
            shutil.move(kept, root.parent / "moved")
            kept.symlink_to(other / ".git")
        case "file":
            shutil.move(kept, root.parent / "moved")
            kept.write_text(f"gitdir: {other / '.git'}\n")
        case "pipe":
            (kept / "HEAD").unlink()
            os.mkfifo(kept / "HEAD")
        case "gone":
            shutil.rmtree(kept)
        case "common":
            (kept / "commondir").write_text(f"{other / '.git'}\n")
        case "other objects":
            (kept / "HEAD").write_text(f"{git(other, 'rev-parse', 'HEAD')}\n")


@pytest.mark.sample(3)
@pytest.mark.attack("G9")
@pytest.mark.parametrize("way", ["link", "file", "pipe", "gone", "common", "other objects"])
async def test_bent_repository_hides_no_work(tmp_path: Path, way: str) -> None:
    other = make_repo(tmp_path / "other", {"secret.txt": "secret of another project"})
    journey = await Journey.begin(tmp_path)
    checkout = await journey.open()
    (checkout.root / "x.txt").write_text("x")
    replace_git(checkout.root, way, other)
    bundle = await take(checkout)
    again = await journey.open(bundle, worker="other worker")
    assert sorted(read_tree(again.root)) == [".gitignore", "a.txt", "src/b.txt", "x.txt"]
    assert (await journey.land(bundle), git(journey.repo, "log", "--format=%s", BRANCH)) == (
        BRANCH,
        "pi-agent: do it\nfirst",
    )


async def test_links_are_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret.txt").write_text("secret")
    journey = await Journey.begin(tmp_path)
    checkout = await journey.open()
    shutil.rmtree(checkout.root / "src")
    (checkout.root / "src").symlink_to(outside)
    bundle = await take(checkout)
    again = await journey.open(bundle, worker="other")
    assert os.readlink(again.root / "src") == str(outside)
    shutil.rmtree(checkout.root)
    checkout.root.symlink_to(outside)
    with pytest.raises(RetinueError, match="the run has removed or replaced its workspace"):
        await checkout.snapshot()
    await checkout.close()
    assert (outside / "secret.txt").read_text() == "secret"


async def test_subfolder_leads_nowhere_else(tmp_path: Path) -> None:
    repo = make_repo(tmp_path / "repo", FILES)
    (repo / "away").symlink_to(tmp_path)
    journey = await Journey.begin(tmp_path, repo)
    journey.parcel = msgspec.structs.replace(journey.parcel, subfolder="away/victim")
    with pytest.raises(RetinueError, match="'away/victim' of the run is a link to a place outside its repository"):
        await journey.open()
    assert not (tmp_path / "victim").exists()


def forge(repo: Path, *entries: tuple[bytes, bytes, str]) -> str:
    """A commit whose tree git itself would not make."""
    raw = b"".join(mode + b" " + name + b"\0" + bytes.fromhex(sha) for mode, name, sha in entries)
    command = ["git", "hash-object", "-w", "-t", "tree", "--literally", "--stdin"]
    tree = subprocess.run(command, cwd=repo, input=raw, capture_output=True, check=True).stdout.decode().strip()
    return git(repo, "commit-tree", tree, "-m", "forged")


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", [b".git", b".GIT", b"..", b"a/../../b", b"git~1"])
async def test_forged_tree_writes_nothing_outside(tmp_path: Path, canary: Canary, name: bytes) -> None:
    repo = make_repo(tmp_path / "repo", {"hooks/post-checkout": f"#!/bin/sh\n{canary.program}\n"})
    inner = git(repo, "rev-parse", "HEAD^{tree}")
    commit = forge(repo, (b"40000", name, inner))
    git(repo, "update-ref", "refs/heads/forged", commit)
    bundle = subprocess.run(["git", "bundle", "create", "-q", "-", "forged"], cwd=repo, capture_output=True).stdout
    parcel = WorkspaceBundle(commit=commit, base=commit, project=commit, digest=hashlib.sha256(bundle).hexdigest())
    with pytest.raises(RetinueError, match="invalid path"):
        await Checkout.open(parcel, bundle, tmp_path / "worker")
    assert (canary.has_run, list((tmp_path / "worker" / "runs").iterdir())) == (False, [])


async def test_submodule_tricks_start_nothing(tmp_path: Path, canary: Canary) -> None:
    repo = make_repo(tmp_path / "repo", FILES)
    (repo / ".gitmodules").write_text(
        f'[submodule "../../x"]\n\tpath = sub\n\turl = ext::{canary.program}\n\tupdate = !{canary.program}\n'
        "[submodule]\n\trecurse = true\n"
    )
    git(repo, "update-index", "--add", "--cacheinfo", f"160000,{git(repo, 'rev-parse', 'HEAD')},sub")
    git(repo, "commit", "-qm", "trick")
    (repo / "sub").mkdir()
    journey = await Journey.begin(tmp_path, repo)
    checkout = await journey.open()
    (checkout.root / "x.txt").write_text("x")
    assert (await journey.land(await take(checkout)), canary.has_run) == (BRANCH, False)
    assert list((checkout.root / "sub").iterdir()) == []


async def test_author_configures_nothing(tmp_path: Path, canary: Canary) -> None:
    journey = await Journey.begin(tmp_path)
    name = f'x"\n[core]\n\tfsmonitor = "{canary.program}\\'
    journey.parcel = msgspec.structs.replace(journey.parcel, author=(name, "<>\n"))
    checkout = await journey.open()
    git(checkout.root, "status")
    (checkout.root / "x.txt").write_text("x")
    assert (await take(checkout) != b"", canary.has_run) == (True, False)


async def test_branches_of_worker_move_none(tmp_path: Path) -> None:
    journey = await Journey.begin(tmp_path)
    checkout = await journey.open()
    git(checkout.root, "checkout", "-q", "-b", "main")
    git(checkout.root, "commit", "-q", "--allow-empty", "-m", "over there")
    before = git(journey.repo, "rev-parse", "main", "HEAD")
    assert await journey.land(await take(checkout)) == BRANCH
    assert (git(journey.repo, "rev-parse", "main", "HEAD"), journey.refs) == (
        before,
        ["refs/heads/main", f"refs/heads/{BRANCH}"],
    )


@pytest.mark.attack("G6")
async def test_inherited_variables_are_ignored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = make_repo(tmp_path / "other", {"o.txt": "o"})
    repo = make_repo(tmp_path / "repo", FILES)
    before = git(other, "for-each-ref"), read_tree(other)
    with monkeypatch.context() as patch:
        for name, value in (
            ("DIR", ".git"),
            ("INDEX_FILE", ".git/index"),
            ("WORK_TREE", "."),
            ("OBJECT_DIRECTORY", "x"),
        ):
            patch.setenv(f"GIT_{name}", str(other / value))
        journey = await Journey.begin(tmp_path, repo)
        checkout = await journey.open()
        (checkout.root / "x.txt").write_text("x")
        name = await journey.land(await take(checkout))
    assert (name, (git(other, "for-each-ref"), read_tree(other))) == (BRANCH, before)


def lend_by_name(objects: Path, lender: str) -> None:
    with (objects / "info" / "alternates").open("a") as file:
        file.write(f"{lender}\n")


def lend_by_link(objects: Path, lender: str) -> None:
    # What a run writes without git, inside of its boundary.
    shutil.copytree(objects, aside := objects.with_name("aside"), symlinks=True)
    shutil.rmtree(objects)
    objects.symlink_to(aside)
    lend_by_name(objects, lender)


def lend_packs(objects: Path, lender: str) -> None:
    for path in Path(lender, "pack").iterdir():
        (objects / "pack" / path.name).symlink_to(path)


@pytest.mark.attack("C7")
@pytest.mark.parametrize("lend", [lend_by_name, lend_by_link, lend_packs])
async def test_other_projects_lend_nothing(lend: Callable[[Path, str], None], tmp_path: Path) -> None:
    other = await Journey.begin(tmp_path, make_repo(tmp_path / "other", {"secret.txt": "secret\n"}))
    await other.open()
    (lender,) = (tmp_path / "worker" / "cache").glob("*/git/objects")
    journey = await Journey.begin(tmp_path)
    checkout = await journey.open()
    lend(checkout.root / ".git" / "objects", str(lender))
    (checkout.root / ".git" / "refs" / "heads" / "stolen").write_text(f"{other.parcel.commit}\n")
    (checkout.root / "a.txt").write_text("by the agent\n")
    with suppress(RetinueError):
        await journey.land(await take(checkout))
    known = subprocess.run(["git", "cat-file", "-e", other.parcel.commit], cwd=journey.repo, capture_output=True)
    assert known.returncode != 0


def hash_object(repo: Path, kind: str, text: str) -> str:
    command = ["git", "hash-object", "-w", "-t", kind, "--stdin", "--literally"]
    return (
        subprocess.run(command, cwd=repo, input=text.encode(), capture_output=True, check=True).stdout.decode().strip()
    )


def forge_snapshot(journey: Journey, *refs: str, tree: str = "") -> bytes:
    """A snapshot of nothing, whose table names a commit without files in these places."""
    repo, begin = journey.repo, journey.parcel.commit
    who = "x <x@x> 1700000000 +0000"
    tree = tree or git(repo, "rev-parse", f"{begin}^{{tree}}")
    broken = hash_object(repo, "commit", f"tree {'5' * 40}\nparent {begin}\nauthor {who}\ncommitter {who}\n\nbroken\n")
    table = "\n".join((SUBJECT, "", *(f"{name} {broken}" for name in refs)))
    link = hash_object(repo, "commit", f"tree {tree}\nparent {begin}\nauthor {who}\ncommitter {who}\n\n{table}\n")
    names = f"{broken}\n{link}\n".encode()
    packed = subprocess.run(
        ["git", "pack-objects", "--stdout", "-q"], cwd=repo, input=names, capture_output=True
    ).stdout
    for sha in (broken, link):
        (repo / ".git" / "objects" / sha[:2] / sha[2:]).unlink()
    return f"# v2 git bundle\n-{begin} \n{link} refs/x\n\n".encode() + packed


@pytest.mark.parametrize("ref", ["HEAD", f"refs/heads/{BRANCH}-2", "refs/heads/other"])
async def test_broken_commits_get_no_branch(tmp_path: Path, ref: str) -> None:
    journey = await Journey.begin(tmp_path)
    forged = forge_snapshot(journey, ref)
    with pytest.raises(RetinueError, match="is incomplete"):
        await journey.land(forged)
    assert (journey.refs[0], len(journey.refs), git(journey.repo, "fsck", "--no-dangling")) == (
        "refs/heads/main",
        2,
        "",
    )


@pytest.mark.attack("I10")
async def test_incomplete_snapshot_moves_no_ref(tmp_path: Path) -> None:
    journey = await Journey.begin(tmp_path)
    ref, begin = "refs/retinue/landing/x", journey.parcel.commit
    git(journey.repo, "update-ref", ref, begin)
    with pytest.raises(RetinueError, match=r"snapshot 1 of 1: .* is incomplete"):
        await apply_chain(Repository(str(journey.repo / ".git")), ref, begin, [forge_snapshot(journey, tree="5" * 40)])
    assert (git(journey.repo, "rev-parse", ref), git(journey.repo, "fsck", "--no-dangling")) == (begin, "")
