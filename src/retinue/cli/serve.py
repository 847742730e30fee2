"""`retinue serve`: the terminal UI in a browser on this machine."""

import asyncio
import sys

from retinue.cli.options import Options
from retinue.cli.voice import say
from retinue.core.errors import ConfigError, UsageError, quote


def run_serve(options: Options) -> int:
    """Serve until a signal arrives; returns the exit status."""
    port = _read_port(options.port)
    try:
        from retinue.serve.browser import serve_browser
    except ImportError as error:
        raise ConfigError('retinue serve needs the extra "serve": pip install "retinue[serve]"') from error
    try:
        return asyncio.run(serve_browser(_build_command(options), port, _tell))
    except OSError as error:
        raise UsageError(f"--port {port}: {error.strerror or error}; choose another port, or omit --port") from error


def _read_port(text: str) -> int:
    if not text:
        return 0
    if not text.isascii() or not text.isdigit() or not 0 < int(text) < 65536:
        raise UsageError(f"--port must be a number from 1 to 65535, not {quote(text)}")
    return int(text)


def _build_command(options: Options) -> list[str]:
    """The command line for each browser window: this program with the same flags."""
    command = [sys.executable, "-P", "-m", "retinue"]
    for flag, value in (
        ("--model", options.model),
        ("--provider", options.provider),
        ("--thinking", options.thinking),
        ("--session-dir", options.session_dir),
    ):
        command += [flag, value] if value else []
    command += ["--approve"] if options.approve else []
    command += ["--no-approve"] if options.no_approve else []
    return [*command, "--continue"] if options.continue_ else command


def _tell(address: str) -> None:
    sys.stdout.write(f"{address}\n")
    sys.stdout.flush()
    say("open this address in a browser on this machine; press ctrl+c to stop")
