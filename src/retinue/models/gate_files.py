"""Usage limits that a process and its child processes honour: a file for each closed gate.

Only the process that started the others sends probes: its children end at a limit, and it starts them again.
"""

import os
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from retinue.core.clock import Clock


class GateFiles:
    """The folder with the files."""

    def __init__(self, folder: Path, clock: Clock) -> None:
        """The folder is created with the first limit."""
        self.folder = folder
        self._clock = clock
        self._paths: dict[str, Path] = {}

    async def read(self, gate: str) -> int:
        until_ms = self._read(gate)
        return until_ms if until_ms > self._clock.now_ms() else 0

    async def close(self, gate: str, until_ms: int) -> None:
        with suppress(OSError):
            if until_ms > self._read(gate):
                self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                self._find(gate).write_text(str(until_ms))

    async def claim(self, gate: str, until_ms: int) -> bool:
        return True

    async def open(self, gate: str, until_ms: int) -> None:
        with suppress(OSError):
            self._find(gate).unlink()

    def _find(self, gate: str) -> Path:
        if gate not in self._paths:
            self._paths[gate] = self.folder / sha256(gate.encode()).hexdigest()[:32]
        return self._paths[gate]

    def _read(self, gate: str) -> int:
        file = self._find(gate)
        # Each request looks, and there is hardly ever a file.
        if not os.path.exists(file):
            return 0
        try:
            return int(file.read_text())
        except (OSError, ValueError):
            return 0
