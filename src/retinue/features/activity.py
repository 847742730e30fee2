"""What tools did in a project: one line for each call on disk, for people who ask later.

Names, times and ends only: never what a tool was asked or what it answered, so no secret can be in it. It is a
convenience: what goes wrong with it stops nobody.
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

if TYPE_CHECKING:  # most who look at a log start no run
    from retinue.core.run import Run
    from retinue.engine.request import RunRequest
    from retinue.engine.runner import LiveRun

MAX_BYTES = 1_000_000
"""Beyond this the older half is dropped."""
FLUSH_S = 0.5
MAX_WAITING = 500
_LATEST_MS = 4_000_000_000_000
"""The year 2096; later times are nonsense that no clock can show."""
_CODE = re.compile(r"[A-Z][A-Z0-9_]{2,59}")
_NAME = re.compile(r"[A-Za-z0-9_.:/-]{1,120}")
End = Literal["success", "error", "rate_limited"]


class Activity(Struct, frozen=True, rename="camel", omit_defaults=True):
    """One call of a tool."""

    at_ms: int
    """When it ended."""
    tool: str
    status: End
    duration_ms: int | None = None
    """None when it did not run at all."""
    agent: str = ""
    """Who called it; empty for the main agent."""
    run: str = ""
    provider: str = ""
    """Whom a web tool asked."""
    code: str = ""
    """Of an error that has one."""
    asked_chars: int = 0
    """How much it was given."""
    answered_chars: int = 0
    """How much came back."""

    @property
    def started_ms(self) -> int:
        """When it began."""
        return self.at_ms - (self.duration_ms or 0)

    def to_json(self) -> dict[str, Any]:
        """What `retinue logs --json` prints."""
        plain: dict[str, Any] = msgspec.to_builtins(self)
        return {**plain, "startedMs": self.started_ms}


class ActivityLog:
    """The calls of one project, newest last."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lines = LineLog(path)

    def append(self, *entries: Activity) -> None:
        """Keep some more; a disk that does not want them is left in peace. MUST NOT raise."""
        self._lines.append(*map(encode_json, entries), most=MAX_BYTES)

    def read(self) -> list[Activity]:
        """All that is kept, oldest first; lines that are torn or make no sense are left out."""
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
        """Forget all. Raises OSError."""
        self.path.unlink(missing_ok=True)


_decoder = msgspec.json.Decoder(Activity)


def find_log(own_dir: Path, project: Path) -> ActivityLog:
    """The log of a project."""
    digest = hashlib.sha256(os.fsencode(project)).hexdigest()[:32]
    return ActivityLog(own_dir / "activity" / f"{digest}.jsonl")


class Recorder:
    """Keeps the calls of the runs it listens to. Writes now and then, many at once: no call waits for a disk."""

    def __init__(self, log: ActivityLog, clock: Clock) -> None:
        self._log = log
        self._clock = clock
        self._waiting: list[Activity] = []
        self._timer: asyncio.TimerHandle | None = None

    def listen(self, live: "LiveRun", agent: str = "") -> Callable[[], None]:
        """Begin with a run; returns what ends it."""
        return live.bus.listen(_Ear(self, agent), pieces=False, kinds=(ToolStarted, ToolFinished))

    def watch(self, live: "LiveRun", run: "Run", request: "RunRequest", parent: "LiveRun") -> Callable[[], None]:
        """Begin with a subagent's run; returns what ends it."""
        return self.listen(live, run.agent)

    def flush(self) -> None:
        """Write what waits."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        waiting, self._waiting = self._waiting, []
        if waiting:
            self._log.append(*waiting)

    def keep(self, event: ToolFinished, agent: str, asked_chars: int) -> None:
        """Put one call with those that wait."""
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


class _Ear:
    """Listens to one run."""

    def __init__(self, recorder: Recorder, agent: str) -> None:
        self._recorder = recorder
        self._agent = agent
        self._asked: dict[str, int] = {}

    def __call__(self, event: Event) -> None:
        kind = type(event)
        if kind is ToolStarted:
            self._asked[event.call_id] = _measure(event.arguments)  # type: ignore[union-attr]
        elif kind is ToolFinished:
            asked = self._asked.pop(event.result.tool_call_id, 0)  # type: ignore[union-attr]
            self._recorder.keep(event, self._agent, asked)  # type: ignore[arg-type]


def _measure(value: object) -> int:
    """The characters of all texts in a value."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, dict):
        return sum(map(_measure, value.values()))
    return sum(map(_measure, value)) if isinstance(value, list) else 0


def _keep(shape: re.Pattern[str], text: object) -> str:
    """A word that has the shape of a name; anything else could be anything."""
    return text if isinstance(text, str) and shape.fullmatch(text) else ""
