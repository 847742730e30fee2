"""Signs in to an MCP server through the user's browser, for `retinue login`.

Discovery, registration and PKCE are the MCP library's. No message contains a body of an answer. Imports the MCP
library, so it must be imported only when a server is used.
"""

import asyncio
import re
import secrets
from collections.abc import Awaitable, Callable, Mapping
from urllib.parse import parse_qs, urlsplit

import httpx2
from mcp.client.auth import OAuthFlowError
from mcp.shared.auth import AuthorizationCodeResult

from retinue.features.mcp.login import (
    CHALLENGED,
    Flow,
    Reach,
    Storage,
    find_scope,
    join_scopes,
    open_provider,
    show_host,
)
from retinue.features.mcp.server import LoginStore, McpFailed, McpServer, ServerTrouble
from retinue.features.mcp.session import open_session
from retinue.features.mcp.transport import open_http

MOST_PAGES = 2
"""How often one sign-in sends the user to a page: a server may ask for more rights once."""
_FAILURES = (
    ("OAuthRegistrationError", "", "the authorization server does not register retinue; configure oauth.clientId"),
    ("OAuthTokenError", "", "the authorization server gave no token"),
    ("OAuthFlowError", "iss", "the answer comes from another authorization server than the one that was asked"),
    ("OAuthFlowError", "Protected resource", "its metadata describes another server"),
    ("OAuthFlowError", "", "its sign-in does not follow the protocol"),
    ("ConnectError", "", "an address of the sign-in cannot be reached"),
)


class BrowserLogin(httpx2.Auth):
    """Signs in through the user's browser when the server asks for it."""

    def __init__(
        self,
        server: McpServer,
        store: LoginStore,
        learn: Callable[[str], None],
        show: Callable[[str], Awaitable[None]],
        redirect: "Redirect",
    ) -> None:
        """`show` opens the page where the user agrees."""
        self._reach = Reach(server)
        self._show = show
        self._redirect = redirect
        self._wanted = join_scopes(server.oauth.scope, (store.load_login(server.name, server.url) or {}).get("wanted"))
        self._pages = 0
        self.failure = ""
        """Why there is no sign-in."""
        self._storage = Storage(server, store, learn, {})
        self._provider = open_provider(server, self._storage, redirect.uri, self._send, redirect.wait)

    @property
    def is_done(self) -> bool:
        return bool(self._storage.entry)

    async def async_auth_flow(self, request: httpx2.Request) -> Flow:
        flow = self._provider.async_auth_flow(request)
        try:
            outgoing = await anext(flow)
            while True:
                if outgoing is not request:
                    await self._reach.admit(str(outgoing.url))
                response = yield outgoing
                if outgoing is request and response.status_code in CHALLENGED and self._wanted:
                    challenge = response.headers.get("WWW-Authenticate", "Bearer")
                    scope = join_scopes(self._wanted, find_scope(challenge))
                    # The library takes the first scope that it finds.
                    response.headers["WWW-Authenticate"] = f'Bearer scope="{scope}", {challenge}'
                outgoing = await flow.asend(response)
        except StopAsyncIteration:
            if response.status_code in CHALLENGED:
                self.failure = f"it refuses access (HTTP {response.status_code})"
        except (McpFailed, OAuthFlowError, httpx2.HTTPError, ValueError) as error:
            self.failure = str(error) if isinstance(error, McpFailed) else explain(error)
            raise
        finally:
            await flow.aclose()

    async def _send(self, url: str) -> None:
        metadata = self._provider.context.oauth_metadata
        if metadata is not None and "S256" not in (metadata.code_challenge_methods_supported or ()):
            raise McpFailed(f"{show_host(str(metadata.issuer))} does not support PKCE, so a sign-in could be stolen")
        self._pages += 1
        if self._pages > MOST_PAGES:
            raise McpFailed("it keeps asking for another sign-in")
        await self._reach.admit(url)
        self._redirect.expect(parse_qs(urlsplit(url).query)["state"][0])
        await self._show(url)


class Redirect:
    """A page on this machine to which the browser returns with the code. Use it as an async context manager."""

    def __init__(self, port: int = 0) -> None:
        self._port = port
        self._state = ""
        self._answer: asyncio.Future[Mapping[str, str]] = asyncio.get_running_loop().create_future()
        self.uri = ""

    async def __aenter__(self) -> "Redirect":
        try:
            self._server = await asyncio.start_server(self._serve, "127.0.0.1", self._port, limit=16_384)
        except OSError as error:
            raise McpFailed(f"callbackPort {self._port} cannot be used: {error.strerror}") from None
        self._port = self._server.sockets[0].getsockname()[1]
        self.uri = f"http://127.0.0.1:{self._port}/callback"
        return self

    async def __aexit__(self, *error: object) -> None:
        self._server.close()

    @property
    def is_waiting(self) -> bool:
        return bool(self._state) and not self._answer.done()

    def expect(self, state: str) -> None:
        """Wait for the answer to another request."""
        self._state = state
        self._answer = asyncio.get_running_loop().create_future()

    async def wait(self) -> AuthorizationCodeResult:
        """Raises McpFailed if the user did not agree."""
        found = await self._answer
        if "error" in found or not found.get("code"):
            raise McpFailed(f"the sign-in was refused: {_clean_code(found.get('error'))}")
        return AuthorizationCodeResult(code=found["code"], state=self._state, iss=found.get("iss"))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(10):
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            status, text = self._take(head)
            page = f"<!doctype html><title>retinue</title><p>{text}".encode()
            lines = (
                f"HTTP/1.1 {status}",
                "Content-Type: text/html",
                f"Content-Length: {len(page)}",
                "Connection: close",
            )
            writer.write("\r\n".join(lines).encode() + page)
            await writer.drain()
        except (TimeoutError, OSError, EOFError, asyncio.LimitOverrunError):
            pass
        finally:
            writer.close()

    def _take(self, head: str) -> tuple[str, str]:
        """Accept the one request that carries the state; whatever else arrives changes nothing."""
        first, *rest = head.split("\r\n")
        host = next((line.split(":", 1)[1].strip() for line in rest if line.lower().startswith("host:")), "")
        method, _, target = first.partition(" ")
        path, _, query = target.rpartition(" ")[0].partition("?")
        if method != "GET" or path != "/callback" or host != f"127.0.0.1:{self._port}":
            return "404 Not Found", "There is nothing here."
        fields = {name: values[0] for name, values in parse_qs(query).items()}
        if not self._state or not secrets.compare_digest(fields.get("state", "").encode(), self._state.encode()):
            return "400 Bad Request", "This is not the answer to the sign-in that is waiting."
        if not self._answer.done():
            self._answer.set_result(fields)
        return "200 OK", "You can close this page and go back to the terminal."


async def log_in(
    server: McpServer,
    store: LoginStore,
    learn: Callable[[str], None],
    show: Callable[[str], Awaitable[None]],
    headers: Mapping[str, str],
    limit_s: float,
) -> bool:
    """Connect to a server and list its tools, signing in if it asks for it; False if it does not. Raises McpFailed."""
    trouble = ServerTrouble()
    async with Redirect(server.oauth.callback_port) as redirect:
        auth = BrowserLogin(server, store, learn, show, redirect)
        wire = open_http(server.url, headers, trouble, lambda method: None, auth)
        try:
            async with asyncio.timeout(limit_s), open_session(wire, trouble, limit_s, "1") as session:
                await session.list_tools()
        except (McpFailed, TimeoutError) as error:
            # What fails after the sign-in is told by the first run.
            if not auth.is_done:
                reason = auth.failure or ("nobody signed in in time" if redirect.is_waiting else str(error))
                raise McpFailed(reason or "it does not answer") from None
    return auth.is_done


def explain(error: Exception) -> str:
    """Say why a sign-in failed, without what a server has written: that may repeat a secret."""
    text, kind = str(error), type(error).__name__
    found = next((why for name, word, why in _FAILURES if name == kind and word in text), f"the sign-in failed: {kind}")
    code, status = re.search(r'"error"\s*:\s*"([a-z_]{1,40})"', text), re.search(r"\b[345]\d\d\b", text)
    more = [code[1]] if code else []
    more += [f"HTTP {status[0]}"] if status and kind != "OAuthFlowError" else []
    return f"{found} ({', '.join(more)})" if more else found


def _clean_code(code: str | None) -> str:
    return code if code and re.fullmatch(r"[a-z_]{1,40}", code) else "no reason was given"
