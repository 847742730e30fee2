"""`retinue attach [SESSION]`: opens a session process in this terminal, as one of its windows."""

import asyncio
import codecs
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from retinue.cli.options import Options
from retinue.cli.serve import build_command
from retinue.cli.voice import print_json, say
from retinue.core import window as wire
from retinue.core.errors import RetinueError, UsageError
from retinue.core.terminal import escape_line, escape_text
from retinue.ui.terminal_restore import give_back, read_attributes
from retinue.views.session_processes import Connection, SessionProcesses, build_resume

STOP_S = 15.0
DETACH_KEY = b"\x1c"
"""ctrl+\\ closes the window even if the session does not answer."""


def run_attach(options: Options) -> int:
    """Show the session until the user leaves it; returns the exit status."""
    processes = SessionProcesses()
    if options.list or options.json:
        return _list(asyncio.run(processes.list_records()), is_json=options.json)
    if options.stop:
        return asyncio.run(_stop(processes, options.words[0] if options.words else ""))
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError("retinue attach needs a terminal; retinue attach --list works without one")
    return asyncio.run(_attach(processes, options))


def _list(rows: list[wire.ProcessRecord], *, is_json: bool) -> int:
    if is_json:
        import msgspec

        return print_json({"sessions": msgspec.to_builtins(rows)})
    if not rows:
        say('no session runs in the background; start one: retinue --detach "TASK"')
    for row in rows:
        state = row.state if row.is_open or row.state == "lost" else "closed"
        title = row.questions[0].title if row.questions else row.title or row.note or "(empty)"
        place = escape_line(row.cwd, 60)
        sys.stdout.write(f"{row.id}  {state:<8}  ${row.cost:<8.4f} {place}  {escape_line(title, 60)}\n")
    return 0


async def _stop(processes: SessionProcesses, name: str) -> int:
    record = await _choose(processes, name)
    deadline_s = time.monotonic() + STOP_S
    while await processes.ask(record.id, wire.Close()) is not None:
        if time.monotonic() > deadline_s:
            raise RetinueError(f"session {record.id} does not end; its process is {record.pid}")
        await asyncio.sleep(0.05)
    hint = f"; to resume it: retinue attach {record.id}" if record.file else ""
    say(f"session {record.id} is closed{hint}")
    return 0


async def _attach(processes: SessionProcesses, options: Options) -> int:
    record = await _choose(processes, options.words[0] if options.words else "")
    try:
        connection = await processes.connect(record.id)
    except OSError:
        say(f"resuming {record.id}")
        await processes.start(build_resume(build_command(options), record, os.getcwd()), record.id, record.cwd)
        try:
            connection = await processes.connect(record.id)
        except OSError as error:
            raise RetinueError(f"session {record.id} ended at once: {processes.read_log(record.id)}") from error
    with _open_terminal():
        parted = await _Terminal(connection).show()
    if parted is None:
        raise RetinueError(f"the connection to session {record.id} is lost; to return: retinue attach {record.id}")
    if parted.text and not parted.status:
        print(escape_text(parted.text), flush=True)
    elif parted.text:
        raise RetinueError(parted.text)
    if parted.hint:
        say(parted.hint)
    return 0


async def _choose(processes: SessionProcesses, name: str) -> wire.ProcessRecord:
    """The named session, or the only one, first of all of this folder. Raises UsageError."""
    if name:
        return await processes.find(name)
    rows = [row for row in await processes.list_records() if row.is_open]
    here = [row for row in rows if row.cwd == os.getcwd()]
    if len(found := here if len(here) == 1 else rows) == 1:
        return found[0]
    if not rows:
        raise UsageError('no session runs in the background; start one: retinue --detach "TASK"')
    _list(rows, is_json=False)
    raise UsageError(f"{len(rows)} sessions run in the background; name one: retinue attach {rows[0].id}")


@contextmanager
def _open_terminal() -> Iterator[None]:
    """Pass every key on, and restore the terminal at the end."""
    import tty

    before = read_attributes()
    tty.setraw(0)
    try:
        yield
    finally:
        give_back(before, lambda _, data: os.write(1, data))  # where the UI was shown


class _Terminal:
    """This terminal as a window."""

    def __init__(self, connection: Connection) -> None:
        self._reader, self._writer = connection
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._parted: wire.Parted | None = None

    async def show(self) -> wire.Parted | None:
        """Show output and send keys until the window is closed; None if the session was lost."""
        loop = asyncio.get_running_loop()
        width, height = self._measure()
        self._send(wire.Open("terminal", width, height))
        loop.add_reader(0, self._read_keys)
        loop.add_signal_handler(signal.SIGWINCH, lambda: self._send(wire.Resize(*self._measure())))
        for number in (signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self._leave, "")
        try:
            with suppress(OSError, ValueError):
                while self._parted is None and (line := await self._reader.readline()):
                    match wire.read_answer(line):
                        case wire.Output(text):
                            _write(text.encode(errors="replace"))
                        case wire.Parted() as parted:
                            self._parted = parted
                        case wire.Refused(text):
                            self._parted = wire.Parted(False, text, status=1)
                        case _:
                            pass
        finally:
            loop.remove_reader(0)
            self._writer.close()
        return self._parted

    @staticmethod
    def _measure() -> tuple[int, int]:
        width, height = os.get_terminal_size(0)
        return min(max(width, 1), wire.MOST_CELLS), min(max(height, 1), wire.MOST_CELLS)

    def _send(self, message: wire.ToProcess) -> None:
        self._writer.write(wire.write_line(message))

    def _read_keys(self) -> None:
        try:
            data = os.read(0, 65536)
        except OSError:
            data = b""
        if not data or data == DETACH_KEY:
            self._leave("The session continues; retinue attach opens it again")
        elif text := self._decode(data):
            self._send(wire.Keys(text))

    def _leave(self, hint: str) -> None:
        self._parted = wire.Parted(False, hint=hint)
        self._reader.feed_eof()


def _write(data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(1, view) :]
