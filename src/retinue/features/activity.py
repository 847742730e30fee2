"""What tools did in a project: one line for each call on disk, for people who ask later.

Names, times and ends only: never what a tool was asked or what it answered, so no secret can be in it. It is a
convenience: what goes wrong with it stops nobody.
"""

import asyncio
import fcntl
import hashlib
import os
import re
import stat
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from msgspec import Struct

from retinue.core.clock import Clock
from retinue.core.events import Event, ToolFinished, ToolStarted
from retinue.core.jsonline import encode_json
from retinue.sessions.files import make_private

if TYPE_CHECKING:  # most who look at a log start no run
    from retinue.core.run import Outcome, Run
    from retinue.engine.manager import Outfitter
    from retinue.engine.request import RunRequest
    from retinue.engine.runner import LiveRun

MAX_BYTES = 1_000_000
"""Beyond this the older half is dropped."""
FLUSH_S = 0.5
MAX_WAITING = 500
_TRIES, _PAUSE_S = 40, 0.005
_FLAGS = os.O_NONBLOCK | os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0)
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
        self._is_broken = False

    def append(self, *entries: Activity) -> None:
        """Keep some more; a disk that does not want them is left in peace. MUST NOT raise."""
        if self._is_broken:
            return
        try:
            with self._hold() as descriptor:
                size = os.fstat(descriptor).st_size
                # Behind a line that was torn a new one begins.
                is_torn = size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
                data = b"".join(encode_json(entry) + b"\n" for entry in entries)
                os.write(descriptor, b"\n" + data if is_torn else data)
                if size + len(data) > MAX_BYTES:
                    self._shrink(descriptor)
        except BlockingIOError:
            return  # somebody holds it for very long; the next ones may have more luck
        except OSError:
            self._is_broken = True

    def read(self) -> list[Activity]:
        """All that is kept, oldest first; lines that are torn or make no sense are left out."""
        try:
            data = self._read_end(2 * MAX_BYTES)
        except OSError:
            return []
        found = []
        for line in data.splitlines():
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

    def _read_end(self, most: int) -> bytes:
        descriptor = os.open(self.path, os.O_RDONLY | _FLAGS)
        with open(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                return b""
            file.seek(max(0, status.st_size - most))
            return file.read(most)

    @contextmanager
    def _hold(self) -> Iterator[int]:
        """The file, and nobody else's while we have it; raises OSError where it cannot be had soon."""
        for _ in range(_TRIES):
            descriptor = self._open()
            try:
                if self._is_ours(descriptor):
                    yield descriptor
                    return
            finally:
                os.close(descriptor)
            time.sleep(_PAUSE_S)
        raise BlockingIOError("the log is held by somebody else")

    def _is_ours(self, descriptor: int) -> bool:
        """Whether the lock is had, and the file is still the one of this name: others may have made it anew."""
        own = os.fstat(descriptor)
        if not stat.S_ISREG(own.st_mode):
            raise OSError("the log is no file")
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError:
            return True  # a file system without locks: what gets lost there is lost
        try:
            named = os.stat(self.path, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return (named.st_dev, named.st_ino) == (own.st_dev, own.st_ino)

    def _open(self) -> int:
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | _FLAGS
        try:
            return os.open(self.path, flags, 0o600)
        except FileNotFoundError:
            make_private(self.path.parent)
            return os.open(self.path, flags, 0o600)

    def _shrink(self, descriptor: int) -> None:
        """Drop the older half; whoever waits for the old file opens the new one."""
        size = os.fstat(descriptor).st_size
        kept = os.pread(descriptor, MAX_BYTES // 2, max(0, size - MAX_BYTES // 2)).partition(b"\n")[2]
        fresh = self.path.with_name(f"{self.path.name}.{os.getpid()}.tmp")
        fresh.write_bytes(kept)
        fresh.chmod(0o600)
        fresh.replace(self.path)


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
        return live.bus.listen(_Ear(self, agent), pieces=False)

    def wrap(self, outfitter: "Outfitter") -> "Outfitter":
        """An outfitter whose runs are listened to."""
        return _Recording(outfitter, self)

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
        code = _find_code(details)
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


class _Recording:
    def __init__(self, outfitter: "Outfitter", recorder: Recorder) -> None:
        self._outfitter = outfitter
        self._recorder = recorder

    async def outfit(
        self, run: "Run", request: "RunRequest", parent: "LiveRun", work: "Callable[[LiveRun], Awaitable[Outcome]]"
    ) -> "Outcome":
        """The same, listened to."""

        async def record(live: "LiveRun") -> "Outcome":
            stop = self._recorder.listen(live, run.agent)
            try:
                return await work(live)
            finally:
                stop()

        return await self._outfitter.outfit(run, request, parent, record)


def _find_code(details: dict[str, Any]) -> str:
    error = details.get("error")
    found = error.get("code") if isinstance(error, dict) else details.get("errorCode", details.get("code"))
    return _keep(_CODE, found)


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
