"""Where the session of a run is kept, and opened or made when the run begins.

Must not know how sessions are written. Where an agent's file says nothing, a session lies beside its parent's.
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
    """What paths in agents' files are relative to."""

    cwd: str = ""
    project: str = ""
    home: str = ""


def find_session_dir(definition: Definition, grounds: PathBases) -> str:
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


def find_file(tree: SessionTree | None, run_id: str, request: RunRequest) -> Path | None:
    """Where a run keeps its session: where the request says, else beside its main session; None for nowhere."""
    if not request.keeps_session:
        return None
    if request.session_file:
        return Path(request.session_file)
    return None if tree is None else tree.child_path(run_id)


def find_tree(tree: SessionTree | None, path: Path) -> SessionTree | None:
    """The tree whose lock a session is under: what is not below the main one is not under its lock."""
    is_below = tree is not None and tree.main is not None and path.is_relative_to(tree.main.with_suffix(""))
    return tree if is_below else None


def find_file_below(above_file: str, above_id: str, run_id: str) -> str:
    """Where a run keeps its session whose parent keeps this one in a place of its own: in a folder beside that."""
    folder, name = os.path.split(above_file)
    # One folder for all that is below, however deep.
    is_below = name == _NAME and os.path.basename(folder) == above_id
    return os.path.join(os.path.dirname(folder) if is_below else os.path.splitext(above_file)[0], run_id, _NAME)


class SessionKeeper:
    """The sessions of the runs of one main agent."""

    def __init__(self, clock: Clock, orphan_dir: Path | None) -> None:
        """`orphan_dir` is for runs whose main agent has no session; None keeps none of them."""
        self._clock = clock
        self._orphan_dir = orphan_dir
        self._unsaved: dict[str, Session] = {}
        """Sessions without a file, which a resumed run goes on with."""

    def find_place(self, run: Run, request: RunRequest, above: Session) -> tuple[Path | None, SessionTree | None]:
        """Where the session of a run lies, and the tree whose lock it is under; `above` is its parent's."""
        tree = above.tree
        path = find_file(tree, run.id, request)
        if not request.keeps_session:
            return None, tree
        if path is None:
            return None if self._orphan_dir is None else self._orphan_dir / run.id / _NAME, None
        return path, tree if not request.session_file else find_tree(tree, path)

    def open(self, run: Run, request: RunRequest, above: Session, cwd: Path) -> Session:
        """The session of a run, opened or made."""
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
        """Keep nothing of a run that is forgotten, its file apart."""
        self._unsaved.pop(run_id, None)
