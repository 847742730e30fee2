"""What people are told, on standard error."""

import sys

from retinue.core.terminal import escape_text


def say(text: str) -> None:
    """One message for the person, on standard error."""
    write_stderr(f"retinue: {escape_text(text)}\n")


def write_stderr(text: str) -> None:
    """Text as it is; a closed descriptor is nobody's fault."""
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except OSError:
        pass
