"""Save the work in a worktree to a branch, verify that it is complete, and only then remove the worktree.

If anything fails, the worktree stays and the result says where and why. Uses its own index and no git commands that run
hooks, so the agent's index or an unfinished merge cannot interfere.
"""

import asyncio
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

import msgspec

from retinue.core.errors import quote
from retinue.core.jsonline import clean_text
from retinue.core.pattern import late_pattern
from retinue.core.run import BRANCH_PREFIX
from retinue.features.worktree.copies import (
    MAX_DESCRIPTION,
    discard_copy,
    hold_registry,
    is_directory,
    is_file,
    is_link,
)
from retinue.features.worktree.pointers import copy_contents, find_filtered, restore_pointers
from retinue.features.worktree.records import CopyRecord, Records
from retinue.features.worktree.repository import (
    WORK_TIMEOUT_S,
    ObjectStore,
    StepFailed,
    copy_file,
    read_head,
    write_ref,
)
from retinue.features.worktree.traces import (
    find_nested,
    find_tips,
    is_own_link,
    is_untouched,
    read_shas,
    restore_notes,
)
from retinue.tools.git import GitGuard, GitResult, load_guard, run_git

AUTHOR = ("pi-agent", "pi-agent@localhost")
"""Author of our commits if the user has configured none."""
ABANDONED_REFS = "refs/pi-agent"
_CONTROL = late_pattern(r"[\x00-\x1f\x7f-\x9f]+")
# Created by tools, so they are not worth a note.
_CACHE = late_pattern(r"(?:^|/)(?:__pycache__|node_modules|\.venv|venv|target|\.[a-z]+_cache|\.tox|[^/]+\.pyc)/?$")
_MAX_SHOWN = 5


@dataclass(frozen=True, slots=True)
class KeptCopy:
    branch: str = ""
    """The branch with the work; empty if nothing was done."""
    path: str = ""
    """The worktree, if it could not be removed."""
    problem: str = ""
    notes: tuple[str, ...] = ()


async def keep_work(record: CopyRecord, records: Records) -> KeptCopy:
    """Save the work to a branch and remove the worktree. Raises only CancelledError, which loses nothing."""
    if record.state != "live":
        return await _remove(record, records, KeptCopy(branch=record.branch))
    saver = _Saver(record, records)
    try:
        await saver.save()
    except (StepFailed, OSError) as error:
        return KeptCopy(saver.branch, record.path, str(error), tuple(saver.notes))
    finally:
        saver.close()
    done = msgspec.structs.replace(record, state="removing", branch=saver.branch)
    try:
        if is_directory(record.path):
            records.save(done)
    except OSError as error:
        return KeptCopy(saver.branch, record.path, f"its record cannot be written: {error.strerror or error}")
    return await _remove(done, records, KeptCopy(saver.branch, notes=tuple(saver.notes)))


async def _remove(record: CopyRecord, records: Records, kept: KeptCopy) -> KeptCopy:
    try:
        await asyncio.to_thread(discard_copy, record, records)
    except OSError as error:
        problem = f"all of it is saved, but it cannot be removed: {error.strerror or error}"
        return KeptCopy(kept.branch, record.path, problem, kept.notes)
    return kept


class _Saver:
    """The steps of saving one worktree; each can be repeated after a crash."""

    def __init__(self, record: CopyRecord, records: Records) -> None:
        self.branch = ""
        self.notes: list[str] = []
        self._record = record
        self._records = records
        self._guard = GitGuard()
        self._store: ObjectStore | None = None
        self._pointers: set[str] = set()
        """Files with the content of a Git LFS pointer that was saved in their place."""
        own = records.repository_path(record.run_id)
        self._own = own if is_directory(own) else ""
        """The repository that the run writes; empty for worktrees of earlier versions, which wrote to the user's."""
        self._env = {
            "GIT_DIR": record.git_dir,
            # Set explicitly, because an agent may change git's record of the worktree.
            "GIT_COMMON_DIR": record.common,
            "GIT_WORK_TREE": record.path,
            "GIT_INDEX_FILE": str(records.index_path(record.run_id)),
            "GIT_NO_REPLACE_OBJECTS": "1",
        }

    def close(self) -> None:
        if self._store is not None:
            self._store.close()

    async def save(self) -> None:
        """Put all work into commits, and the commits into refs. Raises StepFailed if that cannot be verified."""
        record = self._record
        has_files, has_repository = is_directory(record.path), is_directory(record.common)
        if is_link(record.path):
            raise StepFailed("it was replaced by a link")
        if not has_repository or not is_directory(record.git_dir):
            if has_files and not has_repository:
                raise StepFailed(f"its repository {quote(record.common, 200)} is gone")
            if has_files:
                raise StepFailed("git does not know it any more: its registration was removed")
            return
        restore_notes(record.git_dir, record.common)
        loaded = await load_guard(record.common, env=self._env)
        if not isinstance(loaded, GitGuard):
            raise StepFailed(f"git config: {loaded.problem}")
        self._guard = loaded
        self._store = ObjectStore(record.run_id, record.common, self._records, loaded)
        await self._store.fill()
        if self._own:
            await asyncio.to_thread(copy_contents, self._own, record.common)
        head = await self._find_head()
        commit, unsafe = await self._save_files(head) if has_files else (head, [])
        left = await self._find_abandoned(commit)
        # Objects first, then refs: a ref in the user's repository must never point to a missing object.
        await self._store.bring([commit, *left], record.base)
        await self._git("update-ref", "--no-deref", "-m", "pi-agent: keep the work", "HEAD", commit, is_kept=True)
        if self._own:
            write_ref(self._own, "HEAD", commit)
        await self._save_abandoned(left)
        if commit != record.base:
            self.branch = await self._save_branch(commit)
        elif record.branch:
            self.branch = record.branch
        self._tell_asker(commit)
        if has_files:
            await self._prove(commit, unsafe)

    async def _find_head(self) -> str:
        if self._own:
            # An agent may have started a new history that has no commit yet.
            head = read_head(self._own) or self._record.base
            if not (await self._try("rev-parse", "--verify", f"{head}^{{commit}}")).ok:
                raise StepFailed(f"its last commit {head} cannot be read")
            return head
        found = await self._try("rev-parse", "--verify", "HEAD^{commit}")
        return found.text if found.ok else self._record.base

    def _tell_asker(self, commit: str) -> None:
        """Give the branch to the run that requested the work, too, if its repository still exists."""
        asker = self._records.repository_path(self._record.asker) if self._record.asker else ""
        if self.branch and is_directory(asker):
            with suppress(OSError):
                write_ref(asker, f"refs/heads/{self.branch}", commit)

    async def _save_files(self, head: str) -> tuple[str, list[str]]:
        """Return a commit with all files, and the directories that cannot be committed."""
        record = self._record
        ignored = (await self._git("ls-files", "-z", "-o", "-i", "--exclude-standard", "--directory")).fields
        nested = await asyncio.to_thread(find_nested, record.path, ignored)
        scope = ("--", ".", *(f":(top,exclude,literal){path}" for path in nested))
        await self._begin_index(head)
        await self._git("add", "--all", "--sparse", *scope)
        tree = (await self._git("write-tree")).text
        filtered = await self._find_filtered(head, tree)
        store = "" if head == record.base else record.common
        self._pointers = await restore_pointers(self._git, head, record.path, filtered, store)
        tree = (await self._git("write-tree")).text if self._pointers else tree
        if tree != (await self._git("rev-parse", "--verify", f"{head}^{{tree}}")).text:
            head = await self._commit(tree, [head, *read_shas(self._own or record.git_dir, "MERGE_HEAD")])
        if found := [path for path in filtered if path not in self._pointers]:
            self.notes.append(
                f"Saved as they are, without the git filter that is configured for them: {list_some(found)}"
            )
        if lost := [path for path in ignored if not _CACHE.search(path)]:
            self.notes.append(f"Files that git ignores were not kept: {list_some(lost)}")
        unsafe = [path for path in nested if not await self._is_untouched(path)]
        if not is_own_link(record.path, record.git_dir, self._records.repository_path(record.run_id)):
            unsafe.append(".")
        return head, unsafe

    async def _begin_index(self, head: str) -> None:
        """Set our index to the agent's last commit, keeping the file states of the checkout."""
        index = self._env["GIT_INDEX_FILE"]
        if self._guard.is_sparse and head != self._record.base:
            # In a sparse checkout only the agent's index knows which files of its commits were not checked out.
            copy_file(self._own or self._record.git_dir, "index", index)
        elif is_file(index):
            await self._git("read-tree", "-m", "-i", head)
        else:
            raise StepFailed(f"{quote(index, 200)} is gone")

    async def _is_untouched(self, path: str) -> bool:
        listed = await self._git("ls-tree", "-z", self._record.base, "--", path)
        mode, _, sha = listed.text.partition("\t")[0].partition(" commit ")
        index = f"{self._env['GIT_INDEX_FILE']}.inner"
        return await is_untouched(self._record.path, path, sha if mode == "160000" else "", index)

    async def _commit(self, tree: str, parents: Sequence[str]) -> str:
        message = render_message(self._record.description)
        arguments = ["commit-tree", tree, *(part for sha in dict.fromkeys(parents) for part in ("-p", sha))]
        done = GitResult(1)
        for author in (self._guard.author, AUTHOR):
            if author is not None:
                done = await self._try(*arguments, "-m", message, env=to_variables(*author))
                if done.ok:
                    return done.text
        raise StepFailed(f"git commit-tree: {done.problem}")

    async def _find_filtered(self, head: str, tree: str) -> list[str]:
        """Return changed files for which the user has configured a filter, which was not run."""
        if not self._guard.filters:
            return []
        changed = await self._git("diff", "--name-only", "-z", "--no-renames", "--diff-filter=d", head, tree)
        return list(await find_filtered(self._git, self._guard.filters, changed.fields))

    async def _find_abandoned(self, commit: str) -> list[str]:
        """Return commits that the agent made but no branch contains, and that would be lost with the worktree."""
        record, refs = self._record, self._records.refs_path(self._record.run_id)
        begun = refs.read_bytes() if self._own and refs.exists() else b""
        tips = [sha for sha in find_tips(self._own or record.git_dir, begun) if sha not in (commit, record.base)]
        if not tips:
            return []
        present = (await self._try("rev-list", "--no-walk", "--ignore-missing", *tips)).text.split()
        known = ("--not", commit, record.base, "--branches", "--tags", "--remotes")
        lost = (await self._git("rev-list", *present, *known)).text.split() if present else []
        left = [sha for sha in present if sha in lost]
        if len(left) > 1:
            left = (await self._git("merge-base", "--independent", *left)).text.split()
        return left

    async def _save_abandoned(self, left: Sequence[str]) -> None:
        for sha in left:
            name = f"{ABANDONED_REFS}/{self._record.run_id}/{sha[:12]}"
            await self._git("update-ref", name, sha, is_shared=True)
            self.notes.append(f"Commits that the agent had left behind are kept as `{name}`")

    async def _save_branch(self, commit: str) -> str:
        """Create a branch at the commit, or move the run's own branch forward; other branches are not touched."""
        name = BRANCH_PREFIX + self._record.run_id
        known = await self._list_refs("%(objectname)", f"refs/heads/{name}", f"refs/heads/{name}-*")
        for other, sha in known.items():
            if sha == commit:
                return other
        own = self._record.branch
        if own in known and await self._move_branch(own, known[own], commit):
            return own
        now_ms = time.time_ns() // 1_000_000
        done = GitResult(1)
        for number in range(5):
            wanted = f"{name}-{now_ms + number - 1}" if number else name
            # The empty old value means: only if the branch does not exist.
            done = await self._try("update-ref", f"refs/heads/{wanted}", commit, "", is_shared=True)
            if done.ok:
                return wanted
        raise StepFailed(f"git update-ref: {done.problem}")

    async def _move_branch(self, name: str, before: str, commit: str) -> bool:
        """Move a branch forward unless it is checked out or has diverged; returns whether it moved."""
        async with hold_registry(self._record.common):
            used = await self._list_refs("%(worktreepath)", f"refs/heads/{name}")
        if used.get(name) or not (await self._try("merge-base", "--is-ancestor", before, commit)).ok:
            return False
        return (await self._try("update-ref", f"refs/heads/{name}", commit, before, is_shared=True)).ok

    async def _list_refs(self, field: str, *patterns: str) -> dict[str, str]:
        rows = await self._git("for-each-ref", f"--format=%(refname:lstrip=2)%00{field}%00", *patterns, is_shared=True)
        fields = [each.removeprefix("\n") for each in rows.fields]
        return dict(zip(fields[::2], fields[1::2], strict=False))

    async def _prove(self, commit: str, unsafe: Sequence[str]) -> None:
        """Raise StepFailed unless every file is in the commit and a ref points to it."""
        if unsafe:
            raise StepFailed(f"git repositories inside of it cannot be put on a branch: {list_some(sorted(unsafe))}")
        asked = ("--porcelain=v2", "-z", "--untracked-files=all", "--ignore-submodules=dirty")
        left = (await self._git("status", *asked, is_kept=True)).fields
        if left and self._pointers:
            changed = {row.split(" ", 8)[-1]: row for row in left if row.startswith("1 .M ")}
            same = await restore_pointers(self._git, commit, self._record.path, changed.keys() & self._pointers)
            left = [row for row in left if row not in {changed[path] for path in same}]
        if left:
            raise StepFailed(f"not all files could be saved: {list_some(left)}")
        head = (await self._git("rev-parse", "--verify", "HEAD^{commit}", is_kept=True)).text
        if head != commit or (self._own and read_head(self._own) != commit):
            raise StepFailed("another process is still changing it")
        if self.branch:
            found = await self._git("rev-parse", "--verify", f"refs/heads/{self.branch}^{{commit}}", is_shared=True)
            if found.text != commit:
                raise StepFailed(f"branch {quote(self.branch)} was moved by another process")

    async def _try(
        self, *arguments: str, env: Mapping[str, str] | None = None, is_shared: bool = False, is_kept: bool = False
    ) -> GitResult:
        """Run git for the worktree, or with `is_shared` for the user's repository.

        `is_kept` also runs it for the worktree, but reads only objects that are already in the repository.
        """
        record, store = self._record, self._store
        # A deleted worktree has no directory to run in; all paths are set explicitly anyway.
        cwd = record.path if is_directory(record.path) and not is_shared else record.common
        objects = {} if is_kept or store is None else store.environment
        return await run_git(
            arguments,
            cwd,
            timeout_s=WORK_TIMEOUT_S,
            env={"GIT_DIR": record.common} if is_shared else {**self._env, **objects, **(env or {})},
            guard=self._guard,
            pass_fds=self._records.pass_fds,
        )

    async def _git(self, *arguments: str, is_shared: bool = False, is_kept: bool = False) -> GitResult:
        done = await self._try(*arguments, is_shared=is_shared, is_kept=is_kept)
        if not done.ok:
            raise StepFailed(f"git {arguments[0]}: {done.problem}")
        return done


def render_message(description: str) -> str:
    line = " ".join(_CONTROL.sub(" ", clean_text(description, None)).split())
    return f"pi-agent: {line[:MAX_DESCRIPTION]}"


def to_variables(name: str, email: str) -> dict[str, str]:
    fields = {"NAME": name, "EMAIL": email}
    return {f"GIT_{role}_{field}": value for role in ("AUTHOR", "COMMITTER") for field, value in fields.items()}


def list_some(names: Sequence[str]) -> str:
    """Render the first names of a list and the number of the others."""
    shown = ", ".join(quote(name) for name in names[:_MAX_SHOWN])
    return shown + (f" and {len(names) - _MAX_SHOWN} more" if len(names) > _MAX_SHOWN else "")
