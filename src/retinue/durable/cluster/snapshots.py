"""Snapshots of a run: a chain of commits, each with the run's files and a table of its branches.

The agent's own commits are additional parents, so one bundle contains everything. Must not know where snapshots are
stored.
"""

import os
import re
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

from retinue.core.errors import RetinueError, quote
from retinue.core.pattern import late_pattern
from retinue.durable.cluster.repository import SHA, Repository
from retinue.features.worktree.copies import is_directory, is_link

SUBJECT = "pi-agent: a snapshot of a run"
CARRIED = ("refs/heads/", "refs/pi-agent/")
"""Prefixes of the refs that are included."""
MAX_REFS = 200
_REF = late_pattern(r"refs/(?:heads|pi-agent)/[^\x00-\x20\x7f~^:?*\[\\]{1,200}")
_DATE = late_pattern(r"^committer .*> (\d{1,12} [+-]\d{4})$", re.MULTILINE)
_MAX_HEAD = 4096
_READ_S = 10.0


@dataclass(frozen=True, slots=True)
class BranchTable:
    """The branches of a run."""

    head: str = ""
    """A commit or a branch name; empty if unknown."""
    refs: Mapping[str, str] = field(default_factory=dict)

    @property
    def head_commit(self) -> str:
        """The commit that the run has checked out; empty if none."""
        return self.refs.get(self.head, "") if self.head.startswith("refs/") else self.head

    @property
    def commits(self) -> list[str]:
        return list(dict.fromkeys([*([self.head_commit] if self.head_commit else ()), *self.refs.values()]))

    def render(self) -> str:
        rows = [f"HEAD {self.head}", *(f"{name} {sha}" for name, sha in self.refs.items())]
        return "\n".join((SUBJECT, "", *rows))

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse a commit message; invalid rows are skipped."""
        head = ""
        refs: dict[str, str] = {}
        for row in text.split("\n"):
            name, _, value = row.partition(" ")
            if name == "HEAD" and (SHA.fullmatch(value) or _is_branch(value)):
                head = value
            elif _REF.fullmatch(name) and SHA.fullmatch(value) and len(refs) < MAX_REFS:
                refs[name] = value
        return cls(head, refs)


def _is_branch(name: str) -> bool:
    return bool(_REF.fullmatch(name)) and name.startswith("refs/heads/")


@dataclass(frozen=True, slots=True)
class SnapshotLink:
    commit: str
    tree: str
    date: str
    """Its commit time in git's format."""
    table: BranchTable


async def read_link(repository: Repository, commit: str) -> SnapshotLink:
    """Read a snapshot. Raises RetinueError if the commit is not one."""
    raw = os.fsdecode((await repository.run("cat-file", "commit", commit)).out)
    header, _, message = raw.partition("\n\n")
    tree = header.partition("\n")[0].removeprefix("tree ")
    made = _DATE.search(header)
    if made is None or not SHA.fullmatch(tree) or not message.startswith(SUBJECT):
        raise RetinueError(f"commit {commit} is not a snapshot of a run")
    return SnapshotLink(commit, tree, f"@{made[1]}", BranchTable.parse(message))


async def apply_chain(repository: Repository, ref: str, begin: str, bundles: Sequence[bytes]) -> SnapshotLink | None:
    """Add a chain of snapshots to a repository and move a ref along; None if there are none.

    The first snapshot is based on `begin`, to which the ref MUST point already; without it the first one is complete.
    """
    last = begin
    for number, data in enumerate(bundles, 1):
        try:
            before, last = last, await repository.take_bundle(data)
            # Before any ref names it: a ref must never point to incomplete objects.
            await repository.check_whole(last, (before,) if before else ())
        except RetinueError as error:
            raise RetinueError(f"snapshot {number} of {len(bundles)}: {error}") from error
        await repository.run("update-ref", ref, last)
    if last == begin:
        return None
    link = await read_link(repository, last)
    # Also the commits of the table: a branch with missing objects would corrupt a repository.
    await repository.check_whole(last, (begin,) if begin else (), link.table.commits)
    counted = await repository.run("rev-list", "--first-parent", "--count", last, *([f"^{begin}"] if begin else ()))
    # Without `begin`, the empty first commit is counted too.
    if int(counted.text) != len(bundles) + (not begin):
        raise RetinueError(
            f"the {len(bundles)} snapshots of the run do not follow one another from commit {begin or 'nothing'}; "
            "give all of them, in the order in which they were made"
        )
    return link


def read_signature(git_dir: str) -> tuple[object, ...]:
    """Return a value that changes when a branch moves; costs a few system calls."""
    found: list[object] = []
    for name in ("HEAD", "packed-refs"):
        found.append(stat_file(os.path.join(git_dir, name)))
    for folder, folders, files in os.walk(os.path.join(git_dir, "refs")):
        folders.sort()
        found += [(folder, name, stat_file(os.path.join(folder, name))) for name in sorted(files)]
    return tuple(found)


def stat_file(path: str) -> tuple[int, int, int] | None:
    """Return a value that changes when a file is written."""
    told = _stat(path)
    return (told.st_mtime_ns, told.st_size, told.st_ino) if told is not None else None


def _stat(path: str) -> os.stat_result | None:
    try:
        return os.lstat(path)
    except OSError:
        return None


async def read_table(git_dir: str, objects: Repository) -> BranchTable:
    """Read the branches of a repository that an agent may have manipulated; only commits that `objects` can read."""
    if is_link(git_dir) or not is_directory(git_dir) or not _is_plain(git_dir):
        return BranchTable()
    asked = "--format=%(refname)%00%(objectname)%00%(objecttype)%00"
    repository = Repository(git_dir)
    listed = await repository.ask("for-each-ref", f"--count={MAX_REFS}", asked, *CARRIED, timeout_s=_READ_S)
    fields = [each.removeprefix("\n") for each in listed.fields] if listed.ok else []
    rows = zip(fields[::3], fields[1::3], fields[2::3], strict=False)
    refs = {name: sha for name, sha, kind in rows if kind == "commit" and _REF.fullmatch(name)}
    table = BranchTable(_read_head(git_dir), refs)
    there = await _select_present(objects, table.commits)
    kept = {name: sha for name, sha in refs.items() if sha in there}
    head = table.head if table.head.startswith("refs/") or table.head in there else ""
    return BranchTable(head, kept)


def _is_plain(git_dir: str) -> bool:
    """Return whether there are only files and folders: git would block on a pipe."""
    places = [entry.path for entry in os.scandir(git_dir)]
    for folder, _, files in os.walk(os.path.join(git_dir, "refs")):
        places += [os.path.join(folder, name) for name in files]
    modes = [told.st_mode for path in places if (told := _stat(path)) is not None]
    return all(stat.S_ISREG(mode) or stat.S_ISDIR(mode) for mode in modes)


async def _select_present(objects: Repository, commits: Sequence[str]) -> set[str]:
    if not commits:
        return set()
    found = await objects.ask("rev-list", "--no-walk", "--ignore-missing", *commits)
    return set(found.text.split()) if found.ok else set()


def _read_head(git_dir: str) -> str:
    try:
        # It may be anything by now, for example a pipe without a writer.
        handle = os.open(os.path.join(git_dir, "HEAD"), os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            told = os.read(handle, _MAX_HEAD).decode("utf-8", "replace").strip()
        finally:
            os.close(handle)
    except OSError:
        return ""
    name = told.removeprefix("ref: ")
    if name != told:
        return name if _is_branch(name) else ""
    return told if SHA.fullmatch(told) else ""


async def restore_table(git_dir: str, table: BranchTable) -> None:
    """Set a repository's branches to those of the table; HEAD last."""
    repository = Repository(git_dir)
    for name, sha in table.refs.items():
        done = await repository.ask("update-ref", "--no-deref", name, sha)
        if not done.ok:
            raise RetinueError(f"branch {quote(name)} of the run cannot be restored: {done.problem}")
    if table.head.startswith("refs/"):
        await repository.run("symbolic-ref", "HEAD", table.head)
    elif table.head:
        await repository.run("update-ref", "--no-deref", "HEAD", table.head)
