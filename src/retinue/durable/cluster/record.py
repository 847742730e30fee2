"""The record of one run in the database, written by its worker and read by the next worker and the front end.

All writes are fenced: only the worker that claimed the run last may write, others get RunTakenOver. Must not know
models or tools.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from retinue.core.errors import RetinueError, quote
from retinue.core.pattern import late_pattern
from retinue.core.run import Outcome, Reason, Status
from retinue.durable.cluster.assignment import Assignment, pack_assignment, unpack_assignment
from retinue.durable.cluster.database import Database, fetch_value, pack_json, to_column
from retinue.durable.session_files import RecordPart

_ID = late_pattern(r"[A-Za-z0-9_-]{1,64}")
_CHECK = "SELECT id, face FROM retinue.runs WHERE id = %s AND epoch = %s AND finished IS NULL FOR SHARE"
"""Returns a row if this worker owns the run, and prevents a takeover until the end of the transaction."""
# One query each, because they run at every turn; the insert depends on the fence's row.
_KEEP = (
    f"WITH fence AS MATERIALIZED ({_CHECK}), kept AS ("
    "INSERT INTO retinue.records (run, attempt, epoch, kind, path, place, data)"
    " SELECT %s, %s, %s, p.kind, p.path, p.place, p.data FROM fence,"
    " unnest(%s::text[], %s::text[], %s::bigint[], %s::bytea[]) WITH ORDINALITY AS p (kind, path, place, data, number)"
    " ORDER BY p.number ON CONFLICT DO NOTHING) SELECT 1 FROM fence"
)
_TELL = (
    f"WITH fence AS MATERIALIZED ({_CHECK}), told AS ("
    "INSERT INTO retinue.events (id, epoch, number, data) SELECT %s, %s, %s, %s FROM fence ON CONFLICT DO NOTHING)"
    # The current front end, which need not be the one that sent the run.
    " SELECT pg_notify(face, id) FROM fence"
)


class RunTakenOver(RetinueError):
    """Raised when another worker owns the run: nothing was written, and nothing more may be done."""

    @classmethod
    def of(cls, run: str) -> "RunTakenOver":
        return cls(f"another worker has taken over run {run}")


class Claim:
    """One worker's ownership of a run."""

    def __init__(self, database: Database, assignment: Assignment, worker: str, epoch: int) -> None:
        self.assignment = assignment
        self.epoch = epoch
        self._database = database
        self._worker = worker
        self._number = 0

    @classmethod
    async def take(cls, database: Database, run: str, worker: str) -> "Claim | None":
        """Take a run over; None if it is finished, unknown or unreadable."""
        rows = await database.fetch(
            "UPDATE retinue.runs SET owner = %s, epoch = epoch + 1, started = coalesce(started, now())"
            " WHERE id = %s AND finished IS NULL RETURNING epoch, assignment::text",
            worker,
            run,
        )
        if not rows:
            return None
        try:
            assignment = unpack_assignment(rows[0][1])
        except msgspec.DecodeError as error:
            await _refuse(database, run, rows[0][0], f"it was sent by another version of retinue: {error}")
            return None
        # Both become names of folders here.
        if assignment.id != run or not _ID.fullmatch(assignment.run_id):
            await _refuse(database, run, rows[0][0], f"its record belongs to another run, {quote(assignment.id)}")
            return None
        claim = cls(database, assignment, worker, rows[0][0])
        await claim.tell([])  # notifies the front end which worker has the run
        return claim

    async def read(self) -> list[tuple[RecordPart, int]]:
        """Return the record of the run in order, each piece with its attempt."""
        rows = await self._database.fetch(
            "SELECT kind, path, place, data, attempt FROM retinue.records WHERE run = %s ORDER BY seq",
            self.assignment.run_id,
        )
        return [(RecordPart(kind, path, place, bytes(data)), attempt) for kind, path, place, data, attempt in rows]

    async def keep(self, pieces: Sequence[RecordPart]) -> None:
        """Store pieces, all or none. Raises RunTakenOver."""
        assignment = self.assignment
        values: tuple[Any, ...] = (assignment.id, self.epoch)
        if pieces:
            columns = zip(*((piece.kind, piece.path, piece.place, piece.data) for piece in pieces), strict=True)
            values += (assignment.run_id, assignment.attempt, self.epoch, *map(list, columns))
        self._need(await self._database.fetch(_KEEP if pieces else _CHECK, *values))

    async def tell(self, lines: Sequence[bytes], outcome: Outcome | None = None) -> None:
        """Send events to the front end; an outcome ends the run, once. Raises RunTakenOver."""
        assignment, self._number = self.assignment, self._number + 1
        values = (assignment.id, self.epoch, assignment.id, self.epoch, self._number, b"\n".join(lines))
        if outcome is None:
            self._need(await self._database.fetch(_TELL, *values))
            return

        async def write(connection: Any) -> None:
            if await self._has_ended(connection):
                return
            cursor = await connection.execute(_TELL, values)
            self._need(await cursor.fetchall())
            await connection.execute(
                "UPDATE retinue.runs SET outcome = %s, finished = now() WHERE id = %s",
                (pack_json(outcome), assignment.id),
            )

        await self._database.transact(write)

    def _need(self, rows: Sequence[object]) -> None:
        if not rows:
            raise RunTakenOver.of(self.assignment.id)

    async def hold_fence(self, connection: Any) -> None:
        """Prevent a takeover until the end of the transaction. Raises RunTakenOver."""
        cursor = await connection.execute(_CHECK, (self.assignment.id, self.epoch))
        self._need(await cursor.fetchall())

    async def _has_ended(self, connection: Any) -> bool:
        """Return whether this end is written already: the connection may have broken before the confirmation."""
        sql = "SELECT 1 FROM retinue.runs WHERE id = %s AND epoch = %s AND finished IS NOT NULL"
        return await fetch_value(connection, sql, self.assignment.id, self.epoch) is not None


async def _refuse(database: Database, run: str, epoch: int, problem: str) -> None:
    """End a run that cannot be read; otherwise its front end would wait for ever."""
    outcome = Outcome(Status.FAILED, Reason.ERROR, error=problem)
    await database.fetch(
        "WITH ended AS (UPDATE retinue.runs SET outcome = %s, finished = now()"
        " WHERE id = %s AND epoch = %s AND finished IS NULL RETURNING id, face)"
        " SELECT pg_notify(face, id) FROM ended",
        pack_json(outcome),
        run,
        epoch,
    )


async def submit(database: Database, assignment: Assignment) -> None:
    """Store a run before it is queued; storing it twice has no effect."""
    await database.fetch(
        "INSERT INTO retinue.runs (id, run, attempt, face, agent, description, queue, assignment)"
        " VALUES (%s, %s, %s, %s, %s, %s, %s, %s)"
        # A front end that reconnects receives events from now on.
        " ON CONFLICT (id) DO UPDATE SET face = excluded.face,"
        " assignment = jsonb_set(retinue.runs.assignment, '{face}', to_jsonb(excluded.face))",
        assignment.id,
        assignment.run_id,
        assignment.attempt,
        assignment.face,
        to_column(assignment.agent),
        to_column(assignment.description),
        assignment.queue,
        pack_assignment(assignment),
    )
