"""The small repository that a run in a worktree writes, and the import of its commits into the user's repository.

The run controls its content, so we only read its files, never run git on it, and follow no links.
"""

import asyncio
import hashlib
import os
import re
import shutil
import stat
import subprocess
import tempfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import BinaryIO

from msgspec.structs import replace

from retinue.core.errors import quote
from retinue.core.pattern import late_pattern
from retinue.features.worktree.records import CopyRecord, Records
from retinue.sandbox.open_beneath import open_beneath
from retinue.tools.git import GitGuard, GitResult, run_git

SHA = late_pattern(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_READING = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_FOLDERS = ("objects/info", "objects/pack", "refs/heads", "refs/tags", "info", "hooks")
SHARED = ("shallow", "info/exclude", "info/attributes")
_PACKED = "packed-refs"
_MAX_TEXT = 4 * 1024 * 1024


def make_repository(record: CopyRecord, records: Records, git_dir: str, guard: GitGuard, refs: bytes) -> None:
    """Create the repository with the current refs, and make the worktree's `.git` point to it. Raises OSError."""
    own = records.repository_path(record.run_id)
    if os.path.lexists(own):
        shutil.rmtree(own)
    for name in _FOLDERS:
        os.makedirs(os.path.join(own, name), 0o700)
    _write(own, "objects/info/alternates", os.fsencode(os.path.join(record.common, "objects")) + b"\n")
    _write(own, "config", os.fsencode(_render_config(record, git_dir, guard)))
    _write(own, "HEAD", f"{record.base}\n".encode())
    _write(own, _PACKED, refs)
    records.refs_path(record.run_id).write_bytes(refs)
    for folder, name in ((git_dir, "index"), (git_dir, "info/sparse-checkout"), *((record.common, n) for n in SHARED)):
        with suppress(FileNotFoundError):
            # With its time: git reads the content of files that are newer than the index.
            shutil.copy2(os.path.join(folder, name), os.path.join(own, name))
    # Git's own record of the worktree stays: it protects the base commit from garbage collection.
    _write(record.path, ".git", b"gitdir: " + os.fsencode(own) + b"\n")


def _render_config(record: CopyRecord, git_dir: str, guard: GitGuard) -> str:
    """Render a configuration that includes the user's, except for file locations."""
    is_long = len(record.base) == 64
    lines = ["[core]", f"\trepositoryformatversion = {int(is_long)}"]
    lines += ["[extensions]", "\tobjectFormat = sha256"] if is_long else []
    worktree = os.path.join(git_dir, "config.worktree")
    included = [os.path.join(record.common, "config"), *([worktree] if os.path.exists(worktree) else ())]
    lines += ["[include]", *(f"\tpath = {_escape(path)}" for path in included)]
    lines += ["[core]", "\tbare = false", f"\tworktree = {_escape(record.path)}", "\tlogAllRefUpdates = true"]
    if not guard.has_hooks_path:
        lines.append(f"\thooksPath = {_escape(os.path.join(record.common, 'hooks'))}")
    if guard.author is not None:
        # Also needed if the user's configuration sets it by repository location (includeIf).
        name, email = guard.author
        lines += ["[user]", f"\tname = {_escape(name)}", f"\temail = {_escape(email)}"]
    return "\n".join(lines) + "\n"


def _escape(value: str) -> str:
    plain = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{plain}"'


def _write(folder: str, name: str, data: bytes) -> None:
    with open(os.path.join(folder, name), "wb") as file:
        file.write(data)


def read_file(root: str, path: str, most: int = _MAX_TEXT) -> bytes:
    """Read the end of a file below a directory; empty if it is missing, a link, or not a regular file."""
    try:
        handle = open_file(root, path)
    except OSError:
        return b""
    with os.fdopen(handle, "rb") as file:
        file.seek(max(0, os.fstat(handle).st_size - most))
        return file.read(most)


def copy_file(root: str, path: str, target: str) -> None:
    """Copy a regular file below a directory. Raises OSError."""
    with os.fdopen(open_file(root, path), "rb") as file, open(target, "wb") as copy:
        shutil.copyfileobj(file, copy)


def open_file(root: str, path: str) -> int:
    """Open a regular file below a directory without following links. Raises OSError."""
    folder, name = os.path.split(path)
    parent = open_beneath(root, folder)
    try:
        return open_entry(name, parent)
    finally:
        os.close(parent)


def open_entry(name: str, parent: int) -> int:
    """Open a regular file in an open directory. Raises OSError."""
    handle = os.open(name, _READING, dir_fd=parent)
    if stat.S_ISREG(os.fstat(handle).st_mode):
        return handle
    os.close(handle)
    raise OSError(f"{quote(name)} is not a file")


def write_ref(own: str, name: str, commit: str) -> None:
    """Set a ref of a run's repository to a commit. Raises OSError."""
    folder, last = os.path.split(name)
    parent = open_beneath(own, folder, make=True)
    draft = f"{last}.{os.urandom(4).hex()}"
    try:
        handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644, dir_fd=parent)
        with os.fdopen(handle, "wb") as file:
            file.write(f"{commit}\n".encode())
        os.replace(draft, last, src_dir_fd=parent, dst_dir_fd=parent)
    finally:
        os.close(parent)


def read_head(own: str) -> str:
    """Return the current commit of a run's repository; empty if it has none."""
    told = read_file(own, "HEAD", 4096).decode("utf-8", "replace").strip()
    name = told.removeprefix("ref:").strip()
    if name != told:
        told = read_file(own, name, 4096).decode("utf-8", "replace").strip() if _is_ref(name) else ""
        told = told or _read_packed(own).get(name, "")
    return told if SHA.fullmatch(told) else ""


def _is_ref(name: str) -> bool:
    return name.startswith("refs/") and ".." not in name and "\0" not in name


def _read_packed(own: str) -> dict[str, str]:
    lines = read_file(own, _PACKED, 64 * _MAX_TEXT).decode("utf-8", "replace").split("\n")
    return {name: sha for sha, _, name in (line.partition(" ") for line in lines) if SHA.fullmatch(sha)}


def walk(top: str) -> Iterator[tuple[str, list[str], list[str], int]]:
    """Walk a tree like `os.fwalk`; yields nothing if it is missing or a link."""
    with suppress(FileNotFoundError):
        yield from os.fwalk(top)


def list_refs(own: str, begun: bytes) -> Iterator[str]:
    """Yield the object ids of refs in a run's repository that are new since it began."""
    known = set(begun.decode("utf-8", "replace").split("\n"))
    for name, sha in _read_packed(own).items():
        if f"{sha} {name}" not in known:
            yield sha
    for top in ("refs", "worktrees"):
        for _, _, names, handle in walk(os.path.join(own, top)):
            for name in names:
                with suppress(OSError), os.fdopen(open_entry(name, handle), "rb") as file:
                    told = file.read(128).decode("utf-8", "replace").strip()
                    if SHA.fullmatch(told):
                        yield told


WORK_TIMEOUT_S = 120.0
"""For git calls whose time grows with the repository."""
_FOLDER = late_pattern(r"[0-9a-f]{2}|pack")
_LOOSE = re.compile(r"[0-9a-f]{38}(?:[0-9a-f]{24})?")
_PACK = re.compile(r"pack-[0-9a-f]{40}(?:[0-9a-f]{24})?\.pack")
_CHUNK = 1024 * 1024
_FEW = 100
"""Up to this number, objects are stored individually, as git does after a fetch."""


class StepFailed(Exception):
    """Raised when a step failed, so that nothing may be removed."""


class ObjectStore:
    """Verified objects of a run, readable together with those of the user's repository. Close it."""

    def __init__(self, run_id: str, common: str, records: Records, guard: GitGuard) -> None:
        self.path = records.make_store(run_id)
        self._common = common
        self._own = records.repository_path(run_id)
        self._pass_fds = records.pass_fds
        # A single pack, even if the user limits pack sizes.
        self._guard = replace(guard, settings=(*guard.settings, ("pack.packSizeLimit", "0")))

    @property
    def environment(self) -> dict[str, str]:
        """With these variables git reads the objects of both, and writes here."""
        return {"GIT_OBJECT_DIRECTORY": self.path}

    async def fill(self) -> None:
        """Copy and verify the run's objects. Raises StepFailed and OSError."""
        for pack in await asyncio.to_thread(_copy_objects, self._own, self.path, self._common):
            # The run's own index of the pack is not trusted.
            await self._git("index-pack", pack)

    async def bring(self, commits: Sequence[str], base: str) -> None:
        """Copy commits and everything they need to the user's repository, and verify it. Raises StepFailed."""
        known = ("--not", base, "--branches", "--tags", "--remotes")
        # A broken ref in the user's repository must not prevent the copy.
        rows = (await self._git("rev-list", "--ignore-missing", "--boundary", *commits, *known)).text.split()
        edges = [f"^{row[1:]}" for row in rows if row.startswith("-")]
        if len(edges) < len(rows):
            await self._copy([*commits, *edges])
        whole = ("--objects", "--quiet", "--missing=allow-promisor")
        await self._git("rev-list", *whole, *commits, f"^{base}", *edges, is_shared=True)

    def close(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)

    async def _copy(self, revisions: Sequence[str]) -> None:
        draft = os.path.join(self.path, "draft")
        with tempfile.TemporaryFile() as wanted:
            wanted.write("".join(f"{each}\n" for each in revisions).encode())
            wanted.seek(0)
            made = await self._git("pack-objects", "--quiet", "--revs", draft, stdin=wanted.fileno())
        path = f"{draft}-{made.text}.pack"
        # Reject malformed objects.
        await self._git("index-pack", "--fsck-objects", "-o", f"{draft}.idx", path)
        pack = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            count = int.from_bytes(os.pread(pack, 4, 8), "big")
            words = ("unpack-objects", "-q") if count < _FEW else ("index-pack", "--stdin")
            await self._git(*words, stdin=pack, is_shared=True)
        finally:
            os.close(pack)

    async def _git(self, *arguments: str, stdin: int = subprocess.DEVNULL, is_shared: bool = False) -> GitResult:
        """Run git with our object directory, or with `is_shared` in the user's repository only. Raises StepFailed."""
        env = {"GIT_DIR": self._common, "GIT_NO_REPLACE_OBJECTS": "1"} | ({} if is_shared else self.environment)
        done = await run_git(
            arguments,
            self._common,
            timeout_s=WORK_TIMEOUT_S,
            env=env,
            guard=self._guard,
            pass_fds=self._pass_fds,
            stdin=stdin,
        )
        if not done.ok:
            raise StepFailed(f"git {arguments[0]}: {done.problem}")
        return done


def _copy_objects(own: str, store: str, common: str) -> list[str]:
    """Copy the run's objects and return the packs; loose objects are already verified."""
    for name in ("info", "pack"):
        os.mkdir(os.path.join(store, name))
    with open(os.path.join(store, "info", "alternates"), "wb") as file:
        file.write(os.fsencode(os.path.join(common, "objects")) + b"\n")
    packs = []
    top = os.path.join(own, "objects")
    for folder, folders, names, handle in walk(top):
        folders[:] = [name for name in folders if folder == top and _FOLDER.fullmatch(name)]
        place = "" if folder == top else os.path.basename(folder)
        wanted = _PACK if place == "pack" else _LOOSE
        for name in (name for name in names if place and wanted.fullmatch(name)):
            try:
                source = os.fdopen(open_entry(name, handle), "rb")
            except OSError:
                continue
            target = os.path.join(store, place, name)
            os.makedirs(os.path.dirname(target), exist_ok=True)
            with source, open(target, "wb") as copy:
                if place == "pack":
                    shutil.copyfileobj(source, copy, _CHUNK)
                    packs.append(target)
                elif not _copy_checked(source, copy, place + name):
                    os.unlink(target)
    return packs


def _copy_checked(source: BinaryIO, copy: BinaryIO, name: str) -> bool:
    """Copy a loose object; returns whether its content matches its name."""
    unpacker = zlib.decompressobj()
    digest = hashlib.sha256() if len(name) == 64 else hashlib.sha1(usedforsecurity=False)
    try:
        while chunk := source.read(_CHUNK):
            copy.write(chunk)
            while chunk:
                digest.update(unpacker.decompress(chunk, _CHUNK))
                chunk = unpacker.unconsumed_tail
        digest.update(unpacker.flush())
    except zlib.error:
        return False
    return unpacker.eof and digest.hexdigest() == name
