"""Rewinds a session: its files, its conversation, or both, to before one of its prompts; and takes that back."""

import builtins
import os
from collections.abc import Callable
from contextlib import ExitStack
from datetime import datetime

from msgspec import Struct

from retinue.core.errors import RetinueError, UsageError
from retinue.core.messages import UserMessage
from retinue.engine.clock import SystemClock, make_uuid
from retinue.engine.runner import LiveRun
from retinue.features.checkpoint.merge import Side
from retinue.features.checkpoint.records import Checkpoint
from retinue.features.checkpoint.restore import list_undoable, restore_files, undo_restore
from retinue.features.checkpoint.rewind import RewoundFiles, check_idle, rewind_files
from retinue.features.checkpoint.store import CheckpointStore
from retinue.features.checkpoint.undo import UndoReport, undo_run
from retinue.features.sandbox import find_workspace
from retinue.sessions.log import Session
from retinue.settings.paths import find_paths
from retinue.views.history import to_text

__all__ = ["SessionRewinds", "Side", "find_point", "list_points", "open_session", "open_store", "undo_run"]
REWIND = "retinue.rewind"
Move = Callable[[str | None], None]
"""Continues the conversation from an entry; None: from its beginning."""


class RewindPoint(Struct, frozen=True):
    """A prompt of the current branch."""

    number: int
    text: str
    at_ms: int
    entry_id: str
    before: str | None
    """The entry before it."""
    checkpoint: Checkpoint | None

    @property
    def when(self) -> str:
        return datetime.fromtimestamp(self.at_ms / 1000).strftime("%Y-%m-%d %H:%M:%S")


class SessionRewinds:
    """The rewinds of the open session."""

    def __init__(self, main: LiveRun, store: CheckpointStore) -> None:
        self._main = main
        self._store = store

    def list(self) -> list[RewindPoint]:
        """Return the prompts of the current branch, oldest first."""
        return list_points(self._main.session, self._store)

    async def go(self, point: RewindPoint, *, files: bool = True, conversation: bool = True) -> RewoundFiles:
        """Rewind to before a prompt. Raises RetinueError."""
        return await rewind(self._main.session, self._store, point, self._move if conversation else None, files=files)

    async def undo(self) -> tuple[str, "builtins.list[str]", "builtins.list[str]"]:
        """Take back the last rewind or undo, as `undo_rewind`. Raises RetinueError."""
        return await undo_rewind(self._store, self._open_move)

    async def undo_run(self, run: str, *, prefer: Side | None = None, dry_run: bool = False) -> UndoReport:
        """Take out what a run changed. Raises RetinueError."""
        return await undo_run(self._store, run, prefer=prefer, dry_run=dry_run)

    def _open_move(self, session_id: str) -> Move:
        if session_id != self._main.session.id:
            raise RetinueError(f"the last rewind was one of session {session_id}; open that session to take it back")
        return self._move

    def _move(self, leaf_id: str | None) -> None:
        main = self._main
        main.journal.flush()
        former = main.session.leaf_id
        main.branch(leaf_id)
        main.journal.write(lambda: main.session.append_custom(REWIND, {"from": former}, sync=True))


def open_store(folder: str) -> CheckpointStore:
    """Return the checkpoints of the workspace that contains a folder. Raises UsageError."""
    paths = find_paths(folder, os.environ)
    return CheckpointStore(find_workspace(paths.cwd, paths.home), paths.own_dir)


def open_session(path: str, stack: ExitStack, *, read_only: bool = False) -> Session:
    """Open a session that no process has open; the stack closes it. Raises SessionError."""
    session = Session.open(path, clock=SystemClock(), new_id=make_uuid, read_only=read_only, cwd=os.getcwd())
    stack.callback(session.close)
    return session


def list_points(session: Session, store: CheckpointStore) -> list[RewindPoint]:
    """Return the prompts of the current branch, oldest first."""
    taken = [
        each
        for each in store.read_records()
        if isinstance(each, Checkpoint) and each.kind == "prompt" and each.session == session.id
    ]
    points: list[RewindPoint] = []
    for entry in session.entries():
        message = entry.message
        if not isinstance(message, UserMessage):
            continue
        earliest = points[-1].at_ms if points else 0
        found = [each for each in taken if earliest <= (each.asked or each.at) // 1_000_000 <= message.timestamp]
        before = session.read_entry(entry.id)["parentId"]
        checkpoint = found[-1] if found else None
        text, number = " ".join(to_text(entry).split()), len(points) + 1
        points.append(RewindPoint(number, text, message.timestamp, entry.id, before, checkpoint))
    return points


def find_point(points: list[RewindPoint], number: int | None) -> RewindPoint:
    """Return a prompt by its number; the last without one. Raises UsageError."""
    if not points:
        raise UsageError("the session has no prompts on its current branch")
    if number is not None and not 1 <= number <= len(points):
        raise UsageError(f"there is no prompt {number}: the session has {len(points)}; --list shows them")
    return points[-1 if number is None else number - 1]


async def rewind(
    session: Session, store: CheckpointStore, point: RewindPoint, move: Move | None, *, files: bool
) -> RewoundFiles:
    """Rewind files, and with `move` the conversation. Raises RetinueError."""
    title = f"the rewind to before prompt {point.number}"
    leaf = session.leaf_id if move is not None else None
    done = RewoundFiles()
    if files:
        if point.checkpoint is None:
            raise RetinueError(f"there is no checkpoint of the files before prompt {point.number}; try --conversation")
        done = await rewind_files(store, point.checkpoint, title=title, session=session.id, leaf=leaf)
    else:
        check_idle(store)
        await restore_files(store, {}, title=title, session=session.id, leaf=leaf)
    if move is not None:
        move(point.before)
    return done


async def undo_rewind(store: CheckpointStore, open_move: Callable[[str], Move]) -> tuple[str, list[str], list[str]]:
    """Take back the last rewind or undo; returns its name, the changed files, and the problems. Raises RetinueError.

    `open_move` opens a session by its id.
    """
    check_idle(store)
    undone = list_undoable(store.read_records())
    move = open_move(undone[-1].session) if undone and undone[-1].leaf is not None else None
    done = await undo_restore(store)
    if move is not None:
        move(done.leaf)
    return undone[0].title, done.paths, done.problems


def branch_session(session: Session) -> Move:
    """Return what moves the leaf of a session in its file, so that it continues there when it is opened again."""

    def move(leaf_id: str | None) -> None:
        former = session.leaf_id
        session.branch(leaf_id)
        session.append_custom(REWIND, {"from": former}, sync=True)

    return move
