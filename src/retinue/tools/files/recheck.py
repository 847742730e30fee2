"""Looks again at what a search by names has found, since not every sandbox keeps it from what is hidden.

A program that walks by names can be led elsewhere by a folder that becomes a link meanwhile. Here every step goes from
one open folder to the next and follows no link. Blocks; knows neither patterns nor how results are shown.
"""

import os
import stat
from contextlib import suppress
from types import TracebackType
from typing import Self

from retinue.core.territory import Territory
from retinue.sandbox.open_beneath import open_below, open_beneath
from retinue.tools.path_guard import is_hidden, is_like

_READING = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY | os.O_NOFOLLOW


class Recheck:
    """One folder that was searched, as it is. A context manager."""

    def __init__(self, root: str, territory: Territory) -> None:
        """`root` is a real path. Raises OSError when it is not any longer."""
        self._root = root
        # Most folders have nothing hidden in them, and then there is nothing to compare with.
        self._hidden = Territory(hidden=tuple(path for path in territory.hidden if is_like(path, root)))
        self._has_hidden = bool(self._hidden.hidden) or root == "/" or root.startswith("/proc")
        self._top = open_beneath("/", root.strip("/"))
        self._at = ""
        self._folder = os.dup(self._top)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._top)
        os.close(self._folder)

    def has(self, path: str) -> bool:
        """Whether a path below the folder is there, and may be known."""
        try:
            os.stat(self._enter(path), dir_fd=self._folder, follow_symlinks=False)
        except OSError:
            return False
        return True

    def open(self, path: str) -> int | None:
        """A descriptor of a file below the folder; None when there is none, or none that may be read."""
        with suppress(OSError):
            handle = os.open(self._enter(path), _READING, dir_fd=self._folder)
            if stat.S_ISREG(os.fstat(handle).st_mode):
                return handle
            os.close(handle)
        return None

    def _enter(self, path: str) -> str:
        """Go to the folder of a path; its name there. Raises OSError."""
        folder, _, name = os.path.normpath(path).rpartition("/")
        if self._has_hidden and is_hidden(os.path.join(self._root, folder, name), self._hidden):
            raise FileNotFoundError(path)
        if folder != self._at:
            deeper = open_below(self._top, folder)
            os.close(self._folder)
            self._at, self._folder = folder, deeper
        return name
