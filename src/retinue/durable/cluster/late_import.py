"""What a run has left in the database, brought to a repository later: for when that could not take it at its end."""

from contextlib import suppress
from pathlib import Path

import msgspec

from retinue.core.errors import RetinueError, quote
from retinue.durable.cluster.assignment import unpack_assignment
from retinue.durable.cluster.branch_import import land
from retinue.durable.cluster.database import Database
from retinue.durable.cluster.delivery import note_home
from retinue.durable.cluster.workspace_bundle import Parcel
from retinue.durable.recorded_run import SNAPSHOT
from retinue.features.worktree.copies import BRANCH_PREFIX


async def fetch_work(database: Database, run: str, repo: Path) -> str:
    """Put the changes of a finished run on a branch and give its name; empty when it has changed nothing.

    A run of several attempts has all of its changes in the last one. Raises RetinueError; then it can be tried again.
    """
    rows = await database.fetch(
        "SELECT assignment::text, finished IS NOT NULL FROM retinue.runs WHERE %s IN (id, run)"
        " ORDER BY attempt DESC LIMIT 1",
        run,
    )
    if not rows:
        raise RetinueError(f"no run {quote(run)} is in the database {database.describe()}; perhaps it was pruned")
    if not rows[0][1]:
        raise RetinueError(f"run {quote(run)} has not ended; its changes come home by themselves when it does")
    try:
        assignment = unpack_assignment(rows[0][0])
        parcel = msgspec.convert(assignment.parcel, type=Parcel)
    except msgspec.DecodeError as error:
        raise RetinueError(f"run {quote(run)} was sent by another version of retinue: {error}; use that one") from error
    states = await database.fetch(
        "SELECT data FROM retinue.records WHERE run = %s AND kind = %s AND path = %s ORDER BY seq",
        assignment.run_id,
        SNAPSHOT,
        str(assignment.attempt),
    )
    sent = await database.fetch("SELECT data FROM retinue.parcels WHERE digest = %s", assignment.digest)
    branch = await land(
        repo,
        parcel,
        [bytes(data) for (data,) in states],
        f"{BRANCH_PREFIX}{assignment.run_id}",
        description=assignment.description,
        bundle=bytes(sent[0][0]) if sent else None,
    )
    # A role that may only read has its changes all the same; they are kept a while longer.
    with suppress(RetinueError):
        await note_home(database, assignment.id)
    return branch
