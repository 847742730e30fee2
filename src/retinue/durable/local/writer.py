"""Database thread that combines simultaneous writes into one commit.

Must not know what is written.
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
"""Time for syncing optional files on close; after that the operating system does it."""
HANGING_S = 15.0
"""Time after which a hanging disk is abandoned."""
IDLE_S = 0.2
"""Idle time after which low-priority writes are done."""
MOST_LATER = 2000


@dataclass(slots=True)
class _Job:
    act: Act
    synced: Sequence[Path]
    """Files that must be synced before."""
    wished: Sequence[Path]
    """Files that should be synced too."""
    future: "asyncio.Future[Any] | None"
    """None: no caller waits."""


class WriterThread:
    """A thread with one database connection, from the first write until `close`."""

    def __init__(self, ledger: RunDatabase) -> None:
        self._ledger = ledger
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._later: list[_Job] = []
        """Low-priority writes, done when idle."""
        self._thread: Thread | None = None

    async def write(self, act: Act, synced: Sequence[Path] = ()) -> Any:
        """Execute an operation after these files are synced; returns when it is on disk. Raises RecordError."""
        future = asyncio.get_running_loop().create_future()
        self._put(_Job(act, synced, (), future))
        return await future

    def post(self, act: Act, synced: Sequence[Path] = (), wished: Sequence[Path] = ()) -> None:
        """Same, but later; the files in `wished` are synced first if there is time.

        A failure is noticed when the session is opened again.
        """
        self._put(_Job(act, synced, wished, None))

    async def close(self) -> None:
        """Write what is left and stop the thread."""
        thread, self._thread = self._thread, None
        if thread is not None:
            self._jobs.put(None)
            await asyncio.to_thread(thread.join, HANGING_S)

    def _put(self, job: _Job) -> None:
        if self._thread is None:
            # Daemon: a process that shall exit must not wait for a hanging disk.
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
        """Return the waiting jobs; empty after some idle time."""
        try:
            taken = [self._jobs.get(timeout=IDLE_S if self._later else None)]
        except Empty:
            return []
        while not self._jobs.empty():
            taken.append(self._jobs.get())
        return taken

    def _catch_up(self, until_s: float | None) -> None:
        """Do low-priority writes: while idle, or all of them; after `until_s` without syncing optional files."""
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
            with suppress(RuntimeError):  # the event loop is closed, nobody waits
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
    """Sync files and directories to disk; missing ones are skipped. Raises RecordError."""
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
            raise RecordError(f"cannot sync {path} to disk: {error.strerror}") from error
        finally:
            os.close(handle)
