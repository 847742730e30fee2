"""The journal of a repository's merge queue, and the lock that allows one queue at a time. Must not know git.

Each entry is on disk before the step that it announces. What git itself knows (where a branch is) is not in it.
"""

import asyncio
import hashlib
import json
import os
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct, field

from retinue.core.errors import RetinueError, quote
from retinue.core.merge_report import Flaky, Refused
from retinue.sessions.files import make_private
from retinue.sessions.lock import LockHolder, take_flock

WAIT_LIMIT_S = 60.0
_PAUSE_S = 0.05
_MAX_BYTES = 64 * 1024 * 1024


class QueueBusy(RetinueError):
    """Another merge queue works on this repository."""


class Began(Struct, frozen=True, tag="began"):
    """A queue began; it is unfinished until `ended`."""

    target: str
    before: str
    branches: tuple[str, ...]
    verify: tuple[str, ...] | None
    """The commands; None lands what merges cleanly."""


class Joined(Struct, frozen=True, tag="joined"):
    """Branches were added to an unfinished queue, or have new commits."""

    branches: tuple[str, ...]


class Contained(Struct, frozen=True, tag="contained"):
    """The target has this commit of a branch already."""

    branch: str
    commit: str


class Checking(Struct, frozen=True, tag="checking"):
    commit: str
    tree: str


class Checked(Struct, frozen=True, tag="checked"):
    commit: str
    tree: str
    passed: bool
    command: str = ""
    """The command that failed."""
    output: str = ""


class Moving(Struct, frozen=True, tag="moving"):
    """The target is about to move."""

    before: str
    after: str
    merges: dict[str, str]
    """The commit of each branch that lands."""
    checkout: str = ""
    """The directory in which the target is checked out."""
    stays: str = ""
    """Why the files of the checkout are left alone."""


class Moved(Struct, frozen=True, tag="moved"):
    done: bool
    """False: somebody else had moved the target."""


class Left(Struct, frozen=True, tag="left"):
    """A branch stays behind, as long as it is at this commit."""

    refused: Refused
    commit: str
    is_final: bool = False
    """Its author is not asked any more."""


class Noted(Struct, frozen=True, tag="noted"):
    text: str


class Asking(Struct, frozen=True, tag="asking"):
    """An author is about to be asked: its branch moves from `before` to `merge`."""

    branch: str
    before: str
    merge: str
    paths: tuple[str, ...] = ()
    """Files with conflict marks."""


class Asked(Struct, frozen=True, tag="asked"):
    branch: str
    commit: str = ""
    """Its new commit; empty if it brought none that can be used."""
    problem: str = ""


class Ended(Struct, frozen=True, tag="ended"):
    after: str


Entry = Began | Joined | Contained | Checking | Checked | Moving | Moved | Left | Noted | Asking | Asked | Ended


class QueueState(Struct):
    """The entries of the last queue, applied in order."""

    began: Began | None = None
    branches: list[str] = field(default_factory=list)
    verdicts: dict[str, list[Checked]] = field(default_factory=dict)
    """Results by tree, in the order of the checks."""
    moving: Moving | None = None
    """A move that was announced and may have been made."""
    landed: dict[str, str] = field(default_factory=dict)
    """The commit of each branch that has landed."""
    left: dict[str, Left] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    asking: Asking | None = None
    attempts: dict[str, int] = field(default_factory=dict)
    """How often each author was asked."""
    after: str = ""
    is_ended: bool = False

    def apply(self, entry: Entry) -> None:
        match entry:
            case Began():
                self.began, self.branches, self.after = entry, list(entry.branches), entry.before
            case Joined():
                for name in entry.branches:
                    self.branches += [] if name in self.branches else [name]
                    self.landed.pop(name, None)
                    self.left.pop(name, None)
            case Contained():
                self.landed[entry.branch] = entry.commit
            case Checked():
                self.verdicts.setdefault(entry.tree, []).append(entry)
            case Moving():
                self.moving = entry
            case Moved():
                if entry.done and self.moving is not None:
                    self.landed |= self.moving.merges
                    self.after = self.moving.after
                self.moving = None
            case Left():
                self.left[entry.refused.branch] = entry
            case Noted():
                self.notes.append(entry.text)
            case Asking():
                self.asking = entry
                self.attempts[entry.branch] = self.attempts.get(entry.branch, 0) + 1
            case Asked():
                self.asking = None
            case Ended():
                self.is_ended = True

    @property
    def flaky(self) -> list[Flaky]:
        """Checks that had different results on one tree."""
        mixed = [checks for checks in self.verdicts.values() if len({each.passed for each in checks}) > 1]
        return [
            Flaky(
                next(each.command for each in checks if not each.passed),
                checks[0].commit,
                tuple("passed" if each.passed else "failed" for each in checks),
            )
            for checks in mixed
        ]

    @property
    def is_unfinished(self) -> bool:
        return self.began is not None and not self.is_ended

    @property
    def waiting(self) -> list[str]:
        return [name for name in self.branches if name not in self.landed and name not in self.left]

    @property
    def open(self) -> list[str]:
        """The branches about which an unfinished queue has not decided."""
        return [*self.waiting, *([self.asking.branch] if self.asking is not None else [])]


class MergeJournal:
    """The journal, held by one queue."""

    def __init__(self, path: Path) -> None:
        """Read what the last queue wrote. Raises OSError."""
        self._path = path
        self.state, size = _read(path)
        self.written_s = path.stat().st_mtime if path.exists() else 0.0
        """When the last queue wrote last."""
        self._handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        # An entry that a kill cut short was never acted on.
        os.ftruncate(self._handle, size)
        _sync(path.parent)

    def begin(self, entry: Began) -> None:
        """Start a new queue; what is known about trees and flaky checks is from earlier queues and is dropped."""
        draft = self._path.with_name(f"{self._path.name}.tmp")
        handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        _write(handle, entry)
        os.replace(draft, self._path)
        _sync(self._path.parent)
        os.close(self._handle)
        self._handle, self.state = handle, QueueState()
        self.state.apply(entry)

    def write(self, entry: Entry) -> None:
        """Write an entry durably, then apply it. Raises OSError."""
        _write(self._handle, entry)
        self.state.apply(entry)

    def close(self) -> None:
        os.close(self._handle)


def read_state(folder: Path, common: str) -> QueueState:
    """Return the state of a repository's last queue, also while it works."""
    return _read(_find_path(folder, common))[0]


@asynccontextmanager
async def hold_queue(
    folder: Path,
    common: str,
    holder: str,
    *,
    wait_limit_s: float = WAIT_LIMIT_S,
    say: Callable[[str], None] = lambda text: None,
) -> AsyncIterator[tuple[MergeJournal, int]]:
    """Hold the queue of a repository; yields its journal and the locked descriptor. `holder` names us to others.

    `say` is told whom we wait for. Raises QueueBusy, naming the other one.
    """
    make_private(folder)
    path = _find_path(folder, common)
    note = path.with_suffix(".holder")
    # The repository itself is locked, because others may have another agent directory.
    lock = os.open(os.path.join(common, "refs"), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        deadline_s, told = time.monotonic() + wait_limit_s, ""
        while not _try_lock(lock):
            busy = f"another merge queue works on {quote(common, 200)}: {_read_holder(note)}"
            if time.monotonic() >= deadline_s:
                raise QueueBusy(f"{busy}; wait for it, or stop it and try again")
            if not told:
                say(told := f"{busy}; waiting for it, at most {wait_limit_s:g} s")
            await asyncio.sleep(_PAUSE_S)
        note.write_text(json.dumps({**msgspec.to_builtins(LockHolder.me()), "name": holder}))
        journal = MergeJournal(path)
        try:
            yield journal, lock
        finally:
            journal.close()
            with suppress(OSError):
                note.unlink()
    finally:
        os.close(lock)


def _find_path(folder: Path, common: str) -> Path:
    name = hashlib.sha256(os.fsencode(os.path.realpath(common))).hexdigest()[:16]
    return folder / f"{name}.jsonl"


def _try_lock(lock: int) -> bool:
    try:
        take_flock(lock)
    except BlockingIOError:
        return False
    except OSError:
        # This file system has no locks: the target still moves by compare-and-swap only.
        return True
    return True


def _read_holder(note: Path) -> str:
    try:
        found: dict[str, Any] = json.loads(note.read_text())
        holder = msgspec.convert(found, LockHolder)
        return f"{str(found['name'])[:200]} (process {holder.pid} on {holder.host})"
    except (OSError, ValueError, KeyError, msgspec.MsgspecError):
        return "a process that did not leave its name"


def _read(path: Path) -> tuple[QueueState, int]:
    """Return the state and how many bytes of the file are whole entries."""
    state, size = QueueState(), 0
    try:
        with open(path, "rb") as file:
            data = file.read(_MAX_BYTES)
    except FileNotFoundError:
        return state, 0
    for line in data.splitlines(keepends=True):
        try:
            state.apply(msgspec.convert(json.loads(line), Entry))
        except (ValueError, RecursionError, msgspec.MsgspecError):
            break
        size += len(line)
    return state, size


def _write(handle: int, entry: Entry) -> None:
    # Not msgspec: names of files and branches need not be valid text.
    data = json.dumps(msgspec.to_builtins(entry)).encode() + b"\n"
    while data:
        data = data[os.write(handle, data) :]
    os.fsync(handle)


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
