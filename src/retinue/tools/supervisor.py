"""Runs a command and kills all its descendants when it ends. A standalone program, not to be imported.

usage: python -I -S supervisor.py LIFELINE_FD PROGRAM [ARGUMENT...]

It adopts all orphans, and also kills everything when the lifeline pipe closes, which happens even if its owner is
killed. Exits with the command's status (128 plus the signal number if a signal ended it). Prints nothing itself.
"""

import ctypes
import os
import select
import signal
import sys
import time
from contextlib import suppress

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


def main() -> int:
    lifeline = int(sys.argv[1])
    # Ignore terminal signals, which are meant for the owner, and SIGTERM, which would leave orphans behind.
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
    prctl(_PR_SET_CHILD_SUBREAPER, 1)
    command = os.fork()
    if command == 0:
        become(sys.argv[2:], lifeline)
    # Only the command may hold the output pipes, so that readers see end of file when it ends.
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 1)
    os.dup2(null, 2)
    status = wait_for(command, lifeline)
    end_descendants(command)
    if status is None:
        return 137
    return 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


def become(argv: list[str], lifeline: int) -> None:
    """Become the command, in the forked process."""
    try:
        os.close(lifeline)
        os.environ.pop("RETINUE_LIFELINE", None)
        os.setsid()
        for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM, signal.SIGQUIT, signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        os.execv(argv[0], argv)
    except OSError as error:
        os.write(2, f"{argv[0]}: {error.strerror}\n".encode())
        os._exit(126 if os.path.exists(argv[0]) else 127)


def wait_for(command: int, lifeline: int) -> "int | None":
    """Return the command's wait status, or None if the lifeline closed first."""
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    while True:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return None
            if pid == command:
                return status
            if pid == 0:
                break
        ready, _, _ = select.select([woken, lifeline], [], [])
        if lifeline in ready:
            return None
        os.read(woken, 4096)


def end_descendants(command: int) -> None:
    """Kill until no child is left; after two seconds give up on processes that cannot die."""
    deadline = time.monotonic() + 2
    while time.monotonic() < deadline:
        with suppress(OSError):
            os.killpg(command, signal.SIGKILL)
        for pid in list_children():
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        time.sleep(0.002)


def list_children() -> "list[int]":
    # Killing our own children is enough: their children become ours and are killed in the next iteration.
    try:
        me = os.getpid()
        with open(f"/proc/{me}/task/{me}/children", "rb") as file:
            return [int(pid) for pid in file.read().split()]
    except OSError:
        return []


def prctl(option: int, value: int) -> None:
    """Call prctl if the system has it."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


if __name__ == "__main__":
    # Skip Python's own clean-up: a kill during it would change the exit status.
    os._exit(main())
