"""Activity log: one line on disk for each tool call in a project.

Contains names, times and results only, never arguments or output, so it cannot contain secrets. It is a convenience:
errors here MUST NOT stop a run.
"""

import asyncio
import hashlib
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from msgspec import Struct

from retinue.core.clock import Clock
from retinue.core.events import Event, ToolFinished, ToolStarted
from retinue.core.jsonline import encode_json
from retinue.core.tool import find_code
from retinue.sessions.linelog import LineLog

if TYPE_CHECKING:  # commands that only read the log need none of these imports
    from retinue.core.run import Run
    from retinue.engine.request import RunRequest
    from retinue.engine.runner import LiveRun

MAX_BYTES = 1_000_000
"""Above this size the older half is dropped."""
FLUSH_S = 0.5
MAX_WAITING = 500
_LATEST_MS = 4_000_000_000_000
"""The year 2096; later times are invalid."""
_CODE = re.compile(r"[A-Z][A-Z0-9_]{2,59}")
_NAME = re.compile(r"[A-Za-z0-9_.:/-]{1,120}")
End = Literal["success", "error", "rate_limited"]


class Activity(Struct, frozen=True, rename="camel", omit_defaults=True):
    at_ms: int
    """When it ended."""
    tool: str
    status: End
    duration_ms: int | None = None
    """None if the call did not run."""
    agent: str = ""
    """The calling agent; empty for the main agent."""
    run: str = ""
    provider: str = ""
    """The provider that a web tool used."""
    code: str = ""
    asked_chars: int = 0
    answered_chars: int = 0

    @property
    def started_ms(self) -> int:
        return self.at_ms - (self.duration_ms or 0)

    def to_json(self) -> dict[str, Any]:
        """Return what `retinue logs --json` prints."""
        plain: dict[str, Any] = msgspec.to_builtins(self)
        return {**plain, "startedMs": self.started_ms}


class ActivityLog:
    """The log file of one project, newest call last."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lines = LineLog(path)

    def append(self, *entries: Activity) -> None:
        """Append entries; disk errors are ignored. MUST NOT raise."""
        self._lines.append(*map(encode_json, entries), most=MAX_BYTES)

    def read(self) -> list[Activity]:
        """Return all entries, oldest first; invalid lines are skipped."""
        found = []
        for line in self._lines.read(2 * MAX_BYTES):
            try:
                entry = _decoder.decode(line)
            except msgspec.MsgspecError:
                continue
            if 0 <= entry.at_ms < _LATEST_MS:
                found.append(entry)
        return found

    def clear(self) -> None:
        """Delete the log. Raises OSError."""
        self.path.unlink(missing_ok=True)


_decoder = msgspec.json.Decoder(Activity)


def find_log(own_dir: Path, project: Path) -> ActivityLog:
    digest = hashlib.sha256(os.fsencode(project)).hexdigest()[:32]
    return ActivityLog(own_dir / "activity" / f"{digest}.jsonl")


class ActivityRecorder:
    """Records the tool calls of runs and writes them in batches, so that no call waits for the disk."""

    def __init__(self, log: ActivityLog, clock: Clock) -> None:
        self._log = log
        self._clock = clock
        self._waiting: list[Activity] = []
        self._timer: asyncio.TimerHandle | None = None

    def listen(self, live: "LiveRun", agent: str = "") -> Callable[[], None]:
        """Start recording a run; returns a function that stops it."""
        asked: dict[str, int] = {}

        def hear(event: Event) -> None:
            if isinstance(event, ToolStarted):
                asked[event.call_id] = _measure(event.arguments)
            elif isinstance(event, ToolFinished):
                self._keep(event, agent, asked.pop(event.result.tool_call_id, 0))

        return live.bus.listen(hear, pieces=False, kinds=(ToolStarted, ToolFinished))

    def watch(self, live: "LiveRun", run: "Run", request: "RunRequest", parent: "LiveRun") -> Callable[[], None]:
        """Start recording a subagent's run; returns a function that stops it."""
        return self.listen(live, run.agent)

    def flush(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        waiting, self._waiting = self._waiting, []
        if waiting:
            self._log.append(*waiting)

    def _keep(self, event: ToolFinished, agent: str, asked_chars: int) -> None:
        result = event.result
        details = result.details if isinstance(result.details, dict) else {}
        code = _keep(_CODE, find_code(details))
        status: End = "success"
        if result.is_error or code:
            status = "rate_limited" if "RATE_LIMIT" in code else "error"
        self._waiting.append(
            Activity(
                self._clock.now_ms(),
                _keep(_NAME, result.tool_name) or "?",
                status,
                event.duration_ms,
                _keep(_NAME, agent),
                event.run_id,
                _keep(_NAME, details.get("provider")),
                code,
                asked_chars,
                sum(len(getattr(block, "text", "") or getattr(block, "data", "")) for block in result.content),
            )
        )
        if len(self._waiting) >= MAX_WAITING:
            self.flush()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(FLUSH_S, self.flush)


def _measure(value: object) -> int:
    """Return the number of characters in all strings of a value."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, dict):
        return sum(map(_measure, value.values()))
    return sum(map(_measure, value)) if isinstance(value, list) else 0


def _keep(shape: re.Pattern[str], text: object) -> str:
    """Return the text if it looks like a name; anything else could contain secrets."""
    return text if isinstance(text, str) and shape.fullmatch(text) else ""
