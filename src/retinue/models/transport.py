"""The pooled HTTP client for all models: streamed POST responses, deadlines, and errors as Failures.

aiohttp is imported at the first request. This file must not know wire formats; the reader of the reply does.
"""

import asyncio
import os
import socket
from collections.abc import Mapping
from contextvars import ContextVar
from io import BytesIO
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from msgspec import Struct

from retinue.core.errors import quote
from retinue.core.model import Failure, FailureKind, ModelInfo
from retinue.models.failures import ProviderError, classify_response, fail
from retinue.models.reply_reader import ReplyReader
from retinue.models.sse import EventTooLong, SseParser

if TYPE_CHECKING:
    from aiohttp import AddrInfoType, ClientError, ClientResponse, ClientSession
    from yarl import URL

BODY_LIMIT_BYTES = 64 << 20
_ERROR_BODY_BYTES = 64 << 10
_ERROR_BODY_S = 5.0
_CONNECT_S = 30.0
"""Until the connection is established: even a slow server accepts at once."""
_DRAIN_S = 0.25
"""Time for a finished stream to end its body, so that the connection can be reused."""
_BYTES_BODY_LIMIT = 1 << 20
"""aiohttp warns about larger bodies given as bytes."""
_WHOLE = (b"{", b"[", b"<")
"""First bytes of a body that is not an event stream."""
_MADE: ContextVar[list[bool]] = ContextVar("made")
"""Gets an entry when a new connection is opened for the current request."""
_MORE_IDLE = "raise the setting httpIdleTimeoutMs to wait longer"
_MORE_TOTAL = "raise the setting retry.provider.timeoutMs to wait longer"


class Timing(Struct, frozen=True):
    """Time limits for a provider; 0 disables a limit."""

    idle_s: float = 300.0
    """Until the response headers, then between two events; comments and pings are not events."""
    total_s: float = 0.0
    """For one whole call."""


class HttpCall(Struct, frozen=True):
    info: ModelInfo
    url: str
    headers: Mapping[str, str]
    body: bytes
    timing: Timing


class Transport:
    """The HTTP client of a process; opened by its first request, and bound to the event loop of that request."""

    def __init__(self) -> None:
        self._session: ClientSession | None = None
        self._fresh: ClientSession | None = None
        """Opens a new connection for each request."""
        self._routes: dict[str, tuple[URL, str | None]] = {}

    @staticmethod
    def warm() -> None:
        """Import what the first request needs; may run in a thread."""
        from retinue.models.certificates import import_aiohttp

        import_aiohttp()

    async def close(self) -> None:
        """Close all connections; the transport opens again on its next use."""
        sessions, self._session, self._fresh = (self._session, self._fresh), None, None
        for session in sessions:
            if session is not None:
                await session.close()

    async def stream(self, call: HttpCall, reader: ReplyReader) -> None:
        """POST, and pass the events of the response to the reader until it is done. Raises ProviderError."""
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + call.timing.total_s if call.timing.total_s else None
        response = await self._send(call)
        reader.headers = response.headers
        watchdog = _Watchdog(loop, response, call.timing.idle_s, deadline_s)
        try:
            await _read_events(call, response, watchdog, reader)
        finally:
            watchdog.stop()
            response.close()

    async def _send(self, call: HttpCall) -> "ClientResponse":
        session = self._session = self._session or _open_session()
        limits = [limit for limit in ((call.timing.idle_s, _MORE_IDLE), (call.timing.total_s, _MORE_TOTAL)) if limit[0]]
        limit_s, advice = min(limits) if limits else (None, "")
        import aiohttp

        try:
            async with asyncio.timeout(limit_s):
                response = await self._post(session, call)
        except (aiohttp.ClientError, OSError, ValueError) as error:
            if isinstance(error, TimeoutError) and not isinstance(error, aiohttp.ClientError):
                text = f"no answer within {limit_s:g} s"
                raise ProviderError(fail(call.info, "timeout", text, advice=advice)) from None
            raise ProviderError(_explain_connection(call, error)) from error
        if response.status != 200:
            try:
                raise ProviderError(await _read_error(call, response))
            finally:
                response.close()
        return response

    async def _post(self, session: "ClientSession", call: HttpCall) -> "ClientResponse":
        """Send; once more on a new connection if a reused one turns out to be closed before the response begins."""
        import aiohttp

        made: list[bool] = []
        _MADE.set(made)
        try:
            return await self._post_by(session, call)
        except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
            if made or isinstance(error, aiohttp.ClientConnectorError):
                raise
        self._fresh = self._fresh or _open_session(force_close=True)
        return await self._post_by(self._fresh, call)

    async def _post_by(self, session: "ClientSession", call: HttpCall) -> "ClientResponse":
        url, proxy = self._routes.get(call.url) or await self._route(call)
        body = call.body if len(call.body) <= _BYTES_BODY_LIMIT else BytesIO(call.body)
        return await session.post(url, data=body, headers=call.headers, allow_redirects=False, proxy=proxy)

    async def _route(self, call: HttpCall) -> "tuple[URL, str | None]":
        from yarl import URL

        parts = urlsplit(call.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ProviderError(
                fail(
                    call.info,
                    "request",
                    f"the base URL {quote(call.info.base_url)} is not an http(s) address",
                    advice="",
                )
            )
        route = (URL(call.url), find_proxy(parts.scheme, parts.hostname))
        if parts.scheme == "https":
            from retinue.models.certificates import read_certificates

            await asyncio.to_thread(read_certificates)
        self._routes[call.url] = route
        return route


def _open_session(*, force_close: bool = False) -> "ClientSession":
    Transport.warm()  # before any other import of aiohttp
    from aiohttp import ClientSession, ClientTimeout, DummyCookieJar, TCPConnector

    return ClientSession(
        connector=TCPConnector(
            limit=0,
            limit_per_host=0,
            keepalive_timeout=None if force_close else 60,
            force_close=force_close,
            socket_factory=_make_socket,
        ),
        cookie_jar=DummyCookieJar(),
        # The other deadlines are ours: aiohttp would set a timer for every chunk.
        timeout=ClientTimeout(total=None, sock_connect=_CONNECT_S),
        trust_env=False,
    )


def _make_socket(info: "AddrInfoType") -> socket.socket:
    _MADE.get([]).append(True)
    return socket.socket(*info[:3])


def find_proxy(scheme: str, host: str) -> str | None:
    """The proxy that the environment sets for a host; None for loopback addresses."""
    if host == "localhost" or host.startswith("127.") or host == "::1":
        return None
    if not any(name.lower().endswith("_proxy") for name in os.environ):
        return None
    from urllib.request import getproxies, proxy_bypass

    proxies = getproxies()
    proxy = proxies.get(scheme) or proxies.get("all")
    # aiohttp supports only HTTP proxies; a SOCKS address in ALL_PROXY is for other programs.
    if not proxy or not proxy.startswith(("http://", "https://")) or proxy_bypass(host):
        return None
    return proxy


class _Watchdog:
    """Closes a response when no more events arrive, with one timer for the whole stream."""

    __slots__ = ("_deadline_s", "_handle", "_idle_s", "_loop", "_response", "seen_s", "timeout_kind")

    def __init__(
        self, loop: asyncio.AbstractEventLoop, response: "ClientResponse", idle_s: float, deadline_s: float | None
    ) -> None:
        self._loop = loop
        self._response = response
        self._idle_s = idle_s
        self._deadline_s = deadline_s
        self.seen_s = loop.time()
        self.timeout_kind: FailureKind | None = None
        self._handle: asyncio.TimerHandle | None = None
        self._arm()

    def stop(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def hurry(self, idle_s: float) -> None:
        """Change the limit, counted from now."""
        self.stop()
        self._idle_s = idle_s
        self.seen_s = self._loop.time()
        self._arm()

    def _arm(self) -> None:
        moments = [self.seen_s + self._idle_s] if self._idle_s else []
        if self._deadline_s is not None:
            moments.append(self._deadline_s)
        if moments:
            self._handle = self._loop.call_at(min(moments), self._check)

    def _check(self) -> None:
        now_s = self._loop.time()
        if self._deadline_s is not None and now_s >= self._deadline_s:
            self.timeout_kind = "timeout"
        elif self._idle_s and now_s >= self.seen_s + self._idle_s:
            self.timeout_kind = "stalled"
        if self.timeout_kind is None:
            self._arm()
        else:
            # Wakes the pending read with a ClientError.
            self._response.close()


async def _read_events(call: HttpCall, response: "ClientResponse", watchdog: _Watchdog, reader: ReplyReader) -> None:
    import aiohttp

    parser = SseParser(BODY_LIMIT_BYTES)
    read, feed, take = response.content.readany, parser.feed, reader.take
    try:
        while (chunk := await read()).isspace():
            pass
        if (on_begin := reader.draft.on_begin) is not None:
            on_begin()
        if chunk.lstrip().startswith(_WHOLE):
            # The server does not stream, or it is the wrong server.
            reader.take_whole(await _read_body(call, response, watchdog, chunk))
            return
        while chunk:
            is_alive = False
            for payload in feed(chunk):
                is_alive = take(payload) or is_alive
                if reader.is_done:
                    await _drain(response, watchdog)
                    return
            if is_alive:
                watchdog.seen_s = watchdog._loop.time()
            chunk = await read()
    except (aiohttp.ClientError, OSError) as error:
        if reader.is_complete:
            return
        raise ProviderError(_explain_break(call, error, watchdog.timeout_kind)) from error
    except EventTooLong as error:
        raise ProviderError(fail(call.info, "protocol", str(error))) from error
    for payload in parser.flush():
        _take_last(reader, payload)
    if not reader.is_complete and not reader.may_end:
        raise ProviderError(fail(call.info, "truncated", "the reply ended before its last event"))


def _take_last(reader: ReplyReader, payload: bytes) -> None:
    # What follows the last blank line may be cut off; a reply that is incomplete without it is truncated.
    try:
        reader.take(payload)
    except ProviderError as error:
        if error.failure.kind != "protocol":
            raise


async def _drain(response: "ClientResponse", watchdog: _Watchdog) -> None:
    if response.content.at_eof():
        return
    import aiohttp

    watchdog.hurry(_DRAIN_S)
    try:
        while await response.content.readany():
            if watchdog.timeout_kind:
                return
    except (aiohttp.ClientError, OSError):
        return


async def _read_body(call: HttpCall, response: "ClientResponse", watchdog: _Watchdog, chunk: bytes) -> bytes:
    chunks, size = list[bytes](), 0
    while chunk:
        chunks.append(chunk)
        size += len(chunk)
        watchdog.seen_s = watchdog._loop.time()
        if size > BODY_LIMIT_BYTES:
            raise ProviderError(fail(call.info, "protocol", f"the reply is longer than {BODY_LIMIT_BYTES} bytes"))
        chunk = await response.content.readany()
    return b"".join(chunks)


async def _read_error(call: HttpCall, response: "ClientResponse") -> Failure:
    from aiohttp import ClientError

    body = b""
    try:
        async with asyncio.timeout(_ERROR_BODY_S):
            while len(body) < _ERROR_BODY_BYTES and (chunk := await response.content.readany()):
                body += chunk
    except (ClientError, OSError, TimeoutError):
        pass  # the status alone is enough
    return classify_response(call.info, response.status, response.headers, body[:_ERROR_BODY_BYTES])


def _explain_connection(call: HttpCall, error: "ClientError | OSError | ValueError") -> Failure:
    from aiohttp import (
        ClientConnectorCertificateError,
        ClientConnectorDNSError,
        ClientConnectorSSLError,
        ClientProxyConnectionError,
        ClientResponseError,
        ServerDisconnectedError,
    )

    host = urlsplit(call.url).netloc.rpartition("@")[2]
    if isinstance(error, ClientProxyConnectionError):
        text, advice = f"cannot reach the proxy for {host}", "check the proxy variables in the environment"
    elif isinstance(error, ClientConnectorDNSError):
        text, advice = f"cannot find the host {host}", "check the base URL and the network"
    elif isinstance(error, ClientConnectorCertificateError | ClientConnectorSSLError):
        text, advice = f"no secure connection to {host} ({error})", "check the base URL and the certificates"
    elif isinstance(error, ServerDisconnectedError):
        text, advice = f"{host} closed the connection without an answer", ""
    elif isinstance(error, ClientResponseError):
        note = f"{host} does not answer as HTTP ({error.message})"
        return fail(call.info, "protocol", note[:300], retryable=True, advice="check the base URL")
    elif isinstance(error, ValueError):
        return fail(call.info, "request", f"cannot send to {host} ({error})", advice="check headers and base URL")
    else:
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        text, advice = f"cannot connect to {host} ({reason})", "check the base URL, the network, or start the server"
    return fail(call.info, "network", text[:400], advice=advice)


def _explain_break(call: HttpCall, error: Exception, timeout_kind: FailureKind | None) -> Failure:
    timing = call.timing
    if timeout_kind == "stalled":
        return fail(call.info, "stalled", f"the reply stalled for {timing.idle_s:g} s", advice=_MORE_IDLE)
    if timeout_kind == "timeout":
        return fail(call.info, "timeout", f"the reply was not finished within {timing.total_s:g} s", advice=_MORE_TOTAL)
    reason = getattr(error, "strerror", None) or type(error).__name__
    return fail(call.info, "network", f"the connection broke while the reply was arriving ({reason})", advice="")
