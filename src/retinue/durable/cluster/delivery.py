"""What becomes of a run's record when its face has it: that it does is noted, and what nobody may keep goes.

`heard`: a face has taken the outcome. `home`: its changes, if there are any, are in a repository. Until both are noted
the record is the only copy. Must not know how a session or a branch is written.
"""

from retinue.durable.cluster.assignment import Assignment
from retinue.durable.cluster.database import Database
from retinue.durable.session_files import SESSION


async def note_heard(database: Database, run: str, *, has_changes: bool) -> None:
    """A face has the outcome, and with `has_changes` also all that the run has changed."""
    await database.fetch(
        "UPDATE retinue.runs SET heard = now(), home = CASE WHEN %s THEN now() ELSE home END WHERE id = %s",
        has_changes,
        run,
    )


async def note_home(database: Database, run: str) -> None:
    """The changes of a run are in a repository, whoever has brought them there."""
    await database.fetch("UPDATE retinue.runs SET home = now() WHERE id = %s", run)


async def take_session(database: Database, assignment: Assignment) -> bytes:
    """The session of a run that is to leave none: from now on only whoever called this has it."""
    rows = await database.fetch(
        "SELECT data FROM retinue.records WHERE run = %s AND kind = %s AND path = %s ORDER BY seq",
        assignment.run_id,
        SESSION,
        assignment.session,
    )
    # Also those of runs below it, which lie beside it.
    await database.fetch("DELETE FROM retinue.records WHERE run = %s AND kind = %s", assignment.run_id, SESSION)
    return b"".join(bytes(data) for (data,) in rows)
