"""Detect what this machine can enforce by trying a forbidden write, once per process.

Programs are searched in system directories only: a workspace may contain its own bwrap.
"""

import asyncio
import os
import select
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import suppress

from msgspec import Struct, structs

from retinue.core.errors import ToolFailed
from retinue.core.launch import Launch, Stdio
from retinue.sandbox import bwrap, landlock, seatbelt
from retinue.sandbox.confinement import UNGUARDED, BwrapConfinement, LandlockConfinement, SeatbeltConfinement
from retinue.sandbox.profile import Profile
from retinue.sandbox.seccomp import find_architecture
from retinue.sandbox.server import ForkServer
from retinue.sandbox.status import Backend, SandboxStatus, State

SYSTEM_DIRS = ("/usr/bin", "/bin", "/usr/local/bin")
_LIMIT_S = 10.0
_REACHABLE = "commands with the network reach abstract sockets of other programs, such as an X server's"
_SIGNALS = "signals of commands reach other programs of the user, which Landlock blocks from version 6 on"
_HINT = "install the package bubblewrap"
# Exit code 7: it ran, wrote where it may, and could not write where it must not.
_TRIAL = 'echo x >"$TMPDIR/probe" || exit 3; (echo x >"$1/written") 2>/dev/null && exit 4; exit 7'
_REMEDY = (
    ("setting up uid map", "this container lacks CAP_SETFCAP, so user 0 cannot be mapped"),
    ("No permissions to create new namespace", "unprivileged user namespaces are switched off"),
    ("Creating new namespace failed", "unprivileged user namespaces are switched off"),
    ("Operation not permitted", "this container or its kernel forbids namespaces or mounts"),
)


class Probe(Struct, frozen=True):
    """Where to search for programs, and which backends to try."""

    dirs: tuple[str, ...] = SYSTEM_DIRS
    backends: tuple[Backend, ...] = ("bwrap", "landlock", "seatbelt")
    """Backends that may be used; tests restrict this."""


class Machine:
    """The sandbox status of this machine, detected on first use. Owns the fork server."""

    def __init__(self, probe: Probe | None = None) -> None:
        self._probe = probe or Probe()
        self._status: SandboxStatus | None = None
        self._lock = threading.Lock()
        self.server = ForkServer()

    async def find(self) -> SandboxStatus:
        """Return the status without blocking the event loop."""
        return self._status if self._status is not None else await asyncio.to_thread(self.look)

    def look(self) -> SandboxStatus:
        """Return the status; blocks on first use."""
        with self._lock:
            if self._status is None:
                self._status = find_status(self._probe, self.server)
            return self._status

    def forget(self) -> None:
        """Detect again next time, after something failed that had worked."""
        with self._lock:
            self._status = None

    def close(self) -> None:
        self.server.close()


def find_status(probe: Probe, server: ForkServer) -> SandboxStatus:
    """Try the backends, strongest first."""
    reasons: list[str] = []
    for backend, attempt in (("bwrap", try_bwrap), ("landlock", try_landlock), ("seatbelt", try_seatbelt)):
        if backend not in probe.backends:
            continue
        status = attempt(probe, server)
        if status.is_usable:
            return status
        reasons.append(status.reason)
    return SandboxStatus(
        "unavailable", reason="; ".join(filter(None, reasons)) or "there is no sandbox for this system"
    )


def try_bwrap(probe: Probe, server: ForkServer) -> SandboxStatus:
    """Try bubblewrap with all features, then without those that older versions lack."""
    if not sys.platform.startswith("linux"):
        return SandboxStatus("unavailable")
    if not find_architecture():
        return SandboxStatus("unavailable", reason=f"there is no system call filter for {os.uname().machine}")
    program = find_program("bwrap", probe.dirs)
    if not program:
        return SandboxStatus("unavailable", reason=f"bwrap was not found in {', '.join(probe.dirs)} ({_HINT})")
    version = _read_version(program)
    reason = ""
    own = frozenset((*bwrap.FEATURES, *([landlock.SCOPE] if _can_scope(program) else ())))
    for missing in ((), (landlock.SCOPE,), ("disable-userns",), ("size",), ("size", "disable-userns")):
        if missing == (landlock.SCOPE,) and landlock.SCOPE not in own:
            continue
        features = own.difference(missing)
        weaker = () if landlock.SCOPE in features else (_REACHABLE,)
        status = SandboxStatus("enforced", "bwrap", weaker=weaker, program=program, version=version, features=features)
        failure = _try_command(status, server)
        if not failure:
            if "size" in missing:
                note = "this version cannot bound private temporary files, which may fill half of the memory"
                return structs.replace(status, state="partial", reason=note)
            return status
        reason = reason or failure
    return SandboxStatus("unavailable", reason=f"{program} {version} does not work here: {_explain(reason)}")


def _can_scope(program: str) -> bool:
    """Return whether commands can be cut off from abstract sockets; a setuid bwrap could not get its rights then."""
    return landlock.has_scopes() and not os.stat(program).st_mode & (stat.S_ISUID | stat.S_ISGID)


def try_landlock(probe: Probe, server: ForkServer) -> SandboxStatus:
    """Try Landlock, which needs ABI 3 (truncation) and a working fork server."""
    if not sys.platform.startswith("linux"):
        return SandboxStatus("unavailable")
    abi = landlock.read_abi()
    if abi < landlock.LEAST_ABI:
        text = "this kernel has no Landlock" if not abi else f"Landlock of this kernel is version {abi}, 3 is needed"
        return SandboxStatus("unavailable", reason=text)
    if not find_architecture():
        return SandboxStatus("unavailable", reason=f"there is no system call filter for {os.uname().machine}")
    state: State
    weaker = (
        "processes that a command leaves behind are ended one by one, not by the kernel",
        "names of hidden files can be listed",
        "temporary files are on the disk",
        "commands cannot change modes and times, not even of temporary files",
        "command lines of other programs can be read",
        f"for writing agents {'; '.join(UNGUARDED)}",
    )
    # Without scopes a command can send signals to the user's programs and kill them.
    state, reason = ("enforced", "") if landlock.has_scopes() else ("partial", _SIGNALS)
    status = SandboxStatus(state, "landlock", reason, weaker=weaker, version=f"ABI {abi}")
    failure = _try_command(status, server)
    return SandboxStatus("unavailable", reason=f"Landlock does not work here: {failure}") if failure else status


def try_seatbelt(probe: Probe, server: ForkServer) -> SandboxStatus:
    if sys.platform != "darwin":
        return SandboxStatus("unavailable")
    if not os.access(seatbelt.PROGRAM, os.X_OK):
        return SandboxStatus("unavailable", reason=f"{seatbelt.PROGRAM} is missing")
    status = SandboxStatus(
        "partial", "seatbelt", "its profile is untested: none of our tests has run on macOS", program=seatbelt.PROGRAM
    )
    failure = _try_command(status, server)
    return SandboxStatus("unavailable", reason=f"sandbox-exec does not work here: {failure}") if failure else status


def find_program(name: str, dirs: Sequence[str]) -> str:
    """Return the first executable of this name in the absolute directories; empty if there is none."""
    for folder in dirs:
        path = os.path.join(folder, name)
        if os.path.isabs(folder) and os.path.isfile(path) and os.access(path, os.X_OK):
            return path
    return ""


def _try_command(status: SandboxStatus, server: ForkServer) -> str:
    """Run a read-only command; return why it failed or could write, or an empty string."""
    with tempfile.TemporaryDirectory(prefix="retinue-probe-") as folder:
        profile = Profile(os.path.realpath(folder))
        boundary: BwrapConfinement | LandlockConfinement | SeatbeltConfinement
        match status.backend:
            case "bwrap":
                boundary = BwrapConfinement(status, profile, server)
            case "landlock":
                boundary = LandlockConfinement(status, profile, server)
            case _:
                boundary = SeatbeltConfinement(status, profile)
        try:
            argv = ["/bin/sh", "-c", _TRIAL, "sh", profile.workspace]
            with boundary.wrap(argv, {"PATH": "/usr/bin:/bin"}, profile.workspace) as launch:
                code, text = _run(launch)
        except (OSError, ToolFailed, subprocess.TimeoutExpired) as error:
            return str(error)
        finally:
            boundary.close()
        if os.path.exists(os.path.join(folder, "written")) or code == 4:
            return "a read-only command could write"
        return "" if code == 7 else text or f"the test command ended with {code}"


def _run(launch: Launch) -> tuple[int, str]:
    """Run a launch without an event loop; return its exit code and error output."""
    if launch.spawner is None:

        def run() -> "subprocess.CompletedProcess[bytes]":
            return subprocess.run(
                list(launch.argv),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_LIMIT_S,
                check=False,
                cwd=launch.cwd,
                env=dict(launch.env),
                pass_fds=launch.pass_fds,
            )

        done = run() if launch.spawn_thread is None else launch.spawn_thread.run(run)
        return done.returncode, done.stderr.decode("utf-8", "replace").strip()[:400]
    held, lifeline = os.pipe()
    try:
        with open(os.devnull, "wb") as null:
            remote = launch.spawner.spawn(launch, Stdio(null.fileno(), null.fileno(), held))
    finally:
        os.close(held)
    try:
        deadline = time.monotonic() + _LIMIT_S
        while (code := remote.poll()) is None and time.monotonic() < deadline:
            select.select([remote.fileno()], [], [], 0.5)
    finally:
        os.close(lifeline)
        remote.close()
    return (-1, "no answer in time") if code is None else (code, "")


def _read_version(program: str) -> str:
    with suppress(OSError, subprocess.TimeoutExpired):
        done = subprocess.run(
            [program, "--version"], capture_output=True, timeout=_LIMIT_S, check=False, cwd="/", env={}
        )
        return done.stdout.decode("utf-8", "replace").removeprefix("bubblewrap").strip()[:40]
    return ""


def _explain(text: str) -> str:
    return next((f"{reason} ({text})" for mark, reason in _REMEDY if mark in text), text)
