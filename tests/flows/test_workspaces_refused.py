"""Parcels, bundles, snapshots and names that are wrong: each is refused with a word that helps, and spoils nothing."""

import hashlib
import shutil
import subprocess
from pathlib import Path

import msgspec
import pytest

from retinue.core.errors import RetinueError
from retinue.durable.cluster.branch_import import land
from retinue.durable.cluster.checkout import Checkout
from retinue.durable.cluster.repository import BundleTooLarge
from retinue.durable.cluster.workspace_bundle import WorkspaceBundle, pack
from retinue.testing import make_repo
from tests.flows.travel_world import BRANCH, CACHE, FILES, Journey, read_tree, take
from tests.flows.worktree_world import git


@pytest.mark.sample(5)
@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"commit": "HEAD"}, "commit is 'HEAD', expected a commit id"),
        ({"base": "-x"}, "base is '-x', expected a commit id"),
        ({"known": ("0" * 40,)}, "known is '000"),
        ({"remote": "ext::sh -c x", "known": ("0" * 40,)}, "cannot be used, 'ext::sh -c x'; expected an https"),
        ({"subfolder": "../x"}, "subfolder is '../x', expected a folder inside the repository"),
        ({"subfolder": "/etc"}, "subfolder is '/etc', expected"),
        ({"subfolder": ".git/hooks"}, "subfolder is '.git/hooks', expected"),
        ({"subfolder": "a.txt"}, "the folder 'a.txt' of the run is a file in its repository"),
        ({"subfolder": "a.txt/b"}, "the folder 'a.txt/b' of the run is a file in its repository"),
        ({"digest": ""}, "is not the one that was sent: its SHA-256 is "),
        ({"commit": "1" * 40}, "expected 1111111111111111111111111111111111111111; send the run again"),
    ],
)
async def test_wrong_parcel_is_refused(tmp_path: Path, change: dict[str, object], told: str) -> None:
    journey = await Journey.begin(tmp_path)
    journey.parcel = msgspec.structs.replace(journey.parcel, **change)
    with pytest.raises(RetinueError) as caught:
        await journey.open()
    assert told in str(caught.value)
    assert set(journey.left()) <= set(CACHE)


async def test_wrong_bundle_is_refused(tmp_path: Path) -> None:
    journey = await Journey.begin(tmp_path)
    for data in (b"garbage", journey.bundle[:-30], journey.bundle[:40]):
        digest = hashlib.sha256(data).hexdigest()
        parcel = msgspec.structs.replace(journey.parcel, digest=digest)
        with pytest.raises(RetinueError, match="git cannot read the bundle that came with the run: "):
            await Checkout.open(parcel, data, tmp_path / "worker")
    with pytest.raises(RetinueError, match=r"expected '[0-9a-f]{64}'; send the run again"):
        await Checkout.open(journey.parcel, None, tmp_path / "worker")
    with pytest.raises(BundleTooLarge, match=r"has 0.4 kB, the limit is 0.1 kB; push the commit to a remote"):
        await Checkout.open(journey.parcel, journey.bundle, tmp_path / "worker", max_bytes=100)
    await (await journey.open()).close()
    assert journey.left() == CACHE


async def test_incomplete_bundle_spoils_nothing(tmp_path: Path) -> None:
    journey = await Journey.begin(tmp_path)
    hollow = tmp_path / "hollow"
    shutil.copytree(journey.repo, hollow)
    blob = git(hollow, "rev-parse", "HEAD:a.txt")
    whole = git(hollow, "rev-list", "--objects", "--no-object-names", "HEAD").split()
    wanted = "\n".join(sha for sha in whole if sha != blob).encode()
    command = ["git", "pack-objects", "--stdout", "-q"]
    packed = subprocess.run(command, cwd=hollow, input=wanted, capture_output=True, check=True).stdout
    data = f"# v2 git bundle\n{journey.parcel.commit} refs/heads/main\n\n".encode() + packed
    parcel = msgspec.structs.replace(journey.parcel, digest=hashlib.sha256(data).hexdigest())
    with pytest.raises(RetinueError, match=f"commit {parcel.commit} is incomplete: "):
        await Checkout.open(parcel, data, tmp_path / "worker")
    assert read_tree((await journey.open()).root) == read_tree(journey.repo)


async def test_snapshots_must_be_complete(tmp_path: Path) -> None:
    journey = await Journey.begin(tmp_path)
    checkout, bundles = await journey.open(), []
    for number in range(3):
        (checkout.root / "x.txt").write_text(str(number))
        bundles.append(await take(checkout))
    with pytest.raises(RetinueError, match="snapshot 2 of 2: git cannot read the bundle"):
        await journey.open(bundles[0], bundles[2])
    with pytest.raises(
        RetinueError, match=r"the 4 snapshots .* give all of them, in the order in which they were made"
    ):
        await journey.open(*bundles, bundles[2])
    with pytest.raises(RetinueError, match="snapshot 1 of 1: git cannot read the bundle"):
        await journey.land(bundles[1])
    assert await journey.land(*bundles) == BRANCH


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    "branch", ["", "main", "pi-agent-", "pi-agent-a b", "pi-agent-../x", "-pi-agent-x", "pi-agent-x\n"]
)
async def test_wrong_branch_name_is_refused(tmp_path: Path, branch: str) -> None:
    with pytest.raises(RetinueError, match="expected pi-agent- and the run's id"):
        await land(tmp_path, WorkspaceBundle(), [], branch)


async def test_missing_places_are_named(tmp_path: Path) -> None:
    repo = make_repo(tmp_path / "repo", FILES)
    with pytest.raises(RetinueError, match="nowhere' is not a directory"):
        await pack(tmp_path / "nowhere")
    with pytest.raises(RetinueError, match=r"unknown branch 'x' in .*; start a new run"):
        await pack(repo, branch="x")
    with pytest.raises(RetinueError, match="cannot be sent with a run: fatal: cannot use bare repository"):
        await pack(repo / ".git")
    (tmp_path / "file").touch()
    journey = await Journey.begin(tmp_path, repo)
    with pytest.raises(RetinueError, match="cannot create "):
        await journey.open(worker="file")
