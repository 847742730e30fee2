"""Accepts or refuses new runs and further attempts of old ones, within the limits of a main agent.

Starts and records nothing: a refused run leaves no trace.
"""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from retinue.core.amounts import check_task
from retinue.core.clock import Clock
from retinue.core.errors import RetinueError, UsageError
from retinue.core.run import Grant, Run
from retinue.engine.limits import Bounds, Limits
from retinue.engine.request import RunRequest, split_limits
from retinue.engine.run_table import RunTable
from retinue.engine.session_path import find_file_below


class SpawnRefused(RetinueError):
    """Raised when a run cannot be accepted; nothing was recorded."""


def to_request(fields: Mapping[str, Any], default: Limits) -> RunRequest:
    """Build a request from its fields and limits, as named in the Python API. Raises SpawnRefused."""
    limits, rest = split_limits(fields)
    try:
        return RunRequest(limits=replace(default, **limits), **rest)
    except UsageError as error:
        raise SpawnRefused(f"Cannot spawn agent: {error}") from None


class Admission:
    def __init__(
        self, bounds: Bounds, runs: RunTable, clock: Clock, new_id: Callable[[], str], main: Path | None = None
    ) -> None:
        """`main` is the main agent's session file; sessions are stored in its folder by default."""
        self.bounds = bounds
        self._folder = None if main is None else main.with_suffix("")
        self._runs = runs
        self._clock = clock
        self._new_id = new_id
        self._spawned = 0

    def begin_prompt(self) -> None:
        """Reset the spawn count for a new main prompt."""
        self._spawned = 0

    def admit(
        self, request: RunRequest, parent_id: str, find_grant: Callable[[str], Grant | None]
    ) -> tuple[Run, RunRequest]:
        """Return a new run and the request to store; `find_grant` returns a run's rights. Raises SpawnRefused."""
        _check(request)
        parent = self._runs.find(parent_id)
        depth, extra_depth = (1, 0) if parent is None else (parent.depth + 1, parent.extra_depth)
        extra_depth += request.extra_depth
        if depth + extra_depth > self.bounds.max_depth:
            raise SpawnRefused(f"Cannot spawn agent: maximum recursive subagent depth is {self.bounds.max_depth}.")
        # Requests that skip the queue are started by a schedule, not by the prompt.
        if self._spawned >= self.bounds.max_spawns and not request.skips_queue:
            raise SpawnRefused(
                f"Cannot spawn agent: this prompt has started {self._spawned} runs, the maximum (maxSpawnsPerTree)."
            )
        self._spawned += not request.skips_queue
        run_id = self._new_id()
        if file := self.find_file(request, parent_id, run_id):
            request = msgspec.structs.replace(request, session_file=file)
        run = Run(
            id=run_id,
            parent_id=parent_id,
            depth=depth,
            agent=request.agent,
            description=request.description,
            surface=request.surface,
            queued_ms=self._clock.now_ms(),
            call_id=request.call_id,
            join=request.join,
            is_background=request.is_background,
            output_file=os.path.join(request.transcript_dir, f"agent-{run_id}.jsonl") if request.transcript_dir else "",
            invocation=request.invocation,
            grant=find_grant(parent_id),
            extra_depth=extra_depth,
        )
        return run, request

    def find_file(self, request: RunRequest, parent_id: str, run_id: str) -> str:
        """Return the session file of a new run; empty for the default or if the request already names one.

        Stored with the request, which is all that is left to find the session after a crash.
        """
        if request.session_file or not request.keeps_session:
            return ""
        if request.session_dir:
            return os.path.join(request.session_dir, f"{run_id}.jsonl")
        above = "" if self._runs.find(parent_id) is None else self._runs.find_request(parent_id).session_file
        is_usual = not above or (self._folder is not None and Path(above).is_relative_to(self._folder))
        return "" if is_usual else find_file_below(above, parent_id, run_id)

    def readmit(self, run_id: str, task: str, session_file: str) -> tuple[Run, RunRequest]:
        """Return a further attempt of a finished run with a new task. Raises SpawnRefused."""
        run = self._runs.find(run_id)
        if run is None:
            raise SpawnRefused(f'Agent not found: "{run_id}". It may have been cleaned up.')
        if not run.status.is_final:
            raise SpawnRefused(f'Agent "{run_id}" is still {run.status}; steer it, or wait until it is done.')
        if run.is_guest and self._runs.has_active_above(run):
            raise SpawnRefused(f'Agent "{run_id}" belongs to a run on another machine; wait until that is done.')
        before = self._runs.find_request(run_id)
        is_unbegun = run.outcome is not None and run.outcome.is_unbegun
        request = msgspec.structs.replace(
            before,
            task=f"{before.task}\n\n{task}" if is_unbegun else task,
            preface=before.preface if is_unbegun else "",
            session_file=session_file or before.session_file,
        )
        _check(request, task)
        # It never worked, so there is nothing to continue from.
        began_ms = 0 if session_file or is_unbegun else run.started_ms
        now_ms = self._clock.now_ms()
        again = msgspec.structs.replace(
            run, attempt=run.attempt + 1, queued_ms=now_ms, started_ms=began_ms, is_guest=False
        )
        return again, request


def _check(request: RunRequest, task: object = None) -> None:
    try:
        check_task(request.task if task is None else task)
    except UsageError as error:
        raise SpawnRefused(f"Cannot spawn agent: {error}") from None
