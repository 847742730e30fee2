"""The queues of runs, implemented with DBOS; no other file knows DBOS.

A workflow is only the id of a run; the run's record is ours (`record`).
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from operator import methodcaller
from threading import Lock
from typing import TYPE_CHECKING, Any, Self, TypeVar

from retinue.core.errors import ConfigError
from retinue.durable.cluster.assignment import MAX_QUEUES, Assignment
from retinue.durable.cluster.database import RETRY_S, DatabaseAway, describe_address, fetch_value
from retinue.durable.cluster.schema import VERSION
from retinue.durable.trouble import TroubleNotifier, first_line, recognise

if TYPE_CHECKING:
    from dbos import DBOSClient

    from retinue.durable.cluster.database import Connection

NAME = "retinue"
WORKFLOW = "retinue.run"
APPLICATION = f"retinue-{VERSION}"
"""Fixed, because the default is a hash of the code, and workers would not take runs of another version."""
POLL_S = (0.1, 0.25, 0.5)
"""Poll interval of a queue by depth; the last value applies to all deeper ones."""
CLOSE_S = 2.0
"""Time for interrupted work to finish on close."""
REREAD_S = 2.0
"""How soon a worker notices a new global limit set by another."""
QUEUES = tuple(f"retinue-{depth}" for depth in range(1, MAX_QUEUES + 1))
TABLE = "dbos.workflow_status"
"""Table that shows what is taken (`PENDING`) and what waits; for inspection."""
_STARTED = ("PENDING",)
_APART = ("55P03", "40001")
ROOM = 6
"""Connections that DBOS opens at the start."""
Value = TypeVar("Value")


def import_engine() -> Any:
    """Import DBOS with logging reduced. Raises ConfigError if the extra is not installed."""
    try:
        import dbos
    except ImportError as error:
        raise ConfigError("runs on other machines need the extra: pip install 'retinue[cluster]'") from error
    logging.getLogger("dbos").setLevel(logging.ERROR)
    return dbos


class WaitingRuns:
    """The queues for the sender of runs."""

    def __init__(self, url: str, alarm: TroubleNotifier | None = None) -> None:
        self._url = url
        self._alarm = alarm or TroubleNotifier()
        self._client: DBOSClient | None = None
        self._connecting = Lock()
        self._is_closed = False
        self._busy: set[asyncio.Future[Any]] = set()
        """Running thread calls, including those of cancelled callers."""

    async def __aenter__(self) -> Self:
        self._is_closed = False
        return self

    async def __aexit__(self, *error: object) -> None:
        self._is_closed = True
        if self._busy:
            # A connection that is in use while the others are closed would stay open.
            await asyncio.wait(set(self._busy), timeout=CLOSE_S)
        client, self._client = self._client, None
        if client is not None:
            await asyncio.to_thread(client.destroy)

    async def add(self, assignment: Assignment) -> None:
        """Queue a run; adding it twice has no effect."""
        options: Any = {
            "workflow_name": WORKFLOW,
            "queue_name": assignment.queue,
            "workflow_id": assignment.id,
            "app_version": APPLICATION,
            "priority": assignment.priority,
        }
        await self._do(lambda client: client.enqueue(options, assignment.id))

    async def cancel(self, run: str) -> None:
        """Remove a run from its queue; a running one is not affected until it checks."""
        await self._do(lambda client: client.cancel_workflow(run))

    async def give_back(self, worker: str) -> list[str]:
        """Requeue a worker's unfinished runs; returns them."""
        left = await self._do(
            lambda client: client.list_workflows(
                status=list(_STARTED), executor_id=worker, name=WORKFLOW, load_input=False, load_output=False
            )
        )
        runs: dict[str, list[str]] = {}
        for workflow in left:
            runs.setdefault(workflow.queue_name or QUEUES[0], []).append(workflow.workflow_id)
        for queue, ids in runs.items():
            await self._do(methodcaller("resume_workflows", ids, queue_name=queue))
        return [run for ids in runs.values() for run in ids]

    async def forget(self, runs: list[str]) -> None:
        """Delete what DBOS knows of finished runs."""
        if runs:
            await self._do(lambda client: client.delete_workflows(runs))

    async def _do(self, work: "Callable[[DBOSClient], Value]") -> Value:
        """Call the client in a thread, retrying while the database refuses; so every call may happen twice."""
        who = object()
        try:
            while not self._is_closed:
                try:
                    return await self._in_thread(partial(self._try, work))
                except DatabaseRefused as error:
                    self._alarm.note(who, recognise(error.cause, self._alarm.subject))
                await asyncio.sleep(RETRY_S)
        finally:
            self._alarm.clear(who)
        raise DatabaseAway(f"the queues in {describe_address(self._url)} are closed")

    def _try(self, work: "Callable[[DBOSClient], Value]") -> Value:
        """Call once. Raises DatabaseRefused if it may succeed later."""
        from sqlalchemy.exc import DBAPIError

        try:
            return work(self._client or self._open())
        except DBAPIError as error:
            cause = error.orig or error
            if not _is_passing(cause):
                raise ConfigError(recognise(cause, f"the database {describe_address(self._url)}").text) from error
            raise DatabaseRefused(cause) from error

    async def _in_thread(self, work: Callable[[], Value]) -> Value:
        """Run in a thread; the caller can be cancelled but not the thread, which `__aexit__` waits for."""
        future = asyncio.get_running_loop().run_in_executor(None, work)
        self._busy.add(future)
        future.add_done_callback(self._settle)
        return await asyncio.shield(future)

    def _settle(self, future: "asyncio.Future[Any]") -> None:
        self._busy.discard(future)
        if not future.cancelled():
            future.exception()  # mark it as retrieved: the caller may be gone

    def _open(self) -> "DBOSClient":
        with self._connecting:
            if self._client is not None:
                return self._client
            dbos = import_engine()  # takes half a second the first time, so not in the event loop
            with _silence():  # the alarm already reports in one line that the database is away
                client: DBOSClient = dbos.DBOSClient(
                    system_database_url=self._url,
                    serializer=dbos.DBOSPortableJSONSerializer(),
                    application_name=NAME,
                    system_database_pool_size=2,
                    retry_connection_errors=False,  # it would wait silently, and longer each time
                )
            if self._is_closed:
                client.destroy()
                raise DatabaseAway(f"the queues in {describe_address(self._url)} are closed")
            self._client = client
            return client


@contextmanager
def _silence() -> Iterator[None]:
    """Log nothing of DBOS, because we report its errors ourselves."""
    logger = logging.getLogger("dbos")
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(logging.ERROR)


class DatabaseRefused(Exception):
    """Raised when the database cannot execute a call now."""

    def __init__(self, cause: BaseException) -> None:
        super().__init__(str(cause))
        self.cause = cause


class WorkerQueues:
    """The queues for a worker, which receives run ids. One per process."""

    def __init__(
        self, url: str, worker: str, perform: Callable[[str], Awaitable[None]], alarm: TroubleNotifier
    ) -> None:
        self._url = url
        self._worker = worker
        self._perform = perform
        self._alarm = alarm
        self._slots = self._most = 0

    async def open(self, slots: int, total: int | None) -> None:
        """Begin to take runs: at most `slots` here and `total` in the cluster. Raises ConfigError.

        `total`: 0 for no limit, None for the last value set. ROOM connections must be available: while waiting for one,
        DBOS blocks everything silently.
        """
        from sqlalchemy.exc import DBAPIError

        try:
            await self._launch(slots, total)
        except DBAPIError as error:
            place = f"the database {describe_address(self._url)}"
            raise ConfigError(recognise(error.orig or error, place).text) from error

    async def _launch(self, slots: int, total: int | None) -> None:
        dbos = import_engine()
        perform = self._perform
        self._slots = self._most = slots

        @dbos.DBOS.workflow(name=WORKFLOW, max_recovery_attempts=None)  # type: ignore[untyped-decorator]
        async def run(run_id: str) -> None:
            await perform(run_id)

        engine = dbos.DBOS(
            config={
                "name": NAME,
                "system_database_url": self._url,
                "application_version": APPLICATION,
                "executor_id": self._worker,
                "serializer": dbos.DBOSPortableJSONSerializer(),
                "log_level": "ERROR",
                "sys_db_pool_size": 5,
                "sys_db_idle_transaction_timeout_sec": 5.0,
                "notification_listener_polling_interval_sec": 1.0,
            }
        )
        dbos.DBOS.listen_queues([])  # take nothing before everything is set up
        with _silence():
            # In the event loop's thread, because DBOS runs coroutines in the loop of the launching thread.
            dbos.DBOS.launch()
        self._keep_own_slots(engine)
        self._watch(engine)
        for name in QUEUES:
            await dbos.DBOS.register_queue_async(
                name,
                global_concurrency=total or None,
                polling_interval_sec=_find_pause_s(name),
                on_conflict="never_update" if total is None else "always_update",
            )
        engine._listening_queues = list(QUEUES)

    def pause(self) -> None:
        """Take no more runs; running ones continue."""
        self._slots = 0

    def resume(self) -> None:
        self._slots = self._most

    def _keep_own_slots(self, engine: Any) -> None:
        """Replace the per-worker limit of a queue, which DBOS shares between all workers, by this worker's own.

        DBOS reads the queue's settings before each poll. They rarely change, so they are cached; otherwise they would
        be half of all queries.
        """
        read_queue = engine._sys_db.get_queue
        known: dict[str, tuple[float, Any]] = {}

        def get_queue(name: str, **options: Any) -> Any:
            read_s, queue = known.get(name, (0.0, None))
            if queue is None or time.monotonic() - read_s > REREAD_S:
                queue = read_queue(name, **options)
                known[name] = (time.monotonic(), queue)
            if queue is not None:
                queue._worker_concurrency, queue._polling_interval_sec = self._slots, _find_pause_s(name)
            return queue

        engine._sys_db.get_queue = get_queue

    def _watch(self, engine: Any) -> None:
        """Report why no runs are taken: DBOS retries by itself but reports nothing."""
        from sqlalchemy.exc import DBAPIError

        take, loop = engine._sys_db.start_queued_workflows, asyncio.get_running_loop()
        failing: set[str] = set()

        def start_queued_workflows(queue: Any, *values: Any, **options: Any) -> Any:
            name = str(queue.name)
            try:
                taken = take(queue, *values, **options)
            except DBAPIError as error:
                cause = error.orig or error
                # Another worker polls at the same moment; this error is how DBOS separates them.
                if getattr(cause, "sqlstate", None) not in _APART:
                    failing.add(name)
                    loop.call_soon_threadsafe(self._alarm.note, name, recognise(cause, self._alarm.subject))
                raise
            if name in failing:
                failing.discard(name)
                loop.call_soon_threadsafe(self._alarm.clear, name)
            return taken

        engine._sys_db.start_queued_workflows = start_queued_workflows

    async def close(self) -> None:
        """Take no more runs, and abandon those running here."""
        dbos = import_engine()
        # Runs taken at this very moment cannot begin; they are requeued, so the errors are not logged.
        logging.getLogger("dbos").setLevel(logging.CRITICAL)
        await asyncio.to_thread(lambda: dbos.DBOS.destroy(destroy_registry=True))
        # DBOS had replaced the loop's executor and has shut it down.
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor())
        for name in QUEUES:
            self._alarm.clear(name)


async def adopt_runs(connection: "Connection") -> None:
    """Let workers of this version take runs that were queued for an earlier one."""
    if await fetch_value(connection, "SELECT to_regclass(%s) IS NOT NULL", TABLE):
        await connection.execute(
            f"UPDATE {TABLE} SET application_version = %s WHERE name = %s AND status = ANY(%s)",
            (APPLICATION, WORKFLOW, ["ENQUEUED", *_STARTED]),
        )


def _is_passing(error: BaseException) -> bool:
    """Return whether an error may disappear, by itself or because someone fixes the cause."""
    import psycopg

    state = getattr(error, "sqlstate", None) or ""
    return isinstance(error, psycopg.OperationalError) or state in ("25006", "25P02", "25P03")


def _find_pause_s(queue: str) -> float:
    return dict(zip(QUEUES, POLL_S, strict=False)).get(queue, POLL_S[-1])


async def prepare_engine(url: str) -> None:
    """Create DBOS's own tables, for a front end that comes before the first worker."""
    dbos = await asyncio.to_thread(import_engine)  # takes half a second the first time, so not in the event loop
    from sqlalchemy.exc import DBAPIError, SQLAlchemyError

    try:
        await asyncio.to_thread(lambda: dbos.DBOS.migrate(system_database_url=url))
    except SQLAlchemyError as error:
        told = first_line(error.orig if isinstance(error, DBAPIError) and error.orig else error)
        raise ConfigError(f"cannot create the queues in the database {describe_address(url)}: {told}") from error
