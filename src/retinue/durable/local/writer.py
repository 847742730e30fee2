"""Writes into a ledger from a thread of its own: what is asked for in the same moment becomes one commit.

Knows the event loop and the ledger, and not what is written.
"""

import asyncio
import os
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any

from retinue.durable.local.database import Act, RunDatabase
from retinue.durable.session_files import RecordError

CLOSE_S = 1.0
"""For files that should be on the disk; beyond it that is left to the system."""
HANGING_S = 15.0
"""After which a disk is not waited for any more."""
IDLE_S = 0.2
"""After which what nobody waits for is done."""
MOST_LATER = 2000


@dataclass(slots=True)
class _Job:
    act: Act
    synced: Sequence[Path]
    """What must be on the disk before."""
    wished: Sequence[Path]
    """What should be, too."""
    future: "asyncio.Future[Any] | None"
    """None: nobody waits."""


class Scribe:
    """One thread with one connection, from the first thing that is to be written to `close`."""

    def __init__(self, ledger: RunDatabase) -> None:
        self._ledger = ledger
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._later: list[_Job] = []
        """What nobody waits for; it is done when nothing else is."""
        self._thread: Thread | None = None

    async def write(self, act: Act, synced: Sequence[Path] = ()) -> Any:
        """Do something in the ledger, after these files are on the disk; returns when it is. Raises RecordError."""
        future = asyncio.get_running_loop().create_future()
        self._put(_Job(act, synced, (), future))
        return await future

    def post(self, act: Act, synced: Sequence[Path] = (), wished: Sequence[Path] = ()) -> None:
        """The same some time later, after the files in `wished` as well if there is time for that.

        What fails is found at the next opening.
        """
        self._put(_Job(act, synced, wished, None))

    async def close(self) -> None:
        """Write what is left, and end."""
        thread, self._thread = self._thread, None
        if thread is not None:
            self._jobs.put(None)
            await asyncio.to_thread(thread.join, HANGING_S)

    def _put(self, job: _Job) -> None:
        if self._thread is None:
            # A process that is told to exit does not wait for a disk that hangs.
            self._thread = Thread(target=self._serve, name="retinue-record", daemon=True)
            self._thread.start()
        self._jobs.put(job)

    def _serve(self) -> None:
        is_over = False
        while not is_over:
            taken = self._take()
            is_over = None in taken
            self._perform([job for job in taken if job is not None and job.future is not None])
            self._later += [job for job in taken if job is not None and job.future is None]
            if is_over or not taken or len(self._later) > MOST_LATER:
                self._catch_up(time.monotonic() + CLOSE_S if is_over else None)
        self._ledger.close()

    def _take(self) -> "list[_Job | None]":
        """What there is to do; nothing when there was nothing for a while."""
        try:
            taken = [self._jobs.get(timeout=IDLE_S if self._later else None)]
        except Empty:
            return []
        while not self._jobs.empty():
            taken.append(self._jobs.get())
        return taken

    def _catch_up(self, until_s: float | None) -> None:
        """Do what nobody waits for: as long as nobody does, or all of it, with less care after a time."""
        ready: list[_Job] = []
        known: set[Path] = set()
        is_all = until_s is not None or len(self._later) > MOST_LATER
        while self._later and (is_all or self._jobs.empty()):
            job = self._later.pop()
            wished = job.wished if until_s is None or time.monotonic() < until_s else ()
            with suppress(RecordError):
                sync_files(path for path in (*wished, *job.synced) if path not in known)
                known.update((*wished, *job.synced))
                ready.append(job)
        self._perform(ready)

    def _perform(self, jobs: list[_Job]) -> None:
        if not jobs:
            return
        try:
            if jobs[0].future is not None:
                sync_files(dict.fromkeys(path for job in jobs for path in job.synced))
            answers: list[Any] = self._ledger.transact([job.act for job in jobs])
        except RecordError as error:
            answers = [error] * len(jobs)
        waiting = [(job.future, answer) for job, answer in zip(jobs, answers, strict=True) if job.future is not None]
        if waiting:
            with suppress(RuntimeError):  # its loop is gone, and so is whoever waited
                waiting[0][0].get_loop().call_soon_threadsafe(_settle, waiting)


def _settle(answers: "list[tuple[asyncio.Future[Any], Any]]") -> None:
    for future, answer in answers:
        if future.done():
            continue
        if isinstance(answer, RecordError):
            future.set_exception(answer)
        else:
            future.set_result(answer)


def sync_files(paths: Iterable[Path]) -> None:
    """Wait until files and directories are on the disk; what is not there has nothing to lose. Raises RecordError."""
    for path in paths:
        try:
            handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise RecordError(f"cannot read {path}: {error.strerror}") from error
        try:
            os.fsync(handle)
        except OSError as error:
            raise RecordError(f"cannot put {path} on the disk: {error.strerror}") from error
        finally:
            os.close(handle)
