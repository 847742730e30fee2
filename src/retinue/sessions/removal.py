"""Deletes a session with everything below it: the sessions of the runs it started lie in its folder and go with it."""

import shutil
from pathlib import Path

from retinue.core.errors import SessionError, SessionNotFound, quote
from retinue.sessions.tree import SessionTree


def delete_session(path: Path) -> None:
    """Remove a main session and its children. Raises SessionLocked while somebody writes it, or SessionError."""
    if not path.is_file():
        raise SessionNotFound(f"there is no session {quote(str(path), 300)}")
    tree = SessionTree()
    tree.lock(path)
    try:
        # The children first: what is left after a crash in between is still listed, and can be deleted again.
        folder = path.with_suffix("")
        if folder.is_dir() and not folder.is_symlink():
            shutil.rmtree(folder)
        path.unlink()
    except OSError as error:
        raise SessionError(f"{path}: cannot be deleted: {(error.strerror or str(error)).lower()}") from None
    finally:
        tree.close()
