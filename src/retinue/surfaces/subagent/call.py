"""One call of the `subagent` surface from its checks to its result, in the order callers rely on."""

from collections.abc import Awaitable, Callable
from typing import Any

from retinue.core.errors import DisabledAgent, RetinueError, UnknownAgent
from retinue.core.run import Run
from retinue.surfaces.subagent.result import render_error, render_run

Start = Callable[[], Awaitable[tuple[Run, str]]]
"""Runs the agent and gives back the run and the id of its session, when that can be continued."""


def check_call(agent: str, task: str, *, depth: int, max_depth: int, is_enabled: bool) -> dict[str, Any] | None:
    """The result of a call that cannot be; None when it can."""
    if depth >= max_depth:
        text = f"Subagent depth exceeded ({depth}/{max_depth}). Nested subagents are not allowed."
        return render_error("SUBAGENT_DEPTH_EXCEEDED", text, mode="management")
    if not is_enabled:
        return render_error("SUBAGENTS_DISABLED", "Subagents are disabled in configuration")
    for name, value in (("agent", agent), ("task", task)):
        if not value.strip():
            return render_error("INVALID_INPUT", f"Missing required parameter: {name}")
    return None


async def make_call(task: str, start: Start) -> dict[str, Any]:
    """Run it and render how it went; a run that cannot begin is a failed one."""
    try:
        run, session_id = await start()
    except UnknownAgent as error:
        return render_error("UNKNOWN_AGENT", str(error))
    except DisabledAgent as error:
        return render_error("SUBAGENT_DISABLED", str(error))
    except RetinueError as error:
        return render_error("SUBAGENT_FAILED", str(error))
    return render_run(run, task, session_id)
