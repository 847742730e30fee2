"""The session processes of this user: finds, starts and asks them. Each has a socket, a record and a log in one folder.

The folder is accessible to the user only and hidden from agents. Must not know what windows show.
"""

import asyncio
import os
import secrets
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

import msgspec
from msgspec import structs

from retinue.core.errors import ConfigError, RetinueError, UsageError, quote
from retinue.core.pattern import late_pattern
from retinue.core.window import (
    MAX_LINE,
    ProcessRecord,
    Refused,
    Report,
    ToProcess,
    read_answer,
    read_record,
    write_line,
)
from retinue.sessions.files import make_private
from retinue.settings.decisions import replace_own
from retinue.settings.paths import find_paths

SERVED = "RETINUE_SERVED"
"""The environment variable with the id of a session process."""
FOLDER = "processes"
OPEN_S = 20.0
"""Seconds that a new process may take until it listens."""
ASK_S = 5.0
_KEPT = 200
"""The number of records of ended processes that are kept."""
_MAX_PATH = 100
"""Bytes of a socket's path; systems allow 104 or 108."""
_ID = late_pattern(r"[0-9a-f]{8}")

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def is_id(text: str) -> bool:
    return _ID.fullmatch(text) is not None


def make_id() -> str:
    return secrets.token_hex(4)


class SessionProcesses:
    """The folder of the processes. Raises ConfigError if it cannot be made, or others can use it."""

    def __init__(self) -> None:
        if not hasattr(socket, "AF_UNIX") or sys.platform == "win32":
            raise ConfigError("session processes need Unix sockets, which this system does not have")
        self.folder = find_paths(".", os.environ).own_dir / FOLDER
        try:
            make_private(self.folder)
            found = os.lstat(self.folder)
        except OSError as error:
            raise ConfigError(f"{self.folder}: {error.strerror}; free some space, or correct its rights") from error
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
            raise ConfigError(f"{self.folder}: must be a folder of yours with mode 0700; move it away, or correct that")

    def listen(self, process_id: str) -> socket.socket:
        """Make the socket of this process. Raises UsageError if another process uses the id, or OSError."""
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as other:
                other.connect(self._find_socket(process_id))
                raise UsageError(f"session process {process_id} already runs")
            (self.folder / f"{process_id}.sock").unlink(missing_ok=True)
            listening.bind(self._find_socket(process_id))
            os.chmod(self.folder / f"{process_id}.sock", 0o600)
            listening.listen(64)
        except BaseException:
            listening.close()
            raise
        return listening

    def _find_socket(self, process_id: str) -> str:
        path = self.folder / f"{process_id}.sock"
        if len(os.fsencode(path)) <= _MAX_PATH:
            return str(path)
        if not sys.platform.startswith("linux"):
            raise ConfigError(f"{path}: this path is too long for a socket; set PI_CODING_AGENT_DIR to a shorter one")
        return f"/proc/self/fd/{self._handle}/{path.name}"

    @property
    def _handle(self) -> int:
        """A descriptor of the folder, opened once: it makes a long path short."""
        if not hasattr(self, "_opened"):
            self._opened = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        return self._opened

    async def connect(self, process_id: str) -> Connection:
        """Raises OSError if the process does not run."""
        end = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            end.setblocking(False)
            async with asyncio.timeout(ASK_S):
                await asyncio.get_running_loop().sock_connect(end, self._find_socket(process_id))
                return await asyncio.open_unix_connection(sock=end, limit=MAX_LINE)
        except BaseException:
            end.close()
            raise

    async def ask(self, process_id: str, message: ToProcess | None = None) -> ProcessRecord | None:
        """Send a request and return the record of a process; None if it does not run. Raises UsageError if it refuses
        the request or does not answer.
        """
        try:
            reader, writer = await self.connect(process_id)
        except TimeoutError:
            raise UsageError(f"session {process_id} does not answer at the moment") from None
        except OSError:
            return None
        try:
            writer.write((write_line(message) if message else b"") + write_line(Report()))
            async with asyncio.timeout(ASK_S):
                while line := await reader.readline():
                    match read_answer(line):
                        case Refused(text):
                            raise UsageError(text)
                        case ProcessRecord() as record:
                            return record
        except TimeoutError:
            raise UsageError(f"session {process_id} does not answer at the moment") from None
        except (OSError, ValueError, msgspec.MsgspecError, RecursionError):
            pass
        finally:
            writer.close()
        return None

    async def list_records(self) -> list[ProcessRecord]:
        """Return the records of all processes, those that need the user first, then by age."""
        records = {record.id: record for record in self.read_all()}
        # On a full disk a process may be without its record.
        names = {*records, *(path.stem for path in self.folder.glob("*.sock") if is_id(path.stem))}
        async with asyncio.TaskGroup() as group:
            asked = [group.create_task(self._see(name, records.get(name))) for name in names]
        rows = [row for task in asked if (row := task.result()) is not None]
        order = {"waiting": 0, "starting": 1, "running": 1}
        return sorted(rows, key=lambda row: (order.get(row.state, 2), not row.is_open, -row.started_ms))

    async def _see(self, name: str, record: ProcessRecord | None) -> ProcessRecord | None:
        """The present record of a process, or what became of it."""
        if record is not None and not record.is_open:
            return record
        try:
            if (live := await self.ask(name)) is not None:
                return live
        except UsageError as error:
            return None if record is None else structs.replace(record, note=str(error))
        record = self.read(name) or record  # it may have ended in between
        if record is None or not record.is_open:
            return record
        note = self.read_log(record.id) or "ended unexpectedly; it can be resumed"
        return structs.replace(record, state="lost", is_open=False, agents=0, windows=0, questions=(), note=note)

    async def find(self, name: str) -> ProcessRecord:
        """Find a process by the start of its id or of its session's id. Raises UsageError."""
        rows = await self.list_records()
        found = [row for row in rows if name and (row.id.startswith(name) or row.session.startswith(name))]
        found = [row for row in found if row.is_open] or found
        if len(found) == 1:
            return found[0]
        problem = f"{len(found)} sessions begin with" if found else "no session in the background is named"
        raise UsageError(f"{problem} {quote(name)}; retinue attach --list shows them, retinue sessions all others")

    def read_all(self) -> list[ProcessRecord]:
        found = (self.read(path.stem) for path in self.folder.glob("*.json") if is_id(path.stem))
        return [record for record in found if record is not None]

    def read(self, process_id: str) -> ProcessRecord | None:
        try:
            record = read_record((self.folder / f"{process_id}.json").read_bytes())
        except (OSError, msgspec.MsgspecError, RecursionError):
            return None
        return record if record.id == process_id else None

    def write(self, record: ProcessRecord) -> None:
        """Store a record. Raises OSError."""
        replace_own(self.folder / f"{record.id}.json", msgspec.json.encode(record))

    def read_log(self, process_id: str) -> str:
        """The last line that a process wrote to standard error."""
        with suppress(OSError), (self.folder / f"{process_id}.log").open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - 4096))
            lines = file.read().decode(errors="replace").strip().splitlines()
            return lines[-1].removeprefix("retinue: ")[:500] if lines else ""
        return ""

    def forget(self, process_id: str) -> None:
        """Remove what an ended process has left; its session stays."""
        for ending in ("json", "sock", "log"):
            (self.folder / f"{process_id}.{ending}").unlink(missing_ok=True)

    def open_log(self, process_id: str) -> int:
        """Open the file for standard error; records of the oldest ended processes are removed. Raises ConfigError."""
        ended = sorted((row for row in self.read_all() if not row.is_open), key=lambda row: -row.changed_ms)
        for row in ended[_KEPT:]:
            self.forget(row.id)
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            return os.open(self.folder / f"{process_id}.log", flags, 0o600)
        except OSError as error:
            raise ConfigError(f"{self.folder}: {error.strerror}; free some space and try again") from error

    async def start(self, command: Sequence[str], process_id: str, cwd: str) -> None:
        """Start a process and wait until it listens. Raises RetinueError with the reason if it does not."""
        process = self._spawn(command, process_id, cwd)
        await self.wait_until_open(process_id, lambda: process.poll() is None)

    def _spawn(self, command: Sequence[str], process_id: str, cwd: str) -> "subprocess.Popen[bytes]":
        log = self.open_log(process_id)
        try:
            return subprocess.Popen(
                command,
                cwd=cwd,
                env={**os.environ, SERVED: process_id},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=log,
                start_new_session=True,
            )
        except OSError as error:
            raise ConfigError(f"cannot start a session in {quote(cwd)}: {error.strerror}") from error
        finally:
            os.close(log)

    async def wait_until_open(self, process_id: str, is_running: Callable[[], bool]) -> ProcessRecord:
        """Wait until a new process has opened its session, or asks something first. Raises RetinueError."""
        deadline_s = time.monotonic() + OPEN_S
        while is_running() and time.monotonic() < deadline_s:
            record = await self.ask(process_id)
            if record is not None and record.state != "starting":
                return record
            await asyncio.sleep(0.05)
        if record := await self.ask(process_id):
            return record  # it is slow, but it can be watched
        raise RetinueError(self.read_log(process_id) or "the session ended before it was open")


def build_resume(command: Sequence[str], record: ProcessRecord | None, folder: str) -> list[str]:
    """The command line that resumes the session of a record, or starts a new one without a record.

    A decision about the served folder's configuration is not one about other folders.
    """
    if record is None:
        return list(command)
    kept = [word for word in command if word != "--approve" or record.cwd == folder]
    return [*kept, "--session", record.file] if os.path.exists(record.file) else kept
