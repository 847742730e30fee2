"""A run's workspace on a worker: created from a bundle, captured in snapshots, and removed at the end.

The run has its own repository and full control of it. Snapshots use a second, separate repository, so that nothing the
run configures is ever executed here. Must not know runs.
"""

import asyncio
import os
import secrets
import shutil
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from retinue.core.errors import RetinueError, quote
from retinue.durable.cluster.repository import FLEETING, MAX_BUNDLE, BundleTooLarge, Repository
from retinue.durable.cluster.repository_cache import RepositoryCache, make_repository, take_lock
from retinue.durable.cluster.snapshots import (
    BranchTable,
    apply_chain,
    read_signature,
    read_table,
    restore_table,
    stat_file,
)
from retinue.durable.cluster.workspace_bundle import WorkspaceBundle, check_bundle, check_bundle_info, exclude
from retinue.features.worktree.copies import is_directory, is_link
from retinue.features.worktree.saved_work import AUTHOR, list_some
from retinue.features.worktree.traces import find_nested
from retinue.sandbox.open_beneath import remove_tree

_REF = "refs/retinue/snapshot"
_MAX_TIPS = 50


class Snapshot(Struct, frozen=True, kw_only=True):
    """What a run has changed since the previous snapshot."""

    commit: str
    bundle: bytes
    """Based on the previous snapshot, or on the bundle's commit."""
    notes: tuple[str, ...] = ()
    """What could not be included."""


class Checkout:
    """One run's workspace. Close it at the end; after a kill, `prune_cache` removes the folder."""

    def __init__(self, bundle_info: WorkspaceBundle, site: Path, held: list[int], max_bytes: int) -> None:
        """Internal: use `open`. `held` are locks that last as long as the workspace."""
        self.bundle_info = bundle_info
        self.root = site / "tree"
        """The top of the repository."""
        self.path = self.root
        """The run's working directory."""
        self._site = site
        self._held = held
        self._max_bytes = max_bytes
        self._own = Repository(str(self.root / ".git"), str(self.root), guard=FLEETING)
        self._shadow = Repository(str(site / "git"), str(self.root), str(site / "index"), guard=FLEETING)
        self._config = b""
        self._lenders = self._shared = b""
        """Alternates files of the run's repository and of ours; ours without the run's objects."""
        self._last = self._tree = ""
        self._is_begun = bool(bundle_info.commit)
        """Whether readers of the next snapshot have the commit that it is based on."""
        self._table = BranchTable()
        self._carried: set[str] = set()
        self._signature: tuple[object, ...] = ()
        self._nested: list[str] = []
        self._seen: tuple[int, int, int] | None = None
        """State of the index file whose content is `_tree`."""
        self._is_young = True
        """Whether the index is as old as its files: then git reads all files again and rewrites it."""
        self._lock = asyncio.Lock()

    @classmethod
    async def open(
        cls,
        bundle_info: WorkspaceBundle,
        bundle: bytes | None,
        folder: Path,
        snapshots: Sequence[bytes] = (),
        *,
        max_bytes: int = MAX_BUNDLE,
    ) -> "Checkout":
        """Create a workspace below a folder of the worker. Raises RetinueError with nothing left behind.

        `snapshots` are all that were taken of the run, in order. The folder must be on a local disk and not below /tmp:
        sandboxes hide /tmp, and with it what the run's git reads.
        """
        check_bundle_info(bundle_info)
        await check_bundle(bundle_info, bundle or b"", max_bytes)
        folder = _check_folder(folder)
        site = folder / "runs" / secrets.token_hex(8)
        held = [await take_lock(site / "lock")]
        try:
            cache, tree = None, ""
            if bundle_info.commit:
                cache = RepositoryCache(folder, bundle_info)
                held.append(await cache.hold())
                tree = await cache.fill(bundle or b"")
            checkout = cls(bundle_info, site, held, max_bytes)
            await checkout._build(cache, tree, snapshots)
        except OSError as error:
            await asyncio.to_thread(_discard, site, held)
            raise RetinueError(f"{quote(error.filename or str(site), 200)}: {error.strerror or error}") from error
        except BaseException:
            await asyncio.to_thread(_discard, site, held)
            raise
        return checkout

    async def snapshot(self) -> Snapshot | None:
        """Return what has changed since the last snapshot; None if nothing has.

        Raises RetinueError, including BundleTooLarge; the next snapshot then includes these changes.
        """
        async with self._lock:
            if not self._held:
                raise RetinueError("the workspace of the run is closed")
            if is_link(str(self.root)) or not is_directory(str(self.root)):
                raise RetinueError(f"the run has removed or replaced its workspace {quote(str(self.root), 200)}")
            self._defend()
            tree, notes = await self._read_files()
            seen = stat_file(self._shadow.index)
            table = await self._read_branches()
            is_same = tree == self._tree and table == self._table
            taken = None if is_same else await self._take(tree, table, notes)
            self._seen = seen
            return taken

    async def close(self) -> None:
        """Remove the workspace but not the cache. May be called again."""
        held, self._held = self._held, []
        if held:
            await asyncio.to_thread(_discard, self._site, held)

    def list_exposed(self) -> tuple[str, ...]:
        """Return the paths in the worker's folder that the run may read: its tree and its object stores."""
        objects = os.path.join(self._shadow.git_dir, "objects")
        # From our repository, because the run may have changed the alternates of its own.
        lines = _read(os.path.join(objects, "info", "alternates")).split(b"\n")
        shared = (os.fsdecode(line) for line in lines if line)
        return (str(self.root), objects, *(path for path in shared if not path.startswith(f"{self.root}/")))

    async def _build(self, cache: RepositoryCache | None, tree: str, snapshots: Sequence[bytes]) -> None:
        """`tree` is that of the bundle's commit, if it has one."""
        bundle_info, own, shadow = self.bundle_info, self._own, self._shadow
        await self._make_both(cache)
        _configure(own.git_dir, bundle_info)
        self._config = _read(os.path.join(shadow.git_dir, "config"))
        self._lenders = _read(os.path.join(own.git_dir, "objects", "info", "alternates"))
        self._shared = b"" if cache is None else os.fsencode(cache.objects) + b"\n"
        begin = bundle_info.commit or await self._make_empty()
        # Both repositories are new and unused by others, so a ref can be written as a file.
        _write_ref(shadow.git_dir, _REF, begin)
        link = await apply_chain(shadow, _REF, bundle_info.commit, snapshots)
        self._last = link.commit if link is not None else begin
        self._is_begun = self._is_begun or link is not None
        _write_ref(own.git_dir, "HEAD", self._last)
        await own.run("reset", "--quiet", "--hard", "--no-recurse-submodules", self._last)
        shutil.copy2(os.path.join(own.git_dir, "index"), shadow.index)
        if link is not None:
            await restore_table(own.git_dir, link.table)
            if link.table.head_commit:
                await own.run("reset", "--quiet", link.table.head_commit)
            self._tree = link.tree
            self._table = await self._read_branches()
        else:
            self._tree = tree or await shadow.find_tree(begin)
            self._table, self._signature = BranchTable(begin), read_signature(own.git_dir)
        self._seen = stat_file(shadow.index)
        self._carried = {begin, *self._table.commits}
        self.path = _enter(self.root, bundle_info.subfolder)

    async def _make_both(self, cache: RepositoryCache | None) -> None:
        """Create the run's repository and ours; each reads the other's objects and those of the cache."""
        bundle_info, own, shadow = self.bundle_info, self._own, self._shadow
        shared = [] if cache is None else [cache.objects]
        for repository, other in ((Repository(shadow.git_dir, guard=FLEETING), own), (own, shadow)):
            await make_repository(
                repository,
                shallow=bundle_info.shallow,
                id_length=len(bundle_info.commit),
                alternates=(*shared, os.path.join(other.git_dir, "objects")),
                config=b"" if cache is None else cache.read_config(bare=not repository.work_tree),
            )

    async def _make_empty(self) -> str:
        """Create a commit without files, for a run that was sent without any; it is the same everywhere."""
        return await self._own.commit((await self._own.run("write-tree")).text, (), "empty", None, date="@0 +0000")

    def _defend(self) -> None:
        """Restore our repository, in case the run has found and changed it, and remove the lock of a dead git."""
        path = os.path.join(self._shadow.git_dir, "config")
        if _read(path) != self._config:
            with suppress(FileNotFoundError):
                os.unlink(path)
            Path(path).write_bytes(self._config)
        with suppress(FileNotFoundError):
            os.unlink(f"{self._shadow.index}.lock")
        own = os.path.join(self._own.git_dir, "objects")
        lent = b"" if _is_bent(own, self._lenders) else os.fsencode(own) + b"\n"
        path = os.path.join(self._shadow.git_dir, "objects", "info", "alternates")
        if _read(path) != self._shared + lent:
            Path(path).write_bytes(self._shared + lent)

    async def _read_files(self) -> tuple[str, tuple[str, ...]]:
        """Return all files as a tree, and notes about what it lacks."""
        shadow = self._shadow
        if self._is_young:
            # Most runs change nothing, and this leaves the index alone.
            told = await shadow.ask("ls-files", "-z", "--modified", "--others", "--exclude-standard")
            if told.ok and not told.out:
                return self._tree, ()
        self._is_young = False
        added = await shadow.ask("add", "--all", *exclude(self._nested))
        if added.ok and stat_file(shadow.index) == self._seen:
            # Git rewrites the index only if something changed; this check halves the time.
            return self._tree, self._tell_nested()
        if added.ok:
            tree, inner = await shadow.write_tree(self._tree)
            if not inner:
                return tree, self._tell_nested()
        # A repository inside the workspace cannot be added as a file: start over without it.
        ignored = (await shadow.run("ls-files", "-z", "-o", "-i", "--exclude-standard", "--directory")).fields
        listed = (await shadow.run("ls-tree", "-r", "-z", self._tree)).fields
        known = {row.partition("\t")[2] for row in listed if row.startswith("160000 ")}
        found = await asyncio.to_thread(find_nested, str(self.root), ignored)
        self._nested = [path for path in found if path not in known]
        await shadow.run("read-tree", self._tree)
        added = await shadow.ask("add", "--all", "--ignore-errors", *exclude(self._nested))
        tree, _ = await shadow.write_tree(self._tree)
        problem = () if added.ok else (f"Not all files could be saved: {added.problem}",)
        return tree, (*self._tell_nested(), *problem)

    def _tell_nested(self) -> tuple[str, ...]:
        if not self._nested:
            return ()
        return (f"Git repositories inside the workspace are not saved: {list_some(self._nested)}",)

    async def _read_branches(self) -> BranchTable:
        signature = read_signature(self._own.git_dir)
        if signature == self._signature:
            return self._table
        table = await read_table(self._own.git_dir, self._shadow)
        self._signature = signature
        return table

    async def _take(self, tree: str, table: BranchTable, notes: tuple[str, ...]) -> Snapshot:
        shadow = self._shadow
        parents = [self._last, *await self._find_tips(table)]
        commit = await shadow.commit(tree, parents, table.render(), self.bundle_info.author)
        await shadow.run("update-ref", _REF, commit)
        try:
            bundle = await shadow.make_bundle(_REF, (self._last,) if self._is_begun else (), self._max_bytes)
        except BundleTooLarge as error:
            raise BundleTooLarge(
                f"the changes of the run are too large to send: {error}; remove large files, or let git ignore them"
            ) from None
        self._last, self._tree, self._table, self._is_begun = commit, tree, table, True
        self._carried.update(table.commits)
        return Snapshot(commit=commit, bundle=bundle, notes=notes)

    async def _find_tips(self, table: BranchTable) -> list[str]:
        """Return the run's commits that no snapshot contains yet."""
        tips = [sha for sha in table.commits if sha not in self._carried][:_MAX_TIPS]
        if not tips:
            return []
        fresh = set((await self._shadow.run("rev-list", *tips, "--not", self._last)).text.split())
        tips = [sha for sha in tips if sha in fresh]
        if len(tips) > 1:
            tips = (await self._shadow.run("merge-base", "--independent", *tips)).text.split()
        return tips


def _is_bent(objects: str, lenders: bytes) -> bool:
    """Return whether a run's object store leads elsewhere: our git would follow it to places the run may not read."""
    info, packs = os.path.join(objects, "info"), os.path.join(objects, "pack")
    path = os.path.join(info, "alternates")
    if any(is_link(each) for each in (os.path.dirname(objects), objects, info, packs, path)):
        return True
    for folder in filter(os.path.isdir, (objects, packs)):
        with os.scandir(folder) as entries:
            if any(entry.is_symlink() for entry in entries):
                return True
    return _read(path) not in (b"", lenders)


def _check_folder(folder: Path) -> Path:
    whole = os.path.realpath(folder)
    if "\n" in whole:
        raise RetinueError(f"the folder for workspaces {quote(whole, 200)} has a line break in its name")
    return Path(whole)


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError:
        return b""


def _write_ref(git_dir: str, name: str, commit: str) -> None:
    path = Path(git_dir, name)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.write_bytes(commit.encode() + b"\n")


def _configure(git_dir: str, bundle_info: WorkspaceBundle) -> None:
    """Configure author and remote for the run's own use of git."""
    name, email = bundle_info.author or AUTHOR
    text = f"[user]\n\tname = {_escape(name)}\n\temail = {_escape(email)}\n"
    if bundle_info.remote:
        text += (
            f'[remote "origin"]\n\turl = {_escape(bundle_info.remote)}\n\tfetch = +refs/heads/*:refs/remotes/origin/*\n'
        )
    with open(os.path.join(git_dir, "config"), "a") as file:
        file.write(text)


def _escape(value: str) -> str:
    plain = "".join(each for each in value if each.isprintable())
    return '"' + plain.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _enter(root: Path, subfolder: str) -> Path:
    """Return the run's working directory, creating it if it was not committed. Raises RetinueError."""
    real = os.path.realpath(root / subfolder)
    if os.path.commonpath((real, str(root))) != str(root):
        raise RetinueError(f"the folder {quote(subfolder, 200)} of the run is a link to a place outside its repository")
    try:
        os.makedirs(real, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise RetinueError(f"the folder {quote(subfolder, 200)} of the run is a file in its repository") from None
    return Path(real)


def _discard(site: Path, held: Sequence[int]) -> None:
    try:
        if os.path.lexists(site):
            remove_tree(str(site))
    finally:
        for handle in held:
            os.close(handle)
