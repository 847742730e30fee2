"""Git LFS without its programs: git stores a small pointer, and LFS the content below its SHA-256. No filter runs."""

import asyncio
import hashlib
import os
import re
import shutil
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import TypeAlias

from retinue.features.worktree.repository import open_entry, open_file, walk
from retinue.tools.git import GitResult

Git: TypeAlias = Callable[..., Awaitable[GitResult]]
"""Runs a git command in a checkout and raises if it fails."""
_OBJECTS = "lfs/objects"
_OID = re.compile(r"[0-9a-f]{64}")
_BEGIN = b"version https://git-lfs.github.com/spec/v1\n"
_MAX_POINTER = 1024
_CHUNK = 500


async def find_filtered(git: Git, filters: Collection[str], paths: Sequence[str], *words: str) -> dict[str, str]:
    """Return those paths that have one of these filters, with its name; `words` are options of `check-attr`."""
    found: dict[str, str] = {}
    for start in range(0, len(paths) if filters else 0, _CHUNK):
        fields = (await git("check-attr", "-z", *words, "filter", "--", *paths[start : start + _CHUNK])).fields
        rows = zip(fields[::3], fields[2::3], strict=False)
        found |= {path: name for path, name in rows if name in filters}
    return found


async def restore_pointers(git: Git, commit: str, root: str, paths: Collection[str], store: str = "") -> set[str]:
    """Put the pointers of a commit back into the index for files with the content they stand for; returns those paths.

    With `store`, a git directory, only if it has the content.
    """
    restored = []
    for mode, sha, size, path in await _list_blobs(git, commit, paths):
        name, oid = await asyncio.to_thread(_point_at, root, path, len(sha)) if size <= _MAX_POINTER else ("", "")
        if name == sha and (not store or _has_content(store, oid)):
            restored.append((mode, sha, path))
    for start in range(0, len(restored), _CHUNK):
        rows = restored[start : start + _CHUNK]
        await git("update-index", *(word for row in rows for word in ("--cacheinfo", ",".join(row))))
    return {path for _, _, path in restored}


async def find_unmanaged(git: Git, commit: str, paths: Collection[str]) -> list[str]:
    """Return those paths that a commit has with their content, not as pointers."""
    return [
        path
        for _, sha, size, path in await _list_blobs(git, commit, paths)
        if size > _MAX_POINTER or (size and not (await git("cat-file", "blob", sha)).out.startswith(_BEGIN))
    ]


async def _list_blobs(git: Git, commit: str, paths: Collection[str]) -> list[tuple[str, str, int, str]]:
    if not paths:
        return []
    found, wanted = [], set(paths)
    for row in (await git("ls-tree", "-r", "-z", "--long", "--full-tree", commit)).fields:
        facts, _, path = row.partition("\t")
        mode, kind, sha, size = facts.split()
        if path in wanted and kind == "blob":
            found.append((mode, sha, int(size), path))
    return found


def _point_at(root: str, path: str, length: int) -> tuple[str, str]:
    """Return the name that git gives to the pointer of a file, and the SHA-256 of its content; empty if unreadable."""
    try:
        with os.fdopen(open_file(root, path), "rb") as file:
            oid, size = hashlib.file_digest(file, "sha256").hexdigest(), file.tell()
    except OSError:
        return "", ""
    text = _BEGIN + f"oid sha256:{oid}\nsize {size}\n".encode()
    data = b"blob %d\0" % len(text) + text
    return hashlib.new("sha256" if length == 64 else "sha1", data, usedforsecurity=False).hexdigest(), oid


def _find_place(git_dir: str, oid: str) -> str:
    return os.path.join(git_dir, _OBJECTS, oid[:2], oid[2:4], oid)


def _has_content(git_dir: str, oid: str) -> bool:
    return os.path.exists(_find_place(git_dir, oid))


def copy_contents(own: str, common: str) -> None:
    """Copy what LFS stored in a run's repository, if it matches its name. Raises OSError."""
    for _, _, names, handle in walk(os.path.join(own, _OBJECTS)):
        for oid in filter(_OID.fullmatch, names):
            target = _find_place(common, oid)
            if _has_content(common, oid):
                continue
            try:
                source = os.fdopen(open_entry(oid, handle), "rb")
            except OSError:
                continue  # not a file
            os.makedirs(os.path.dirname(target), exist_ok=True)
            with source, open(f"{target}.tmp", "w+b") as copy:
                shutil.copyfileobj(source, copy)
                os.fsync(copy.fileno())
                copy.seek(0)
                is_good = hashlib.file_digest(copy, "sha256").hexdigest() == oid
            os.replace(copy.name, target) if is_good else os.unlink(copy.name)
