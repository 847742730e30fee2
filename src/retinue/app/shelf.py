"""Sessions that lie on disk, for faces: one gets another name, one is thrown away. Both hold its lock meanwhile."""

import shutil
from pathlib import Path

from retinue.core.errors import SessionError, quote
from retinue.engine.clock import SystemClock
from retinue.engine.ids import make_uuid
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
    file = Path(path)
    session = Session.open(path, clock=SystemClock(), new_id=make_uuid)
    try:
        file.unlink()
        runs = file.with_suffix("")
        if file.suffix and runs.is_dir() and not runs.is_symlink():
            shutil.rmtree(runs)
    except OSError as error:
        raise SessionError(f"{quote(path, 300)} could not be deleted: {error.strerror}") from error
    finally:
        session.close()
