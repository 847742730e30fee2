"""Files that git only points to (LFS): one that merely looks changed, because no filter ran, stays a pointer."""

import asyncio
import hashlib
import os
import re
from collections.abc import Sequence

from retinue.durable.cluster.repository import Repository

_POINTER = re.compile(rb"version https://git-lfs\.github\.com/spec/v1\n(?:.*\n)*?oid sha256:([0-9a-f]{64})\nsize \d+\n")
_MAX_POINTER = 1024
_MAX_FILES = 500


async def restore_pointers(repository: Repository, base: str, paths: Sequence[str]) -> set[str]:
    """Put the pointers of a commit back into the index where the file is what they point to; gives those paths."""
    restored = set()
    for path in paths[:_MAX_FILES]:
        listed = (await repository.run("ls-tree", "-z", "--long", base, "--", f":(top,literal){path}")).text
        mode, kind, sha, size = (*listed.partition("\t")[0].split(), "", "", "", "")[:4]
        if kind != "blob" or not size.isdigit() or int(size) > _MAX_POINTER:
            continue
        told = _POINTER.fullmatch((await repository.run("cat-file", "blob", sha)).out)
        found = await asyncio.to_thread(_hash_file, os.path.join(repository.work_tree, path)) if told else ""
        if told and told[1].decode() == found:
            await repository.run("update-index", "--cacheinfo", f"{mode},{sha},{path}")
            restored.add(path)
    return restored


def _hash_file(path: str) -> str:
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return ""
