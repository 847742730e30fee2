"""Transcripts: `.pi/output/agent-<id>.jsonl`, one JSON object per line, written as messages finish.

The session is the record and transcripts are a convenience: an error here is warned about once and ignored.
"""

import asyncio
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec import Raw, Struct

from retinue.core.clock import Clock
from retinue.core.errors import quote
from retinue.core.events import Event, MessageFinished, TurnFinished
from retinue.core.jsonline import encode_json
from retinue.core.messages import (
    AssistantMessage,
    CustomMessage,
    Message,
    ToolResultMessage,
    UserMessage,
    join_text,
)
from retinue.core.run import Run, Status
from retinue.engine.request import RunRequest
from retinue.engine.runner import LiveRun
from retinue.sandbox.open_beneath import open_beneath
from retinue.sessions.entry import TimestampFormat, decode_message

PREPARED_S = 1.0
"""How long a folder counts as created and free of links."""
HOLD_S = 0.5
"""How long lines may wait for the end of the turn, to be written together: a run should not wait for the disk."""
MAX_LINE_BYTES = 64 * 1024 * 1024
_stamp = TimestampFormat()
_IGNORE = b"# Transcripts of agents, written by retinue.\n*\n"
_TYPES: dict[type, str] = {
    UserMessage: "user",
    CustomMessage: "user",
    AssistantMessage: "assistant",
    ToolResultMessage: "toolResult",
}


class TranscriptFile:
    """The transcript file of one run, as a listener on its bus."""

    def __init__(
        self,
        path: str,
        *,
        run_id: str,
        cwd: str,
        clock: Clock,
        warn: Callable[[str], None],
        prepare: Callable[[Path], None] | None = None,
    ) -> None:
        """`path` comes from `resolve_project`; `prepare` creates the folder, and is called once per run."""
        self._path = path
        self._prepare = prepare or prepare_folder
        self._run_id = run_id
        self._cwd = cwd
        self._clock = clock
        self._warn = warn
        self._opening: str | None = None
        self._asked: tuple[str, int] | None = None
        self._lines: list[bytes] = []
        self._timer: asyncio.TimerHandle | None = None
        self._is_ready = False
        self._is_broken = False

    def begin(self, task: str, preface: str = "") -> None:
        """Record the task without its preface."""
        self._opening = f"{preface}{task}"
        self._asked = task, self._clock.now_ms()
        self._write_soon()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._write()

    def __call__(self, event: Event) -> None:
        if not isinstance(event, MessageFinished):
            self._write()  # the turn has ended
            return
        message = event.message
        if (
            self._opening is not None
            and isinstance(message, UserMessage)
            and self._opening in join_text(message.content)
        ):
            self._opening = None
            return
        if (kind := _TYPES.get(type(message))) is not None:
            self._lines.append(self._render(kind, message, self._clock.now_ms()))
            self._write_soon()

    def _render(self, kind: str, message: object, at_ms: int) -> bytes:
        record = {
            "isSidechain": True,
            "agentId": self._run_id,
            "type": kind,
            "message": message,
            "timestamp": _stamp.render(at_ms),
            "cwd": self._cwd,
        }
        return encode_json(record) + b"\n"

    def _write_soon(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(HOLD_S, self._write_late)

    def _write_late(self) -> None:
        self._timer = None
        self._write()

    def _write(self) -> None:
        lines, self._lines = self._lines, []
        if self._asked is not None:
            (task, at_ms), self._asked = self._asked, None
            lines.insert(0, self._render("user", {"role": "user", "content": task}, at_ms))
        data = b"".join(lines)
        if self._is_broken or not data:
            return
        try:
            if not self._is_ready:
                self._prepare(Path(self._path).parent)
                self._is_ready = True
            append_lines(self._path, data)
        except OSError as error:
            self._is_broken = True
            self._warn(f"no transcript in {quote(self._path, 300)}: {error.strerror or error}")


class Transcripts:
    def __init__(self, *, clock: Clock, warn: Callable[[str], None]) -> None:
        self._clock = clock
        self._warn = warn
        self._has_warned = False
        self._prepared: dict[Path, float] = {}
        self._folders: dict[str, str] = {}
        """Folders of transcripts, with the real path of their project."""

    def watch(self, live: LiveRun, run: Run, request: RunRequest, parent: LiveRun) -> Callable[[], None]:
        """Write the transcript of a run that has an output file; returns a function that ends it."""
        if not run.output_file:
            return lambda: None
        transcript = TranscriptFile(
            self._resolve(run.output_file),
            run_id=run.id,
            cwd=str(parent.setup.cwd),
            clock=self._clock,
            warn=self._warn_once,
            prepare=self._prepare,
        )
        if not _goes_on(run):
            transcript.begin(request.task, request.preface)
        stop = live.bus.listen(transcript, pieces=False, kinds=(MessageFinished, TurnFinished))

        def end() -> None:
            stop()
            transcript.close()

        return end

    def _resolve(self, path: str) -> str:
        folder, _, name = path.rpartition("/")
        if folder not in self._folders:  # most runs have the same
            self._folders[folder] = os.path.dirname(resolve_project(path))
        return f"{self._folders[folder]}/{name}"

    def _prepare(self, folder: Path) -> None:
        """Prepare a folder once for all runs that start at the same moment."""
        now_s = self._clock.steady_s()
        if now_s - self._prepared.get(folder, -PREPARED_S) >= PREPARED_S or not folder.is_dir():
            prepare_folder(folder)
            self._prepared[folder] = now_s

    def _warn_once(self, text: str) -> None:
        if not self._has_warned:
            self._has_warned = True
            self._warn(text)


def _goes_on(run: Run) -> bool:
    """Return whether the run was resumed after a crash, so that its task is already written."""
    return run.status is Status.RUNNING and os.path.lexists(run.output_file)


def prepare_folder(folder: Path) -> None:
    """Create `.pi/output` with its own .gitignore. Neither folder may be a link. Raises OSError."""
    project = os.open(folder.parent.parent, os.O_RDONLY | os.O_DIRECTORY)
    opened = [project]
    try:
        for name in (folder.parent.name, folder.name):
            with suppress(FileExistsError):
                os.mkdir(name, 0o700, dir_fd=opened[-1])
            opened.append(os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=opened[-1]))
        with suppress(FileExistsError):
            ignore = os.open(".gitignore", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=opened[-1])
            opened.append(ignore)
            os.write(ignore, _IGNORE)
    finally:
        for fd in reversed(opened):
            os.close(fd)


def append_lines(path: str, data: bytes) -> None:
    """Append to a file that only its owner can read. It is not kept open: there may be thousands. Raises OSError.

    The path comes from `resolve_project`.
    """
    fd = _open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        while data:
            data = data[os.write(fd, data) :]
    finally:
        os.close(fd)


def resolve_project(path: str | Path) -> str:
    """The path of a transcript with the real path of its project; the folders and the file below it may be links."""
    project, *rest = str(path).rsplit("/", 3)
    return "/".join((os.path.realpath(project), *rest))


def _open(path: str, flags: int) -> int:
    """Open a transcript safely, even if its folder was replaced by a link. Raises OSError."""
    project, *steps, name = path.rsplit("/", 3)
    folder = open_beneath(project, "/".join(steps))
    try:
        return os.open(name, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=folder)
    finally:
        os.close(folder)


class _Line(Struct):
    message: Raw = Raw(b"null")


_decoder = msgspec.json.Decoder(_Line)


def read_messages(path: Path) -> Iterator[Message]:
    """Yield the messages of a transcript; unreadable lines are skipped."""
    try:
        fd = _open(resolve_project(path), os.O_RDONLY)
    except OSError:
        return
    with os.fdopen(fd, "rb") as file:
        while line := file.readline(MAX_LINE_BYTES):
            try:
                message = decode_message(bytes(_decoder.decode(line).message))
            except (msgspec.MsgspecError, ValueError):
                continue
            if message is not None:
                yield message
