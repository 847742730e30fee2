"""Values that name a secret instead of holding it: literal text, `$NAME` in text, or `!command`.

The result of a command is kept for the process. Nothing here puts a value into a message.
"""

import os
import re
import signal
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from retinue.core.errors import ConfigError

if TYPE_CHECKING:
    import subprocess

COMMAND_TIMEOUT_S = 10.0
_LARGEST_OUTPUT = 65_536
# `$$` and `$!` stand for the plain characters; a `$` before anything else is itself.
_REFERENCE = re.compile(r"\$(?:([$!])|\{([A-Za-z_][A-Za-z0-9_]*)\}|([A-Za-z_][A-Za-z0-9_]*))")


def is_command(value: str) -> bool:
    """Whether the value is the output of a command."""
    return value.startswith("!")


def find_missing(value: str, environment: Mapping[str, str]) -> list[str]:
    """The variables a value names that are not set."""
    return [name for name in list_names(value) if not environment.get(name)]


def list_names(value: str) -> list[str]:
    """The variables a value names."""
    if is_command(value):
        return []
    return list(dict.fromkeys(match[2] or match[3] for match in _REFERENCE.finditer(value) if not match[1]))


class Vault:
    """Resolves values, running each command once."""

    def __init__(self, environment: Mapping[str, str], *, timeout_s: float = COMMAND_TIMEOUT_S) -> None:
        self._environment = environment
        self._timeout_s = timeout_s
        self._outputs: dict[str, str | ConfigError] = {}

    def resolve(self, value: str, what: str, extra: Mapping[str, str] | None = None) -> str:
        """The text a value stands for; `extra` variables win over the environment. Raises ConfigError naming `what`."""
        if is_command(value):
            return self._run(value[1:], what)
        environment = {**self._environment, **extra} if extra else self._environment
        if missing := find_missing(value, environment):
            raise ConfigError(f"{what}: the environment variable {' and '.join(missing)} is not set")
        return _REFERENCE.sub(lambda match: match[1] or environment[match[2] or match[3]], value)

    def _run(self, command: str, what: str) -> str:
        if command not in self._outputs:
            try:
                self._outputs[command] = _run_command(command, self._environment, self._timeout_s)
            except ConfigError as error:
                self._outputs[command] = error
        output = self._outputs[command]
        if isinstance(output, ConfigError):
            raise ConfigError(f"{what}: {output}")
        return output


def _run_command(command: str, environment: Mapping[str, str], timeout_s: float) -> str:
    """The output of a shell command; blocks at most `timeout_s`. Its stderr is dropped: it may hold a secret."""
    import subprocess  # most runs have no command to run

    try:
        process = subprocess.Popen(
            ["/bin/sh", "-c", command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=dict(environment),
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        raise ConfigError(f"its command cannot be started: {error.__class__.__name__}") from None
    with process:
        try:
            output = _read_output(process, timeout_s)
        finally:
            _end_group(process)
    if output is None:
        raise ConfigError(f"its command gave no result within {timeout_s:g} s")
    if process.returncode:
        raise ConfigError(f"its command failed with status {process.returncode}")
    try:
        text = output.decode().strip()
    except UnicodeDecodeError:
        raise ConfigError("its command printed something that is not text") from None
    if not text:
        raise ConfigError("its command printed nothing")
    return text


def _read_output(process: "subprocess.Popen[bytes]", timeout_s: float) -> bytes | None:
    """All output up to the end; None when time or patience with its size runs out first."""
    import selectors
    import subprocess

    assert process.stdout is not None
    deadline = time.monotonic() + timeout_s
    output = b""
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while len(output) <= _LARGEST_OUTPUT:
            if not selector.select(max(0.0, deadline - time.monotonic())):
                return None
            piece = os.read(process.stdout.fileno(), _LARGEST_OUTPUT)
            if not piece:
                try:
                    process.wait(max(0.05, deadline - time.monotonic()))
                except subprocess.TimeoutExpired:
                    return None
                return output
            output += piece
    return None


def _end_group(process: "subprocess.Popen[bytes]") -> None:
    """End what the command left behind, so that nothing holds the pipe."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return
