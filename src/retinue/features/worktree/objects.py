"""Brings commits of a run into the user's repository: every object is checked and copied before any ref names it.

The run's objects are copied into a directory of ours first, and only there does git see them: a forged one, a link or
a list of further directories is left behind.
"""

import asyncio
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
import zlib
from collections.abc import Sequence
from dataclasses import replace
from typing import BinaryIO

from retinue.features.worktree.records import Records
from retinue.features.worktree.repository import open_entry, walk
from retinue.tools.git import GitGuard, GitResult, run_git

WORK_TIMEOUT_S = 120.0
"""For git calls whose time grows with the repository."""
_FOLDER = re.compile(r"[0-9a-f]{2}|pack")
_LOOSE = re.compile(r"[0-9a-f]{38}(?:[0-9a-f]{24})?")
_PACK = re.compile(r"pack-[0-9a-f]{40}(?:[0-9a-f]{24})?\.pack")
_CHUNK = 1024 * 1024
_FEW = 100
"""Objects that are stored one by one, as git does after a fetch."""


class Undone(Exception):
    """A step that failed: nothing may be removed."""


class Store:
    """Objects of a run that are what their names say, beside those of the user's repository. Close it."""

    def __init__(self, run_id: str, common: str, records: Records, guard: GitGuard) -> None:
        self.path = records.make_store(run_id)
        self._common = common
        self._own = records.repository_path(run_id)
        self._pass_fds = records.pass_fds
        # One pack, however small the user wants them.
        self._guard = replace(guard, settings=(*guard.settings, ("pack.packSizeLimit", "0")))

    @property
    def environment(self) -> dict[str, str]:
        """With it git reads the objects of both, and writes here."""
        return {"GIT_OBJECT_DIRECTORY": self.path}

    async def fill(self) -> None:
        """Copy what the run has made. Raises Undone and OSError."""
        for pack in await asyncio.to_thread(_copy_objects, self._own, self.path, self._common):
            # Its index would be the run's word for what is in it.
            await self._git("index-pack", pack)

    async def bring(self, commits: Sequence[str], base: str) -> None:
        """Have commits, and all they need, in the user's repository. Raises Undone unless that is proven."""
        known = ("--not", base, "--branches", "--tags", "--remotes")
        # A broken ref of the user's is no reason to keep anything from arriving.
        rows = (await self._git("rev-list", "--ignore-missing", "--boundary", *commits, *known)).text.split()
        edges = [f"^{row[1:]}" for row in rows if row.startswith("-")]
        if len(edges) < len(rows):
            await self._copy([*commits, *edges])
        whole = ("--objects", "--quiet", "--missing=allow-promisor")
        await self._git("rev-list", *whole, *commits, f"^{base}", *edges, is_shared=True)

    def close(self) -> None:
        """Forget the copies."""
        shutil.rmtree(self.path, ignore_errors=True)

    async def _copy(self, revisions: Sequence[str]) -> None:
        draft = os.path.join(self.path, "draft")
        with tempfile.TemporaryFile() as wanted:
            wanted.write("".join(f"{each}\n" for each in revisions).encode())
            wanted.seek(0)
            made = await self._git("pack-objects", "--quiet", "--revs", draft, stdin=wanted.fileno())
        path = f"{draft}-{made.text}.pack"
        # What does not have the form that git wants is not let in.
        await self._git("index-pack", "--fsck-objects", "-o", f"{draft}.idx", path)
        pack = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            count = int.from_bytes(os.pread(pack, 4, 8), "big")
            words = ("unpack-objects", "-q") if count < _FEW else ("index-pack", "--stdin")
            await self._git(*words, stdin=pack, is_shared=True)
        finally:
            os.close(pack)

    async def _git(self, *arguments: str, stdin: int = subprocess.DEVNULL, is_shared: bool = False) -> GitResult:
        """In our directory, or in the user's repository."""
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
            raise Undone(f"git {arguments[0]}: {done.problem}")
        return done


def _copy_objects(own: str, store: str, common: str) -> list[str]:
    """Give the packs; single objects are checked already."""
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
    """Copy a single object; whether it is the one that its name says."""
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
