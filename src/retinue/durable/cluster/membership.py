"""Membership of workers in the cluster: detects workers that died or hang, and requeues their runs.

A worker holds an advisory lock as long as its connection lives, so its death is noticed at once. A worker that hangs
keeps the lock but sends no heartbeat: its connection is terminated. The worker that finds a free lock takes it,
requeues the dead worker's runs, and releases it.
"""

import asyncio
import os
import socket
import time
import zlib
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from retinue.core.errors import quote
from retinue.durable.cluster.database import MIGRATION_LOCK, RETRY_S, Database, fetch_value
from retinue.durable.cluster.dbos_queues import TABLE, WaitingRuns
from retinue.durable.cluster.upgrade import LEASE_S
from retinue.durable.trouble import DurableTrouble, TroubleNotifier, recognise, render_notice

if TYPE_CHECKING:
    from retinue.durable.cluster.database import Connection

BEAT_S = 0.5
LEAVE_S = 5.0
"""Time to sign off; after that the worker leaves without."""
CALM_S = 3.0
"""Grace period after the database was away, in which nobody is declared dead, because all must reconnect first."""
REPEAT_S = 10.0
"""How often front ends are notified of what their runs wait for, since new ones do not know it."""
_STAYS = ("full", "memory", "limit", "timeout", "disk")
"""Troubles that a connection survives, and with it the lock."""


class Membership:
    def __init__(
        self, database: Database, waiting: WaitingRuns, worker: str, slots: int, *, say: Callable[[str], None]
    ) -> None:
        self.worker = worker
        self._database = database
        self._waiting = waiting
        self._slots = slots
        self._say = say
        self._key = zlib.crc32(worker.encode()) | 0x7265_0000_0000
        self._connection: Connection | None = None
        self._since_s = 0.0
        self._suspects: set[str] = set()
        self._told: tuple[DurableTrouble | None, float] = (None, 0.0)
        """What the front ends were notified of, and when."""
        self._notified: set[str] = set()

    async def join(self, version: str) -> None:
        backend = await self._enter()
        assert self._connection is not None
        await self._database.fetch(
            "INSERT INTO retinue.workers (id, lock_key, backend, host, pid, version, slots)"
            " VALUES (%s, %s, %s, %s, %s, %s, %s) ON CONFLICT DO NOTHING",
            self.worker,
            self._key,
            backend,
            socket.gethostname(),
            os.getpid(),
            version,
            self._slots,
        )
        self._since_s = time.monotonic()
        await self._give_back_left(self._connection)
        await self._compare(version)

    async def _enter(self) -> int:
        """Open a connection that holds this worker's lock and return its backend pid. Waits until that is possible."""
        try:
            while True:
                try:
                    self._connection = await self._database.connect()
                    await self._connection.execute("SELECT pg_advisory_lock(%s)", (self._key,))
                    return int(await fetch_value(self._connection, "SELECT pg_backend_pid()"))
                except self._database.errors as error:
                    self._note(error)
                await asyncio.sleep(RETRY_S)
        finally:
            self._alarm.clear(self)

    async def _give_back_left(self, connection: "Connection") -> None:
        """Requeue runs of workers that were removed by an upgrade of the tables."""
        # One worker at a time: a run that the first has requeued may be executing already.
        await connection.execute("SELECT pg_advisory_lock(%s)", (MIGRATION_LOCK,))
        try:
            rows = await self._database.fetch(
                f"SELECT DISTINCT w.id FROM {TABLE} e JOIN retinue.workers w ON w.id = e.executor_id"
                " WHERE e.status = 'PENDING' AND w.gone IS NOT NULL"
            )
            for (worker,) in rows:
                runs = await self._waiting.give_back(worker)
                self._say_gone(worker, runs)
        finally:
            await connection.execute("SELECT pg_advisory_unlock(%s)", (MIGRATION_LOCK,))

    async def _compare(self, version: str) -> None:
        """Warn if this worker's version differs from the others': the newest one can still be replaced."""
        rows = await self._database.fetch(
            "SELECT version, count(*) FROM retinue.workers WHERE gone IS NULL AND version <> %s"
            " AND seen > now() - make_interval(secs => %s) GROUP BY version ORDER BY version",
            version,
            LEASE_S,
        )
        if rows:
            told = ", ".join(f"{count} of {quote(other, 40)}" for other, count in rows)
            self._say(
                f"this worker has version {quote(version, 40)}, but others have not ({told}): install the same version "
                "everywhere"
            )

    async def live(self) -> None:
        """Send heartbeats and watch the other workers; returns when this worker was declared dead."""
        while True:
            try:
                if not await self._beat():
                    return
                if self._alarm.is_waiting(self):
                    self._alarm.clear(self)
                    self._since_s = time.monotonic()
                if time.monotonic() - self._since_s > CALM_S:
                    await self._look_around()
            except self._database.errors as error:
                if self._note(error).kind not in _STAYS or self._connection is None or self._connection.closed:
                    is_back = await self._rejoin()
                    self._alarm.clear(self)
                    if not is_back:
                        return
            await self._notify_frontends()
            await asyncio.sleep(BEAT_S)

    @property
    def _alarm(self) -> TroubleNotifier:
        return self._database.alarm

    def _note(self, error: BaseException) -> DurableTrouble:
        trouble = recognise(error, self._alarm.subject)
        self._alarm.note(self, trouble)
        return trouble

    async def _notify_frontends(self) -> None:
        """Notify front ends that their runs cannot continue; their own connections may work."""
        trouble, (known, at_s) = self._alarm.current, self._told
        is_known = trouble == known and (trouble is None or time.monotonic() - at_s < REPEAT_S)
        if is_known or self._connection is None or self._connection.closed:
            return
        faces = "SELECT face FROM retinue.runs WHERE owner = %s AND finished IS NULL UNION SELECT unnest(%s::text[])"
        # If it cannot be sent now, it is sent the next time.
        with suppress(*self._database.errors):
            cursor = await self._connection.execute(
                f"SELECT face, pg_notify(face, %s) FROM ({faces}) AS f",
                (render_notice(self.worker, trouble), self.worker, list(self._notified)),
            )
            self._notified = {face for face, _ in await cursor.fetchall()} if trouble is not None else set()
            self._told = trouble, time.monotonic()

    async def leave(self) -> None:
        """Leave orderly: unfinished runs are requeued."""
        try:
            async with asyncio.timeout(LEAVE_S):
                await self._waiting.give_back(self.worker)
                await self._database.fetch("UPDATE retinue.workers SET gone = now() WHERE id = %s", self.worker)
        except TimeoutError:
            self._say("the database cannot be reached: other workers will take over the unfinished runs")
        if self._connection is not None:
            await self._connection.close()

    async def _beat(self) -> bool:
        assert self._connection is not None
        sql = "UPDATE retinue.workers SET seen = now() WHERE id = %s AND gone IS NULL RETURNING 1"
        return await fetch_value(self._connection, sql, self.worker) is not None

    async def _look_around(self) -> None:
        assert self._connection is not None
        cursor = await self._connection.execute(
            "SELECT id, lock_key, backend, extract(epoch FROM now() - seen)::float FROM retinue.workers"
            " WHERE gone IS NULL AND id <> %s",
            (self.worker,),
        )
        suspects = set()
        for worker, key, backend, silent_s in await cursor.fetchall():
            if silent_s > LEASE_S:
                await self._connection.execute("SELECT pg_terminate_backend(%s)", (backend,))
            elif silent_s < BEAT_S * 1.5:
                continue
            if not await self._try_lock(key):
                continue
            try:
                # Only if seen free twice: the worker may just be reconnecting.
                if worker in self._suspects or silent_s > LEASE_S:
                    await self._inherit(worker)
                else:
                    suspects.add(worker)
            finally:
                await self._connection.execute("SELECT pg_advisory_unlock(%s)", (key,))
        self._suspects = suspects

    async def _inherit(self, worker: str) -> None:
        """Requeue a dead worker's runs. Its lock is held meanwhile, so that it cannot return."""
        assert self._connection is not None
        # From now on it cannot write any more, in case it was only suspended.
        await self._connection.execute(
            "UPDATE retinue.runs SET epoch = epoch + 1 WHERE owner = %s AND finished IS NULL", (worker,)
        )
        runs = await self._waiting.give_back(worker)
        await self._connection.execute("UPDATE retinue.workers SET gone = now() WHERE id = %s", (worker,))
        self._say_gone(worker, runs)

    def _say_gone(self, worker: str, runs: list[str]) -> None:
        self._say(f"worker {worker} is gone; {len(runs)} of its runs continue on other workers")

    async def _rejoin(self) -> bool:
        """Reconnect to a database that was away; False if this worker was declared dead meanwhile."""
        while True:
            try:
                if self._connection is not None:
                    await self._connection.close()
                self._connection = await self._database.connect()
                if not await self._try_lock(self._key):
                    return False
                found = await fetch_value(
                    self._connection,
                    "UPDATE retinue.workers SET backend = pg_backend_pid(), seen = now()"
                    " WHERE id = %s AND gone IS NULL RETURNING 1",
                    self.worker,
                )
                self._since_s = time.monotonic()
                return found is not None
            except self._database.errors as error:
                self._note(error)
                await self._notify_frontends()
                await asyncio.sleep(BEAT_S / 2)

    async def _try_lock(self, key: int) -> bool:
        assert self._connection is not None
        return bool(await fetch_value(self._connection, "SELECT pg_try_advisory_lock(%s)", key))
