"""The limits of HTTP requests, the error for failed ones, and the trace of requests: plain values."""

import time
from collections.abc import Callable
from typing import Any, Literal, TypeAlias

from msgspec import Struct

from retinue.core.errors import RetinueError
from retinue.core.redaction import Redactor

Kind: TypeAlias = Literal["url", "scheme", "refused", "secret", "network", "timeout", "status", "size", "bomb"]


class RequestReach(Struct, frozen=True):
    """Which hosts the user allows requests to."""

    private: bool = False
    """Also this machine and private networks."""
    hosts: tuple[str, ...] = ()
    """Only these hosts and their subdomains; empty means all."""
    switch: str = "web.allowPrivateNetwork"
    """The setting that would allow private networks."""


class RequestBounds(Struct, frozen=True):
    """Time and size limits of one request."""

    total_s: float = 10.0
    max_bytes: int = 1_048_576
    silence_s: float = 5.0
    """Seconds between two pieces of the body."""
    is_strict: bool = False
    """A body that is too long is an error instead of being cut."""


class RequestFailed(RetinueError):
    """Raised if a request was not sent, or has no usable response."""

    def __init__(self, kind: Kind, message: str, *, status: int = 0) -> None:
        super().__init__(message)
        self.kind: Kind = kind
        self.status = status
        """The HTTP status, if there was a response."""


_SHAPES = Redactor(patterns=True)


class HttpExchange(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """One request with all its redirects."""

    at_ms: int
    method: str
    host: str
    """With the port."""
    status: int = 0
    bytes: int = 0
    duration_ms: int = 0
    failure: str = ""
    """The kind of error, if there is no response."""
    redirects: int = 0
    path: str = ""
    """The final path, without the query."""
    kind: str = ""
    """The content type of the response."""

    def to_data(self, *, verbose: bool) -> dict[str, Any]:
        """Return the fields that are logged."""
        data: dict[str, Any] = {"atMs": self.at_ms, "method": self.method, "host": self.host}
        data |= {"failure": self.failure} if self.failure else {"status": self.status, "bytes": self.bytes}
        data["durationMs"] = self.duration_ms
        if verbose:
            more = {"redirects": self.redirects, "path": _SHAPES.redact(self.path)[:300], "kind": self.kind[:100]}
            data |= {name: value for name, value in more.items() if value}
        return data


Trace: TypeAlias = Callable[[HttpExchange], None]


class ExchangeWatch:
    """Measures one request and reports it when it ends."""

    def __init__(self, trace: Trace | None, method: str, host: str) -> None:
        self._trace = trace
        self._method = method
        self._host = host
        self._begun_s = time.monotonic()
        self.redirects = 0
        self.path = ""

    def tell(self, *, failure: str = "", status: int = 0, size: int = 0, kind: str = "") -> None:
        if self._trace is None:
            return
        self._trace(
            HttpExchange(
                at_ms=time.time_ns() // 1_000_000,
                method=self._method,
                host=self._host,
                status=status,
                bytes=size,
                duration_ms=round((time.monotonic() - self._begun_s) * 1000),
                failure=failure,
                redirects=self.redirects,
                path=self.path,
                kind=kind,
            )
        )
