"""Builds the run request for a call of the `subagent` surface: agent, limits and session.

Must not know what the surface does with the outcome.
"""

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from retinue.core.definition import Definition
from retinue.core.errors import SessionError, UsageError, quote
from retinue.engine.request import RunRequest
from retinue.sessions.entry import check_session_id
from retinue.sessions.files import make_private
from retinue.settings.paths import Paths
from retinue.settings.roster import Roster

HASH_CHARS = 16
MAX_NAME_BYTES = 240
"""Maximum length of a session's file name; files beside it have longer names."""
_SHOWN_CHARS = 60


def prepare_run(
    roster: Roster, agent: str, session_id: str | None, *, write: bool, new_id: Callable[[], str], **asked: Any
) -> tuple[Definition, RunRequest, str]:
    """Return the agent, its run request and the id to continue it by, or an empty string. Raises RetinueError.

    `session_id` continues a session, or names the new one. `write` allows the agent's write tools, whatever the
    settings say. `asked` are further fields of the request.
    """
    definition, path = roster.find_runnable(agent, "subagent"), ""
    if session_id is None and definition.completion == "finalize":
        session_id = new_id()
    if session_id is not None:
        path = find_sticky_file(roster.paths, definition.name, session_id)
    request = RunRequest(
        agent=definition.name,
        description=" ".join(asked["task"].split())[:_SHOWN_CHARS],
        surface="subagent",
        is_model_chosen=asked["model"] is not None,
        isolation="worktree" if definition.isolation == "worktree" else None,
        context=definition.context or "none",
        allow_write=write or roster.crew.subagents.allow_write,
        is_background=False,
        session_file=path,
        limits=roster.crew.limit_call(),
        **asked,
    )
    return definition, request, session_id or ""


def find_sticky_file(paths: Paths, agent: str, session_id: str) -> str:
    """Return the session file for an agent, a session id and this folder. Raises UsageError for a bad id."""
    check_session_id(session_id)
    digest = hashlib.sha256(os.path.realpath(paths.cwd).encode(errors="surrogateescape")).hexdigest()[:HASH_CHARS]
    home = paths.home or paths.agent_dir.parent.parent
    name = f"{agent}_{session_id}.jsonl"
    # An agent's name may be any line of text, but only a plain one may become part of a path.
    if os.path.basename(name) != name or name.startswith(".") or "\0" in name:
        raise UsageError(f"agent {quote(agent)} has a name that cannot be part of a file name; rename it")
    if len(os.fsencode(name)) > MAX_NAME_BYTES:
        raise UsageError(
            f"session id {quote(session_id)} and the agent's name are too long for a file name; use a shorter id"
        )
    return str(home / ".pi" / "subagent-sessions" / digest / name)


def make_session_dir(directory: Path) -> None:
    """Create the folder of a session, accessible to the user only. Raises SessionError."""
    try:
        make_private(directory)
    except OSError as error:
        raise SessionError(f"Failed to create session directory: {error.strerror or error}") from error
