"""A worker's cache of projects: one bare repository each, filled from a remote or a bundle.

Several processes may use it at once. Only this file writes to it: runs have their own repositories and read it as an
alternate. Must not know runs.
"""

import asyncio
import fcntl
import hashlib
import os
import secrets
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import NoReturn

import msgspec

from retinue.core.errors import RetinueError, quote
from retinue.durable.cluster.repository import SHA, Repository, check_address, hide_secrets
from retinue.durable.cluster.workspace_bundle import WorkspaceBundle
from retinue.sandbox.open_beneath import remove_tree
from retinue.sessions.files import make_private
from retinue.tools.git import FETCH_TIMEOUT_S, fetch_git

_HAVE = "refs/retinue/have"
_REMOTE = "refs/retinue/remote"
_MAX_HAVE = 200
_MAX_PACKS = 20
_BLANK = "blank/.git"
# Inside the repository, so that removing it removes these too.
_TREES = "git/trees"
_LATE = 124
"""Exit status of a git that took too long."""
_WAIT_LIMIT_S = FETCH_TIMEOUT_S + 60.0
_CONFIG = "[core]\n\trepositoryformatversion = {version}\n\tfilemode = true\n\tbare = true\n"
_LONG_CONFIG = "[extensions]\n\tobjectformat = sha256\n"
_SETTLING_S = 60.0
"""How long a folder may be without its lock, because it is being created."""


class RepositoryCache:
    """The cached repository of one project. `hold` it while anything depends on it."""

    def __init__(self, folder: Path, bundle_info: WorkspaceBundle) -> None:
        origin = bundle_info.remote or bundle_info.project or bundle_info.commit
        # A shallow repository must not be mistaken for a complete one.
        key = hashlib.sha256(msgspec.json.encode([origin, bundle_info.shallow])).hexdigest()[:32]
        self._bundle_info = bundle_info
        self._place = folder / "cache" / key
        self.objects = str(self._place / "git" / "objects")
        self._repository = Repository(str(self._place / "git"))
        self._config = self._place / "git" / "config"

    async def hold(self) -> int:
        """Return a descriptor; while it is open the cache is not removed."""
        handle = await take_lock(self._place / "use", shared=True)
        os.utime(handle)
        return handle

    async def fill(self, bundle: bytes, *, timeout_s: float = FETCH_TIMEOUT_S) -> str:
        """Fetch the bundle's commit with all it needs; returns its tree. Raises RetinueError; the cache stays valid.

        A commit that is there already needs neither git nor a lock: many runs start at the same commit at once.
        """
        bundle_info = self._bundle_info
        if tree := self._recall():
            return tree
        async with hold_lock(self._place / "lock"):
            await self._make()
            tree = self._recall() or await self._find_tree(bundle_info.commit)
            if not tree:
                if bundle_info.remote:
                    await self._fetch(timeout_s)
                if bundle and not await self._has(bundle_info.commit):
                    await self._unpack(bundle)
                tree = await self._find_tree(bundle_info.commit)
                await self._tidy()
            if not tree:
                raise RetinueError(f"commit {bundle_info.commit} of the run did not come with it; send the run again")
            path = self._place / _TREES / bundle_info.commit
            make_private(path.parent)
            _replace(path, tree.encode())
            return tree

    def read_config(self, *, bare: bool) -> bytes:
        """Return the configuration of an empty repository on this disk."""
        return (self._place / ("git" if bare else _BLANK) / "config").read_bytes()

    def _recall(self) -> str:
        """Return the tree of the commit, if it was found here before."""
        tree = _read(self._place / _TREES / self._bundle_info.commit)
        is_usable = SHA.fullmatch(tree) and _read(self._config) == self._render_config()
        return tree if is_usable and _read(self._place / _BLANK / "config") else ""

    def _render_config(self) -> str:
        is_long = len(self._bundle_info.commit) == 64
        return (_LONG_CONFIG if is_long else "") + _CONFIG.format(version=int(is_long))

    async def _make(self) -> None:
        """Create the repository, unless it exists as we created it."""
        config = self._render_config()
        if _read(self._config) != config:
            await make_repository(self._repository, shallow=self._bundle_info.shallow, config=config.encode())
        # We hold the cache's lock, so a lock file of git was left by a killed one.
        for lock in (*self._config.parent.glob("*.lock"), *self._config.parent.glob("refs/retinue/**/*.lock")):
            lock.unlink(missing_ok=True)
        blank = (self._place / _BLANK).parent
        if not _read(self._place / _BLANK / "config"):
            # Determined once, because file systems differ: case sensitivity, executable bits.
            draft = blank.with_name("blank.draft")
            # At once: a thread would go on when this is cancelled, and remove the draft of whoever has the lock next.
            for half in (draft, blank):
                remove_tree(str(half))
            own = Repository(str(draft / ".git"), str(draft))
            await make_repository(own, id_length=len(self._bundle_info.commit))
            draft.rename(blank)

    async def _find_tree(self, commit: str) -> str:
        """Return the tree of a commit that is present and complete, else an empty string."""
        name = f"{_HAVE}/{commit}"
        told = await self._repository.ask("rev-parse", f"{name}^{{commit}}", f"{name}^{{tree}}")
        found = told.text.split("\n") if told.ok else []
        return found[1] if found[:1] == [commit] else ""

    async def _has(self, commit: str) -> bool:
        return await self._repository.find_commit(f"{_HAVE}/{commit}") == commit

    async def _keep(self, commit: str) -> None:
        await self._repository.run("update-ref", f"{_HAVE}/{commit}", commit)

    async def _fetch(self, timeout_s: float) -> None:
        bundle_info = self._bundle_info
        missing = [sha for sha in bundle_info.known if not await self._has(sha)]
        if not missing:
            return
        check_address(bundle_info.remote)
        repository = self._repository
        # By commit id first: this fetches only what is needed, but not every server allows it.
        told = await fetch_git(
            bundle_info.remote, [f"+{sha}:{_HAVE}/{sha}" for sha in missing], repository.git_dir, timeout_s=timeout_s
        )
        if told.ok:
            return
        if told.code == _LATE:
            self._refuse("cannot be fetched from", told.problem)
        all_told = await fetch_git(
            bundle_info.remote, [f"+refs/heads/*:{_REMOTE}/*"], repository.git_dir, timeout_s=timeout_s
        )
        if not all_told.ok:
            self._refuse("cannot be fetched from", all_told.error or all_told.problem)
        for sha in missing:
            if await repository.find_commit(sha) != sha:
                self._refuse(f"has no commit {sha} on any branch", told.error or told.problem)
            await repository.check_whole(sha, ())
            await self._keep(sha)

    def _refuse(self, problem: str, told: str) -> NoReturn:
        lines = " ".join(hide_secrets(told).split())
        remedy = "check that this worker may read it" if problem.startswith("cannot") else "push the commit there"
        raise RetinueError(
            f"the remote {quote(self._bundle_info.remote, 200)} {problem}, git said {quote(lines, 400)}; "
            f"{remedy}, or send everything with the run: set cluster.useRemote to false in the sender's subagents.json"
        )

    async def _unpack(self, bundle: bytes) -> None:
        bundle_info = self._bundle_info
        found = await self._repository.take_bundle(bundle)
        if found != bundle_info.commit:
            raise RetinueError(
                f"the bundle of the run has commit {found}, expected {bundle_info.commit}; send the run again"
            )
        await self._repository.check_whole(found, bundle_info.known)
        await self._keep(found)

    async def _tidy(self) -> None:
        """Limit the number of refs and packs; no object is dropped, because runs may depend on it."""
        repository = self._repository
        listed = await repository.run("for-each-ref", "--sort=-creatordate", "--format=%(refname)", _HAVE)
        keep = {f"{_HAVE}/{sha}" for sha in (self._bundle_info.commit, *self._bundle_info.known)}
        for name in listed.text.split("\n")[_MAX_HAVE:]:
            if name not in keep:
                (self._place / _TREES / name.rpartition("/")[2]).unlink(missing_ok=True)
                await repository.run("update-ref", "-d", name)
        packs = await asyncio.to_thread(os.listdir, os.path.join(self.objects, "pack"))
        if sum(name.endswith(".pack") for name in packs) > _MAX_PACKS:
            await repository.ask("repack", "-a", "-d", "-k", "-q")


async def make_repository(
    repository: Repository,
    *,
    shallow: Sequence[str] = (),
    id_length: int = 40,
    alternates: Sequence[str] = (),
    config: bytes = b"",
) -> None:
    """Create an empty repository with alternates; bare, unless it has a work tree.

    With `config` of a repository that git created on the same disk, git is not called.
    """
    git_dir = repository.git_dir
    # First the files that git would otherwise miss if we were killed halfway.
    _write(os.path.join(git_dir, "objects", "info", "alternates"), alternates)
    _write(os.path.join(git_dir, "shallow"), shallow)
    if not config:
        bare = () if repository.work_tree else ("--bare",)
        kind = f"--object-format={'sha256' if id_length == 64 else 'sha1'}"
        await repository.run("init", "--quiet", "--template=", "--initial-branch=main", kind, *bare)
        return
    for name in ("objects/pack", "refs/heads", "refs/tags"):
        os.makedirs(os.path.join(git_dir, name), mode=0o700, exist_ok=True)
    # The configuration last: it makes the repository valid.
    for name, content in (("HEAD", b"ref: refs/heads/main\n"), ("config", config)):
        _replace(Path(git_dir, name), content)


def _replace(path: Path, content: bytes) -> None:
    draft = path.with_name(f"{path.name}.draft")
    draft.write_bytes(content)
    draft.replace(path)


def _write(path: str, rows: Sequence[str]) -> None:
    make_private(Path(path).parent)
    if rows:
        Path(path).write_bytes(os.fsencode("".join(f"{row}\n" for row in rows)))


@asynccontextmanager
async def hold_lock(path: Path) -> AsyncIterator[None]:
    handle = await take_lock(path)
    try:
        yield
    finally:
        os.close(handle)


async def take_lock(path: Path, *, shared: bool = False, wait_limit_s: float = _WAIT_LIMIT_S) -> int:
    """Lock a file as long as the descriptor is open, creating it if missing. Raises RetinueError."""
    deadline_s = time.monotonic() + wait_limit_s
    while True:
        handle = _try_lock(path, shared=shared)
        if handle is not None:
            return handle
        if time.monotonic() >= deadline_s:
            raise RetinueError(
                f"another process has locked {quote(str(path), 200)} for {wait_limit_s:g} s; check that process"
            )
        await asyncio.sleep(0.02)


def _try_lock(path: Path, *, shared: bool = False) -> int | None:
    """Return the locked file; None if another process holds it or has just removed it."""
    try:
        make_private(path.parent)
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise RetinueError(f"cannot create {quote(str(path), 200)}: {error.strerror or error}") from error
    try:
        fcntl.flock(handle, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        # Another process may have moved it away to remove it.
        if os.path.samestat(os.fstat(handle), os.stat(path)):
            return handle
    except (BlockingIOError, FileNotFoundError):
        pass
    except OSError as error:
        os.close(handle)
        raise RetinueError(
            f"cannot lock {quote(str(path), 200)}: {error.strerror or error}; choose a folder on a local disk"
        ) from error
    os.close(handle)
    return None


async def prune_cache(folder: Path, max_bytes: int) -> int:
    """Remove what dead workers left, and the least recently used caches until the rest fits into `max_bytes`.

    Returns the bytes of the removed caches. What is in use stays.
    """
    return await asyncio.to_thread(_prune, folder, max_bytes)


def _prune(folder: Path, max_bytes: int) -> int:
    for place in _list_folders(folder / "runs"):
        _remove_unlocked(place, "lock")
    caches = sorted(_list_folders(folder / "cache"), key=_read_time, reverse=True)
    total = removed = 0
    for place in caches:
        size = _measure(place)
        total += size
        if total > max_bytes and _remove_unlocked(place, "use"):
            total -= size
            removed += size
    return removed


def _remove_unlocked(place: Path, lock: str) -> bool:
    """Remove a folder that no process holds; False if it is in use."""
    if not os.path.lexists(place / lock) and time.time() - _read_time(place) < _SETTLING_S:
        return False
    handle = _try_lock(place / lock)
    if handle is None:
        return False
    try:
        # Rename first: a process that comes now creates a new one.
        gone = place.with_name(f"{place.name}.{secrets.token_hex(4)}.gone")
        os.rename(place, gone)
        remove_tree(str(gone))
    except OSError:
        return False
    finally:
        os.close(handle)
    return True


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8", "replace")
    except OSError:
        return ""


def _list_folders(folder: Path) -> list[Path]:
    try:
        return [Path(entry.path) for entry in os.scandir(folder) if entry.is_dir(follow_symlinks=False)]
    except FileNotFoundError:
        return []


def _read_time(place: Path) -> float:
    for path in (place / "use", place):
        with suppress(OSError):
            return path.stat().st_mtime
    return 0.0


def _measure(place: Path) -> int:
    total = 0
    for folder, _, files in os.walk(place):
        for name in files:
            with suppress(OSError):
                total += os.lstat(os.path.join(folder, name)).st_blocks * 512
    return total
