"""Which files of a workspace changed between two moments, as the host sees it.

In a repository git compares the files with a private copy of its index, and we those that were not clean at the
beginning; files that git ignored then are left out. Neither the index nor rules that an agent changes can hide a file:
the ctime of a file cannot be set. Must not know runs.
"""

import asyncio
import hashlib
import os
import shutil
import stat
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

from retinue.core.jsonline import clean_text
from retinue.core.pattern import late_pattern
from retinue.core.receipt import FileReceipt
from retinue.sandbox.open_beneath import open_beneath
from retinue.sandbox.stubs import is_stub
from retinue.tools.git import GitGuard, GitResult, load_guard, run_git

MAX_FILES = 50_000
"""In a folder with more files outside of a repository, changes are not listed."""
MAX_RECEIPTS = 1_000
MAX_HASHED = 256 * 1024**2
"""Larger files get no hash."""
TIMEOUT_S = 30.0
_EXCLUDE = "info/exclude"
# Written by us while runs work.
_OURS = late_pattern(r"\.pi/(?:output/(?:\.gitignore|agent-[^/]*\.jsonl)|subagent-schedules/[^/]*\.json)")
_LIST = ("ls-files", "-z", "--others", "--exclude-standard")
_CHANGED = (*_LIST, "-t", "--modified", "--deleted")
"""Lists the files that are not in the copied index, or differ from it, each after a mark."""
_IGNORED = (*_LIST, "--ignored", "--directory")
_STORED, _INDEX = "listing.json", "index"
_OTHER, _CLEAN = "?", "H"
"""The marks of git for a file that is not in the index, and for one that is."""
Change = Literal["created", "changed", "deleted"]


class FileListing(Struct, frozen=True):
    """The files of a workspace at one moment."""

    root: str
    folder: str = ""
    """Has the copy of the index."""
    signs: Mapping[str, int] = {}
    """The files that git cannot compare, such as changed ones, with a hash of what the kernel says about each."""
    has_git: bool = False
    head: str = ""
    """The commit that is checked out."""
    ignored: frozenset[str] = frozenset()
    """What git ignores; a folder stands for what is in it."""
    exclude: str = ""
    """The file with ignore rules in the repository."""
    problem: str = ""
    """Why the files are not known."""

    def close(self) -> None:
        """Remove what is stored, and its folder if nothing else is in it."""
        if self.folder:
            with suppress(OSError):
                for name in (_STORED, _INDEX):
                    Path(self.folder, name).unlink(missing_ok=True)
                os.rmdir(self.folder)


class Changes(Struct, frozen=True):
    files: tuple[FileReceipt, ...] = ()
    commit: str | None = None
    """The commit that is checked out now, if that has changed."""
    notes: tuple[str, ...] = ()


async def list_files(root: str, folder: Path | None = None) -> FileListing:
    """Return the files of a workspace now; the caller must close it. A failure is in the result.

    With a folder the listing is stored there, and one that is there already is returned.
    """
    if folder is not None and (stored := await asyncio.to_thread(_read, folder)) is not None:
        return stored
    try:
        git = os.path.join(root, ".git")
        if not os.path.lexists(git) or is_stub(git):  # noqa: ASYNC240 - fast
            listing = await asyncio.to_thread(_list_folder, root, "" if folder is None else str(folder))
        else:
            listing = await _list_repository(root, _make_folder(folder))
    except OSError as error:
        return FileListing(root, problem=f"{error.filename or root}: {error.strerror or error}")
    if folder is not None:
        await asyncio.to_thread(_write, folder, listing)
    return listing


async def _list_repository(root: str, folder: str) -> FileListing:
    asked = ["rev-parse", "--path-format=absolute", "--git-path", "index", "--git-path", _EXCLUDE, "HEAD^{commit}"]
    guard, places = await asyncio.gather(load_guard(root), run_git(asked, root))
    known = FileListing(root, folder, has_git=True)
    if isinstance(guard, GitResult) or places.text.count("\n") < 2:
        told = guard if isinstance(guard, GitResult) else places
        return msgspec.structs.replace(known, problem=f"git failed: {told.problem}")
    index, exclude, head = places.text.split("\n")[:3]
    # Without a commit git fails, and repeats what it was asked.
    known = msgspec.structs.replace(known, head=head if places.ok else "")
    with suppress(FileNotFoundError):
        # With its time: git reads the content of files that are newer.
        await asyncio.to_thread(shutil.copy2, index, _find_index(folder))
    # With the files whose changes git is told not to see.
    listed, ignored = await asyncio.gather(
        _ask(known, guard, *_CHANGED, "-v", "--cached"), _ask(known, guard, *_IGNORED)
    )
    if not listed.ok or not ignored.ok:
        told = ignored if listed.ok else listed
        return msgspec.structs.replace(known, problem=f"git failed: {told.problem}")
    names = [row[2:] for row in listed.fields if row[0] != _CLEAN]
    if os.path.lexists(os.path.join(root, ".gitmodules")):  # noqa: ASYNC240 - fast
        staged = await run_git(["ls-files", "-z", "--stage"], root, guard=guard)
        names += [row.partition("\t")[2] for row in staged.fields if row.startswith("160000 ")]
    signs = await asyncio.to_thread(_sign_all, root, names)
    signs[exclude] = _sign_file(exclude) or 0
    return msgspec.structs.replace(known, signs=signs, ignored=frozenset(ignored.fields), exclude=exclude)


async def find_changed_files(before: FileListing) -> Changes:
    """Return what has changed since `before`."""
    if before.problem:
        return Changes(notes=(f"Changed files are not known: {before.problem}.",))
    notes, names, commit = list[str](), dict[str, bool](), None
    if before.has_git:
        guard, head = await asyncio.gather(load_guard(before.root), _read_head(before.root))
        listed = guard if isinstance(guard, GitResult) else await _ask(before, guard, *_CHANGED)
        notes += [] if listed.ok else [f"Not all changed files are known: git failed: {listed.problem}."]
        names = {row[2:].rstrip("/"): row[0] != _OTHER for row in listed.fields} if listed.ok else {}
        commit = head if head != before.head else None
    else:
        now = await asyncio.to_thread(_list_folder, before.root)
        notes += [f"New files are not known: {now.problem}."] if now.problem else []
        names = dict.fromkeys(now.signs, False)
    changes = await asyncio.to_thread(_compare, before, names)
    if before.has_git and not isinstance(guard, GitResult):
        hidden = await _list_newly_hidden(before, guard, changes)
        changes |= await asyncio.to_thread(_compare, before, dict.fromkeys(hidden, False))
    changes.pop(before.exclude, None)
    paths = sorted(changes)
    notes += [f"{len(paths) - MAX_RECEIPTS} more files changed."] if len(paths) > MAX_RECEIPTS else []
    files = await asyncio.to_thread(_describe, before.root, {path: changes[path] for path in paths[:MAX_RECEIPTS]})
    return Changes(files, commit or None, tuple(notes))


async def _list_newly_hidden(before: FileListing, guard: GitGuard, changes: Mapping[str, Change]) -> list[str]:
    """Return the files that git ignores because of rules that were not there at the beginning."""
    found = await _ask(before, guard, *_IGNORED)
    new = [path for path in found.fields if path not in before.ignored]
    if not new:
        return []
    rows = await _find_rules(before, guard, new)
    # Git lists a folder also if each of its files is ignored for itself.
    inside = [path for path in new if path.endswith("/") and not rows.get(path)]
    files = await asyncio.to_thread(_sign_all, before.root, inside)
    rows |= await _find_rules(before, guard, files)
    sources = sorted({rule for rule in rows.values() if rule and not os.path.isabs(rule)})
    if not sources:
        return []
    tracked = await _ask(before, guard, "ls-files", "-z", "--cached", "--", *sources)
    usual = {*tracked.fields, *before.signs} - set(changes)
    usual |= {rule for rule in sources if rule.endswith(_EXCLUDE) and before.exclude not in changes}
    return [path for path, rule in rows.items() if rule and not os.path.isabs(rule) and rule not in usual]


async def _find_rules(before: FileListing, guard: GitGuard, paths: Iterable[str]) -> dict[str, str]:
    """Return the file with the rule that ignores each path, relative to the root; those of the user are absolute."""
    with tempfile.TemporaryFile() as asked:
        asked.write(b"".join(os.fsencode(path) + b"\0" for path in paths))
        asked.seek(0)
        words = ("check-ignore", "-z", "--verbose", "--no-index", "--stdin")
        told = await run_git(words, before.root, timeout_s=TIMEOUT_S, guard=guard, stdin=asked.fileno())
    return dict(zip(told.fields[3::4], told.fields[::4], strict=False))


async def list_committed(top: str, base: str, branch: str) -> tuple[tuple[FileReceipt, ...], str, str]:
    """Return the files that differ between a commit and a branch, the commit of the branch, and what went wrong."""
    guard, found = await asyncio.gather(
        load_guard(top), run_git(["rev-parse", "--verify", f"refs/heads/{branch}^{{commit}}"], top)
    )
    if isinstance(guard, GitResult) or not found.ok:
        return (), "", f"Changed files are not known: git failed: {found.problem}."
    words = ["diff", "--raw", "-z", "--no-renames", "--no-abbrev", base, found.text, "--"]
    told = await run_git(words, top, timeout_s=TIMEOUT_S, guard=guard)
    if not told.ok:
        return (), found.text, f"Changed files are not known: git failed: {told.problem}."
    rows = [(row.split(" "), path) for row, path in zip(told.fields[::2], told.fields[1::2], strict=False)]
    kinds: Mapping[str, Change] = {"A": "created", "D": "deleted"}
    changes = [(path, kinds.get(row[4], "changed"), row[3]) for row, path in rows]
    shown = changes[:MAX_RECEIPTS]
    hashes = await _hash_blobs(top, [blob for _, change, blob in shown if change != "deleted"])
    files = tuple(FileReceipt(clean_text(path, None), change, hashes.get(blob)) for path, change, blob in shown)
    more = f"{len(changes) - MAX_RECEIPTS} more files changed." if len(changes) > MAX_RECEIPTS else ""
    return files, found.text, more


async def _hash_blobs(top: str, blobs: Iterable[str]) -> dict[str, str]:
    """Return the SHA-256 of the content of each blob; too large ones are left out."""
    with tempfile.TemporaryFile() as asked:
        asked.write("".join(f"{blob}\n" for blob in dict.fromkeys(blobs)).encode())
        asked.seek(0)
        told = await run_git(["cat-file", "--batch"], top, timeout_s=TIMEOUT_S, stdin=asked.fileno())
    return await asyncio.to_thread(_read_blobs, told.out)


def _read_blobs(data: bytes) -> dict[str, str]:
    hashes, at = dict[str, str](), 0
    while (end := data.find(b"\n", at)) >= 0:
        words = data[at:end].split(b" ")
        at = end + 1
        if len(words) == 3:
            size = int(words[2])
            if at + size > len(data):
                break
            hashes[words[0].decode()] = hashlib.sha256(memoryview(data)[at : at + size]).hexdigest()
            at += size + 1
    return hashes


def _make_folder(folder: Path | None) -> str:
    if folder is None:
        return tempfile.mkdtemp(prefix="retinue-files-")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return str(folder)


def _find_index(folder: str) -> str:
    return os.path.join(folder, _INDEX)


def has_listing(folder: Path) -> bool:
    return (folder / _STORED).exists()


def _read(folder: Path) -> FileListing | None:
    try:
        return msgspec.json.decode((folder / _STORED).read_bytes(), type=FileListing)
    except (OSError, msgspec.MsgspecError):
        return None


def _write(folder: Path, listing: FileListing) -> None:
    with suppress(OSError, UnicodeEncodeError):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        (folder / _STORED).write_bytes(msgspec.json.encode(listing))


async def _read_head(root: str) -> str:
    found = await run_git(["rev-parse", "--verify", "--quiet", "HEAD^{commit}"], root)
    return found.text if found.ok else ""


async def _ask(before: FileListing, guard: GitGuard, *words: str) -> GitResult:
    """Ask git about the files, compared with the copied index."""
    env = {"GIT_INDEX_FILE": _find_index(before.folder)}
    return await run_git(words, before.root, timeout_s=TIMEOUT_S, guard=guard, env=env)


def _list_folder(root: str, folder: str = "") -> FileListing:
    signs = dict[str, int]()
    for name in _walk(root, ""):
        signs.update(_sign(root, name))
        if len(signs) > MAX_FILES:
            return FileListing(root, folder, problem=f"{clean_text(root, 200)} has more than {MAX_FILES} files")
    return FileListing(root, folder, signs)


def _walk(root: str, folder: str) -> Iterator[str]:
    """Yield the files below a folder, without following links and without what git keeps."""
    folders = [folder]
    while folders:
        folder = folders.pop()
        with suppress(OSError), os.scandir(os.path.join(root, folder)) as entries:
            for entry in entries:
                path = f"{folder}/{entry.name}" if folder else entry.name
                if not entry.is_dir(follow_symlinks=False):
                    yield path
                elif entry.name != ".git":
                    folders.append(path)


def _sign_all(root: str, names: Iterable[str]) -> dict[str, int]:
    return {path: sign for name in dict.fromkeys(names) for path, sign in _sign(root, name)}


def _sign(root: str, name: str) -> Iterator[tuple[str, int]]:
    """Yield a file and its sign, 0 if it is gone; for a folder, which git lists for a repository, what is in it."""
    name = name.rstrip("/")
    sign = _sign_file(os.path.join(root, name))
    if sign is None:
        for path in _walk(root, name):
            yield from _sign(root, path)
    else:
        yield name, sign


def _sign_file(path: str) -> int | None:
    """Return a hash of what the kernel says about a file; 0 if there is none, None for a folder."""
    try:
        status = os.lstat(path)
    except OSError:
        return 0
    if stat.S_ISDIR(status.st_mode):
        return None
    return hash((status.st_mode, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns))


def _compare(before: FileListing, names: Mapping[str, bool]) -> dict[str, Change]:
    """Return what has changed; `names` tells of each candidate whether it was there, unchanged since the index."""
    now = _sign_all(before.root, (*before.signs, *names))
    changes: dict[str, Change] = {}
    for path, sign in now.items():
        # A file that the index describes and git finds changed has another content now.
        known = before.signs.get(path, 1 if names.get(path) else 0)
        if _OURS.fullmatch(path) or sign == known:
            continue
        changes[path] = "created" if not known else "changed" if sign else "deleted"
    gone = (path for path, sign in before.signs.items() if sign and path not in now)
    return changes | dict.fromkeys(gone, "deleted")


def _describe(root: str, changes: Mapping[str, Change]) -> tuple[FileReceipt, ...]:
    hashes = {path: None if change == "deleted" else hash_file(root, path) for path, change in changes.items()}
    return tuple(FileReceipt(clean_text(path, None), changes[path], digest) for path, digest in hashes.items())


def hash_file(root: str, path: str) -> str | None:
    """Return the SHA-256 of a file, or of the text of a link; None if it cannot be read or is too large."""
    folder, name = os.path.split(path)
    try:
        parent = open_beneath(root, folder)
        try:
            status = os.stat(name, dir_fd=parent, follow_symlinks=False)
            if stat.S_ISLNK(status.st_mode):
                return hashlib.sha256(os.fsencode(os.readlink(name, dir_fd=parent))).hexdigest()
            if not stat.S_ISREG(status.st_mode) or status.st_size > MAX_HASHED:
                return None
            handle = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=parent)
            with open(handle, "rb") as file:
                return hashlib.file_digest(file, "sha256").hexdigest()
        finally:
            os.close(parent)
    except OSError:
        return None
