"""Usage limits that a process and its child processes honour: a file for each closed gate.

The file outlives its reset time until a probe has succeeded. Who asks then holds a lock on one of a few files, which
ends with its process. After each success one more may ask at the same time; when nobody waits the gate is open.
"""

import fcntl
import os
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from retinue.core.clock import Clock

_LOOK_S = 0.2
"""While other processes ask, this one looks so often whether it may."""


class GateFiles:
    """The folder with the files."""

    def __init__(self, folder: Path, clock: Clock) -> None:
        """The folder is created with the first limit."""
        self.folder = folder
        self._clock = clock
        self._paths: dict[str, Path] = {}

    async def read(self, gate: str) -> int:
        return self._read(gate)[0]

    async def close(self, gate: str, until_ms: int) -> None:
        with suppress(OSError):
            if until_ms > self._read(gate)[0]:
                self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                self._write(gate, until_ms, 1)

    async def claim(self, gate: str) -> int | None:
        until_ms, width = self._read(gate)
        if not until_ms:
            return 0
        for number in range(width):
            if (claim := self._lock(gate, str(number), fcntl.LOCK_EX)) is None:
                continue
            # Whoever held the lock has written before it released it.
            if self._read(gate)[0] <= self._clock.now_ms():
                return claim
            _unlock(claim)
            return None
        waiting = self._lock(gate, "waiting", fcntl.LOCK_SH)
        try:
            await self._clock.sleep(_LOOK_S)
        finally:
            _unlock(waiting)
        return None

    async def release(self, gate: str, claim: int) -> None:
        _unlock(claim)

    async def open(self, gate: str) -> None:
        until_ms, width = self._read(gate)
        if not until_ms or until_ms > self._clock.now_ms():
            return
        with suppress(OSError):
            if (unwaited := self._lock(gate, "waiting", fcntl.LOCK_EX)) is None:
                self._write(gate, until_ms, width + 1)
            else:
                self._find(gate).unlink()
                _unlock(unwaited)

    def _find(self, gate: str) -> Path:
        if gate not in self._paths:
            self._paths[gate] = self.folder / sha256(gate.encode()).hexdigest()[:32]
        return self._paths[gate]

    def _read(self, gate: str) -> tuple[int, int]:
        """Until when a gate is closed, and how many may ask at the same time after that."""
        file = self._find(gate)
        # Each request looks, and there is hardly ever a file.
        if not os.path.exists(file):
            return 0, 0
        try:
            until_ms, width = file.read_text().split()
            return int(until_ms), int(width)
        except (OSError, ValueError):
            return 0, 0

    def _write(self, gate: str, until_ms: int, width: int) -> None:
        file = self._find(gate)
        written = file.with_suffix(f".{os.getpid()}")
        written.write_text(f"{until_ms} {width}")
        written.replace(file)  # nobody reads half of it

    def _lock(self, gate: str, name: str, kind: int) -> int | None:
        """Lock a file of a gate; returns its descriptor, 0 if this file system has no locks, None if others hold it."""
        descriptor = 0
        try:
            descriptor = os.open(self._find(gate).with_suffix(f".{name}"), os.O_RDWR | os.O_CREAT, 0o600)
            fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
        except OSError as error:
            if descriptor:
                os.close(descriptor)
            return None if isinstance(error, BlockingIOError) else 0
        return descriptor


def _unlock(descriptor: int | None) -> None:
    if descriptor:
        with suppress(OSError):
            # Explicitly: a program that is being started shares the lock for a moment.
            fcntl.flock(descriptor, fcntl.LOCK_UN)
            os.close(descriptor)
