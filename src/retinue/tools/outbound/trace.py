"""Records HTTP requests for debugging: where each went and how it ended, not what was asked."""

import time
from collections.abc import Callable
from typing import Any, TypeAlias

from msgspec import Struct

from retinue.core.redaction import Redactor

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
