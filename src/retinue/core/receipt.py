"""What the host saw of a run's work: the commands, the changed files, the verification and the commit.

Nothing here is reported by the model.
"""

from typing import Literal, TypeAlias

from msgspec import Struct

Verification: TypeAlias = Literal["verified", "failed", "not verified"]
"""Whether the commands that verify the result of a run succeeded; `not verified` if none was run."""


class CommandResult(Struct, frozen=True, rename="camel"):
    """One shell command that was run."""

    command: str
    exit_code: int | None
    """None if it did not end by itself, such as at a time limit."""
    duration_ms: int | None = None
    output: str = ""
    """The end of what it printed, and how it ended."""

    @property
    def is_good(self) -> bool:
        return self.exit_code == 0
