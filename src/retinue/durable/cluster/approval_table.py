"""The cases that wait in the database, and the rulings on them: written by workers and faces, each in one statement.

Must not know who judges, nor what follows from it.
"""

import msgspec

from retinue.durable.cluster.approval import Case, Ruling, Verdict
from retinue.durable.cluster.assignment import CHANNEL
from retinue.durable.cluster.database import Database
from retinue.durable.cluster.json_columns import pack_json
from retinue.durable.cluster.record import Fenced

RULING = "ruling"
"""How rulings are called among the words that are said to a run."""


async def bring_case(database: Database, run: str, epoch: int, case: Case) -> None:
    """Put a case before the face of a run, whichever it is by now; raises Fenced when the run is another worker's."""
    rows = await database.fetch(
        "WITH held AS (SELECT id, face FROM retinue.runs WHERE id = %s AND epoch = %s AND finished IS NULL FOR SHARE),"
        " put AS (INSERT INTO retinue.cases (key, id, epoch, waits, data)"
        " SELECT %s, id, %s, %s, %s FROM held ON CONFLICT DO NOTHING)"
        " SELECT pg_notify(face, id) FROM held",
        run,
        epoch,
        case.key,
        epoch,
        case.waits,
        msgspec.json.encode(case),
    )
    if not rows:
        raise Fenced(f"run {run} is another worker's now")


async def list_cases(database: Database, run: str) -> list[Case]:
    """Those of a run that nobody has judged; nobody waits any more for what a former worker has asked."""
    rows = await database.fetch(
        "SELECT c.data FROM retinue.cases c JOIN retinue.runs r ON r.id = c.id"
        " WHERE c.id = %s AND (NOT c.waits OR c.epoch = r.epoch)"
        " AND NOT EXISTS (SELECT 1 FROM retinue.words w WHERE w.key = c.key) ORDER BY c.seq",
        run,
    )
    return [msgspec.json.decode(bytes(data), type=Case) for (data,) in rows]


async def settle_case(database: Database, run: str, case: Case, ruling: Ruling) -> None:
    """Let the run know, once: the first ruling on a case counts."""
    if not case.waits:
        await database.fetch("DELETE FROM retinue.cases WHERE key = %s", case.key)
        return
    call_id = "" if case.call is None else case.call.id
    verdict = Verdict(key=case.key, ruling=ruling, digest=case.digest, run_id=case.run_id, call_id=call_id)
    await database.fetch(
        "WITH said AS (INSERT INTO retinue.words (id, key, kind, data) VALUES (%s, %s, %s, %s)"
        " ON CONFLICT DO NOTHING) SELECT pg_notify(%s, %s)",
        run,
        case.key,
        RULING,
        pack_json(verdict),
        CHANNEL,
        run,
    )


async def forget_cases(database: Database, run: str) -> None:
    """Nobody will ask for the cases of a finished run again."""
    await database.fetch("DELETE FROM retinue.cases WHERE id = %s", run)
