"""Records durable runs before they begin, call the model or act, and decides which to resume after a crash.

Must not know settings, definitions or what a run is about.
"""

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from retinue.core.errors import RetinueError
from retinue.core.events import Event, RunFinished
from retinue.core.messages import AssistantMessage, Usage, UserMessage
from retinue.core.run import Run
from retinue.durable.local.database import RunRow, drop_run, put_pieces, put_run, read_pieces, read_runs
from retinue.durable.local.writer import WriterThread
from retinue.durable.recorded_run import RecordFeature, RunRecorder
from retinue.durable.session_files import RecordError, RecordPart, SessionFolder
from retinue.engine.backend import Arrange, keep_setup
from retinue.engine.request import RunRequest
from retinue.engine.retries import EarlierUsage
from retinue.engine.runner import LiveRun
from retinue.engine.setup import Feature
from retinue.features.deferred import DeferredTools
from retinue.sessions.entry import decode_entry, decode_object
from retinue.sessions.log import Session

_VOID = ("error", "aborted", "pending")
FindFile = Callable[[Run, RunRequest], Path | None]


class _ResumedRun(NamedTuple):
    entry: RunRow
    kept: int
    """How much of its session is recorded."""


class RunRecords:
    """The durable runs of one main session."""

    def __init__(
        self,
        writer: WriterThread,
        main: Session,
        find_file: FindFile,
        charge: Callable[[str, Usage], None] = lambda run_id, usage: None,
        is_saved: Callable[[], bool] = lambda: True,
    ) -> None:
        """`find_file` returns the session file of a run. `charge` receives what a run had spent before a crash.

        `is_saved` tells whether the main session is completely written.
        """
        self._writer = writer
        self._main = main
        self._find_file = find_file
        self._charge = charge
        self._is_saved = is_saved
        self._returning: dict[str, _ResumedRun] = {}
        self._is_named = False
        self._files: dict[str, tuple[Path, int]] = {}
        """Session file and attempt of each recorded run."""

    async def take_over(
        self, runs: Mapping[str, Run], requests: Mapping[str, RunRequest], warn: Callable[[str], None]
    ) -> list[str]:
        """Repair the sessions of runs that a dead process has left, and return those to resume. Raises RecordError."""
        entries: list[RunRow] = await self._writer.write(read_runs)
        own = [entry for entry in entries if entry.session == self._main.id and self._is_ours(entry)]
        for entry in own:
            run = runs.get(entry.run)
            if run is None or run.attempt != entry.attempt:
                continue
            # Finished runs too: there may have been no time to sync their sessions.
            path = self._find_file(run, requests[run.id])
            pieces = await self._writer.write(partial(read_pieces, session=entry.session, run=entry.run))
            try:
                kept = await asyncio.to_thread(repair_file, path, entry.began, pieces)
            except RetinueError as error:
                warn(f"run {run.id} cannot be resumed: {error}")
                continue
            # The start of a run may be lost because it is not synced; the request for it is not.
            if not run.status.is_final:
                self._returning[run.id] = _ResumedRun(entry, kept)
        gone = [entry for entry in entries if entry not in own and not is_there(entry.main)]
        ended = [entry for entry in own if entry.run not in self._returning]
        for entry in (*ended, *gone):
            self._writer.post(partial(drop_run, session=entry.session, run=entry.run, attempt=entry.attempt))
        return list(self._returning)

    async def prepare(self, run: Run, request: RunRequest) -> Arrange:
        """Record that a run begins; a run without a session is not recorded. Raises RecordError."""
        path, main = self._find_file(run, request), self._main.path
        if path is None or main is None:
            return keep_setup
        self._files[run.id] = path, run.attempt
        back = self._returning.pop(run.id, None)
        if back is None or back.entry.attempt != run.attempt:
            back = None
            began = measure(path)
            await self._begin(RunRow(self._main.id, run.id, run.attempt, began, str(main)), path)
        kept = began if back is None else back.kept

        def arrange(live: LiveRun) -> None:
            async def store(pieces: Sequence[RecordPart]) -> None:
                if not live.journal.is_saved:
                    raise RecordError(f"cannot record run {run.id}: its session {live.session.path} cannot be written")
                if pieces:
                    await self._writer.write(partial(put_pieces, session=self._main.id, run=run.id, pieces=pieces))

            recorded = RecordFeature(RunRecorder(store, SessionFolder(path.parent, path.name, kept)))
            live.change(features=_add_feature(live.setup.features, recorded))
            if back is not None and (past := read_past(path, back.entry.began)) is not None:
                live.take_up(past)
                self._charge(run.id, past.usage)

        return arrange

    def hear(self, event: Event) -> None:
        """Delete the record of a finished run once its end is on disk."""
        if isinstance(event, RunFinished) and (known := self._files.pop(event.run_id, None)) is not None:
            (path, attempt), main = known, self._main.path
            assert main is not None
            folders = (path.parent, path.parent.parent)
            drop = partial(drop_run, session=self._main.id, run=event.run_id, attempt=attempt)
            self._writer.post(drop, [main], [path, *folders])

    def _is_ours(self, entry: RunRow) -> bool:
        """Return whether a record with this session's id is of this file, not of a copy used by another process."""
        path = self._main.path
        return not is_there(entry.main) or (path is not None and path.exists() and path.samefile(entry.main))

    async def _begin(self, entry: RunRow, path: Path) -> None:
        """Record a run that begins; the main session with its request must be on disk first."""
        main = Path(entry.main)
        if not is_there(entry.main) or not self._is_saved():
            raise RecordError(f"cannot record runs: the session {main} cannot be written")
        # Sync the directory of a new main session once, and what an earlier attempt has written.
        synced = (main, *([] if self._is_named else [main.parent]), *([path] if entry.began else []))
        await self._writer.write(partial(put_run, entry=entry), synced)
        self._is_named = True


def _add_feature(features: Sequence[Feature], recorded: RecordFeature) -> tuple[Feature, ...]:
    # `DeferredTools` must be entered last, because it keeps the tools that it hands out.
    last = tuple(feature for feature in features if isinstance(feature, DeferredTools))
    return (*(feature for feature in features if not isinstance(feature, DeferredTools)), recorded, *last)


def is_there(path: str) -> bool:
    return os.path.exists(path)


def measure(path: Path) -> int:
    """Return the size of a file; 0 if it is missing."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def repair_file(path: Path | None, began: int, pieces: Sequence[RecordPart]) -> int:
    """Restore a session file from the record, keeping what is longer; returns how much is recorded.

    Raises RetinueError if the part before the record is missing.
    """
    if path is None:
        raise RetinueError("it has no session file")
    if measure(path) < began:
        raise RetinueError(f"its session {path} is shorter than when the run began")
    kept = max((piece.place + len(piece.data) for piece in pieces), default=began)
    SessionFolder(path.parent, path.name).restore(piece for piece in pieces if piece.path == path.name)
    return kept


def _count_inherited(lines: list[bytes]) -> int:
    """Return how many lines at the start are another run's: those of a session that begins with its conversation."""
    fork = (decode_object(lines[0]) or {}).get("fork") if lines else None
    last = fork.get("entryId") if isinstance(fork, dict) else None
    return next((n for n, line in enumerate(lines, 1) if last and decode_entry(line).id == last), 0)


def read_past(path: Path, began: int) -> EarlierUsage | None:
    """Return what a run has used in its current attempt; None if it contains no messages."""
    try:
        with path.open("rb") as file:
            file.seek(began)
            lines = file.read().splitlines()
    except OSError:
        return None
    usage, turns, calls, is_said = Usage(), 0, 0, False
    for entry in map(decode_entry, lines[_count_inherited(lines) :]):
        message = entry.message
        is_said = is_said or isinstance(message, UserMessage)
        if isinstance(message, AssistantMessage):
            usage += message.usage
            turns += message.stop_reason not in _VOID
            calls += len(message.calls)
    return EarlierUsage(usage, turns, calls) if is_said else None
