"""`retinue serve`: the list of this user's session processes and their windows in a browser, protected by a token.

Other pages in the same browser must get no access, so the Host and Origin of every request are checked. Only the
websockets are secret, and the token opens them. The token is never a cookie: browsers send cookies to every port of a
host. The server keeps nothing: sessions are processes of their own, which continue if it is killed.
"""

import asyncio
import logging
import os
import secrets
import signal
import socket
import ssl
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from string import Template
from typing import Annotated, Literal

import msgspec
import textual_serve
from aiohttp import WSCloseCode, web
from msgspec import Meta, Struct

from retinue.core import window as wire
from retinue.core.errors import RetinueError, UsageError
from retinue.core.terminal import escape_line
from retinue.views.session_processes import SessionProcesses, build_resume, is_id, make_id

LOOPBACK = "127.0.0.1"
PAGES = {
    "/": "list.html",
    "/list.js": "list.js",
    "/page.js": "page.js",
    "/window.js": "window.js",
    "/page.css": "page.css",
}
MOST_SESSIONS = 100
"""Maximum number of sessions that run at the same time."""
REFRESH_S = 1.0
ALIVE_S = 20.0
"""Seconds between the questions whether a browser is still there."""
CLOSE_S = 8.0
"""Seconds that sessions may take to close when the server is stopped."""

_LOST = 129
"""The exit status when the terminal of the server is closed: the sessions continue."""
_PROTOCOL = "retinue"
"""The websocket subprotocol of our page. The token is sent as a second subprotocol because pages cannot set headers."""
ENDED, DETACHED, UNKNOWN, FAILED = 4000, 4001, 4004, 4005
"""Why a window is closed for good; the page tries again after any other code."""
_Respond = Callable[[web.Request], Awaitable[web.StreamResponse]]
_Id = Annotated[str, Meta(pattern="^[0-9a-f]{8}$")]


class _Start(Struct, array_like=True, tag="start"):
    task: wire.Words


class _Command(Struct, array_like=True, tag="command"):
    verb: Literal["stop", "export", "forget"]
    id: _Id


class _Say(Struct, array_like=True, tag="say"):
    id: _Id
    text: wire.Words


class _Answer(Struct, array_like=True, tag="answer"):
    id: _Id
    question_id: str
    answer: wire.Words


_read_window = msgspec.json.Decoder(wire.Keys | wire.Resize | wire.Focus).decode
_read_list = msgspec.json.Decoder(_Start | _Command | _Say | _Answer).decode
_NOT_OURS = (msgspec.MsgspecError, TypeError, RecursionError)


class Address(Struct, frozen=True):
    """Where to listen."""

    host: str = LOOPBACK
    port: int = 0
    certificate: str = ""
    key: str = ""

    def open_tls(self) -> ssl.SSLContext | None:
        """Raises UsageError if the files cannot be used; None without them."""
        if not self.certificate:
            return None
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        try:
            context.load_cert_chain(self.certificate, self.key or None)
        except (OSError, ValueError) as error:
            raise UsageError(f"--tls-cert {self.certificate}: {error}; give a certificate and --tls-key") from error
        return context


class BrowserServer:
    """Serves the pages and connects them with session processes."""

    def __init__(self, command: Sequence[str], processes: SessionProcesses, origin: str, token: str) -> None:
        """`command` starts a session process; `origin` is what browsers say when they talk to us."""
        self._command = list(command)
        self._processes = processes
        self._origin = origin
        self._host = origin.partition("://")[2]
        self._token = token
        self._folder = os.getcwd()
        self._started: set[str] = set()
        """The processes that this server has started."""
        self._locks: dict[str, asyncio.Lock] = {}

    @property
    def address(self) -> str:
        """The URL to open; the token is in the fragment, which browsers do not send and our page reads."""
        return f"{self._origin}/#{self._token}"

    def make_app(self) -> web.Application:
        app = web.Application(middlewares=[self._guard])
        app.on_response_prepare.append(self._add_headers)
        for path in PAGES:
            app.router.add_get(path, self._give_page)
        app.router.add_get("/s/{id}", self._give_window_page)
        app.router.add_get("/ws", self._attend_list)
        app.router.add_get("/ws/{id}", self._attend_window)
        app.router.add_static("/static", Path(textual_serve.__file__).with_name("static"))
        return app

    async def _give_page(self, request: web.Request) -> web.Response:
        return _render_page(PAGES[request.path])

    async def _give_window_page(self, request: web.Request) -> web.Response:
        if not is_id(name := request.match_info["id"]):
            raise web.HTTPNotFound
        given = request.query.get("fontsize", "")
        size = given if _is_number(given, 2) else "16"
        return _render_page("window.html", socket=f"{self._origin.replace('http', 'ws', 1)}/ws/{name}", size=size)

    @asynccontextmanager
    async def _accept(self, request: web.Request) -> AsyncIterator[web.WebSocketResponse]:
        """Open a websocket for our page. Requires the token and our Origin."""
        offered = request.headers.get("Sec-WebSocket-Protocol", "").replace(" ", "").encode(errors="replace")
        is_right = secrets.compare_digest(offered, f"{_PROTOCOL},{self._token}".encode())
        if not is_right or request.headers.get("Origin") != self._origin:
            raise web.HTTPForbidden(text="the token is missing or wrong: use the address that retinue serve printed\n")
        # aiohttp would log a warning about unknown subprotocols, which would include the token.
        headers = request.headers.copy()
        del headers["Sec-WebSocket-Protocol"]
        plain = request.clone(headers=headers)
        page = web.WebSocketResponse(heartbeat=ALIVE_S, max_msg_size=wire.MAX_LINE)
        if not page.can_prepare(plain):
            raise web.HTTPBadRequest(text="unexpected websocket request\n")
        await page.prepare(plain)
        try:
            yield page
        finally:
            await page.close()

    async def _attend_window(self, request: web.Request) -> web.StreamResponse:
        """Connect a page with its session process; one that has ended is resumed."""
        sizes = [request.query.get(name, "80") for name in ("width", "height")]
        name = request.match_info["id"]
        if not is_id(name) or not all(_is_number(size, 3) and int(size) for size in sizes):
            raise web.HTTPBadRequest(text="unexpected websocket request\n")
        async with self._accept(request) as page:
            try:
                reader, writer = await self._reach(name)
            except RetinueError as error:
                code = FAILED if self._processes.read(name) else UNKNOWN
                await page.close(code=code, message=_cut(str(error)))
                return page
            writer.write(wire.write_line(wire.Open("browser", int(sizes[0]), int(sizes[1]))))
            async with asyncio.TaskGroup() as group:
                showing = group.create_task(_show(reader, page))
                await _forward(page, writer)
                writer.close()
                showing.cancel()
        return page

    async def _reach(self, name: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect to a process; resume its session if it has ended. Raises RetinueError."""
        async with self._locks.setdefault(name, asyncio.Lock()):
            with suppress(OSError):
                return await self._processes.connect(name)
            record = self._processes.read(name)
            if record is None:
                raise UsageError("there is no such session; the list shows those that exist")
            await self._start(name, record)
            try:
                return await self._processes.connect(name)
            except OSError as error:
                raise RetinueError(self._processes.read_log(name) or "the session has ended at once") from error

    async def start(self, *flags: str) -> None:
        """Start a session with further flags. Raises RetinueError."""
        await self._start(make_id(), flags=flags)

    async def _start(self, name: str, record: wire.ProcessRecord | None = None, *, flags: Sequence[str] = ()) -> None:
        """Start a session, or resume that of an ended process. Raises RetinueError."""
        if sum(row.is_open for row in await self._processes.list_records()) >= MOST_SESSIONS:
            raise UsageError(f"{MOST_SESSIONS} sessions run already; stop some of them first")
        folder = self._folder if record is None else record.cwd
        await self._processes.start([*build_resume(self._command, record, self._folder), *flags], name, folder)
        self._started.add(name)

    async def _attend_list(self, request: web.Request) -> web.StreamResponse:
        """Send the list of sessions whenever it changes, and do what the page asks for."""
        async with self._accept(request) as page, asyncio.TaskGroup() as group:
            sending = group.create_task(self._send_list(page))
            async for message in page:
                try:
                    asked = _read_list(message.data)
                except _NOT_OURS:
                    await page.close(code=WSCloseCode.POLICY_VIOLATION)
                    break
                try:
                    await self._obey(page, asked)
                except (RetinueError, OSError) as error:
                    with suppress(ConnectionError):
                        await page.send_json(["error", str(error)])
            sending.cancel()
        return page

    async def _send_list(self, page: web.WebSocketResponse) -> None:
        sent = b""
        with suppress(ConnectionError):
            while not page.closed:
                rows = await self._processes.list_records()
                text = msgspec.json.encode(["sessions", self._folder, rows])
                if text != sent:
                    sent = text
                    await page.send_str(text.decode())
                await asyncio.sleep(REFRESH_S)

    async def _obey(self, page: web.WebSocketResponse, asked: _Start | _Command | _Say | _Answer) -> None:
        """Raises RetinueError or OSError."""
        match asked:
            case _Start(task):
                await self._start(name := make_id())
                if task.strip():
                    await self._processes.ask(name, wire.Say(task))
                await page.send_json(["started", name])
            case _Command("stop", name):
                await self._processes.ask(name, wire.Close())
            case _Command("forget", name):
                record = self._processes.read(name)
                if record is None or await self._processes.ask(name) is None:
                    self._processes.forget(name)
            case _Command("export", name):
                await self._export(page, name)
            case _Say(name, text):
                await self._reply(name, wire.Say(text))
            case _Answer(name, question_id, answer):
                await self._reply(name, wire.Reply(question_id, answer))

    async def _reply(self, name: str, message: wire.ToProcess) -> None:
        if await self._processes.ask(name, message) is None:
            raise UsageError("this session has ended; open it to resume it")

    async def _export(self, page: web.WebSocketResponse, name: str) -> None:
        """Send a session as one HTML file, made by a program of its own. Raises RetinueError."""
        record = await self._processes.ask(name) or self._processes.read(name)
        if record is None or not record.file:
            raise UsageError("this session is not saved, so it cannot be exported")
        command = [*_PROGRAM, "export", record.file, "-o", "-"]
        process = await asyncio.create_subprocess_exec(
            *command,
            cwd=record.cwd,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        assert process.stdout is not None and process.stderr is not None
        try:
            await page.send_json(["file", f"{Path(record.file).stem}.html"])
            _, errors = await asyncio.gather(_copy(process.stdout, page), process.stderr.read())
            status = await process.wait()
        finally:
            if process.returncode is None:
                process.kill()
        if status:
            lines = errors.decode(errors="replace").strip().splitlines()
            raise RetinueError(lines[-1].removeprefix("retinue: ") if lines else "the export has failed")
        await page.send_json(["saved"])

    async def close_sessions(self) -> int:
        """Close the sessions that this server has started; returns how many did not end in time."""
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_S):
                while self._started:
                    for name in list(self._started):
                        with suppress(RetinueError):
                            if await self._processes.ask(name, wire.Close()) is None:
                                self._started.discard(name)
                    await asyncio.sleep(0.05)
        return len(self._started)

    @web.middleware
    async def _guard(self, request: web.Request, handler: _Respond) -> web.StreamResponse:
        if request.headers.get("Host") != self._host or request.headers.get("Origin", self._origin) != self._origin:
            raise web.HTTPForbidden(text=f"open it as {self._origin}\n")
        try:
            return await handler(request)
        except ConnectionError:
            raise
        except (OSError, ValueError):  # a path that cannot exist
            raise web.HTTPBadRequest from None

    async def _add_headers(self, request: web.Request, response: web.StreamResponse) -> None:
        if isinstance(response, web.WebSocketResponse):
            response.headers["Sec-WebSocket-Protocol"] = _PROTOCOL
            return
        # The terminal in the page sets inline styles; no other inline content is allowed.
        policy = (
            "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
            f"img-src 'self' data:; font-src 'self'; connect-src 'self' {self._origin.replace('http', 'ws', 1)}; "
            "frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
        )
        response.headers.update(
            {
                "Content-Security-Policy": policy,
                "Cross-Origin-Opener-Policy": "same-origin",
                "Cross-Origin-Resource-Policy": "same-origin",
                "Referrer-Policy": "no-referrer",
                "X-Content-Type-Options": "nosniff",
                "Cache-Control": "no-store",
            }
        )


_PROGRAM = (sys.executable, "-P", "-m", "retinue")
_TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css"}


async def _copy(reader: asyncio.StreamReader, page: web.WebSocketResponse) -> None:
    while data := await reader.read(wire.MAX_LINE):
        await page.send_bytes(data)


async def _show(reader: asyncio.StreamReader, page: web.WebSocketResponse) -> None:
    """Send the output of a session to its page until one of them ends."""
    try:
        while line := await reader.readline():
            match wire.read_answer(line):
                case wire.Output(text):
                    await page.send_bytes(text.encode())
                case wire.Title(text):
                    await page.send_json(["title", text])
                case wire.Parted(is_ended, text):
                    await page.close(code=ENDED if is_ended else DETACHED, message=_cut(text))
                case wire.Refused(text):
                    await page.close(code=FAILED, message=_cut(text))
                case _:
                    pass
    except (OSError, ValueError, msgspec.MsgspecError, RecursionError):
        pass
    if not page.closed:
        await page.close(code=WSCloseCode.GOING_AWAY)


async def _forward(page: web.WebSocketResponse, writer: asyncio.StreamWriter) -> None:
    """Forward messages from our page to the session; close the connection on any other message."""
    async for message in page:
        try:
            line = wire.write_line(_read_window(message.data))
        except _NOT_OURS:
            await page.close(code=WSCloseCode.POLICY_VIOLATION)
            return
        with suppress(OSError):
            writer.write(line)
            await writer.drain()


def _render_page(name: str, **values: str) -> web.Response:
    path = Path(__file__).with_name("pages") / name
    text = path.read_text(encoding="utf-8")
    return web.Response(
        text=Template(text).substitute(values) if values else text, content_type=_TYPES[path.suffix], charset="utf-8"
    )


def _cut(text: str) -> bytes:
    """The reason of a close frame, which has at most 123 bytes."""
    return escape_line(text, 200).encode()[:120].decode(errors="ignore").encode()


class _LogFilter:
    """Logs an error as one line, and the same only once in a row: anyone on this machine can cause these."""

    def __init__(self) -> None:
        self._last = ""

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        if error is None:
            return True
        text = escape_line(" ".join(f"{type(error).__name__}: {error}".split()), 200)
        record.msg, record.args, record.exc_info = f"retinue: a request was refused: {text}", (), None
        is_new, self._last = text != self._last, text
        return is_new


def _is_number(text: str, digits: int) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= digits


async def serve_browser(
    command: Sequence[str],
    address: Address,
    tell: Callable[[str], None],
    warn: Callable[[str], None],
    *,
    continues: bool = False,
) -> int:
    """Serve until a signal arrives; `tell` receives the URL. Raises OSError if the address cannot be used.

    `continues`: begin with the newest session of this folder.
    """
    processes, tls = SessionProcesses(), address.open_tls()
    family, kind, _, _, place = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)[0]
    with socket.socket(family, kind) as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(place)
        for name in ("aiohttp.server", "asyncio"):
            logging.getLogger(name).addFilter(_LogFilter().filter)
        host = f"[{address.host}]" if ":" in address.host else address.host
        scheme, usual = ("https", 443) if tls else ("http", 80)
        port = listening.getsockname()[1]
        origin = f"{scheme}://{host}" if port == usual else f"{scheme}://{host}:{port}"
        server = BrowserServer(command, processes, origin, secrets.token_urlsafe(24))
        runner = web.AppRunner(server.make_app(), access_log=None, shutdown_timeout=2)
        await runner.setup()
        try:
            await web.SockSite(runner, listening, ssl_context=tls).start()
            ended = _catch_signals()
            if continues:
                await server.start("--continue")
            tell(server.address)
            status = await ended
            if status != _LOST and (left := await server.close_sessions()):
                warn(f"{left} session{'s' if left > 1 else ''} did not close in time; retinue attach --list shows them")
            return status
        finally:
            await runner.cleanup()


def _catch_signals() -> "asyncio.Future[int]":
    """A future with the exit status of the signal that arrives."""
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[int] = loop.create_future()

    def end(status: int) -> None:
        if not ended.done():
            ended.set_result(status)

    for number, status in ((signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, _LOST)):
        loop.add_signal_handler(number, end, status)
    return ended
