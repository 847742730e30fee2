"""`retinue mcp --http`: the delegation tools for several MCP hosts, which come and go."""

import asyncio
import os
import secrets
import socket

from msgspec.structs import replace

from retinue.app import Request, Retinue
from retinue.cli.headless import Headless, run_until_done
from retinue.cli.line_server import quiet_libraries
from retinue.cli.options import Options
from retinue.cli.serve import read_port
from retinue.cli.voice import write_stderr
from retinue.core.errors import UsageError, quote
from retinue.core.pattern import late_pattern

VARIABLE = "RETINUE_MCP_TOKEN"
_TOKEN = late_pattern(r"[A-Za-z0-9._~+/-]+=*")


def run_http(options: Options) -> int:
    """Serve until a signal arrives; returns the exit status."""
    port, host, token = read_port(options.port), options.host.strip("[]") or "127.0.0.1", os.environ.get(VARIABLE, "")
    if options.host and not token:
        raise UsageError(f"--host lets other machines connect, so it needs a token of your own: set {VARIABLE}")
    if token and not _TOKEN.fullmatch(token):
        raise UsageError(f"{VARIABLE} may contain letters, digits and . _ ~ + / - only, and = at its end")
    try:
        import mcp_types  # noqa: F401 - the extra may be missing, or an older version
    except ImportError as error:
        raise UsageError("retinue mcp --http needs an optional package: pip install 'retinue[mcp]'") from error
    with _listen(host, port) as place:
        host = f"[{host}]" if ":" in host else host
        return run_until_done(_HttpServer(options, place, host, token or secrets.token_urlsafe(32)))


def _listen(host: str, port: int) -> socket.socket:
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return socket.create_server(address[:2], family=family)
    except OSError as error:
        raise UsageError(
            f"cannot listen on {quote(host)}, port {port or 'of its choice'}: {error.strerror or error}; "
            "choose another with --port or --host"
        ) from error


class _HttpServer(Headless):
    def __init__(self, options: Options, place: socket.socket, host: str, token: str) -> None:
        super().__init__(options)
        self._place = place
        self._host = host
        self._token = token
        self._serving: asyncio.Task[None] | None = None

    def _to_request(self) -> Request:
        return replace(super()._to_request(), surfaces=("*",))

    def _open_frontend(self, crew: Retinue) -> None:
        crew.listen(self._show_warning, pieces=False)

    async def _work(self, crew: Retinue) -> int:
        from importlib.metadata import version

        from retinue.serve.mcp.calls import HostCalls
        from retinue.serve.mcp.http import serve_http
        from retinue.serve.mcp.lines import INSTRUCTIONS
        from retinue.serve.mcp.server import build_server

        quiet_libraries()
        async with asyncio.TaskGroup() as group:
            calls = HostCalls(crew, await crew.open_delegation(), group)
            server = build_server(calls, version("retinue"), INSTRUCTIONS)
            self._serving = group.create_task(serve_http(server, self._place, self._host, self._token, self._tell))
            if self.ended_by:
                self._serving.cancel()
            await asyncio.wait([self._serving])
            calls.close()
        return 0

    def _tell(self) -> None:
        address = f"http://{self._host}:{self._place.getsockname()[1]}/mcp"
        write_stderr(f"{address}\nAuthorization: Bearer {self._token}\n")

    def _end(self, status: int) -> None:
        """The first signal stops what runs and closes the sessions; a second one ends at once."""
        if self.ended_by:
            self._leave()
        self.ended_by = status
        waiting = self._serving if self._crew is not None else self._task
        if waiting is not None:
            waiting.cancel()
