"""The session file of a run that works elsewhere: read before it is sent, held meanwhile, written when it ends.

Nobody else may go on with a session that is being written, wherever that happens. Must not know entries.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from retinue.core.errors import SessionError
from retinue.sessions.files import make_private
from retinue.sessions.tree import SessionTree

USUAL = "session.jsonl"
"""The name of a session that has none of its own."""


class HomeFile:
    """Where one run has its session at home."""

    def __init__(self, path: str, *, is_shared: bool) -> None:
        """`path`: empty for nowhere; `is_shared`: other runs may be asked to go on with it."""
        self._path = Path(path) if path else None
        self._is_shared = is_shared

    @property
    def name(self) -> str:
        """What it is called among the files of the run: another attempt may begin another one."""
        return self._path.name if self._path is not None and self._path.suffix == ".jsonl" else USUAL

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Keep others from it. Raises SessionLocked, or SessionError where it cannot be."""
        if self._path is None or not self._is_shared:
            yield
            return
        tree = SessionTree()
        try:
            make_private(self._path.parent)
            os.close(os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
            tree.lock(self._path)
        except OSError as error:
            raise SessionError(f"cannot open session {self._path}: {error.strerror}") from error
        try:
            yield
        finally:
            with suppress(OSError):
                if not self._path.stat().st_size:
                    self._path.unlink()
            tree.close()

    def read(self) -> bytes:
        """What earlier runs have left in it: whole lines only."""
        try:
            data = b"" if self._path is None else self._path.read_bytes()
            return data[: data.rfind(b"\n") + 1]
        except FileNotFoundError:
            return b""
        except OSError as error:
            raise SessionError(f"cannot read session {self._path}: {error.strerror}") from error

    def write(self, data: bytes) -> str:
        """Put it where sessions are; returns its path, empty when there is nothing in it."""
        if self._path is None or not data:
            return ""
        make_private(self._path.parent)
        temporary = self._path.with_suffix(".part")
        temporary.write_bytes(data)
        temporary.chmod(0o600)
        temporary.replace(self._path)
        return str(self._path)
