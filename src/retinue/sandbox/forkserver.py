"""Fork server: starts commands that confine themselves before exec. A program of its own.

usage: python -I -S forkserver.py CONTROL_FD

It is single-threaded, so a new process may do anything between fork and exec. For each message on the control socket it
forks a warden. The warden adopts every process that the command starts, kills them when the command ends or the
lifeline closes, and reports on the status pipe: `pid N`, then `exit N`, or `error TEXT` if nothing was run.
"""

import array
import ctypes
import errno
import fcntl
import json
import os
import resource
import select
import signal
import socket
import stat
import struct
import sys
import time
from contextlib import suppress
from typing import Any

_SIGNALS = (signal.SIGINT, signal.SIGHUP, signal.SIGTERM, signal.SIGQUIT, signal.SIGPIPE, signal.SIGXFSZ)
_PR_SET_PDEATHSIG, _PR_SET_SECCOMP, _PR_CAPBSET_DROP, _PR_CAP_AMBIENT = 1, 22, 24, 47
_PR_CHILD_SUBREAPER, _PR_NO_NEW_PRIVS, _AMBIENT_CLEAR, _FILTER = 36, 38, 4, 2
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF, _PATH_BENEATH = 444, 445, 446, 1
_CAPSET = {"x86_64": 126, "aarch64": 91}
_CAPABILITY_VERSION = 0x20080522
_FILE_RIGHTS = 1 | 2 | 4 | 1 << 14 | 1 << 15
_ABOVE = 256
"""Descriptors are moved above this number while those below are put in place."""

libc = ctypes.CDLL(None, use_errno=True)


def main() -> None:
    control = socket.socket(fileno=int(sys.argv[1]))
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
    # Reap wardens automatically.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        data, ancillary, _, _ = control.recvmsg(1, socket.CMSG_SPACE(64 * 4))
        if not data:
            return
        handles = array.array("i")
        for level, kind, content in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                handles.frombytes(content[: len(content) - len(content) % handles.itemsize])
        if os.fork() == 0:
            control.close()
            serve(list(handles))
        for handle in handles:
            os.close(handle)


def serve(handles: "list[int]") -> None:
    """In the warden: run one command from start to end."""
    payload, source, out, err, lifeline, status, *passed = handles
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setsid()
    prctl(_PR_CHILD_SUBREAPER, 1)
    # The command must be the only holder of its output pipes, or readers would not see their end.
    with open(payload, "rb") as file:
        order = json.load(file)
    os.write(status, b"pid %d\n" % os.getpid())
    command = os.fork()
    if command == 0:
        try:
            # Errors are reported on a descriptor that stays open while all others are moved.
            status = fcntl.fcntl(status, fcntl.F_DUPFD_CLOEXEC, _ABOVE)
            become(order, (source, out, err), passed)
        except OSError as error:
            os.write(status, f"error {error.filename or ''} {error.strerror or error}\n".encode())
        os._exit(126)
    for handle in (source, out, err, *passed):
        with suppress(OSError):
            os.close(handle)
    ended = wait_for(command, lifeline)
    end_descendants(command)
    code = 137 if ended is None else os.waitstatus_to_exitcode(ended)
    os.write(status, b"exit %d\n" % code)
    os._exit(0)


def become(order: "dict[str, Any]", stdio: "tuple[int, int, int]", passed: "list[int]") -> None:
    """In the new process: restrict it, then exec the command."""
    targets = [0, 1, 2, *order["fds"]]
    above = max(_ABOVE, *targets) + 1
    parked = [fcntl.fcntl(each, fcntl.F_DUPFD_CLOEXEC, above) for each in (*stdio, *passed)]
    os.closerange(3, _ABOVE)
    for source, target in zip(parked, targets, strict=True):
        os.dup2(source, target)
    os.setsid()
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_DFL)
    prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    for name, value in order["limits"].items():
        resource.setrlimit(getattr(resource, name), (value, value))
    offer_first()
    os.chdir(order["cwd"])
    if order["scoped"]:
        prctl(_PR_NO_NEW_PRIVS, 1)
        restrict_files(0, 1, [])
    if plan := order["plan"]:
        drop_capabilities()
        prctl(_PR_NO_NEW_PRIVS, 1)
        restrict_files(plan["handled"], plan["scoped"], plan["rules"])
        restrict_calls(bytes.fromhex(order["filter"]))
    try:
        os.execve(order["argv"][0], order["argv"], order["env"])
    except OSError as error:
        os.write(2, f"{order['argv'][0]}: {error.strerror}\n".encode())
        os._exit(127 if error.errno == errno.ENOENT else 126)


def offer_first() -> None:
    """Make the kernel's out-of-memory killer choose this process before the user's programs."""
    with suppress(OSError, ValueError), open("/proc/self/oom_score_adj", "r+", encoding="ascii") as file:
        if int(file.read()) < 500:
            file.seek(0)
            file.write("500")


def restrict_files(handled: int, scoped: int, rules: "list[tuple[str, int]]") -> None:
    """Deny all file access except what the rules allow, for this process and its descendants."""
    attributes = struct.pack("=QQQ", handled, 0, scoped)
    # Older kernels expect a shorter structure.
    size = 24 if scoped else 8
    ruleset = call("landlock_create_ruleset", _CREATE_RULESET, attributes, size, 0)
    for path, rights in rules:
        try:
            handle = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except OSError:
            continue  # a missing path needs no rule
        # An earlier command may have put a link there, whose target is not allowed.
        if os.readlink(f"/proc/self/fd/{handle}") != path:
            rights = 0
        if not stat.S_ISDIR(os.fstat(handle).st_mode):
            rights &= _FILE_RIGHTS
        rights &= handled
        # If the kernel refuses a rule, less is allowed, never more.
        if rights:
            libc.syscall(_ADD_RULE, ruleset, _PATH_BENEATH, struct.pack("=Qi", rights, handle), 0)
        os.close(handle)
    call("landlock_restrict_self", _RESTRICT_SELF, ruleset, 0)
    os.close(ruleset)


def restrict_calls(program: bytes) -> None:
    code = ctypes.create_string_buffer(program, len(program))
    header = struct.pack("@HP", len(program) // 8, ctypes.addressof(code))
    if libc.prctl(_PR_SET_SECCOMP, _FILTER, ctypes.c_char_p(header), 0, 0):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), "seccomp")


def drop_capabilities() -> None:
    """Drop all capabilities: root keeps access to its own files but cannot inspect other processes."""
    for number in range(64):
        libc.prctl(_PR_CAPBSET_DROP, number, 0, 0, 0)
    libc.prctl(_PR_CAP_AMBIENT, _AMBIENT_CLEAR, 0, 0, 0)
    header = struct.pack("=Ii", _CAPABILITY_VERSION, 0)
    call("capset", _CAPSET[os.uname().machine], header, bytes(24))


def call(name: str, number: int, *arguments: object) -> int:
    found = libc.syscall(number, *arguments)
    if found < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), name)
    return int(found)


def prctl(option: int, value: int) -> None:
    if libc.prctl(option, value, 0, 0, 0):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), f"prctl {option}")


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
    """Kill all descendants; gives up after two seconds on processes that do not die."""
    deadline = time.monotonic() + 2
    me = os.getpid()
    while time.monotonic() < deadline:
        with suppress(OSError):
            os.killpg(command, signal.SIGKILL)
        with suppress(OSError), open(f"/proc/{me}/task/{me}/children", "rb") as file:
            for pid in file.read().split():
                with suppress(OSError):
                    os.kill(int(pid), signal.SIGKILL)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        time.sleep(0.002)


if __name__ == "__main__":
    main()
