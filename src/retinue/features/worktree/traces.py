"""Inspect what an agent left in a worktree, its submodules and git's record of it."""

import os
import stat
from collections.abc import Iterable, Sequence
from contextlib import suppress

from retinue.features.worktree.repository import SHA, list_refs, read_file
from retinue.tools.git import GitGuard, load_guard, run_git

_MAX_TIPS = 500


def find_nested(root: str, ignored: Iterable[str]) -> list[str]:
    """Return directories with their own `.git`, relative to the worktree; git would not store their files."""
    skipped = {os.path.join(root, path.rstrip("/")) for path in ignored}
    found = []
    for folder, folders, files in os.walk(root):
        if folder != root and (".git" in folders or ".git" in files):
            found.append(os.path.relpath(folder, root))
            folders.clear()
        folders[:] = [name for name in folders if name != ".git" and os.path.join(folder, name) not in skipped]
    return sorted(found)


def is_own_link(root: str, *places: str) -> bool:
    """Return whether the worktree's `.git` still points to one of the given directories, or is missing."""
    path = os.path.join(root, ".git")
    if not os.path.lexists(path):
        return True
    told = os.fsdecode(read_file(root, ".git")).strip()
    return os.path.realpath(os.path.join(root, told.removeprefix("gitdir: "))) in map(os.path.realpath, places)


def restore_notes(git_dir: str, common: str) -> None:
    """Make git's record of a worktree point to the shared repository again, even if an agent changed it."""
    for _, folders, files, handle in os.fwalk(git_dir):
        for name in (*folders, *files):
            # Git creates no links there, and would write through them.
            if stat.S_ISLNK(os.stat(name, dir_fd=handle, follow_symlinks=False).st_mode):
                os.unlink(name, dir_fd=handle)
    path = os.path.join(git_dir, "commondir")
    if os.path.realpath(os.path.join(git_dir, _read(git_dir, "commondir").strip() or ".")) != common:
        with suppress(FileNotFoundError):
            os.unlink(path)
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        os.write(handle, b"../..\n")
        os.close(handle)


def find_tips(git_dir: str, begun: bytes = b"") -> list[str]:
    """Return commits that HEAD and refs pointed to, newest first, except those replaced by an amended one.

    `begun` are the refs that existed at the beginning, in git's format.
    """
    tips: dict[str, None] = {}
    replaced = set()
    for line in reversed(_read(git_dir, "logs/HEAD").splitlines()):
        told, _, message = line.partition("\t")
        old, _, rest = told.partition(" ")
        if message.startswith("commit (amend)"):
            replaced.add(old)
        tips |= dict.fromkeys(sha for sha in (rest[: rest.find(" ")], old) if SHA.fullmatch(sha) and sha.strip("0"))
    tips |= dict.fromkeys(list_refs(git_dir, begun))
    for name in ("rebase-merge/orig-head", "rebase-apply/orig-head", "ORIG_HEAD", "CHERRY_PICK_HEAD"):
        tips |= dict.fromkeys(read_shas(git_dir, name))
    return [sha for sha in tips if sha not in replaced][:_MAX_TIPS]


def read_shas(git_dir: str, name: str) -> list[str]:
    return [line for line in _read(git_dir, name).split() if SHA.fullmatch(line)]


def _read(git_dir: str, name: str) -> str:
    return read_file(git_dir, name).decode("utf-8", "replace")


TIMEOUT_S = 30.0


async def is_untouched(root: str, path: str, recorded: str, index: str) -> bool:
    """Return whether a nested repository is exactly the recorded commit from its remote; False in doubt.

    `index` is a file to use as its index: flags in its own index could hide changes.
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
        # Git may discover a parent repository instead; then its answers are not about this one.
        if await ask(["rev-parse", "--show-prefix"]) != "" or await ask(["rev-parse", "HEAD"]) != recorded:
            return False
        known = ("--all", "--reflog", "--not", recorded, "--remotes", "--tags")
        if await ask(["rev-list", "--max-count=1", *known]) != "" or await ask(["read-tree", "HEAD"]) is None:
            return False
        return await ask(["status", "--porcelain=v2", "--untracked-files=all", "--ignore-submodules=dirty"]) == ""
    finally:
        with suppress(FileNotFoundError):
            os.unlink(index)
