"""`retinue serve`: sessions in a browser."""

import asyncio
import sys
from contextlib import suppress
from ipaddress import ip_address

from retinue.cli.options import Options
from retinue.cli.voice import say
from retinue.core.errors import ConfigError, UsageError, quote


def run_serve(options: Options) -> int:
    """Serve until a signal arrives; returns the exit status."""
    port, host = read_port(options.port), options.host or "127.0.0.1"
    try:
        from retinue.serve.browser import Address, serve_browser
    except ImportError as error:
        raise ConfigError('retinue serve needs the extra "serve": pip install "retinue[serve]"') from error
    _check_host(options, host)
    address = Address(host, port, options.tls_cert, options.tls_key)
    try:
        return asyncio.run(serve_browser(build_command(options), address, _tell, say, continues=options.continue_))
    except OSError as error:
        place = f"--host {quote(host)}, --port {port}" if options.host else f"--port {port}"
        raise UsageError(f"{place}: {error.strerror or error}; choose another port, or omit --port") from error


def _check_host(options: Options, host: str) -> None:
    """Refuse an address that others can reach if what they send could be read on the way."""
    if bool(options.tls_cert) != bool(options.tls_key):
        raise UsageError("--tls-cert and --tls-key belong together; give both")
    with suppress(ValueError):
        place = ip_address(host)
        if place.is_unspecified:
            raise UsageError(f"--host {quote(host)}: give the one name or address that browsers will use")
        if place.is_loopback:
            return
    if host != "localhost" and not options.tls_cert:
        raise UsageError(
            f"--host {quote(host)} lets other machines connect, so it needs --tls-cert and --tls-key; "
            "or omit --host and use a tunnel: ssh -L PORT:127.0.0.1:PORT HOST"
        )


def read_port(text: str) -> int:
    if not text:
        return 0
    if not text.isascii() or not text.isdigit() or not 0 < int(text) < 65536:
        raise UsageError(f"--port must be a number from 1 to 65535, not {quote(text)}")
    return int(text)


def build_command(options: Options) -> list[str]:
    """The command line of a session process: this program with the same flags."""
    command = [sys.executable, "-P", "-m", "retinue"]
    for flag, value in (
        ("--model", options.model),
        ("--provider", options.provider),
        ("--thinking", options.thinking),
        ("--session-dir", options.session_dir),
    ):
        command += [flag, value] if value else []
    command += ["--approve"] if options.approve else []
    return [*command, "--no-approve"] if options.no_approve else command


def _tell(address: str) -> None:
    sys.stdout.write(f"{address}\n")
    sys.stdout.flush()
    say("open this address in a browser; ctrl+c stops the server and closes the sessions that it started")
