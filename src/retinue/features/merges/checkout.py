"""The user's checkout of the target: it follows a move of the target, or keeps its files and its commit.

git itself refuses to overwrite anything that is not committed. Must not know why the target moves.
"""

import asyncio
import os
import tempfile
from contextlib import suppress
from functools import partial

from retinue.core.errors import quote
from retinue.features.merges.target import MergeTarget
from retinue.features.worktree.copies import is_link
from retinue.features.worktree.pointers import find_filtered, find_unmanaged
from retinue.features.worktree.repository import read_file
from retinue.features.worktree.saved_work import list_some
from retinue.sandbox.open_beneath import remove_file
from retinue.tools.git import GitGuard, GitResult, load_guard

_HELD_S, _PAUSE_S = 2.0, 0.1
_MANAGE = "git add --renormalize . && git commit"


async def find_obstacle(target: MergeTarget, place: str, before: str, after: str) -> str:
    """Return why a checkout cannot follow from one commit to the other; empty if it can."""
    head = await target.try_git("rev-parse", "--verify", "HEAD^{commit}", cwd=place)
    if head.text != before:
        return "its commit has changed meanwhile"
    diff = await target.git("diff", "--name-only", "-z", "--no-renames", before, after, cwd=place)
    touched = diff.fields
    if filtered := await _find_filtered(target, place, after, touched):
        raw = await find_unmanaged(target.git, after, [path for path, name in filtered.items() if name == "lfs"])
        stored = (
            f" ({list_some(raw)} landed with the full content, not in Git LFS; afterwards: {_MANAGE})" if raw else ""
        )
        return f"a git filter is configured for {list_some(list(filtered))}, which is not run here{stored}"
    # Only the times of files may be outdated in the index, not their content.
    await target.try_git("update-index", "-q", "--refresh", cwd=place)
    trial = await _read_tree(target, place, "-n", "-m", "-u", before, after)
    guard = await load_guard(place)
    # Below folders that a sparse checkout leaves out, git overlooks untracked files that are in the way.
    if trial.ok and isinstance(guard, GitGuard) and not guard.is_sparse:
        return ""
    changed = await target.try_git("status", "--porcelain", "-z", "--no-renames", "--ignored", "-uall", cwd=place)
    names = {os.fsdecode(line[3:]) for line in changed.out.split(b"\0") if line}
    if in_the_way := [name for name in touched if name in names]:
        them = "it" if len(in_the_way) == 1 else "them"
        verb = "is" if len(in_the_way) == 1 else "are"
        return (
            f"{list_some(in_the_way)} {verb} not committed and would be changed; first stash {them} or move {them} away"
        )
    return "" if trial.ok else trial.problem


async def advance(target: MergeTarget, place: str, before: str, after: str) -> bool:
    """Move index and files from one commit to the other, before the branch moves; return whether git could."""
    return (await _read_tree(target, place, "-m", "-u", before, after)).ok


async def _read_tree(target: MergeTarget, place: str, *words: str) -> GitResult:
    """Run `git read-tree`, and wait briefly if another git command has the index."""
    for _ in range(round(_HELD_S / _PAUSE_S)):
        done = await target.try_git("read-tree", *words, cwd=place)
        if done.ok or "index.lock" not in done.error:
            break
        await asyncio.sleep(_PAUSE_S)
    return done


async def mend(target: MergeTarget, place: str, before: str, after: str) -> None:
    """Remove files that a killed `advance` has written, whole or in part, so that it can be repeated.

    They were unchanged when it began, so what begins like the new content is not the user's.
    """
    names = ("--name-only", "-z", "--no-renames")
    touched = (await target.git("diff", *names, before, after, cwd=place)).fields
    # git writes the index last.
    left = (await target.git("diff", *names, "--cached", after, cwd=place)).fields
    for path in set(touched).intersection(left):
        old = await target.try_git("cat-file", "blob", f"{before}:{path}", cwd=place)
        new = await target.try_git("cat-file", "blob", f"{after}:{path}", cwd=place)
        data = await asyncio.to_thread(read_file, place, path, len(new.out) + 1)
        full = os.path.join(place, path)
        if new.ok and new.out.startswith(data) and (not old.ok or data != old.out) and not is_link(full):
            with suppress(OSError):
                remove_file(full)


async def detach(target: MergeTarget, place: str, commit: str) -> None:
    """Leave a checkout at a commit when its branch moves on. Raises GitFailed."""
    words = ("-m", f"retinue land: stay at {commit[:12]}", "--no-deref", "HEAD", commit)
    await target.git("update-ref", *words, cwd=place)


async def attach(target: MergeTarget, place: str) -> None:
    """Undo `detach`. Raises GitFailed."""
    await target.git("symbolic-ref", "-m", "retinue land: back", "HEAD", target.ref, cwd=place)


def describe_stay(target: MergeTarget, place: str, before: str, obstacle: str) -> str:
    return (
        f"{quote(place, 200)} was left alone: {obstacle.rstrip('.')}. It keeps its files and its commit {before[:12]}, "
        f"and is no longer on {target.name} (detached HEAD); if you commit there, merge that into {target.name} by "
        f"hand. To follow: git switch {target.name}"
    )


async def _find_filtered(target: MergeTarget, place: str, after: str, paths: list[str]) -> dict[str, str]:
    """Return files with a filter that is configured, by the attributes of the checkout or of the new commit."""
    git, filters = partial(target.git, cwd=place), target.guard.filters
    found = await find_filtered(git, filters, paths)
    if filters and any(path.endswith(".gitattributes") for path in paths):
        with tempfile.TemporaryDirectory(prefix="retinue-index-") as folder:
            env = {"GIT_INDEX_FILE": os.path.join(folder, "index")}
            await target.git("read-tree", after, cwd=place, env=env)
            found |= await find_filtered(partial(git, env=env), filters, paths, "--cached")
    return found
