"""Backend for durable runs in this process: LocalBackend with a record that survives a crash.

The database is not loaded unless a runner is durable.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from retinue.core.errors import RetinueError
from retinue.core.events import RunFinished
from retinue.core.messages import Usage
from retinue.core.run import Run, Status
from retinue.engine.backend import Arrange, LocalBackend, keep_setup
from retinue.engine.clock import SystemClock, make_uuid
from retinue.engine.recovery import StoredRuns, read_past
from retinue.engine.request import RunRequest
from retinue.engine.run_config import REMOTE, Runner
from retinue.engine.runner import LiveRun
from retinue.engine.session_path import find_file
from retinue.sessions.log import Session

if TYPE_CHECKING:  # most main agents start no durable run
    from retinue.durable.local.records import RunRecords
    from retinue.durable.local.writer import WriterThread

FILE = "runs.db"
_BEGUN = (Status.RUNNING, Status.WAITING)


def has_record(path: Path) -> bool:
    """Return whether there has been a durable run."""
    return path.exists()


async def open_backend(
    path: Path,
    main: LiveRun,
    remains: StoredRuns,
    *,
    choose: Callable[[Run, RunRequest], Runner],
    charge: Callable[[str, Usage], None],
    warn: Callable[[str], None],
    is_paused: bool = False,
) -> "DurableBackend":
    """Open a backend that knows which runs of an earlier process to resume; an unusable record causes only a warning.

    `path` is the database; `choose` returns a run's runner and may raise RetinueError; `charge` receives what a run had
    spent before a crash. `is_paused`: the earlier process ended while a usage limit was reached, so that all its runs
    are resumed.
    """
    backend = DurableBackend(path, main, choose, charge)
    if is_paused and main.session.path is not None:
        backend.paused = frozenset(run.id for run in remains.runs.values() if run.status in _BEGUN)
    if remains.runs and main.session.path is not None and has_record(path):
        try:
            await backend.take_over(remains, warn)
        except RetinueError as error:
            warn(f"durable runs cannot be resumed: {error}")
        except BaseException:
            await backend.close()
            raise
    return backend


class DurableBackend(LocalBackend):
    """Runs the children of one main agent in this process and records those whose runner is durable."""

    def __init__(
        self,
        path: Path,
        main: LiveRun,
        choose: Callable[[Run, RunRequest], Runner],
        charge: Callable[[str, Usage], None],
    ) -> None:
        super().__init__()
        self._path = path
        self._main = main
        self._choose = choose
        self._charge = charge
        self._records: RunRecords | None = None
        self._writer: WriterThread | None = None
        self.paused: frozenset[str] = frozenset()
        """Runs of an earlier process that are resumed although they have no record: a usage limit was reached."""
        self.returning: frozenset[str] = frozenset()
        """Runs of an earlier process that are resumed here."""

    async def take_over(self, remains: StoredRuns, warn: Callable[[str], None]) -> None:
        """Find the runs of an earlier process to resume. Raises RecordError."""
        found = await self._need_records().take_over(remains.runs, remains.requests, warn)
        # A run that waited for an answer continues with the answer.
        self.returning = frozenset(run_id for run_id in found if not remains.runs[run_id].questions)

    async def prepare(self, run: Run, request: RunRequest) -> Arrange:
        """Record that a durable run begins. Raises RecordError."""
        is_durable = run.id in self.returning or self._find_runner(run, request) == "durable"
        if run.id in self.paused and run.id not in self.returning:
            return partial(self._take_up, run, find_file(self._main.session.tree, run.id, request))
        if self._main.session.path is None or not is_durable:
            return keep_setup
        return await self._need_records().prepare(run, request)

    def goes_on(self, run: Run, request: RunRequest) -> bool:
        """Return whether a run continues after a restart: a recorded run, or one on another machine."""
        return run.id in self.returning or run.id in self.paused or self._find_runner(run, request) == REMOTE

    def lasts(self, run: Run, request: RunRequest) -> bool:
        """Return whether a run is recorded or on another machine, so that it continues without this process."""
        is_recorded = run.id in self.returning or self._find_runner(run, request) in ("durable", REMOTE)
        return is_recorded and self._main.session.path is not None and request.keeps_session

    async def close(self) -> None:
        """Write what is left."""
        if self._writer is not None:
            await self._writer.close()

    def _take_up(self, run: Run, path: Path | None, live: LiveRun) -> None:
        self.paused -= {run.id}
        session = live.session
        if session.path is None and path is not None and path.exists():
            session = Session.open(path, clock=SystemClock(), new_id=make_uuid, read_only=True)  # of its own process
        if (past := read_past(session, run.started_ms)) is not None:
            live.take_up(past)
            self._charge(run.id, past.usage)

    def _find_runner(self, run: Run, request: RunRequest) -> Runner | None:
        try:
            return self._choose(run, request)
        except RetinueError:
            return None  # reported when the run is built

    def _need_records(self) -> "RunRecords":
        if self._records is None:
            from retinue.durable.local.database import RunDatabase
            from retinue.durable.local.records import RunRecords
            from retinue.durable.local.writer import WriterThread

            main = self._main
            self._writer = WriterThread(RunDatabase(self._path))
            self._records = RunRecords(
                self._writer,
                main.session,
                lambda run, request: find_file(main.session.tree, run.id, request),
                self._charge,
                lambda: main.journal.is_saved,
            )
            main.bus.listen(self._records.hear, pieces=False, kinds=(RunFinished,))
        return self._records
