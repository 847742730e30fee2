"""Finds the session file of a run and opens or creates the session.

By default a session lies beside its parent's. MUST NOT know the session format.
"""

import os
from pathlib import Path

from msgspec import Struct

from retinue.core.clock import Clock
from retinue.core.definition import Definition
from retinue.core.errors import RetinueError, UsageError, quote
from retinue.core.run import Run
from retinue.engine.clock import make_uuid
from retinue.engine.request import RunRequest
from retinue.sessions.log import Session
from retinue.sessions.tree import SessionTree

_NAME = "session.jsonl"


class PathBases(Struct, frozen=True):
    """Base directories for relative paths in agent files."""

    cwd: str = ""
    project: str = ""
    home: str = ""


def find_session_dir(definition: Definition, grounds: PathBases) -> str:
    """Return the session directory of a definition, "" for the default. Raises UsageError if it is not allowed."""
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


def find_file(tree: SessionTree | None, run_id: str, request: RunRequest) -> Path | None:
    """Return the session file of a run: from the request, else beside the main session. None if it is not saved."""
    if not request.keeps_session:
        return None
    if request.session_file:
        return Path(request.session_file)
    return None if tree is None else tree.child_path(run_id)


def find_tree(tree: SessionTree | None, path: Path) -> SessionTree | None:
    """Return the tree whose lock protects a session file; None for files outside the main session's folder."""
    is_below = tree is not None and tree.main is not None and path.is_relative_to(tree.main.with_suffix(""))
    return tree if is_below else None


def find_file_below(above_file: str, above_id: str, run_id: str) -> str:
    """Return the session file of a run whose parent has a session file of its own: in a folder beside that file."""
    folder, name = os.path.split(above_file)
    # All descendants share one folder, at any depth.
    is_below = name == _NAME and os.path.basename(folder) == above_id
    return os.path.join(os.path.dirname(folder) if is_below else os.path.splitext(above_file)[0], run_id, _NAME)


class SessionOpener:
    """Opens the sessions of all runs of one main agent."""

    def __init__(self, clock: Clock, orphan_dir: Path | None) -> None:
        """`orphan_dir` stores sessions of runs whose main agent has none; with None they are not saved."""
        self._clock = clock
        self._orphan_dir = orphan_dir
        self._unsaved: dict[str, Session] = {}
        """Sessions without a file, kept for resuming."""

    def find_place(self, run: Run, request: RunRequest, above: Session) -> tuple[Path | None, SessionTree | None]:
        """Return the session file of a run and the tree whose lock protects it; `above` is the parent's session."""
        tree = above.tree
        path = find_file(tree, run.id, request)
        if not request.keeps_session:
            return None, tree
        if path is None:
            return None if self._orphan_dir is None else self._orphan_dir / run.id / _NAME, None
        return path, tree if not request.session_file else find_tree(tree, path)

    def open(self, run: Run, request: RunRequest, above: Session, cwd: Path) -> Session:
        """Open or create the session of a run.

        Raises RetinueError if the run is to be resumed and its file is missing.
        """
        path, tree = self.find_place(run, request, above)
        if path is None and run.id in self._unsaved:
            return self._unsaved[run.id]
        exists = path is not None and path.exists()
        if run.attempt > 1 and run.started_ms and not exists:
            raise RetinueError(f'Agent "{run.id}" has no active session to resume.')
        if path is not None and exists:
            return Session.open(path, clock=self._clock, new_id=make_uuid, tree=tree, cwd=str(cwd))
        session = Session.create(
            cwd=cwd,
            directory=None,
            path=path,
            parent_session=str(above.path) if above.path else None,
            clock=self._clock,
            new_id=make_uuid,
            tree=tree,
        )
        if path is None:
            self._unsaved[run.id] = session
        return session

    def forget(self, run_id: str) -> None:
        """Drop the unsaved session of a run; a file stays."""
        self._unsaved.pop(run_id, None)
