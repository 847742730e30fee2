"""DBOS, and the only file that knows it: runs wait in its queues, and workers take them from there.

What a run does is none of its business: a workflow is the id of a run, and its record is ours (`record`).
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Any, Self, TypeVar

from retinue.core.errors import ConfigError
from retinue.durable.cluster.assignment import MAX_QUEUES, Assignment
from retinue.durable.cluster.database import RETRY_S, DatabaseAway, describe_address
from retinue.durable.cluster.schema import VERSION
from retinue.durable.trouble import Alarm, first_line, recognise

if TYPE_CHECKING:
    from dbos import DBOSClient

    from retinue.durable.cluster.database import Connection

NAME = "retinue"
WORKFLOW = "retinue.run"
APPLICATION = f"retinue-{VERSION}"
"""Pinned: by default it is a hash of the code, and no worker would go on with the runs of another version's."""
POLL_S = (0.1, 0.25, 0.5)
"""How often a queue is looked at, by depth; the last one counts for what lies deeper."""
CLOSE_S = 2.0
"""For what was cut off to come to its end."""
REREAD_S = 2.0
"""How soon a worker learns that another one has named a new limit for all."""
QUEUES = tuple(f"retinue-{depth}" for depth in range(1, MAX_QUEUES + 1))
TABLE = "dbos.workflow_status"
"""Who has taken what (`PENDING`), and what waits; for those who only look."""
_STARTED = ("PENDING",)
_APART = ("55P03", "40001")
ROOM = 6
"""Connections that it takes to begin with."""
Value = TypeVar("Value")


def import_engine() -> Any:
    """DBOS, quiet. Raises ConfigError when the extra is not installed."""
    try:
        import dbos
    except ImportError as error:
        raise ConfigError("runs on other machines need the extra: pip install 'retinue[cluster]'") from error
    logging.getLogger("dbos").setLevel(logging.ERROR)
    return dbos


class WaitingRuns:
    """The queues as whoever puts runs into them sees them."""

    def __init__(self, url: str, alarm: Alarm | None = None) -> None:
        self._url = url
        self._alarm = alarm or Alarm()
        self._client: DBOSClient | None = None
        self._connecting = Lock()
        self._is_closed = False
        self._busy: set[asyncio.Future[Any]] = set()
        """What threads are doing, also for those who were cut off meanwhile."""

    async def __aenter__(self) -> Self:
        self._is_closed = False
        return self

    async def __aexit__(self, *error: object) -> None:
        self._is_closed = True
        if self._busy:
            # A connection that is in use when the others are closed would be left open.
            await asyncio.wait(set(self._busy), timeout=CLOSE_S)
        client, self._client = self._client, None
        if client is not None:
            await asyncio.to_thread(client.destroy)

    async def add(self, assignment: Assignment) -> None:
        """Queue a run; the same run twice is one."""
        options: Any = {
            "workflow_name": WORKFLOW,
            "queue_name": assignment.queue,
            "workflow_id": assignment.id,
            "app_version": APPLICATION,
            "priority": assignment.priority,
        }
        await self._do(lambda client: client.enqueue(options, assignment.id))

    async def cancel(self, run: str) -> None:
        """Take a run out of its queue; one that works is not disturbed by it until it asks."""
        await self._do(lambda client: client.cancel_workflow(run))

    async def give_back(self, worker: str) -> list[str]:
        """Queue again what a worker has taken and not finished; returns the runs."""
        left = await self._do(
            lambda client: client.list_workflows(
                status=list(_STARTED), executor_id=worker, name=WORKFLOW, load_input=False, load_output=False
            )
        )
        runs: dict[str, list[str]] = {}
        for workflow in left:
            runs.setdefault(workflow.queue_name or QUEUES[0], []).append(workflow.workflow_id)
        for queue, ids in runs.items():
            await self._do(partial(_resume, ids, queue))
        return [run for ids in runs.values() for run in ids]

    async def forget(self, runs: list[str]) -> None:
        """Throw away what is known of finished runs."""
        if runs:
            await self._do(lambda client: client.delete_workflows(runs))

    async def _do(self, work: "Callable[[DBOSClient], Value]") -> Value:
        """Do something in a thread, when the database can: all that is done here may be done twice."""
        who = object()
        try:
            while not self._is_closed:
                try:
                    return await self._in_thread(partial(self._try, work))
                except Refused as error:
                    self._alarm.note(who, recognise(error.cause, self._alarm.subject))
                await asyncio.sleep(RETRY_S)
        finally:
            self._alarm.clear(who)
        raise DatabaseAway(f"the queues in {describe_address(self._url)} are closed")

    def _try(self, work: "Callable[[DBOSClient], Value]") -> Value:
        """Once. Raises Refused when it may be possible later."""
        from sqlalchemy.exc import DBAPIError

        try:
            return work(self._client or self._open())
        except DBAPIError as error:
            cause = error.orig or error
            if not _is_passing(cause):
                raise ConfigError(recognise(cause, f"the database {describe_address(self._url)}").text) from error
            raise Refused(cause) from error

    async def _in_thread(self, work: Callable[[], Value]) -> Value:
        """A thread cannot be cut off: whoever waits for it can, and what it does is waited for at the end."""
        future = asyncio.get_running_loop().run_in_executor(None, work)
        self._busy.add(future)
        future.add_done_callback(self._settle)
        return await asyncio.shield(future)

    def _settle(self, future: "asyncio.Future[Any]") -> None:
        self._busy.discard(future)
        if not future.cancelled():
            future.exception()  # perhaps nobody is there any more to ask for it

    def _open(self) -> "DBOSClient":
        """One for all."""
        with self._connecting:
            if self._client is None:
                made = self._connect()
                if self._is_closed:
                    made.destroy()
                    raise DatabaseAway(f"the queues in {describe_address(self._url)} are closed")
                self._client = made
            return self._client

    def _connect(self) -> "DBOSClient":
        dbos = import_engine()  # half a second the first time, and not the loop's
        logger = logging.getLogger("dbos")
        logger.setLevel(logging.CRITICAL)  # others tell that the database is away, in one line
        try:
            client: DBOSClient = dbos.DBOSClient(
                system_database_url=self._url,
                serializer=dbos.DBOSPortableJSONSerializer(),
                application_name=NAME,
                system_database_pool_size=2,
                retry_connection_errors=False,  # it would wait without a word, and longer each time
            )
        finally:
            logger.setLevel(logging.ERROR)
        return client


class Refused(Exception):
    """Raised when the database cannot do something now."""

    def __init__(self, cause: BaseException) -> None:
        super().__init__(str(cause))
        self.cause = cause


class Taking:
    """The queues as a worker sees them: it is given the ids of runs. One in a process."""

    def __init__(self, url: str, worker: str, perform: Callable[[str], Awaitable[None]], alarm: Alarm) -> None:
        self._url = url
        self._worker = worker
        self._perform = perform
        self._alarm = alarm
        self._slots = self._most = 0

    async def open(self, slots: int, total: int | None) -> None:
        """Begin to take runs: so many at once here, and so many in all. Raises ConfigError.

        In all: 0 for any number, None for what somebody has said before. There must be room for ROOM connections: it
        holds up everything, and says nothing, while it waits for one.
        """
        from sqlalchemy.exc import DBAPIError

        try:
            await self._open(slots, total)
        except DBAPIError as error:
            place = f"the database {describe_address(self._url)}"
            raise ConfigError(recognise(error.orig or error, place).text) from error

    async def _open(self, slots: int, total: int | None) -> None:
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
        dbos.DBOS.listen_queues([])  # not before all is in place
        logger = logging.getLogger("dbos")
        logger.setLevel(logging.CRITICAL)  # what goes wrong is told by us, in one line
        # In the loop's own thread: that is how it learns where coroutines are to run.
        dbos.DBOS.launch()
        logger.setLevel(logging.ERROR)
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
        """Take nothing more; what is at work here goes on."""
        self._slots = 0

    def resume(self) -> None:
        """Take as many as before."""
        self._slots = self._most

    def _keep_own_slots(self, engine: Any) -> None:
        """DBOS reads what holds for a queue before each look at it, and has one number for the places of all workers.

        How many runs fit on a machine is that machine's own affair, so it gets our number in the place of that one. And
        what hardly ever changes is not asked for each time: that would be half of all questions.
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
        """Let be told why nothing is taken: DBOS looks again after a while, and says nothing that anybody reads."""
        from sqlalchemy.exc import DBAPIError

        take, loop = engine._sys_db.start_queued_workflows, asyncio.get_running_loop()
        failing: set[str] = set()

        def start_queued_workflows(queue: Any, *values: Any, **options: Any) -> Any:
            name = str(queue.name)
            try:
                taken = take(queue, *values, **options)
            except DBAPIError as error:
                cause = error.orig or error
                # Another worker looks at the same moment: that is how they are kept apart.
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
        """Take nothing more, and forget what is still running here."""
        dbos = import_engine()
        # What it took in this very moment cannot begin any more; that is given back and nobody's fault.
        logging.getLogger("dbos").setLevel(logging.CRITICAL)
        await asyncio.to_thread(lambda: dbos.DBOS.destroy(destroy_registry=True))
        # It had put its own threads into the loop, and has ended them.
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor())
        for name in QUEUES:
            self._alarm.clear(name)


def _resume(ids: list[str], queue: str, client: "DBOSClient") -> None:
    client.resume_workflows(ids, queue_name=queue)


async def adopt_runs(connection: "Connection") -> None:
    """Let workers of this version take the runs that were queued for those of an earlier one."""
    cursor = await connection.execute("SELECT to_regclass(%s) IS NOT NULL", (TABLE,))
    row = await cursor.fetchone()
    if row is not None and row[0]:
        await connection.execute(
            f"UPDATE {TABLE} SET application_version = %s WHERE name = %s AND status = ANY(%s)",
            (APPLICATION, WORKFLOW, ["ENQUEUED", *_STARTED]),
        )


def _is_passing(error: BaseException) -> bool:
    """Whether it may be otherwise the next time, by itself or because somebody mends it."""
    import psycopg

    state = getattr(error, "sqlstate", None) or ""
    return isinstance(error, psycopg.OperationalError) or state in ("25006", "25P02", "25P03")


def _find_pause_s(queue: str) -> float:
    return dict(zip(QUEUES, POLL_S, strict=False)).get(queue, POLL_S[-1])


async def prepare_engine(url: str) -> None:
    """Make DBOS's own tables, for a face that comes before the first worker."""
    dbos = await asyncio.to_thread(import_engine)  # half a second the first time, and not the loop's
    from sqlalchemy.exc import DBAPIError, SQLAlchemyError

    try:
        await asyncio.to_thread(lambda: dbos.DBOS.migrate(system_database_url=url))
    except SQLAlchemyError as error:
        told = first_line(error.orig if isinstance(error, DBAPIError) and error.orig else error)
        raise ConfigError(f"the database {describe_address(url)} cannot keep the queues: {told}") from error
