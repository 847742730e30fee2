"""Entry point: parses arguments, runs the command, and turns every error into one line and an exit status."""

import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module

from retinue.cli.options import COMMANDS, Options, parse_arguments
from retinue.core.errors import RetinueError


def main(arguments: Sequence[str] | None = None) -> int:
    if sys.stdin is None or sys.stdout is None or sys.stderr is None:
        _open_streams()
    if os.environ.get("RETINUE_DEBUG"):
        import faulthandler

        faulthandler.enable()
    try:
        options = parse_arguments(sys.argv[1:] if arguments is None else arguments)
        if options.api_key or options.database:
            from retinue.cli.options import cover

            cover((options.api_key, options.database))
        if options.help:
            from retinue.cli.usage import render_usage

            sys.stdout.write(render_usage(options.command))
            status = 0
        elif options.version:
            sys.stdout.write(f"retinue {_version()}\n")
            status = 0
        else:
            status = _dispatch(options)
        sys.stdout.flush()
    except RetinueError as error:
        return _fail(str(error), error.exit_status)
    except KeyboardInterrupt:
        return _fail("interrupted", 130)
    except BrokenPipeError:
        _silence()
        return 0
    except Exception as error:  # last resort: a bug in retinue, not a user error
        return _crash(error)
    return status


def _open_streams() -> None:
    """Open /dev/null for closed standard streams, so that no file of ours gets descriptor 1 and receives our output."""
    while (fd := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(fd, True)
    os.close(fd)
    sys.stdin = sys.stdin or os.fdopen(0, closefd=False)
    sys.stdout = sys.stdout or os.fdopen(1, "w", closefd=False)
    sys.stderr = sys.stderr or os.fdopen(2, "w", closefd=False)


def _dispatch(options: Options) -> int:
    if options.directory:
        _enter(options.directory)
    # Only the module of the command that is used is imported.
    module, function = (COMMANDS[options.command][0] if options.command else "headless.run_headless").split(".")
    command: Callable[[Options], int] = getattr(import_module(f"retinue.cli.{module}"), function)
    return command(options)


def _enter(directory: str) -> None:
    from retinue.core.errors import UsageError, quote

    try:
        os.chdir(os.path.expanduser(directory))
    except OSError as error:
        raise UsageError(f"-C {quote(directory)}: {error.strerror}; give an existing folder") from error


def _version() -> str:
    from importlib.metadata import version

    return version("retinue")


def _fail(text: str, status: int) -> int:
    from contextlib import suppress

    from retinue.core.redaction import Redactor, collect_secrets
    from retinue.core.terminal import escape_text

    text = Redactor(collect_secrets(os.environ)).redact(text)
    try:
        sys.stdout.flush()
    except (OSError, ValueError):
        _silence()
    with suppress(OSError):
        sys.stderr.write(f"retinue: {escape_text(text)}\n")
        sys.stderr.flush()
    return status


def _crash(error: Exception) -> int:
    import traceback

    if os.environ.get("RETINUE_DEBUG"):
        traceback.print_exc()
    where = traceback.extract_tb(error.__traceback__)[-1]
    place = f"{os.path.basename(where.filename)}:{where.lineno}"
    text = f"internal error: {type(error).__name__}: {error} ({place}). RETINUE_DEBUG=1 shows more; please report it."
    return _fail(text, 1)


def _silence() -> None:
    """The reader of our output is gone: keep the interpreter from reporting that at exit."""
    from contextlib import suppress

    with suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


if __name__ == "__main__":
    sys.exit(main())
