"""Builds the run request for a call of the `subagent` surface: agent, limits and session.

Must not know what the surface does with the outcome.
"""

import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True)
class SubagentRequest:
    agent: str
    task: str
    session_id: str | None = None
    """Continues a session, or names the new one."""
    write: bool = False
    """Allows the agent's write tools for this run, whatever the settings say."""
    model: str | None = None
    call_id: str = ""
    output_schema: dict[str, Any] | None = None
    verify: tuple[str, ...] = ()
    is_verify_judged: bool = False


def prepare_run(
    roster: Roster, asked: SubagentRequest, *, new_id: Callable[[], str]
) -> tuple[Definition, RunRequest, str]:
    """Return the agent, its run request and the id to continue it by, or an empty string. Raises RetinueError."""
    definition = roster.find_runnable(asked.agent, "subagent")
    session_id, path = asked.session_id, ""
    if session_id is None and definition.completion == "finalize":
        session_id = new_id()
    if session_id is not None:
        path = find_sticky_file(roster.paths, definition.name, session_id)
    request = RunRequest(
        agent=definition.name,
        task=asked.task,
        description=" ".join(asked.task.split())[:_SHOWN_CHARS],
        surface="subagent",
        model=asked.model,
        is_model_chosen=asked.model is not None,
        isolation="worktree" if definition.isolation == "worktree" else None,
        context=definition.context or "none",
        allow_write=asked.write or roster.crew.subagents.allow_write,
        is_background=False,
        session_file=path,
        call_id=asked.call_id,
        limits=roster.crew.limit_call(),
        output_schema=asked.output_schema,
        verify=asked.verify,
        is_verify_judged=asked.is_verify_judged and bool(asked.verify),
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
