"""`python -m retinue`, and what the program of that name calls."""

import signal
import sys


def run() -> int:
    """Run the command line; an interrupt while it is loaded ends it as any program, without a word."""
    is_ours = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if is_ours:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from retinue.cli.main import main

    if is_ours:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    return main()


if __name__ == "__main__":
    if not sys.flags.safe_path:
        # Python puts the working directory first: a repository's `json.py` must not become a part of this program.
        del sys.path[0]
    sys.exit(run())
