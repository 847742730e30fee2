"""MCP server over HTTP: the library's session manager behind a check of host, origin and token.

Must not know tools. Imports the library.
"""

import asyncio
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from hmac import compare_digest
from ipaddress import ip_address
from typing import Any

import uvicorn
from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecurityMiddleware, TransportSecuritySettings
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send

PATH = "/mcp"
GRACE_S = 1


class _Listener(uvicorn.Server):
    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.ready.set()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to the command."""
        yield


class TokenGate:
    """Lets requests with the token through, if neither host nor origin is foreign."""

    def __init__(self, manager: StreamableHTTPSessionManager, token: str, host: str, port: int) -> None:
        self._manager = manager
        self._expected = f"Bearer {token}".encode()
        names = (host, "127.0.0.1", "localhost", "[::1]") if is_loopback(host) else (host,)
        self._places = [f"{name}:{port}" for name in names] if not is_unspecified(host) else []

    def _guard(self, request: Request) -> TransportSecurityMiddleware:
        """Return the library's check: a page of another site has its own origin, or its own name for this address."""
        # With an address that stands for all of this machine's, the name can be any; the token decides.
        places = self._places or [request.headers.get("host", "")]
        origins = [f"http://{place}" for place in places]
        return TransportSecurityMiddleware(TransportSecuritySettings(allowed_hosts=places, allowed_origins=origins))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        request = Request(scope)
        refusal: Any = await self._guard(request).validate_request(request)
        given = request.headers.get("authorization", "").encode("utf-8", "replace")
        if refusal is None and not compare_digest(given, self._expected):
            refusal = JSONResponse(
                _to_error("this server needs the header Authorization: Bearer TOKEN, with the token that it printed"),
                401,
                {"WWW-Authenticate": 'Bearer realm="retinue"'},
            )
        if refusal is None and scope["path"] != PATH:
            refusal = JSONResponse(_to_error(f"nothing is here; the address is {PATH}"), 404)
        await (self._manager.asgi_app if refusal is None else refusal)(scope, receive, send)


def _to_error(message: str) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": None, "error": {"code": -32600, "message": message}}


def is_loopback(host: str) -> bool:
    with suppress(ValueError):
        return ip_address(host.strip("[]")).is_loopback
    return host == "localhost"


def is_unspecified(host: str) -> bool:
    with suppress(ValueError):
        return ip_address(host.strip("[]")).is_unspecified
    return False


async def serve_http(
    server: Server[Any], place: socket.socket, host: str, token: str, tell: Callable[[], None]
) -> None:
    """Serve until cancelled. `tell` is called once requests are answered."""
    manager = StreamableHTTPSessionManager(server)
    listener = _Listener(
        uvicorn.Config(
            TokenGate(manager, token, host, place.getsockname()[1]),
            lifespan="off",
            log_config=None,
            access_log=False,
            ws="none",
            timeout_graceful_shutdown=GRACE_S,
        )
    )
    async with manager.run(), asyncio.TaskGroup() as group:
        serving = group.create_task(listener.serve([place]))
        try:
            await listener.ready.wait()
            tell()
            await asyncio.shield(serving)
        finally:
            # It ends by itself then, after it has closed its connections.
            listener.should_exit = True
