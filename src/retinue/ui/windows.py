"""Shows the UI in any number of windows, browser pages or terminals, that connect to the socket of this process.

Also reports the state of the session to its list, and closes a session that nobody looks at. Without a window nothing
is drawn anywhere; a new window makes the UI paint everything again.
"""

import asyncio
import os
import socket
import struct
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import structs
from textual import constants, events
from textual.driver import Driver
from textual.geometry import Size

from retinue.core import window as wire
from retinue.core.errors import RetinueError
from retinue.core.run import Question
from retinue.ui.blocks import UserBlock
from retinue.ui.driver import BACKGROUND_QUERY, TerminalParser, remove_unsafe
from retinue.ui.formats import clean_line
from retinue.ui.widgets.question import describe_size, render_matter

if TYPE_CHECKING:
    from retinue.ui.app import RetinueApp
    from retinue.views.session_processes import SessionProcesses

MOST_WAITING = 1024 * 1024
"""Bytes that may wait for a slow window; after that it misses output and is painted again."""
SLOW_S = 60.0
"""Seconds after which a window that reads nothing is closed."""
CHECK_S = 0.5
LINGER_S = 60.0
"""Seconds that a session without work and without a window stays open, so that a reload finds it unchanged."""
MOST_CONNECTIONS = 64
MOST_QUESTIONS, MOST_ASKED = 16, 10_000
"""Questions that the list shows at once, and the characters of one: a record must fit into a message."""
_TITLE = 120
_KITTY = "" if constants.DISABLE_KITTY_KEY else "\x1b[>25u"
_MODES = "\x1b[?1049h\x1b[?1000h\x1b[?1003h\x1b[?1015h\x1b[?1006h\x1b[?25l\x1b[?2026$p\x1b[?2004h"
_SETUP = {"browser": _MODES, "terminal": f"{_MODES}\x1b[?1004h{_KITTY}\x1b[?7l{BACKGROUND_QUERY}"}
_CLEAR = "\x1b[0m\x1b[2J"


class WindowDriver(Driver):
    """textual's driver for windows."""

    def __init__(self, app: Any, **named: Any) -> None:
        super().__init__(app, **named)
        self._windows: SessionWindows = app.windows

    @property
    def is_web(self) -> bool:
        """There is no terminal that belongs to this process."""
        return True

    def write(self, data: str) -> None:
        self._windows.write(data)

    def start_application_mode(self) -> None:
        self._windows.connect(self)

    def disable_input(self) -> None:
        self._windows.ignores_input = True

    def stop_application_mode(self) -> None:
        self._windows.ignores_input = True


@dataclass(slots=True, eq=False)
class _Window:
    writer: asyncio.StreamWriter
    kind: str
    size: Size
    parser: TerminalParser = field(default_factory=TerminalParser)
    behind_s: float = 0.0
    """Since when output is missing; 0 if none is."""

    def send(self, text: str) -> None:
        """Send output, unless the window is too slow for it."""
        if self.behind_s:
            return
        if self.writer.transport.get_write_buffer_size() > MOST_WAITING:
            self.behind_s = time.monotonic()
            return
        for start in range(0, len(text), wire.MAX_OUTPUT):
            self.writer.write(wire.write_line(wire.Output(text[start : start + wire.MAX_OUTPUT])))

    def tell(self, record: wire.ProcessRecord) -> None:
        """Send the title."""
        if not self.behind_s:
            self.writer.write(wire.write_line(wire.Title(record.title)))

    @property
    def is_drained(self) -> bool:
        return self.writer.transport.get_write_buffer_size() == 0


class SessionWindows:
    """The windows of this process, and its record."""

    def __init__(self, processes: "SessionProcesses", process_id: str) -> None:
        self.id = process_id
        self.ignores_input = False
        """Whether input is ignored because the UI ends."""
        self._processes = processes
        self._windows: list[_Window] = []
        self._active: _Window | None = None
        """The window that was used last."""
        self._connections = 0
        self._size = Size(80, 24)
        self._thread = threading.get_ident()
        self._alone_s = self._busy_until_s = time.monotonic()
        self._started_ms = self._changed_ms = round(time.time() * 1000)
        self._written: wire.ProcessRecord | None = None
        self._last: wire.ProcessRecord | None = None
        self._trouble = ""
        self._listening: socket.socket | None = None
        self._server: asyncio.Server | None = None
        self._app: RetinueApp
        self._driver: WindowDriver

    async def open(self, app: "RetinueApp") -> None:
        """Listen, and check the state from now on. Raises RetinueError or OSError."""
        self._app = app
        self._listening = self._processes.listen(self.id)
        self._server = await asyncio.start_unix_server(self._attend, sock=self._listening, limit=wire.MAX_LINE)
        self.check()
        app.set_interval(CHECK_S, self.check)

    def connect(self, driver: WindowDriver) -> None:
        """Begin with a usual size until there is a window."""
        self._driver = driver
        driver.send_message(events.Resize(self._size, self._size))

    def begin_end(self) -> None:
        """Keep what the record says while the session is still open."""
        self._last = self.describe()

    async def close(self, answer: str, hint: str, error: str, status: int) -> None:
        """Close all windows and leave the last record, unless another process has the id of this one."""
        if self._server is None:
            return
        record = structs.replace(
            self.describe(),
            state="lost" if error else "finished",
            is_open=False,
            agents=0,
            windows=0,
            questions=(),
            note=error or self._trouble,
        )
        self._write(record)
        self.ignores_input = True
        for window in self._windows:
            self._part(window, wire.Parted(True, error or answer, hint, status))
        self._server.close()
        (self._processes.folder / f"{self.id}.sock").unlink(missing_ok=True)
        with suppress(OSError):
            async with asyncio.timeout(1):
                for window in list(self._windows):
                    await window.writer.wait_closed()

    def detach(self) -> bool:
        """Close the window that was used last; False if the session should end instead, because it was the last one
        and nothing is left to do.
        """
        window = self._active
        if window not in self._windows or window is None:
            return True
        has_reason = len(self._windows) > 1 or self._is_working() or self._keep_s is not None
        if has_reason:
            self._part(window, wire.Parted(False, hint=f"The session continues; to return: retinue attach {self.id}"))
            self._remove(window)
        return has_reason

    @staticmethod
    def _part(window: _Window, message: wire.Parted) -> None:
        window.writer.write(wire.write_line(message))
        window.writer.close()

    def write(self, text: str) -> None:
        """Show output in every window."""
        if threading.get_ident() != self._thread:
            self._app.call_from_thread(self.write, text)
            return
        for window in self._windows:
            window.send(text)

    async def _attend(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection until it ends or sends what cannot be understood."""
        window: _Window | None = None
        self._connections += 1
        try:
            if not _is_own(writer):
                writer.write(wire.write_line(wire.Refused("this session belongs to another user or runs elsewhere")))
                return
            if self._connections > MOST_CONNECTIONS:
                writer.write(wire.write_line(wire.Refused("this session has too many windows; close some of them")))
                return
            while line := await reader.readline():
                message = wire.read_request(line)
                if isinstance(message, wire.Open) and window is None and not self.ignores_input:
                    window = _Window(writer, message.kind, Size(message.width, message.height))
                    self._add(window)
                elif window is not None:
                    self._take(window, message)
                else:
                    self._obey(writer, message)
        except (OSError, ValueError, msgspec.MsgspecError, RecursionError):
            pass  # closed, or no program of ours
        finally:
            self._connections -= 1
            if window is not None:
                self._remove(window)
            writer.close()

    def _take(self, window: _Window, message: wire.ToProcess) -> None:
        """Take the input of a window."""
        match message:
            case wire.Keys(text):
                self._active = window
                self._feed(window, text)
                # A lone escape character is a key when nothing follows it.
                asyncio.get_running_loop().call_later(2 * constants.ESCAPE_DELAY, self._feed, window, None)
            case wire.Resize(width, height):
                window.size = Size(width, height)
                self._fit()
            case wire.Focus(is_focused) if not self.ignores_input:
                self._driver.send_message(events.AppFocus() if is_focused else events.AppBlur())
            case wire.Focus():
                pass
            case _:
                raise ValueError("unexpected message of a window")

    def _feed(self, window: _Window, text: str | None) -> None:
        if self.ignores_input or window not in self._windows:
            return
        for event in window.parser.tick() if text is None else window.parser.feed(text):
            self._driver.process_message(event)

    def _obey(self, writer: asyncio.StreamWriter, message: wire.ToProcess) -> None:
        """Do what the list of sessions asks for."""
        app = self._app
        try:
            match message:
                case wire.Report():
                    self.check()
                    writer.write(wire.write_line(self.describe()))
                case wire.Say(text):
                    app.speech.take(text)
                case wire.Reply(question_id, answer):
                    if not app.link.crew.questions.answer(question_id, answer):
                        raise RetinueError("this question is no longer open")
                case wire.Close():
                    app.exit(0)
                case _:
                    raise ValueError("unexpected message")
        except RetinueError as error:
            writer.write(wire.write_line(wire.Refused(str(error))))

    def _add(self, window: _Window) -> None:
        self._windows.append(window)
        self._active = window
        window.send(_SETUP[window.kind])
        window.tell(self.describe())
        self._driver.send_message(events.AppFocus())
        self._fit(always=True)

    def _remove(self, window: _Window) -> None:
        if window in self._windows:
            self._windows.remove(window)
            if not self._windows:
                self._alone_s = time.monotonic()
                self._driver.send_message(events.AppBlur())
            self._fit()

    def _fit(self, *, always: bool = False) -> None:
        """Give the screen the size that fits into every window, and paint it again if that has changed."""
        if not self._windows or self.ignores_input:
            return
        size = Size(min(each.size.width for each in self._windows), min(each.size.height for each in self._windows))
        if size != self._size:
            self._size = size
            self._driver.send_message(events.Resize(size, size))
        elif not always:
            return
        self._app.call_later(self._repaint)

    def _repaint(self) -> None:
        """Paint everything, as soon as the screen has its size: what is painted before may lie outside of it."""
        if self._app.size != self._size or self._app.screen.outer_size != self._size:
            self._app.set_timer(0.02, self._repaint)
            return
        self.write(_CLEAR)
        self._app.refresh(layout=True)

    def check(self) -> None:
        """Store the record if it says something new, serve windows that were too slow, and end if nobody needs this."""
        now_s = time.monotonic()
        for window in [each for each in self._windows if each.behind_s]:
            if window.is_drained:
                window.behind_s = 0.0
                window.send(_SETUP[window.kind])
                self._fit(always=True)
            elif now_s - window.behind_s > SLOW_S:
                window.writer.transport.abort()
        record = self.describe()
        if self._written is None or _summarise(record) != _summarise(self._written):
            self._changed_ms = round(time.time() * 1000)
            self._write(structs.replace(record, changed_ms=self._changed_ms))
            for window in self._windows:
                window.tell(record)
        if self._is_working():
            self._busy_until_s = now_s
        if not self._windows and not self.ignores_input and self._is_overdue(now_s):
            self._app.exit(0)

    def _is_overdue(self, now_s: float) -> bool:
        if (keep_s := self._keep_s) is not None:
            return now_s - self._alone_s > keep_s
        return now_s - max(self._alone_s, self._busy_until_s) > LINGER_S

    @property
    def _keep_s(self) -> float | None:
        link = self._app.link
        return link.crew.crew_settings.detached_seconds if link.is_open else None

    def _is_working(self) -> bool:
        """Whether there is something to do or to answer."""
        app, link = self._app, self._app.link
        if not link.is_open or not app.is_ready:
            return app.return_code is None
        groups = ("prompt", "shell")
        return (
            link.state.is_busy
            or bool(link.state.questions)
            or link.working > 0
            or any(not worker.is_finished and worker.group in groups for worker in app.workers)
        )

    def _write(self, record: wire.ProcessRecord) -> None:
        self._written = record
        try:
            self._processes.write(record)
            self._trouble = ""
        except OSError as error:
            self._trouble = f"the record of this session could not be written: {error.strerror}"

    def describe(self) -> wire.ProcessRecord:
        """The present record."""
        app, link = self._app, self._app.link
        if self._last is not None:
            return self._last
        record = wire.ProcessRecord(
            id=self.id,
            pid=os.getpid(),
            state="starting",
            cwd=os.getcwd(),
            started_ms=self._started_ms,
            changed_ms=self._changed_ms,
            windows=len(self._windows),
            note=self._trouble,
        )
        if not link.is_open or not app.is_ready:
            if not app.is_asking_trust:
                return record
            note = "asks whether to use this folder's own configuration; open it to answer"
            return structs.replace(record, state="waiting", note=note)
        crew, questions = link.crew, tuple(map(_render, link.state.questions[:MOST_QUESTIONS]))
        state: wire.State = "waiting" if questions else "running" if self._is_working() else "finished"
        first = next((block.text for block in link.state.talk.blocks if isinstance(block, UserBlock)), "")
        note = record.note if crew.is_saved else "the session could not be saved completely; free some space"
        return structs.replace(
            record,
            state=state,
            title=remove_unsafe(clean_line(crew.history.name or first, _TITLE)),
            session=str(crew.header.get("id", "")),
            file=str(crew.session_file or ""),
            model=crew.model.ref,
            cost=link.usage.cost.total,
            agents=link.working,
            questions=questions,
            note=note,
        )


@lru_cache(maxsize=MOST_QUESTIONS)
def _render(question: Question) -> Question:
    """A question as the list can show it: nothing in it is invisible. One that is too long has to be opened."""
    text, options = render_matter(question.text[:MOST_ASKED]), question.options
    if max(len(text), len(question.text)) > MOST_ASKED:
        text, options = f"{describe_size(question.text)}: open the session to read and answer this", ()
    title, agent = clean_line(question.title), clean_line(question.agent)
    return structs.replace(question, title=title, agent=agent, text=remove_unsafe(text), options=options)


def _summarise(record: wire.ProcessRecord) -> tuple[object, ...]:
    """What is worth storing when it changes."""
    return record.state, record.session, record.title, record.questions, record.note, f"{record.cost:.2f}"


def _is_own(writer: asyncio.StreamWriter) -> bool:
    """Whether the other end is a program of this user, outside of every sandbox of an agent."""
    if not sys.platform.startswith("linux"):
        return True  # the folder lets in nobody else
    end = writer.get_extra_info("socket")
    pid, uid, _ = struct.unpack("3i", end.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))
    try:
        return bool(uid == os.geteuid() and os.readlink(f"/proc/{pid}/ns/mnt") == os.readlink("/proc/self/ns/mnt"))
    except OSError:
        return False
