"""Why a request came to nothing: the one exception of this package, told apart by its kind."""

from typing import Literal, TypeAlias

from retinue.core.errors import RetinueError

Kind: TypeAlias = Literal["url", "scheme", "refused", "secret", "network", "timeout", "status", "size", "bomb"]


class RequestFailed(RetinueError):
    """Raised when a request was not made, or has no usable answer."""

    def __init__(self, kind: Kind, message: str, *, status: int = 0) -> None:
        super().__init__(message)
        self.kind: Kind = kind
        self.status = status
        """What the server answered, where it did."""
