"""Takes secrets off our own command line, which every program of this machine can read; on Linux, which lets us.

They are there from the start until this is called: whatever we start comes later.
"""

import os
import sys
from collections.abc import Iterable
from contextlib import suppress

_ARGUMENTS = slice(45, 47)
"""Of what the kernel tells of a process, behind its name: where in memory the command line begins and ends."""


def cover(secrets: Iterable[str]) -> None:
    """Write stars over these arguments, wherever they stand by themselves or behind an equals sign."""
    wanted = {os.fsencode(secret) for secret in secrets if secret}
    if not wanted or not sys.platform.startswith("linux"):
        return
    import ctypes

    with suppress(OSError, ValueError):
        with open("/proc/self/stat", "rb") as file:
            at, end = map(int, file.read().rpartition(b")")[2].split()[_ARGUMENTS])
        for argument in ctypes.string_at(at, end - at).split(b"\0") if at else ():
            for value in {argument, argument.partition(b"=")[2]} & wanted:
                ctypes.memset(at + len(argument) - len(value), ord("*"), len(value))
            at += len(argument) + 1
