"""Which session a Retinue works in, and where."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path

from retinue.core.clock import Clock
from retinue.core.errors import UsageError, quote
from retinue.engine.ids import make_uuid
from retinue.sessions.entry import check_session_id
from retinue.sessions.files import FleetingFiles
from retinue.sessions.log import Session
from retinue.sessions.search import find_recent, find_session
from retinue.sessions.tree import SessionTree
from retinue.settings.paths import Paths, find_paths, find_session_dir
from retinue.settings.request import SessionWish
from retinue.settings.schema import Settings


def open_session(
    wish: SessionWish,
    paths: Paths,
    settings: Settings,
    environment: Mapping[str, str],
    clock: Clock,
    say: Callable[[str], None],
) -> Session:
    """Open or make the session that is wished for."""
    directory = find_session_dir(paths, environment, flag=wish.directory or None, setting=settings.session_dir)
    found: Path | None = None
    if wish.kind == "newest":
        found = find_recent(directory, str(paths.cwd))
        if found is None:
            say("there is no session of this folder to continue; starting a new one")
    elif wish.kind == "named":
        found = _find_named(wish.reference, directory, paths)
    elif wish.kind == "exact":
        check_session_id(wish.reference)
        found = next(directory.glob(f"*_{wish.reference}.jsonl"), None)
    tree = SessionTree(FleetingFiles()) if wish.is_fleeting else None
    if found is not None and found.exists():
        cwd = str(paths.cwd)
        return Session.open(found, clock=clock, new_id=make_uuid, cwd=cwd, is_alone=wish.is_alone, tree=tree)
    session = Session.create(
        cwd=wish.cover.cwd or paths.cwd,
        directory=None if wish.kind in ("none", "children") else directory,
        path=found,
        session_id=wish.reference if wish.kind == "exact" else wish.cover.id or None,
        parent_session=wish.cover.parent or None,
        clock=clock,
        new_id=make_uuid,
        tree=tree,
    )
    if wish.cover.name:
        session.append_session_info(wish.cover.name)
    for kind, data in wish.cover.labels.items():
        session.append_custom(kind, data)
    return session


def find_folder(session: Session, environment: Mapping[str, str]) -> Paths:
    """The folder a session was begun in. Raises UsageError when it is gone."""
    try:
        return find_paths(session.cwd, environment)
    except UsageError as error:
        folder = quote(session.cwd, 200)
        raise UsageError(f"session {session.id} works in {folder}, which cannot be entered: {error}") from error


def _find_named(reference: str, directory: Path, paths: Paths) -> Path:
    # A path that does not exist yet is where the session is made, as pi does for its children.
    looks_like_path = os.sep in reference or reference.endswith(".jsonl")
    path = Path(reference).expanduser()
    if looks_like_path and not path.exists():
        return path.absolute()
    return find_session(reference, directory=directory, agent_dir=paths.agent_dir, cwd=paths.cwd)
