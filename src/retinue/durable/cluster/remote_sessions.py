"""The sessions of runs that a run on a worker has started: found in its record, and put where they are kept here.

Names in a record are data of whoever wrote it: a file is written only where this side keeps the session of a run that
it knows to be below. Must not know entries.
"""

import asyncio
import re
from collections.abc import Callable, Iterable
from pathlib import Path, PurePosixPath

from retinue.core.errors import RetinueError, SessionError, quote
from retinue.durable.cluster.session_copy import USUAL, HomeFile

Find = Callable[[str], Path | None]
"""Where the session of a run below is kept; None for one that nobody here knows, or that keeps none."""
_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")


def collect_files(pieces: Iterable[tuple[str, int, bytes]], session: str) -> dict[str, bytes]:
    """What is on record of the sessions below one of this name, by run; one with a gap in it is left out."""
    folder, found, broken = PurePosixPath(session).stem, dict[str, bytearray](), set[str]()
    for path, place, data in pieces:
        parts = path.split("/")
        if len(parts) != 3 or (parts[0], parts[2]) != (folder, USUAL) or not _ID.fullmatch(parts[1]):
            continue
        kept = found.setdefault(parts[1], bytearray())
        if place > len(kept):
            broken.add(parts[1])
        kept[place : place + len(data)] = data
    return {run_id: bytes(kept) for run_id, kept in found.items() if run_id not in broken}


async def bring_files(pieces: Iterable[tuple[str, int, bytes]], session: str, find: Find) -> list[str]:
    """Put the sessions below where they are kept; returns what went wrong, which costs no run its end."""
    problems = []
    for run_id, data in collect_files(pieces, session).items():
        if (path := find(run_id)) is None:
            continue
        try:
            await asyncio.to_thread(_write, path, data)
        except (OSError, RetinueError) as error:
            problems.append(f"the session of run {run_id} could not be brought home: {error}")
    return problems


def _write(path: Path, data: bytes) -> None:
    # Nobody but us makes this folder: a link in its place leads to somebody else's.
    if path.parent.is_symlink():
        raise SessionError(f"{quote(str(path.parent), 200)} is a link")
    HomeFile(str(path), is_shared=False).write(data)
