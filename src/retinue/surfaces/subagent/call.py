"""Executes one call of the `subagent` surface, from its checks to its result.

Callers rely on the order of the checks. Used by the tool and by `retinue run`.
"""

import asyncio
import os
import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from retinue.core.definition import Definition
from retinue.core.errors import DisabledAgent, RetinueError, UnknownAgent, UsageError, quote
from retinue.core.run import Outcome, Reason, Run, Status
from retinue.definitions.document import fold_name
from retinue.engine.manager import Manager
from retinue.engine.request import RunRequest
from retinue.surfaces.subagent.result import (
    FinishedCall,
    SubagentCall,
    SubagentPorts,
    render_error,
    render_run,
    render_update,
)
from retinue.surfaces.subagent.sanitise import sanitise_all
from retinue.surfaces.subagent.watch import AttemptWatch

Progress = Callable[[dict[str, Any]], None]
PASSING = re.compile(
    r"internal_(?:server_)?error|stream error|ECONNRESET|ECONNREFUSED|ETIMEDOUT|ENOTFOUND|rate.?limit|overloaded|"
    r"temporarily unavailable|timeout|timed out|connection (?:reset|refused|closed|lost)|broke off|"
    r"\b(?:429|500|502|503|504|529)\b",
    re.IGNORECASE,
)
"""Error texts of temporary failures."""
_CODES: Mapping[type[RetinueError], str] = {
    UnknownAgent: "UNKNOWN_AGENT",
    DisabledAgent: "SUBAGENT_DISABLED",
    UsageError: "INVALID_INPUT",
    RetinueError: "SUBAGENT_FAILED",
}


async def make_call(
    call: SubagentCall, ports: SubagentPorts, progress: Progress = lambda result: None
) -> dict[str, Any]:
    """Execute a call and return its result, even if it fails. Cancelling it stops the run."""
    try:
        if (refusal := check_call(call, ports)) is not None:
            return refusal
        definition, request, session_id = ports.prepare(call)
        if not ports.caller.may_start(definition.name):
            raise DisabledAgent(f"Agent {quote(definition.name)} is not open to this agent (allowed_subagents)")
        return await _run(call, ports, definition, request, session_id, progress)
    except RetinueError as error:
        code = next(code for kind, code in _CODES.items() if isinstance(error, kind))
        return render_error(code, str(error), home=ports.settings.home)


def check_call(call: SubagentCall, ports: SubagentPorts) -> dict[str, Any] | None:
    """Return the error result of an invalid call; None if it is valid."""
    settings = ports.settings
    depth = ports.caller.depth + settings.base_depth
    if depth >= settings.max_depth:
        text = f"Subagent depth exceeded ({depth}/{settings.max_depth}). Nested subagents are not allowed."
        return render_error("SUBAGENT_DEPTH_EXCEEDED", text, mode="management")
    if not settings.is_enabled:
        return render_error("SUBAGENTS_DISABLED", "Subagents are disabled in configuration")
    for name, value in (("agent", call.agent), ("task", call.task)):
        if not value.strip():
            return render_error("INVALID_INPUT", f"Missing required parameter: {name}")
    return None


def is_passing(outcome: Outcome) -> bool:
    """Return whether a failure may be temporary: not a limit or a stop, and its text says so."""
    is_failed = outcome.status is Status.FAILED and outcome.reason in (Reason.ERROR, Reason.CRASH)
    return is_failed and outcome.finalized is None and PASSING.search(outcome.error) is not None


async def _run(
    call: SubagentCall,
    ports: SubagentPorts,
    definition: Definition,
    request: RunRequest,
    session_id: str,
    progress: Progress,
) -> dict[str, Any]:
    """Start the run and repeat it after a temporary failure, in a new session unless callers can continue it."""
    settings, caller = ports.settings, ports.caller
    manager, attempts, note = caller.manager, 1, ""
    if fold_name(call.agent.strip()) != fold_name(definition.name):
        note = f'Note: there is no agent "{call.agent.strip()}"; {definition.name} was used instead (fallbackSubagent).'
        caller.warn(note)

    def follow(run: Run) -> AttemptWatch:
        clean = partial(sanitise_all, home=settings.home)
        return AttemptWatch(manager, run.id, clean, lambda watch: progress(render_update(watch)))

    run = manager.spawn(request, caller.run_id)
    watch = follow(run)
    try:
        outcome = await _wait(manager, run)
        while is_passing(outcome) and attempts < settings.max_attempts:
            attempts += 1
            watch.close()
            # A session that callers can continue stays one file, whatever happened in it.
            path = request.session_file if session_id else _name_attempt(outcome, attempts)
            run = manager.resume(run.id, call.task, session_file=path)
            watch = follow(run)
            outcome = await _wait(manager, run)
    finally:
        watch.close()
    manager.read(run.id, by_call=call.call_id)
    finalises = definition.completion == "finalize"
    return render_run(FinishedCall(run, call.task, watch, attempts, session_id, finalises, note), settings)


async def _wait(manager: Manager, run: Run) -> Outcome:
    try:
        await manager.wait(run.id)
    except asyncio.CancelledError:
        manager.stop(run.id, Reason.USER)
        raise
    return run.outcome or Outcome(Status.FAILED, Reason.CRASH)


def _name_attempt(outcome: Outcome, attempt: int) -> str:
    """Return a path beside the session of the first attempt; empty if no session is saved."""
    folder = os.path.dirname(outcome.session_file)
    return os.path.join(folder, f"session-attempt-{attempt}.jsonl") if folder else ""
