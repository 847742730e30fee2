"""Bundles in the database, read piece by piece: whoever asks for all of one at once needs six times its memory."""

from retinue.durable.cluster.database import Database

PIECE = 8 * 1024 * 1024


async def read_bundle(database: Database, digest: str, *, piece: int = PIECE) -> bytes | None:
    """The bundle with this digest; None when there is none, or none any more."""
    rows = await database.fetch("SELECT length(data) FROM retinue.parcels WHERE digest = %s", digest)
    if not rows:
        return None
    read = []
    for place in range(0, rows[0][0], piece):
        found = await database.fetch(
            "SELECT substring(data FROM %s FOR %s) FROM retinue.parcels WHERE digest = %s", place + 1, piece, digest
        )
        if not found:
            return None  # removed meanwhile
        read.append(bytes(found[0][0]))
    return b"".join(read)
