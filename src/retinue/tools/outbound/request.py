"""The limits of HTTP requests and the error for failed ones: plain values."""

from typing import Literal, TypeAlias

from msgspec import Struct

from retinue.core.errors import RetinueError

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
