"""Where the session of a run is kept when its agent's file says so. Pure.

Must not know how sessions are written. Where a file says nothing, a session lies beside its parent's.
"""

import os

from msgspec import Struct

from retinue.core.definition import Definition
from retinue.core.errors import UsageError, quote


class Grounds(Struct, frozen=True):
    """What paths in agents' files are relative to."""

    cwd: str = ""
    project: str = ""
    home: str = ""


def find_session_dir(definition: Definition, grounds: Grounds) -> str:
    """The folder of its sessions; empty for the usual place. Raises UsageError for one that it may not have."""
    text = definition.session_dir or ""
    if not definition.persist_session or not text:
        return ""
    where = f"{definition.path}: session_dir {quote(text)}"
    if "\0" in text or (text.startswith("~") and text[1:2] not in ("", "/")):
        raise UsageError(f"{where}: expected a path; ~ is the home directory")
    if text.startswith("~"):
        if not grounds.home:
            raise UsageError(f"{where}: there is no home directory; set HOME")
        path = os.path.normpath(f"{grounds.home}/{text[1:]}")
    else:
        path = os.path.normpath(os.path.join(grounds.cwd, text))
    if definition.source == "project" and not _is_inside(path, grounds.project):
        raise UsageError(f"{where}: an agent of a project keeps its sessions inside {quote(grounds.project, 200)} only")
    return path


def _is_inside(path: str, folder: str) -> bool:
    real, top = os.path.realpath(path), os.path.realpath(folder)
    return os.path.commonpath((real, top)) == top
