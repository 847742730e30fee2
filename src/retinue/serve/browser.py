"""`retinue serve`: the terminal UI in a browser, one process per window, on loopback, protected by a token.

Other pages in the same browser must get no access, so the Host and Origin of every request are checked. Only the
websocket is secret, and the token opens it. The token is never a cookie: browsers send cookies to every port of a host.
"""

import asyncio
import logging
import os
import secrets
import signal
import socket
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from shlex import join
from string import Template
from typing import Annotated

import msgspec
from aiohttp import WSCloseCode, web
from msgspec import Meta, Struct
from textual_serve.app_service import AppService
from textual_serve.server import Server

from retinue.core.terminal import escape_line

SERVED = "RETINUE_SERVED"
"""Set in the environment of a process whose terminal is a browser."""

_PAGE = Path(__file__).with_suffix(".html")
_PROTOCOL = "retinue"
"""The websocket subprotocol of our page. The token is sent as a second subprotocol because pages cannot set headers."""
_Cells = Annotated[int, Meta(gt=0, lt=1000)]
_Respond = Callable[[web.Request], Awaitable[web.StreamResponse]]


class _Size(Struct):
    width: _Cells
    height: _Cells


class _Keys(Struct, array_like=True, tag="stdin"):
    text: str


class _Resize(Struct, array_like=True, tag="resize"):
    size: _Size


class _Ping(Struct, array_like=True, tag="ping"):
    text: str


class _Blur(Struct, array_like=True, tag="blur"):
    pass


class _Focus(Struct, array_like=True, tag="focus"):
    pass


_decoder = msgspec.json.Decoder(_Keys | _Resize | _Ping | _Blur | _Focus)


class BrowserServer(Server):
    """textual-serve's server with token, Host and Origin checks."""

    def __init__(self, command: Sequence[str], port: int, token: str) -> None:
        super().__init__(f"exec {join(command)}", host="127.0.0.1", port=port, title="retinue")
        self._token = token
        self._host = f"127.0.0.1:{port}"

    @property
    def address(self) -> str:
        """The URL to open; the token is in the fragment, which browsers do not send and our page reads."""
        return f"http://{self._host}/#{self._token}"

    async def _make_app(self) -> web.Application:
        app = await super()._make_app()
        app.middlewares.append(self._guard)
        app.on_response_prepare.append(self._add_headers)
        app.router.add_get("/page.js", self._give_script)
        return app

    async def handle_index(self, request: web.Request) -> web.Response:
        """Serve our own page: textual's loads a font from another host and has inline scripts."""
        given = request.query.get("fontsize", "")
        size = given if _is_number(given, 2) else "16"
        page = Template(_PAGE.read_text(encoding="utf-8"))
        text = page.substitute(socket=f"ws://{self._host}/ws", size=size)
        return web.Response(text=text, content_type="text/html")

    async def _give_script(self, request: web.Request) -> web.Response:
        text = _PAGE.with_suffix(".js").read_text(encoding="utf-8")
        return web.Response(text=text, content_type="text/javascript")

    async def handle_websocket(self, request: web.Request) -> web.WebSocketResponse:
        """Start a program for our page. Requires the token and our Origin."""
        offered = request.headers.get("Sec-WebSocket-Protocol", "").replace(" ", "").encode(errors="replace")
        is_right = secrets.compare_digest(offered, f"{_PROTOCOL},{self._token}".encode())
        if not is_right or request.headers.get("Origin") != f"http://{self._host}":
            raise web.HTTPForbidden(text="the token is missing or wrong: use the address that retinue serve printed\n")
        # aiohttp would log a warning about unknown subprotocols, which would include the token.
        headers = request.headers.copy()
        del headers["Sec-WebSocket-Protocol"]
        plain = request.clone(headers=headers)
        sizes = (request.query.get(name, "80") for name in ("width", "height"))
        if not web.WebSocketResponse().can_prepare(plain) or not all(_is_number(size, 3) for size in sizes):
            raise web.HTTPBadRequest(text="unexpected websocket request\n")
        return await super().handle_websocket(plain)

    async def _process_messages(self, websocket: web.WebSocketResponse, app_service: AppService) -> None:
        """Forward messages from our page; close the connection on any other message."""
        async for message in websocket:
            try:
                sent = _decoder.decode(message.data)
            except (msgspec.MsgspecError, TypeError, RecursionError):
                await websocket.close(code=WSCloseCode.POLICY_VIOLATION)
                return
            match sent:
                case _Keys(text):
                    await app_service.send_bytes(text.encode())
                case _Resize(size):
                    await app_service.set_terminal_size(size.width, size.height)
                case _Ping(text):
                    await websocket.send_json(["pong", text])
                case _Blur():
                    await app_service.blur()
                case _Focus():
                    await app_service.focus()

    async def handle_download(self, request: web.Request) -> web.StreamResponse:
        """Always 404: the program offers no downloads, and the browser would request them without the token."""
        raise web.HTTPNotFound

    async def on_startup(self, app: web.Application) -> None:
        """Overridden so that nothing is printed."""

    @web.middleware
    async def _guard(self, request: web.Request, handler: _Respond) -> web.StreamResponse:
        ours = f"http://{self._host}"
        if request.headers.get("Host") != self._host or request.headers.get("Origin", ours) != ours:
            raise web.HTTPForbidden(text=f"open it as {ours}\n")
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
            f"img-src 'self' data:; font-src 'self'; connect-src 'self' ws://{self._host}; "
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


def _shorten(record: logging.LogRecord) -> bool:
    """Log a failed request as one line, because anyone on this machine can trigger these errors."""
    error = record.exc_info[1] if record.exc_info else None
    if error is not None:
        text = escape_line(" ".join(f"{type(error).__name__}: {error}".split()), 200)
        record.msg, record.args, record.exc_info = f"retinue: a request was refused: {text}", (), None
    return True


def _is_number(text: str, digits: int) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= digits


async def serve_browser(command: Sequence[str], port: int, tell: Callable[[str], None]) -> int:
    """Serve until a signal arrives; `tell` receives the URL. Raises OSError if the port is in use."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(("127.0.0.1", port))
        os.environ[SERVED] = "1"
        for name in ("aiohttp.server", "textual-serve"):
            logging.getLogger(name).addFilter(_shorten)
        server = BrowserServer(command, listening.getsockname()[1], secrets.token_urlsafe(24))
        runner = web.AppRunner(await server._make_app(), access_log=None, shutdown_timeout=2)
        await runner.setup()
        try:
            await web.SockSite(runner, listening).start()
            ended = _catch_signals()
            tell(server.address)
            return await ended
        finally:
            await runner.cleanup()


def _catch_signals() -> "asyncio.Future[int]":
    """A future with the exit status of the signal that arrives."""
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[int] = loop.create_future()

    def end(status: int) -> None:
        if not ended.done():
            ended.set_result(status)

    for number, status in ((signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)):
        loop.add_signal_handler(number, end, status)
    return ended
