"""One branch of a repository onto which others are merged, without a checkout. Must not know checks, runs or journals.

Merges are made by `git merge-tree`: no hook, filter or merge driver runs, and only objects and refs are written.
"""

import asyncio
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from retinue.core.errors import RetinueError, UsageError, quote
from retinue.core.pattern import late_pattern
from retinue.core.run import BRANCH_PREFIX
from retinue.features.worktree.repository import WORK_TIMEOUT_S
from retinue.features.worktree.saved_work import ABANDONED_REFS, AUTHOR, list_some, to_variables
from retinue.sandbox.gitdirs import read_git_dirs
from retinue.tools.git import GitGuard, GitResult, load_guard, run_git

_HEADS = "refs/heads/"
_VERSION = late_pattern(r"(\d+)\.(\d+)")
_NEEDED = (2, 38)
_NEAR_S, _HELD_S, _PAUSE_S = 10.0, 1.0, 0.02
_REAL = {"GIT_NO_REPLACE_OBJECTS": "1"}


class GitFailed(RetinueError):
    """A git command of the merge queue failed; the target was not moved by it."""


@dataclass(frozen=True, slots=True)
class Merged:
    """A merge commit; with conflicts, its tree has their marks and it MUST NOT land."""

    commit: str
    tree: str
    conflicts: tuple[str, ...] = ()
    """Paths."""
    text: str = ""


@dataclass(frozen=True, eq=False)
class MergeTarget:
    top: str
    """The checkout from which the queue was started."""
    common: str
    """The git directory that all checkouts share."""
    name: str
    guard: GitGuard
    pass_fds: tuple[int, ...] = ()
    """Descriptors of a lock that git commands hold, so that none works on after us unnoticed."""

    @property
    def ref(self) -> str:
        return _HEADS + self.name

    async def read(self, branch: str) -> str:
        """Return the commit of a local branch; empty if it does not exist."""
        found = await self.try_git(
            "rev-parse", "--verify", "--quiet", "--end-of-options", f"{_HEADS}{branch}^{{commit}}"
        )
        return found.text if found.ok else ""

    async def contains(self, tip: str, commit: str) -> bool:
        return (await self.try_git("merge-base", "--is-ancestor", commit, tip)).ok

    async def merge(self, onto: str, commit: str, title: str, *, marks: bool = False) -> Merged:
        """Merge a commit onto another one. With conflicts there is no merge commit unless `marks` asks for one.

        Raises GitFailed.
        """
        done = await self.try_git("merge-tree", "--write-tree", "-z", "--name-only", "--messages", onto, commit)
        if done.code not in (0, 1) or not done.out:
            if "unrelated histories" in done.error:
                return Merged("", "", (".",), "the two branches have no common commit")
            names = f"{onto[:12]} {commit[:12]}"
            hint = f"; `git merge-tree --write-tree {names}` fetches what this partial clone lacks"
            raise GitFailed(f"git merge-tree {names}: {done.problem}{hint if self.guard.is_partial else ''}")
        tree, *rest = done.fields
        if not done.code:
            return Merged(await self._commit(tree, (onto, commit), title), tree)
        end = rest.index("") if "" in rest else len(rest)
        paths = tuple(dict.fromkeys(rest[:end]))
        made = await self._commit(tree, (onto, commit), title) if marks else ""
        return Merged(made, tree, paths, _read_messages(rest[end + 1 :]) or f"conflicts in {list_some(paths)}")

    async def list_changed(self, before: str, after: str) -> list[str]:
        """Return the paths that differ between two commits. Raises GitFailed."""
        return (await self.git("diff-tree", "-r", "-z", "--name-only", "--no-renames", before, after)).fields

    async def move(self, ref: str, to: str, before: str, reason: str) -> bool:
        """Move a ref if it still has the value `before` (empty: if it does not exist); return whether it did."""
        moved = await self.try_git("update-ref", "-m", reason, ref, to, before)
        return moved.ok

    async def keep(self, run_id: str, commit: str) -> str:
        """Keep a commit that its branch no longer contains; return the name of the ref."""
        name = f"{ABANDONED_REFS}/{run_id}/{commit[:12]}"
        await self.git("update-ref", name, commit)
        return name

    async def find_checkout(self, branch: str) -> str:
        """Return the directory in which a branch is checked out; empty if there is none.

        Agents can register any folder; only one that belongs to this repository counts.
        """
        listed = await self.git("worktree", "list", "--porcelain", "-z")
        for number, row in enumerate(os.fsdecode(listed.out).split("\0\0")):
            place, *facts = row.split("\0")
            place = place.removeprefix("worktree ")
            if f"branch {_HEADS}{branch}" not in facts:
                continue
            if _find_own(place, self.common):
                return place
            if number == 0 and not read_git_dirs(self.top).is_linked:
                return self.top  # its git directory is elsewhere
        return ""

    async def list_agent_branches(self) -> list[str]:
        """Return the branches of runs that the target does not contain, oldest first."""
        words = ("--sort=creatordate", "--format=%(refname:lstrip=2)", f"--no-merged={self.ref}")
        rows = await self.git("for-each-ref", *words, f"{_HEADS}{BRANCH_PREFIX}*")
        return [name for name in rows.text.splitlines() if name != self.name]

    async def find_marked(self, commit: str, paths: Sequence[str]) -> list[str]:
        """Return those paths whose file in a commit still has conflict marks."""
        found = []
        for path in paths:
            shown = await self.try_git("cat-file", "blob", f"{commit}:{path}")
            lines = shown.out.splitlines() if shown.ok else []
            if any(each.startswith(b"<<<<<<< ") for each in lines) and any(
                each.startswith(b">>>>>>> ") for each in lines
            ):
                found.append(path)
        return found

    async def clear_locks(self, near_s: float, *names: str, cwd: str = "") -> None:
        """Remove lock files that git left when it was killed with a queue, about at the time `near_s`.

        One of another git command soon disappears by itself.
        """
        for name in names:
            found = await self.try_git("rev-parse", "--path-format=absolute", "--git-path", f"{name}.lock", cwd=cwd)
            first = _look(found.text)
            if first is None or abs(first.st_mtime - near_s) > _NEAR_S:
                continue
            for _ in range(round(_HELD_S / _PAUSE_S)):
                await asyncio.sleep(_PAUSE_S)
                seen = _look(found.text)
                if seen is None or (seen.st_ino, seen.st_mtime_ns) != (first.st_ino, first.st_mtime_ns):
                    break
            else:
                with suppress(OSError):
                    os.unlink(found.text)

    async def git(self, *arguments: str, cwd: str = "", env: Mapping[str, str] | None = None) -> GitResult:
        """Run git. Raises GitFailed."""
        done = await self.try_git(*arguments, cwd=cwd, env=env)
        if not done.ok:
            raise GitFailed(f"git {arguments[0]}: {done.problem}")
        return done

    async def try_git(self, *arguments: str, cwd: str = "", env: Mapping[str, str] | None = None) -> GitResult:
        """Run git in the repository, or in one of its checkouts."""
        env, place = {**_REAL, **(env or {})}, cwd or self.top
        if own := _find_own(place, self.common):
            # Agents can write in it: what its files say about the repository must not count.
            env |= {"GIT_DIR": own, "GIT_COMMON_DIR": self.common, "GIT_WORK_TREE": place}
        guard = await load_guard(place, env=env) if cwd not in ("", self.top) else self.guard
        if isinstance(guard, GitResult):
            return guard
        return await run_git(arguments, place, timeout_s=WORK_TIMEOUT_S, env=env, guard=guard, pass_fds=self.pass_fds)

    async def _commit(self, tree: str, parents: Sequence[str], title: str) -> str:
        words = [part for parent in parents for part in ("-p", parent)]
        done = GitResult(1)
        for author in (self.guard.author, AUTHOR):
            if author is not None:
                done = await self.try_git("commit-tree", tree, *words, "-m", title, env=to_variables(*author))
                if done.ok:
                    return done.text
        raise GitFailed(f"git commit-tree: {done.problem}")


async def open_target(cwd: Path, onto: str = "") -> MergeTarget:
    """Find the repository of a directory and the branch to land on, by default the one that is checked out.

    Raises UsageError.
    """
    place = await run_git(["rev-parse", "--path-format=absolute", "--show-toplevel", "--git-common-dir"], cwd)
    if not place.ok or len(lines := place.text.splitlines()) != 2:
        raise UsageError(f"{quote(str(cwd), 200)} is not in a checkout of a git repository: {place.problem}")
    top, common = lines
    guard = await load_guard(top)
    if not isinstance(guard, GitGuard):
        raise UsageError(f"git config: {guard.problem}")
    head = await run_git(["symbolic-ref", "--quiet", "HEAD"], top)
    if not onto and not head.ok:
        raise UsageError(f"no branch is checked out in {quote(top, 200)}; name the branch to land on with --onto")
    target = MergeTarget(top, common, (onto or head.text).removeprefix(_HEADS), guard)
    if not await target.read(target.name):
        option = "--onto: " if onto else ""
        raise UsageError(f"{option}there is no branch {quote(target.name)} with a commit in {quote(top, 200)}")
    version = _VERSION.search((await run_git(["version"], top)).text)
    if version is not None and tuple(map(int, version.groups())) < _NEEDED:
        raise UsageError(f"git {version[0]} cannot merge without a checkout; the merge queue needs git 2.38 or newer")
    return target


def _find_own(place: str, common: str) -> str:
    """Return the git directory of a checkout of this repository; empty if the folder is none."""
    dirs = read_git_dirs(place)
    is_its = dirs.is_known or dirs.own == dirs.common
    return dirs.own if dirs.own and is_its and os.path.realpath(dirs.common) == os.path.realpath(common) else ""


def _look(path: str) -> os.stat_result | None:
    try:
        return os.stat(path)
    except OSError:
        return None


def _read_messages(fields: Sequence[str]) -> str:
    """Return the conflicts that `merge-tree -z` describes: a number of paths, the paths, a kind and a text each."""
    lines, rest = [], list(fields)
    while rest and rest[0].isdigit():
        count = int(rest[0])
        kind, text, rest = rest[count + 1], rest[count + 2], rest[count + 3 :]
        lines += [text.strip()] if kind.startswith("CONFLICT") else []
    return "\n".join(lines)
