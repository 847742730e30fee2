"""What requests may reach, how much of an answer is taken, and why a request came to nothing: plain values."""

from typing import Literal, TypeAlias

from msgspec import Struct

from retinue.core.errors import RetinueError

Kind: TypeAlias = Literal["url", "scheme", "refused", "secret", "network", "timeout", "status", "size", "bomb"]


class RequestReach(Struct, frozen=True):
    """What the user lets requests go to."""

    private: bool = False
    """This machine and private networks, too."""
    hosts: tuple[str, ...] = ()
    """These and what is below them only; empty: all."""
    switch: str = "web.allowPrivateNetwork"
    """The setting that would open private networks."""


class RequestBounds(Struct, frozen=True):
    """How much one request may take."""

    total_s: float = 10.0
    max_bytes: int = 1_048_576
    silence_s: float = 5.0
    """Between two pieces of the body."""
    is_strict: bool = False
    """A body that is longer is refused, not cut."""


class RequestFailed(RetinueError):
    """Raised when a request was not made, or has no usable answer."""

    def __init__(self, kind: Kind, message: str, *, status: int = 0) -> None:
        super().__init__(message)
        self.kind: Kind = kind
        self.status = status
        """What the server answered, where it did."""
