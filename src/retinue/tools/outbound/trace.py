"""What is noted of a request, for people who look for a mistake: where it went and how it ended, not what was asked."""

import time
from collections.abc import Callable
from typing import Any, TypeAlias

from msgspec import Struct

from retinue.core.redaction import Redactor

_SHAPES = Redactor(patterns=True)


class HttpExchange(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """One request, with all its redirects."""

    at_ms: int
    method: str
    host: str
    """With its port."""
    status: int = 0
    bytes: int = 0
    duration_ms: int = 0
    failure: str = ""
    """Of which kind, where there is no answer."""
    redirects: int = 0
    path: str = ""
    """Where it ended, without its question."""
    kind: str = ""
    """What the server says the answer is."""

    def to_data(self, *, verbose: bool) -> dict[str, Any]:
        """What is written of it."""
        data: dict[str, Any] = {"atMs": self.at_ms, "method": self.method, "host": self.host}
        data |= {"failure": self.failure} if self.failure else {"status": self.status, "bytes": self.bytes}
        data["durationMs"] = self.duration_ms
        if verbose:
            more = {"redirects": self.redirects, "path": _SHAPES.redact(self.path)[:300], "kind": self.kind[:100]}
            data |= {name: value for name, value in more.items() if value}
        return data


Trace: TypeAlias = Callable[[HttpExchange], None]


class ExchangeWatch:
    """One request while it is made."""

    def __init__(self, trace: Trace | None, method: str, host: str) -> None:
        self._trace = trace
        self._method = method
        self._host = host
        self._begun_s = time.monotonic()
        self.redirects = 0
        self.path = ""

    def tell(self, *, failure: str = "", status: int = 0, size: int = 0, kind: str = "") -> None:
        """It is over."""
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
