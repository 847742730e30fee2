"""Sends one HTTP request to a checked address, follows redirects, and limits time and size.

aiohttp is imported by the first request. There are no cookies and no proxies: a proxy would resolve names again and
connect elsewhere. Must not know what a response is for.
"""

import asyncio
import zlib
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec import Struct

from retinue.core.errors import quote
from retinue.tools.outbound.guard import RequestGuard, Resolve, check_secrets, resolve_name
from retinue.tools.outbound.request import ExchangeWatch, RequestBounds, RequestFailed, RequestReach, Trace
from retinue.tools.outbound.target import HttpTarget, join_target, parse_target

if TYPE_CHECKING:
    from aiohttp import ClientResponse

MAX_REDIRECTS = 5
_REDIRECTS = frozenset((301, 302, 303, 307, 308))
Locate: TypeAlias = Callable[[str, int], tuple[str, int]]
"""Maps an address to the one to connect to; only tests change it."""
ACCEPTED = "gzip, deflate"
MAX_RATIO = 150
"""Text compresses to about a tenth of its size; a thousandth means deliberate zeros (a decompression bomb)."""
MAX_PARTS = 1000
_RATIO_FROM = 128 * 1024


class HttpRequest(Struct, frozen=True):
    url: str
    headers: Mapping[str, str] = {}
    query: Mapping[str, str] = {}
    body: bytes | None = None
    """Sent as JSON with POST."""


class HttpPage(Struct, frozen=True):
    url: str
    """After all redirects."""
    status: int
    content_type: str
    body: bytes
    is_cut: bool = False
    note: str = ""
    """Why it is incomplete, if not because of its size."""
    wait_s: int | None = None
    """The seconds of Retry-After, if the server sent it."""


class HttpClient:
    """Sends requests; keeps no connection and no state between them."""

    def __init__(
        self,
        reach: RequestReach,
        *,
        agent: str,
        environment: Mapping[str, str] | None = None,
        resolve: Resolve | None = None,
        locate: Locate | None = None,
        trace: Trace | None = None,
    ) -> None:
        """`environment` holds the keys that must not be sent; `trace` receives each request."""
        self._guard = RequestGuard(reach, resolve or resolve_name)
        self._agent = agent
        self._environment = environment or {}
        self._locate = locate or (lambda address, port: (address, port))
        self._trace = trace

    async def fetch(self, url: str, bounds: RequestBounds, *, accept: str = "*/*") -> HttpPage:
        """Fetch an untrusted URL. Raises RequestFailed."""
        target = parse_target(url)
        check_secrets(url, self._environment)
        watch = ExchangeWatch(self._trace, "GET", f"{target.host}:{target.port}")
        watch.path = target.path.partition("?")[0]
        with _watching(watch):
            try:
                async with asyncio.timeout(bounds.total_s):
                    page = await self._follow(target, bounds, accept, watch)
            except TimeoutError:
                raise RequestFailed(
                    "timeout", f"{quote(url, 200)} timed out after {bounds.total_s * 1000:.0f} ms"
                ) from None
        watch.tell(status=page.status, size=len(page.body), kind=page.content_type)
        return page

    async def ask(self, question: HttpRequest, bounds: RequestBounds) -> HttpPage:
        """Send a request to a host that the user configured, in any network; no redirects. Raises RequestFailed."""
        from urllib.parse import urlencode

        mark = "&" if "?" in question.url else "?"
        try:
            target = parse_target(question.url + (mark + urlencode(question.query) if question.query else ""))
        except RequestFailed as error:
            # The address may contain a password or a key, so it is not repeated.
            reason = str(error).rpartition(": ")[2]
            raise RequestFailed(error.kind, f"its address cannot be looked up: {reason}") from None
        headers = {**self._build_headers("application/json, text/html;q=0.5"), **question.headers}
        # The path may contain a key, so it is not traced.
        watch = ExchangeWatch(self._trace, "GET" if question.body is None else "POST", f"{target.host}:{target.port}")
        total_s = bounds.total_s
        with _watching(watch):
            try:
                async with asyncio.timeout(total_s), self._open(target, None, headers, question.body) as response:
                    page = await _read_page(target, response, bounds, target.host)
            except TimeoutError:
                raise RequestFailed("timeout", f"{target.host} timed out after {total_s * 1000:.0f} ms") from None
        watch.tell(status=page.status, size=len(page.body), kind=page.content_type)
        return page

    async def _follow(self, target: HttpTarget, bounds: RequestBounds, accept: str, watch: ExchangeWatch) -> HttpPage:
        headers = self._build_headers(accept)
        for _ in range(MAX_REDIRECTS + 1):
            addresses = await self._guard.admit(target)
            async with self._open(target, addresses, headers, None) as response:
                if response.status not in _REDIRECTS:
                    return await _read_page(target, response, bounds, quote(target.url, 200))
                location = response.headers.get("Location", "")
            if not location.strip():
                raise RequestFailed("network", f"{quote(target.url, 200)} redirects without saying where")
            target = _redirect(target, location)
            watch.redirects, watch.path = watch.redirects + 1, target.path.partition("?")[0]
            check_secrets(target.url, self._environment, is_given=True)
        raise RequestFailed("network", f"more than {MAX_REDIRECTS} redirects, the last to {quote(target.url, 200)}")

    def _build_headers(self, accept: str) -> dict[str, str]:
        return {"User-Agent": self._agent, "Accept": accept, "Accept-Encoding": ACCEPTED}

    @asynccontextmanager
    async def _open(
        self, target: HttpTarget, addresses: list[str] | None, headers: Mapping[str, str], body: bytes | None
    ) -> "AsyncIterator[ClientResponse]":
        # The first import takes 0.2 seconds; other runs continue meanwhile.
        await asyncio.to_thread(__import__, "aiohttp")
        from aiohttp import ClientError, ClientSession, ClientTimeout, DummyCookieJar, TCPConnector
        from yarl import URL

        url = URL(target.url, encoded=True)
        if (url.scheme, url.host, url.port) != (target.scheme, target.host, target.port):
            raise RequestFailed("url", f"{quote(target.url, 200)} can be read in two ways")
        resolver = None if addresses is None else _build_resolver(target, addresses, self._locate)
        connector = TCPConnector(resolver=resolver, use_dns_cache=False, force_close=True, limit=0)
        own = {"Content-Type": "application/json"} if body is not None else {}
        async with ClientSession(
            connector=connector,
            cookie_jar=DummyCookieJar(),
            timeout=ClientTimeout(total=None, sock_connect=None),
            trust_env=False,
            auto_decompress=False,
        ) as session:
            try:
                method = "GET" if body is None else "POST"
                response = await session.request(
                    method, url, headers={**headers, **own}, data=body, allow_redirects=False
                )
            except (ClientError, OSError, ValueError) as error:
                raise _explain(target, error) from error
            try:
                yield response
            finally:
                response.close()


@contextmanager
def _watching(watch: ExchangeWatch) -> Iterator[None]:
    """Trace a request that fails."""
    try:
        yield
    except RequestFailed as error:
        watch.tell(failure=error.kind)
        raise


def _redirect(target: HttpTarget, location: str) -> HttpTarget:
    try:
        return join_target(target, location)
    except (RequestFailed, ValueError) as error:
        # The requested address is valid; only the redirect is refused.
        raise RequestFailed(
            "refused", f"{quote(target.url, 200)} redirects to an address that is not allowed: {error}"
        ) from None


async def _read_page(target: HttpTarget, response: "ClientResponse", bounds: RequestBounds, shown: str) -> HttpPage:
    """Read the response; `shown` names the request in errors."""
    from aiohttp import ClientError

    kind = response.headers.get("Content-Type", "")
    announced = response.headers.get("Content-Length", "")
    too_large = f"{shown} is larger than {bounds.max_bytes} bytes"
    if bounds.is_strict and announced.isascii() and announced.isdigit() and int(announced[:18]) > bounds.max_bytes:
        raise RequestFailed("size", too_large)
    inflater = Inflater(response.headers.get("Content-Encoding", ""), bounds.max_bytes)
    pieces: list[bytes] = []
    note = ""
    try:
        while not inflater.is_full:
            async with asyncio.timeout(bounds.silence_s):
                data = await response.content.readany()
            if not data:
                break
            pieces.append(inflater.feed(data))
    except TimeoutError:
        raise RequestFailed("timeout", f"{shown} timed out: {inflater.size} bytes came, then nothing") from None
    except (ClientError, OSError) as error:
        if not inflater.size or bounds.is_strict:
            raise _explain(target, error) from error
        note = f"the connection broke after {inflater.size} bytes"
    if inflater.is_full and bounds.is_strict:
        raise RequestFailed("size", too_large)
    if not note and not inflater.is_whole:
        note = f"the compressed body ended too early, after {inflater.size} bytes"
        if bounds.is_strict:
            raise RequestFailed("network", f"{shown}: {note}")
    is_cut, wait_s = inflater.is_full or bool(note), _read_wait(response.headers.get("Retry-After", ""))
    return HttpPage(target.url, response.status, kind, b"".join(pieces), is_cut, note, wait_s)


def _read_wait(text: str) -> int | None:
    """Read the seconds of a Retry-After header; dates are ignored."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 6 else None


def _build_resolver(target: HttpTarget, addresses: list[str], locate: Locate) -> Any:
    """Build a resolver that returns the checked addresses, whatever name servers say by now."""
    import socket

    from aiohttp.abc import AbstractResolver, ResolveResult

    class Pinned(AbstractResolver):
        async def resolve(
            self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
        ) -> list[ResolveResult]:
            if host != target.host:
                raise OSError(f"{host} was not checked")
            found: list[ResolveResult] = []
            for address in addresses:
                place, port_ = locate(address, port)
                kind = socket.AF_INET6 if ":" in place else socket.AF_INET
                found.append(
                    ResolveResult(
                        hostname=host, host=place, port=port_, family=kind, proto=0, flags=socket.AI_NUMERICHOST
                    )
                )
            return found

        async def close(self) -> None: ...

    return Pinned()


def _explain(target: HttpTarget, error: Exception) -> RequestFailed:
    from aiohttp import ClientConnectorCertificateError, ClientConnectorSSLError, ClientResponseError

    host = f"{target.host}:{target.port}"
    if isinstance(error, ClientConnectorCertificateError | ClientConnectorSSLError):
        return RequestFailed("network", f"no secure connection to {host}: {_to_line(str(error))}")
    if isinstance(error, ClientResponseError):
        return RequestFailed("network", f"{host} does not answer as HTTP ({_to_line(error.message)})")
    reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return RequestFailed("network", f"cannot connect to {host} ({_to_line(reason)})")


def _to_line(text: str) -> str:
    return " ".join(text.split())[:200]


class Inflater:
    """Decompresses one response body with a limit."""

    def __init__(self, encoding: str, limit: int) -> None:
        """`limit` is in bytes. Raises RequestFailed for an encoding that was not requested."""
        names = [name.strip() for name in encoding.lower().split(",") if name.strip() not in ("", "identity")]
        if len(names) > 1 or (names and names[0] not in ("gzip", "x-gzip", "deflate")):
            raise RequestFailed("network", f"the answer is compressed as {quote(encoding)}, which was not requested")
        self._limit = limit
        self._unpack = zlib.decompressobj(zlib.MAX_WBITS | 32) if names else None
        self._may_be_raw = names == ["deflate"]
        self._is_gzip = bool(names) and not self._may_be_raw
        self._parts = 1
        self._taken = 0
        self.size = 0
        self.is_full = False

    @property
    def is_whole(self) -> bool:
        """Whether the compressed body is complete, as far as can be told."""
        return self._unpack is None or self._unpack.eof or not self._taken or self.is_full

    def feed(self, data: bytes) -> bytes:
        """Decompress a piece. Raises RequestFailed."""
        self._taken += len(data)
        room = self._limit - self.size
        if self._unpack is None:
            piece = data[:room]
            self.is_full = len(data) > room
        else:
            piece = self._inflate(data, room + 1)
            self.is_full, piece = len(piece) > room, piece[:room]
        self.size += len(piece)
        if self._unpack is not None and self.size > _RATIO_FROM:
            self._check_ratio(self._taken - len(self._unpack.unconsumed_tail) - len(self._unpack.unused_data))
        return piece

    def _check_ratio(self, used: int) -> None:
        if self.size > MAX_RATIO * used:
            raise RequestFailed("bomb", f"the body unpacks to more than {MAX_RATIO} times its size; it was not read")

    def _inflate(self, data: bytes, most: int) -> bytes:
        """Decompress up to `most` bytes; gzip may consist of several members in a row."""
        found = b""
        while len(found) < most:
            assert self._unpack is not None
            if self._unpack.eof:
                data = self._unpack.unused_data + data
                # Data after the last member is padding.
                if not self._is_gzip or not data.startswith(b"\x1f\x8b"):
                    break
                self._parts += 1
                if self._parts > MAX_PARTS:
                    raise RequestFailed(
                        "bomb", f"the body is compressed in more than {MAX_PARTS} parts; it was not read"
                    )
                self._unpack = zlib.decompressobj(zlib.MAX_WBITS | 16)
            found += self._inflate_part(data, most - len(found))
            data = b""
            if not self._unpack.eof:
                break
        return found

    def _inflate_part(self, data: bytes, most: int) -> bytes:
        assert self._unpack is not None
        try:
            piece = self._unpack.decompress(self._unpack.unconsumed_tail + data, most)
        except zlib.error as error:
            if not self._may_be_raw or self.size:
                raise RequestFailed("network", f"the body is not valid compressed data ({error})") from None
            # Some servers send a raw stream under the name "deflate".
            self._unpack, self._may_be_raw = zlib.decompressobj(-zlib.MAX_WBITS), False
            return self._inflate_part(data, most)
        self._may_be_raw = self._may_be_raw and not piece
        return piece
