"""Notices which source files of a project have changed, for servers that leave watching to their client.

Looks when it is asked, and at a bounded number of files: what a server has open is looked at elsewhere.
"""

import os
from collections.abc import Iterable

MAX_ENTRIES = 20_000
_PASSED_OVER = frozenset(
    (
        *(".git", ".hg", ".svn", "node_modules", ".venv", "venv", "__pycache__", ".tox", ".nox", ".mypy_cache"),
        *(".ruff_cache", ".pytest_cache", "target", "build", "dist", ".gradle", ".dart_tool", ".build", ".next"),
    )
)
CREATED, CHANGED, DELETED = 1, 2, 3


class Watch:
    """The source files below one directory as they were at the last look."""

    def __init__(self, root: str, extensions: Iterable[str], markers: Iterable[str] = ()) -> None:
        self._root = root
        self._extensions = tuple(extensions)
        self._markers = frozenset(markers)
        self._known: dict[str, int] | None = None

    def look(self) -> list[tuple[str, int]]:
        """Paths with what has happened to them since the last look; nothing at the first one. Blocks."""
        known, self._known = self._known, self._list()
        if known is None:
            return []
        now = self._known
        changes = [(path, CHANGED if path in known else CREATED) for path in now if known.get(path) != now[path]]
        return changes + [(path, DELETED) for path in known if path not in now]

    def _list(self) -> dict[str, int]:
        found: dict[str, int] = {}
        waiting, left = [self._root], MAX_ENTRIES
        while waiting and left > 0:
            try:
                with os.scandir(waiting.pop()) as entries:
                    for entry in entries:
                        left -= 1
                        if entry.is_dir(follow_symlinks=False):
                            if entry.name not in _PASSED_OVER:
                                waiting.append(entry.path)
                        elif entry.name.endswith(self._extensions) or entry.name in self._markers:
                            found[entry.path] = entry.stat(follow_symlinks=False).st_mtime_ns
            except OSError:
                continue
        return found
