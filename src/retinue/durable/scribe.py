"""Writes into a ledger from a thread of its own: what is asked for in the same moment becomes one commit.

Knows the event loop and the ledger, and not what is written.
"""

import asyncio
import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Any

from retinue.durable.ledger import Act, Ledger
from retinue.durable.piece import RecordError

CLOSE_S = 10.0


@dataclass(slots=True)
class _Job:
    act: Act
    synced: Sequence[Path]
    """What must be on the disk before."""
    future: "asyncio.Future[Any] | None"
    """None: nobody waits."""


class Scribe:
    """One thread with one connection, from the first thing that is to be written to `close`."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._thread: Thread | None = None

    async def write(self, act: Act, synced: Sequence[Path] = ()) -> Any:
        """Do something in the ledger, after these files are on the disk; returns when it is. Raises RecordError."""
        future = asyncio.get_running_loop().create_future()
        self._put(_Job(act, synced, future))
        return await future

    def post(self, act: Act, synced: Sequence[Path] = ()) -> None:
        """The same without waiting; what fails is found at the next opening."""
        self._put(_Job(act, synced, None))

    async def close(self) -> None:
        """Write what is left, and end."""
        thread, self._thread = self._thread, None
        if thread is not None:
            self._jobs.put(None)
            await asyncio.to_thread(thread.join, CLOSE_S)

    def _put(self, job: _Job) -> None:
        if self._thread is None:
            # A process that is told to exit does not wait for a disk that hangs.
            self._thread = Thread(target=self._serve, name="retinue-record", daemon=True)
            self._thread.start()
        self._jobs.put(job)

    def _serve(self) -> None:
        is_over = False
        while not is_over:
            taken = [self._jobs.get()]
            while not self._jobs.empty():
                taken.append(self._jobs.get())
            is_over = None in taken
            if jobs := [job for job in taken if job is not None]:
                self._perform(jobs)
        self._ledger.close()

    def _perform(self, jobs: list[_Job]) -> None:
        try:
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
