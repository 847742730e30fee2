"""What tests need of the machine. Nothing of ours is asked: a hole in our own code must not pass for a lack."""

import ctypes
import os
import shutil
import subprocess
from functools import cache
from typing import NoReturn

import pytest

_NR_CREATE_RULESET, _VERSION_FLAG = 444, 1
_BARE = ("bwrap", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--unshare-all", "--", "true")


def leave_out(text: str) -> NoReturn:
    """Skip a test that this machine cannot run; CI has all that the tests need, so it fails there."""
    if os.environ.get("CI"):
        pytest.fail(text)
    pytest.skip(text)


def need_program(name: str) -> str:
    """Where a program is."""
    found = shutil.which(name)
    return found or leave_out(f"{name} is not installed; .ci/run installs it")


def need_strace() -> str:
    """Where strace is, when it may trace."""
    program = need_program("strace")
    lack = _try_command(program, "-f", "-qq", "-o", os.devnull, "true")
    return leave_out(f"strace may not trace here: {lack}") if lack else program


def need_backend(backend: str) -> None:
    """Go on only where the kernel and its programs can do what a sandbox of ours is made of."""
    lack = explain_lack(backend)
    if lack:
        leave_out(lack)


def explain_lack(backend: str) -> str:
    """Why no sandbox of that kind can work here; empty when ours must."""
    if backend == "landlock":
        return "" if read_abi() >= 3 else "this kernel has no Landlock that knows truncation"
    return _try_command(*_BARE)


@cache
def read_abi() -> int:
    """The version of Landlock."""
    return max(int(ctypes.CDLL(None).syscall(_NR_CREATE_RULESET, None, 0, _VERSION_FLAG)), 0)


@cache
def _try_command(*argv: str) -> str:
    """What a command that should work complains of."""
    if shutil.which(argv[0]) is None:
        return f"{argv[0]} is not installed"
    done = subprocess.run(argv, capture_output=True, text=True, timeout=20, check=False)
    return (done.stderr.strip() or f"{argv[0]} ended with {done.returncode}") if done.returncode else ""
