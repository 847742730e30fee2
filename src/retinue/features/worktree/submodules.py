"""Tells a submodule that was only checked out from one that somebody worked in: the first can be thrown away."""

import os
from collections.abc import Sequence
from contextlib import suppress

from retinue.features.worktree.traces import find_nested
from retinue.tools.git import GitGuard, load_guard, run_git

TIMEOUT_S = 30.0


async def is_untouched(root: str, path: str, recorded: str, index: str) -> bool:
    """Whether a nested repository is just the recorded commit, as it came from its remote. In doubt it is not.

    `index` is a file to use as its index: flags in its own could hide changes.
    """
    place = os.path.join(root, path)
    if not recorded or find_nested(place, []):
        return False
    guard = await load_guard(place)
    if not isinstance(guard, GitGuard):
        return False

    async def ask(arguments: Sequence[str]) -> str | None:
        done = await run_git(arguments, place, timeout_s=TIMEOUT_S, env={"GIT_INDEX_FILE": index}, guard=guard)
        return done.text if done.ok else None

    try:
        # Discovery may end in a repository around it; then nothing that follows is about this one.
        if await ask(["rev-parse", "--show-prefix"]) != "" or await ask(["rev-parse", "HEAD"]) != recorded:
            return False
        known = ("--all", "--reflog", "--not", recorded, "--remotes", "--tags")
        if await ask(["rev-list", "--max-count=1", *known]) != "" or await ask(["read-tree", "HEAD"]) is None:
            return False
        return await ask(["status", "--porcelain=v2", "--untracked-files=all", "--ignore-submodules=dirty"]) == ""
    finally:
        with suppress(FileNotFoundError):
            os.unlink(index)
