"""Sessions that lie on disk, for faces: one gets another name, one is thrown away. Both hold its lock meanwhile."""

from pathlib import Path

from retinue.engine.clock import SystemClock
from retinue.engine.ids import make_uuid
from retinue.sessions import removal
from retinue.sessions.log import Session


def rename_session(path: str, name: str) -> None:
    """Give a session that nobody has open another name. Raises SessionError."""
    session = Session.open(path, clock=SystemClock(), new_id=make_uuid)
    try:
        session.append_session_info(name)
    finally:
        session.close()


def delete_session(path: str) -> None:
    """Remove a session that nobody has open, and those of its runs. Raises SessionError."""
    removal.delete_session(Path(path))
