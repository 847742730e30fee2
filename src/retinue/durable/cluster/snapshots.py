"""The snapshots of a run: commits in a row, each with the run's files and a table of its branches.

Each holds what the agent itself has committed as further parents, so one bundle carries all of it. Must not know where
they are stored.
"""

import asyncio
import hashlib
import os
import re
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

from retinue.core.errors import RetinueError, quote
from retinue.durable.cluster.repository import SHA, Repository
from retinue.features.worktree.copies import is_directory, is_link

SUBJECT = "pi-agent: a snapshot of a run"
CARRIED = ("refs/heads/", "refs/pi-agent/")
"""Which refs of a run travel."""
MAX_REFS = 200
_REF = re.compile(r"refs/(?:heads|pi-agent)/[^\x00-\x20\x7f~^:?*\[\\]{1,200}")
_DATE = re.compile(r"^committer .*> (\d{1,12} [+-]\d{4})$", re.MULTILINE)
_MAX_HEAD = 4096
_READ_S = 10.0


@dataclass(frozen=True, slots=True)
class BranchTable:
    """Where the branches of a run are."""

    head: str = ""
    """A commit, or the name of a branch; empty when nobody knows."""
    refs: Mapping[str, str] = field(default_factory=dict)

    @property
    def head_commit(self) -> str:
        """The commit that the run has checked out, if any."""
        return self.refs.get(self.head, "") if self.head.startswith("refs/") else self.head

    @property
    def commits(self) -> list[str]:
        """All commits it names, once each."""
        return list(dict.fromkeys([*([self.head_commit] if self.head_commit else ()), *self.refs.values()]))

    def render(self) -> str:
        """As the text of a commit."""
        rows = [f"HEAD {self.head}", *(f"{name} {sha}" for name, sha in self.refs.items())]
        return "\n".join((SUBJECT, "", *rows))

    @classmethod
    def parse(cls, text: str) -> Self:
        """From the text of a commit; rows that say nothing useful are passed over."""
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
class Link:
    """One snapshot, as it is in a repository."""

    commit: str
    tree: str
    date: str
    """When it was made, as git writes it."""
    table: BranchTable


async def read_link(repository: Repository, commit: str) -> Link:
    """What a snapshot says. Raises RetinueError when it is none of ours."""
    raw = os.fsdecode((await repository.run("cat-file", "commit", commit)).out)
    header, _, message = raw.partition("\n\n")
    tree = header.partition("\n")[0].removeprefix("tree ")
    made = _DATE.search(header)
    if made is None or not SHA.fullmatch(tree) or not message.startswith(SUBJECT):
        raise RetinueError(f"commit {commit} is not a snapshot of a run")
    return Link(commit, tree, f"@{made[1]}", BranchTable.parse(message))


async def apply_chain(repository: Repository, ref: str, begin: str, bundles: Sequence[bytes]) -> Link | None:
    """Put snapshots into a repository, one upon the other, and let a ref follow them; None when there are none.

    `begin` is what the first one builds upon, and the ref MUST be there already; without it the first one is complete.
    """
    last = begin
    for number, data in enumerate(bundles, 1):
        try:
            before, last = last, await repository.take_bundle(data)
            # Before any ref names it: a repository must not be led to what did not come.
            await repository.check_whole(last, (before,) if before else ())
        except RetinueError as error:
            raise RetinueError(f"snapshot {number} of {len(bundles)}: {error}") from error
        await repository.run("update-ref", ref, last)
    if last == begin:
        return None
    link = await read_link(repository, last)
    # Also what the table names: branches are made of it, and one whose files are missing would spoil a repository.
    await repository.check_whole(last, (begin,) if begin else (), link.table.commits)
    counted = await repository.run("rev-list", "--first-parent", "--count", last, *([f"^{begin}"] if begin else ()))
    # Without a beginning the empty one is counted too.
    if int(counted.text) != len(bundles) + (not begin):
        raise RetinueError(
            f"the {len(bundles)} snapshots of the run do not follow one another from commit {begin or 'nothing'}; "
            "give all of them, in the order in which they were made"
        )
    return link


def read_signature(git_dir: str) -> tuple[object, ...]:
    """Something that differs once a branch has moved; costs a few system calls."""
    found: list[object] = []
    for name in ("HEAD", "packed-refs"):
        found.append(stat_file(os.path.join(git_dir, name)))
    for folder, folders, files in os.walk(os.path.join(git_dir, "refs")):
        folders.sort()
        found += [(folder, name, stat_file(os.path.join(folder, name))) for name in sorted(files)]
    return tuple(found)


def stat_file(path: str) -> tuple[int, int, int] | None:
    """Something that differs once a file was written."""
    told = _stat(path)
    return (told.st_mtime_ns, told.st_size, told.st_ino) if told is not None else None


def _stat(path: str) -> os.stat_result | None:
    try:
        return os.lstat(path)
    except OSError:
        return None


async def read_table(git_dir: str, objects: Repository) -> BranchTable:
    """The branches of a repository that an agent may have bent; only commits that `objects` can read."""
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
    """Whether git will find files and folders only: a pipe would keep it waiting."""
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
        # It may be anything by now, a pipe that nobody writes to for example.
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
    """Let a repository's branches be as the table says; HEAD last."""
    repository = Repository(git_dir)
    for name, sha in table.refs.items():
        done = await repository.ask("update-ref", "--no-deref", name, sha)
        if not done.ok:
            raise RetinueError(f"branch {quote(name)} of the run cannot be restored: {done.problem}")
    if table.head.startswith("refs/"):
        await repository.run("symbolic-ref", "HEAD", table.head)
    elif table.head:
        await repository.run("update-ref", "--no-deref", "HEAD", table.head)


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
