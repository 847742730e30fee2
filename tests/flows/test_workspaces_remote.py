"""A worker gets from a remote what need not be carried, and says plainly when it cannot."""

import asyncio
import functools
import http.server
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from retinue.core.errors import RetinueError
from retinue.durable.cluster.repository_cache import RepositoryCache, prune_cache
from retinue.durable.cluster.workspace_bundle import pack
from retinue.testing import make_repo
from tests.flows.travel_world import BRANCH, FILES, Journey, read_tree, take
from tests.flows.worktree_world import git

OR_ALL = "or send everything with the run: set cluster.useRemote to false in the sender's subagents.json"


class Hub:
    """A repository that others fetch from, served by git itself on loopback."""

    def __init__(self, folder: Path) -> None:
        self.repo = folder / "hub" / "project.git"
        make_repo(folder / "seed", FILES)
        git(folder, "clone", "-q", "--bare", "seed", str(self.repo))
        with socket.create_server(("127.0.0.1", 0)) as probe:
            port = probe.getsockname()[1]
        self.address = f"git://127.0.0.1:{port}/project.git"
        places = [f"--base-path={self.repo.parent}", "--export-all", "--reuseaddr"]
        program = f"{git(folder, '--exec-path')}/git-daemon"
        self._server = subprocess.Popen([program, "--listen=127.0.0.1", f"--port={port}", *places])
        for _ in range(500):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    return
            time.sleep(0.01)
        raise AssertionError("git daemon does not listen")

    def clone(self, folder: Path) -> Path:
        git(folder, "clone", "-q", self.address, "repo")
        for key, value in (("user.name", "Test"), ("user.email", "test@example.com")):
            git(folder / "repo", "config", key, value)
        return folder / "repo"

    def close(self) -> None:
        self._server.kill()
        self._server.wait()


class Files(http.server.SimpleHTTPRequestHandler):
    """A server that knows nothing of git."""

    def log_message(self, *arguments: object) -> None:
        return


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    hub = Hub(tmp_path)
    yield hub
    hub.close()


async def test_pushed_commit_needs_no_bundle(tmp_path: Path, hub: Hub) -> None:
    repo = hub.clone(tmp_path)
    journey = await Journey.begin(tmp_path, repo)
    assert (journey.bundle, journey.parcel.remote, journey.parcel.known) == (b"", hub.address, (journey.parcel.base,))
    checkout = await journey.open()
    (checkout.root / "x.txt").write_text("x")
    assert (read_tree(repo), git(checkout.root, "remote", "get-url", "origin")) == (
        {name: value for name, value in read_tree(checkout.root).items() if name != "x.txt"},
        hub.address,
    )
    assert await journey.land(await take(checkout)) == BRANCH


async def test_local_work_is_a_small_bundle(tmp_path: Path, hub: Hub) -> None:
    repo = hub.clone(tmp_path)
    pushed = git(repo, "rev-parse", "HEAD")
    git(repo, "commit", "-q", "--allow-empty", "-m", "not pushed")
    (repo / "a.txt").write_text("not committed\n")
    journey = await Journey.begin(tmp_path, repo)
    assert (journey.parcel.known, 0 < journey.parcel.size < 1000) == ((pushed,), True)
    checkout = await journey.open()
    assert read_tree(checkout.root) == read_tree(repo)
    assert git(checkout.root, "rev-list", "--count", "HEAD") == "3"


async def test_second_run_needs_no_network(tmp_path: Path, hub: Hub) -> None:
    journey = await Journey.begin(tmp_path, hub.clone(tmp_path))
    await (await journey.open()).close()
    hub.close()
    (journey.repo / "a.txt").write_text("changed later\n")
    later = await Journey.begin(tmp_path, journey.repo)
    for each in (journey, later):
        assert (await each.open()).root.joinpath("a.txt").is_file()


async def test_complete_bundle_needs_no_remote(tmp_path: Path, hub: Hub) -> None:
    repo = hub.clone(tmp_path)
    hub.close()
    journey = await Journey.begin(tmp_path, repo, use_remote=False)
    assert (journey.parcel.remote, read_tree((await journey.open()).root)) == ("", read_tree(repo))


async def test_unreachable_remote_is_named(tmp_path: Path, hub: Hub) -> None:
    journey = await Journey.begin(tmp_path, hub.clone(tmp_path))
    hub.close()
    with pytest.raises(RetinueError) as caught:
        await journey.open()
    told = str(caught.value)
    assert told.startswith(f"the remote '{hub.address}' cannot be fetched from, git said 'fatal: unable to connect to ")
    assert told.endswith(f"check that this worker may read it, {OR_ALL}")
    assert await prune_cache(tmp_path / "worker", 0) > 0
    assert journey.left() == []


async def test_commit_missing_at_remote_is_named(tmp_path: Path, hub: Hub) -> None:
    repo = hub.clone(tmp_path)
    git(repo, "commit", "-q", "--allow-empty", "-m", "only here")
    git(repo, "update-ref", "refs/remotes/origin/main", "HEAD")
    journey = await Journey.begin(tmp_path, repo)
    with pytest.raises(RetinueError) as caught:
        await journey.open()
    assert str(caught.value) == (
        f"the remote '{hub.address}' has no commit {journey.parcel.base} on any branch, git said 'fatal: remote error: "
        f"upload-pack: not our ref {journey.parcel.base}'; push the commit there, {OR_ALL}"
    )


async def test_simple_server_is_enough(tmp_path: Path, hub: Hub) -> None:
    git(hub.repo, "update-server-info")
    files = functools.partial(Files, directory=str(hub.repo.parent))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), files) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        journey = await Journey.begin(tmp_path, hub.clone(tmp_path))
        address = f"http://127.0.0.1:{server.server_address[1]}/project.git"
        journey.parcel = msgspec.structs.replace(journey.parcel, remote=address)
        assert read_tree((await journey.open()).root) == read_tree(journey.repo)
        server.shutdown()


async def test_password_never_travels(tmp_path: Path, hub: Hub) -> None:
    repo = hub.clone(tmp_path)
    git(repo, "config", "remote.origin.url", "https://ann:secret@example.com/a.git")
    parcel, _ = await pack(repo)
    assert (parcel.remote, b"secret" in msgspec.json.encode(parcel)) == ("https://example.com/a.git", False)


@pytest.mark.parametrize("address", ["/srv/a.git", "file:///srv/a.git", "../a.git", "https://example.com/a?token=x"])
async def test_local_remote_is_not_told(tmp_path: Path, hub: Hub, address: str) -> None:
    repo = hub.clone(tmp_path)
    git(repo, "config", "remote.origin.url", address)
    parcel, bundle = await pack(repo)
    assert (parcel.remote, parcel.known, len(bundle) > 0) == ("", (), True)


async def test_limit_with_remote_tells_of_files(tmp_path: Path, hub: Hub) -> None:
    repo = hub.clone(tmp_path)
    (repo / "large.bin").write_bytes(bytes(range(256)) * 300)
    with pytest.raises(
        RetinueError, match=r"at most 0.2 kB can be sent .*; let git ignore large new files and try again"
    ):
        await pack(repo, max_bytes=200)


async def test_cancelled_fetch_hinders_no_later_one(tmp_path: Path, hub: Hub) -> None:
    journey = await Journey.begin(tmp_path, hub.clone(tmp_path))
    for number in range(12):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.002 * 1.5**number):
                await (await journey.open()).close()
                raise TimeoutError  # whole before its time: the rest would be, too
    assert (await journey.open()).root.joinpath("a.txt").is_file()


async def test_lock_of_a_dead_git_is_removed(tmp_path: Path, hub: Hub) -> None:
    journey = await Journey.begin(tmp_path, hub.clone(tmp_path))
    cache = RepositoryCache(tmp_path / "worker", journey.parcel)
    git_dir = Path(cache.objects).parent
    names = ("config.lock", "packed-refs.lock", "shallow.lock", f"refs/retinue/have/{journey.parcel.commit}.lock")
    for path in (*(git_dir / name for name in names), git_dir.parent / "blank" / ".git" / "config.lock"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    assert len(await cache.fill(journey.bundle)) == 40
