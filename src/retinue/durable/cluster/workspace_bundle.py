"""Packs a run's workspace into a git bundle for sending, and reads bundles from the database in pieces.

The user's index, stash, branches and HEAD are not changed. Must not know how a bundle is transported or where it goes.
"""

import asyncio
import hashlib
import os
import re
import secrets
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from msgspec import Struct
from msgspec.structs import replace

from retinue.core.errors import RetinueError, quote
from retinue.core.pattern import late_pattern
from retinue.durable.cluster.database import Database
from retinue.durable.cluster.repository import (
    MAX_BUNDLE,
    SHA,
    BundleTooLarge,
    Repository,
    Workspace,
    check_address,
    clean_address,
    find_workspace,
    list_addresses,
    render_size,
)
from retinue.features.worktree.pointers import find_filtered, restore_pointers
from retinue.features.worktree.saved_work import list_some, render_message
from retinue.features.worktree.traces import find_nested
from retinue.tools.git import GitResult, list_config, run_git

SENT_REFS = "refs/retinue/sent"
"""Refs below this keep what was sent until the results are back."""
_MAX_KNOWN = 50
_MAX_SHALLOW = 1000
_REMOTE_NAME = late_pattern(r"[A-Za-z0-9_][A-Za-z0-9._/-]*")
_BRANCH = late_pattern(r"[A-Za-z0-9_][^\x00-\x20\x7f~^:?*\[\\]*")
_UNSAVED = "what was not committed when the run was sent"


class WorkspaceBundle(Struct, frozen=True, kw_only=True):
    """Description of a workspace that is sent with a run, without the bundle itself. Contains no secrets."""

    commit: str = ""
    """A commit with the content of the workspace; empty without a repository."""
    base: str = ""
    """The user's last commit; empty if there is none yet."""
    subfolder: str = ""
    """The run's folder inside the repository."""
    remote: str = ""
    """Where the worker fetches what the bundle is based on; empty if the bundle is complete."""
    known: tuple[str, ...] = ()
    """The commits that the remote must have."""
    shallow: tuple[str, ...] = ()
    """Commits whose parents the sender does not have either."""
    project: str = ""
    """The first commit; identifies the worker's cache if there is no remote."""
    digest: str = ""
    """SHA-256 of the bundle; empty if there is none."""
    size: int = 0
    """Size of the bundle in bytes."""
    author: tuple[str, str] | None = None
    """Name and email for commits, if the sender has configured them."""
    branch: str = ""
    """The branch of an earlier attempt that this run continues."""
    sent_ref: str = ""
    """The ref that keeps the commit in the sender's repository."""
    notes: tuple[str, ...] = ()
    """What is not sent, for the agent and the user."""


async def pack(
    cwd: Path,
    *,
    branch: str = "",
    max_bytes: int = MAX_BUNDLE,
    use_remote: bool = True,
    hidden: Sequence[str] = (),
) -> tuple[WorkspaceBundle, bytes]:
    """Pack the workspace around a directory; the bytes are the bundle, empty if a remote has everything.

    With `branch`, that branch is sent without uncommitted changes. Without `use_remote` the bundle is complete. Files
    below `hidden` are not sent, unless they are committed. Raises RetinueError, including BundleTooLarge, with nothing
    left behind.
    """
    workspace = await find_workspace(cwd)
    if workspace is None:
        note = (
            f"{quote(str(cwd), 200)} is not in a git repository, so none of its files were sent: the run begins in an "
            "empty folder. Run `git init` and commit to send them with the next run."
        )
        return WorkspaceBundle(notes=(note,)), b""
    subfolder = _check_subfolder(workspace.prefix)
    scratch = await asyncio.to_thread(tempfile.mkdtemp, prefix="retinue-pack-")
    try:
        return await _Packer(workspace, scratch, hidden).pack(subfolder, branch, max_bytes, use_remote=use_remote)
    finally:
        await asyncio.to_thread(shutil.rmtree, scratch, ignore_errors=True)


async def release(repo: Path, bundle_info: WorkspaceBundle) -> None:
    """Delete the ref that was kept in the sender's repository for a run without changes."""
    # Git finds the repository itself: many runs end at once, and each call costs milliseconds.
    if _is_sent(bundle_info.sent_ref):
        await run_git(["update-ref", "-d", bundle_info.sent_ref], repo)


async def drop_sent(repository: Repository, bundle_info: WorkspaceBundle) -> None:
    """Delete the ref that keeps the sent commit, and no other."""
    if _is_sent(bundle_info.sent_ref):
        await repository.ask("update-ref", "-d", bundle_info.sent_ref)


def _is_sent(ref: str) -> bool:
    return re.fullmatch(rf"{SENT_REFS}/[0-9a-f]+", ref) is not None


class _Packer:
    """The steps of packing one workspace, with a separate index."""

    def __init__(self, workspace: Workspace, scratch: str, hidden: Sequence[str]) -> None:
        self._workspace = workspace
        inside = os.path.realpath(workspace.top) + "/"
        self._hidden = [path.removeprefix(inside) for path in hidden if path.startswith(inside)]
        self._repository = workspace.open(os.path.join(scratch, "index"))
        self._nested: list[str] = []
        self._notes: list[str] = []

    async def pack(
        self, subfolder: str, branch: str, max_bytes: int, *, use_remote: bool
    ) -> tuple[WorkspaceBundle, bytes]:
        repository = self._repository
        base, commit = await self._find_branch(branch) if branch else await self._save_files()
        await self._note_inner(commit)
        remote, known = await self._find_remote(commit) if use_remote and base else ("", ())
        sent_ref = f"{SENT_REFS}/{secrets.token_hex(8)}"
        await repository.run("update-ref", sent_ref, commit)
        bundle_info = WorkspaceBundle(
            commit=commit,
            base=base,
            subfolder=subfolder,
            remote=remote,
            known=known,
            author=self._workspace.guard.author,
            branch=branch,
            sent_ref=sent_ref,
        )
        try:
            return await self._add_bundle(bundle_info, max_bytes)
        except BaseException:
            # Shielded, so that a cancel does not leave the ref behind.
            await asyncio.shield(drop_sent(repository, bundle_info))
            raise

    async def _find_branch(self, branch: str) -> tuple[str, str]:
        name = branch if _BRANCH.fullmatch(branch) else ""
        commit = await self._repository.find_commit(f"refs/heads/{name}") if name else ""
        if not commit:
            raise RetinueError(f"unknown branch {quote(branch)} in {quote(self._workspace.top, 200)}; start a new run")
        return commit, commit

    async def _save_files(self) -> tuple[str, str]:
        """Return the last commit, and one with all current files; the same if nothing was changed."""
        repository, workspace = self._repository, self._workspace
        base = await repository.find_commit("HEAD")
        _copy_index(workspace.git_dir, repository.index)
        ignored = (await repository.run("ls-files", "-z", "-o", "-i", "--exclude-standard", "--directory")).fields
        found = await asyncio.to_thread(find_nested, workspace.top, ignored)
        tracked = (await repository.run("ls-files", "-z", "--stage")).fields if found else []
        inner = {row.partition("\t")[2] for row in tracked if row.startswith("160000 ")}
        self._nested = [path for path in found if path not in inner]
        await repository.run("add", "--all", "--sparse", *exclude([*self._nested, *self._hidden]))
        before = await repository.find_tree(base) if base else ""
        tree, _ = await repository.write_tree(before)
        if base and tree != before and workspace.guard.filters:
            tree = await self._undo_filters(base, tree)
        if base and tree == before:
            return base, base
        parents = (base,) if base else ()
        return base, await repository.commit(tree, parents, render_message(_UNSAVED), workspace.guard.author)

    async def _undo_filters(self, base: str, tree: str) -> str:
        """The user's filters were not run: restore the pointers of unchanged files, and note the others."""
        repository, filters = self._repository, self._workspace.guard.filters
        listed = await repository.run("diff", "--name-only", "-z", "--no-renames", "--diff-filter=d", base, tree)
        changed = listed.fields
        found = await find_filtered(repository.run, filters, changed)
        restored = await restore_pointers(repository.run, base, repository.work_tree, found)
        if left := [path for path in found if path not in restored]:
            self._notes.append(f"Sent as they are, without the git filter configured for them: {list_some(left)}")
        return (await repository.run("write-tree")).text if restored else tree

    async def _note_inner(self, commit: str) -> None:
        # A tree that is too large to list must not fail because of a note.
        listed = await self._repository.ask("ls-tree", "-r", "-z", commit)
        if found := [row.partition("\t")[2] for row in listed.fields if row.startswith("160000 ")]:
            self._notes.append(f"Submodules are not sent; their folders are empty: {list_some(found)}")
        if self._nested:
            self._notes.append(f"Git repositories inside this one are not sent: {list_some(self._nested)}")

    async def _find_remote(self, commit: str) -> tuple[str, tuple[str, ...]]:
        """Find a remote that has most of the commits, and the commits at which the rest begins."""
        listed = await list_config(self._workspace.top)
        for name, address in list_addresses([] if isinstance(listed, GitResult) else listed).items():
            cleaned = clean_address(address)
            if cleaned and _REMOTE_NAME.fullmatch(name):
                known = await self._find_known(commit, name)
                if known and len(known) <= _MAX_KNOWN:
                    return cleaned, known
        return "", ()

    async def _find_known(self, commit: str, remote: str) -> tuple[str, ...]:
        scope = (commit, "--not", f"--remotes={remote}")
        missing = await self._repository.ask("rev-list", "--max-count=1", *scope)
        if not missing.ok:
            return ()
        if not missing.text:
            return (commit,)
        rows = (await self._repository.ask("rev-list", "--boundary", *scope)).text.split("\n")
        return tuple(row[1:] for row in rows if row.startswith("-"))

    async def _add_bundle(self, bundle_info: WorkspaceBundle, max_bytes: int) -> tuple[WorkspaceBundle, bytes]:
        bundle_info = replace(bundle_info, notes=tuple(self._notes))
        if bundle_info.known == (bundle_info.commit,):
            return bundle_info, b""
        if not bundle_info.remote:
            bundle_info = replace(
                bundle_info, shallow=self._read_shallow(), project=await self._find_project(bundle_info.commit)
            )
        try:
            data = await self._repository.make_bundle(bundle_info.sent_ref, bundle_info.known, max_bytes)
        except BundleTooLarge as error:
            remedy = "let git ignore large new files"
            remedy += "" if bundle_info.remote else ", or push the commit to a remote,"
            raise BundleTooLarge(
                f"the workspace {quote(self._workspace.top, 200)} is too large to be sent: {error}; "
                f"{remedy} and try again"
            ) from None
        digest = await asyncio.to_thread(_digest, data)
        return replace(bundle_info, digest=digest, size=len(data)), data

    async def _find_project(self, commit: str) -> str:
        return min((await self._repository.run("rev-list", "--max-parents=0", commit)).text.split())

    def _read_shallow(self) -> tuple[str, ...]:
        try:
            rows = Path(self._workspace.common, "shallow").read_text("ascii").split()
        except FileNotFoundError:
            return ()
        except (OSError, ValueError) as error:
            raise RetinueError(f"{quote(self._workspace.common, 200)}/shallow cannot be read: {error}") from error
        if len(rows) > _MAX_SHALLOW or not all(map(SHA.fullmatch, rows)):
            raise RetinueError(
                f"{quote(self._workspace.top, 200)} is a shallow clone with {len(rows)} ends, at most {_MAX_SHALLOW} "
                "can be sent; run `git fetch --unshallow`, or push the commit to a remote"
            )
        return tuple(sorted(rows))


def check_bundle_info(bundle_info: WorkspaceBundle) -> None:
    """Raise RetinueError unless a received description is valid."""
    names = {
        "commit": [bundle_info.commit],
        "base": [bundle_info.base],
        "known": bundle_info.known,
        "shallow": bundle_info.shallow,
    }
    for field, values in {**names, "project": [bundle_info.project]}.items():
        for value in values:
            if value and (not SHA.fullmatch(value) or len(value) != len(bundle_info.commit)):
                _refuse(field, value, f"a commit id as long as {quote(bundle_info.commit)}")
    if bool(bundle_info.remote) != bool(bundle_info.known):
        _refuse("known", ", ".join(bundle_info.known), "the commits that the remote has, where there is a remote")
    if bundle_info.remote:
        check_address(bundle_info.remote)
    parts = bundle_info.subfolder.split("/")
    if "\0" in bundle_info.subfolder or (
        bundle_info.subfolder and not all(part not in ("", ".", "..", ".git") for part in parts)
    ):
        _refuse("subfolder", bundle_info.subfolder, "a folder inside the repository")


def _refuse(field: str, value: str, expected: str) -> NoReturn:
    raise RetinueError(f"the workspace of the run cannot be used: {field} is {quote(value)}, expected {expected}")


async def check_bundle(bundle_info: WorkspaceBundle, bundle: bytes, max_bytes: int) -> None:
    """Raise RetinueError unless the bundle matches its description."""
    if len(bundle) > max_bytes:
        raise BundleTooLarge(
            f"the bundle that came with the run has {render_size(len(bundle))}, the limit is {render_size(max_bytes)}; "
            "push the commit to a remote and try again"
        )
    digest = await asyncio.to_thread(_digest, bundle) if bundle else ""
    if digest != bundle_info.digest:
        raise RetinueError(
            f"the bundle that came with the run is not the one that was sent: its SHA-256 is {digest or 'missing'}, "
            f"expected {quote(bundle_info.digest) if bundle_info.digest else 'none'}; send the run again"
        )


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def exclude(paths: Sequence[str]) -> tuple[str, ...]:
    """Return pathspecs for everything but these paths."""
    return ("--", ".", *(f":(top,exclude,literal){path}" for path in paths))


def _copy_index(git_dir: str, index: str) -> None:
    """Copy the index with its modification time, by which git decides which files to read again."""
    try:
        shutil.copy2(os.path.join(git_dir, "index"), index)
    except FileNotFoundError:
        return
    except OSError as error:
        raise RetinueError(f"{quote(git_dir, 200)}/index cannot be read: {error.strerror or error}") from error


def _check_subfolder(prefix: str) -> str:
    try:
        prefix.encode()
    except UnicodeEncodeError:
        raise RetinueError(
            f"the folder {quote(prefix, 200)} has a name that is not UTF-8 and cannot be sent; start the run elsewhere"
        ) from None
    return prefix.rstrip("/")


PIECE = 8 * 1024 * 1024


async def read_bundle(database: Database, digest: str, *, piece: int = PIECE) -> bytes | None:
    """Read the bundle with this digest; None if it does not exist or was removed."""
    rows = await database.fetch("SELECT length(data) FROM retinue.parcels WHERE digest = %s", digest)
    if not rows:
        return None
    read = []
    for place in range(0, rows[0][0], piece):
        found = await database.fetch(
            "SELECT substring(data FROM %s FOR %s) FROM retinue.parcels WHERE digest = %s", place + 1, piece, digest
        )
        if not found:
            return None  # removed meanwhile
        read.append(bytes(found[0][0]))
    return b"".join(read)
