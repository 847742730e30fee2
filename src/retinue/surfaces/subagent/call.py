"""Executes one call of the `subagent` surface, from its checks to its result.

Callers rely on the order of the checks. Used by the tool and by `retinue run`.
"""

import asyncio
import os
import re
from collections.abc import Callable
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


def ignore_update(result: dict[str, Any]) -> None:
    """A Progress that ignores updates."""


async def make_call(call: SubagentCall, ports: SubagentPorts, progress: Progress = ignore_update) -> dict[str, Any]:
    """Execute a call and return its result, even if it fails. Cancelling it stops the run."""
    home = ports.settings.home
    try:
        if (refusal := check_call(call, ports)) is not None:
            return refusal
        definition, request, session_id = ports.prepare(call)
        if not ports.caller.may_start(definition.name):
            raise DisabledAgent(f"Agent {quote(definition.name)} is not open to this agent (allowed_subagents)")
        return await _Attempts(call, ports, definition, request, session_id).run(progress)
    except UnknownAgent as error:
        return render_error("UNKNOWN_AGENT", str(error), home=home)
    except DisabledAgent as error:
        return render_error("SUBAGENT_DISABLED", str(error), home=home)
    except UsageError as error:
        return render_error("INVALID_INPUT", str(error), home=home)
    except RetinueError as error:
        return render_error("SUBAGENT_FAILED", str(error), home=home)


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


class _Attempts:
    """The attempts of one call: one run, with a new session per attempt unless it continues a session."""

    def __init__(
        self, call: SubagentCall, ports: SubagentPorts, definition: Definition, request: RunRequest, session_id: str
    ) -> None:
        self._call = call
        self._ports = ports
        self._definition = definition
        self._request = request
        self._session_id = session_id

    async def run(self, progress: Progress) -> dict[str, Any]:
        settings, caller = self._ports.settings, self._ports.caller
        manager, attempts = caller.manager, 1
        note = self._find_note()
        if note:
            caller.warn(note)

        def follow(run: Run) -> AttemptWatch:
            return AttemptWatch(
                manager,
                run.id,
                lambda value: sanitise_all(value, settings.home),
                lambda watch: progress(render_update(watch)),
            )

        run = manager.spawn(self._request, caller.run_id)
        watch = follow(run)
        try:
            outcome = await _wait(manager, run)
            while is_passing(outcome) and attempts < settings.max_attempts:
                attempts += 1
                watch.close()
                # A session that callers can continue stays one file, whatever happened in it.
                path = self._request.session_file if self._session_id else _name_attempt(outcome, attempts)
                run = manager.resume(run.id, self._call.task, session_file=path)
                watch = follow(run)
                outcome = await _wait(manager, run)
        finally:
            watch.close()
        manager.read(run.id, by_call=self._call.call_id)
        finalises = self._definition.completion == "finalize"
        finish = FinishedCall(run, self._call.task, watch, attempts, self._session_id, finalises, note)
        return render_run(finish, settings)

    def _find_note(self) -> str:
        asked, used = self._call.agent.strip(), self._definition.name
        if fold_name(asked) == fold_name(used):
            return ""
        return f'Note: there is no agent "{asked}"; {used} was used instead (fallbackSubagent).'


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
