"""What requests may reach, and how much of an answer is taken: plain values."""

from msgspec import Struct


class Reach(Struct, frozen=True):
    """What the user lets requests go to."""

    private: bool = False
    """This machine and private networks, too."""
    hosts: tuple[str, ...] = ()
    """These and what is below them only; empty: all."""
    switch: str = "web.allowPrivateNetwork"
    """The setting that would open private networks."""


class Bounds(Struct, frozen=True):
    """How much one request may take."""

    total_s: float = 10.0
    max_bytes: int = 1_048_576
    silence_s: float = 5.0
    """Between two pieces of the body."""
    is_strict: bool = False
    """A body that is longer is refused, not cut."""
