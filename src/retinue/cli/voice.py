"""Output of commands: JSON on standard output, messages to the user on standard error."""

import json
import sys
from typing import Any

from retinue.core.terminal import escape_text


def say(text: str) -> None:
    write_stderr(f"retinue: {escape_text(text)}\n")


def print_json(value: Any) -> int:
    """Print a value as one line of JSON; returns the exit status of a success."""
    sys.stdout.write(json.dumps(value) + "\n")
    return 0


def ask_line(question: str) -> str:
    """Ask on a plain terminal; returns the line, empty only at the end of the input."""
    sys.stderr.write(question)
    sys.stderr.flush()
    return sys.stdin.readline()


def write_stderr(text: str) -> None:
    """Write text unchanged; ignores a closed descriptor."""
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except OSError:
        pass
