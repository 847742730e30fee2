"""Messages to the user on standard error."""

import sys

from retinue.core.terminal import escape_text


def say(text: str) -> None:
    write_stderr(f"retinue: {escape_text(text)}\n")


def write_stderr(text: str) -> None:
    """Write text unchanged; ignores a closed descriptor."""
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except OSError:
        pass
