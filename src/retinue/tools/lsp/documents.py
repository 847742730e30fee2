"""Keeps a few files open in a language server, in sync with the disk, and finds changed source files for it.

Blocks for small reads. The caller says what may be read.
"""

import os
import stat
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import quote, unquote, urlsplit

from retinue.core.errors import ToolFailed
from retinue.core.launch import Territory
from retinue.tools.path_guard import open_real

MAX_SOURCE = 2 * 1024 * 1024
Stamp: TypeAlias = tuple[int, int, int]
MAX_ENTRIES = 20_000
_PASSED_OVER = frozenset(
    (
        *(".git", ".hg", ".svn", "node_modules", ".venv", "venv", "__pycache__", ".tox", ".nox", ".mypy_cache"),
        *(".ruff_cache", ".pytest_cache", "target", "build", "dist", ".gradle", ".dart_tool", ".build", ".next"),
    )
)
CREATED, CHANGED, DELETED = 1, 2, 3


@dataclass(slots=True)
class OpenDocument:
    path: str
    uri: str
    text: str
    stamp: Stamp
    version: int = 1
    used_s: float = 0.0

    def count_lines(self) -> int:
        """Count the lines; an empty file has one."""
        return self.text.count("\n") + 1

    def get_line(self, number: int) -> str:
        """Return a line by its number, counted from 0; empty beyond the end."""
        lines = self.text.split("\n")
        return lines[number].rstrip("\r") if 0 <= number < len(lines) else ""


class Documents:
    """The open files of one server."""

    def __init__(self, tell: Callable[[str, Any], None], name_language: Callable[[str], str], *, most: int) -> None:
        """`tell` sends a notification; `name_language` returns the language id of a file."""
        self._tell = tell
        self._name_language = name_language
        self._most = most
        self._open: dict[str, OpenDocument] = {}

    def __len__(self) -> int:
        return len(self._open)

    def show(self, path: str, text: str, stamp: Stamp, now_s: float) -> OpenDocument:
        """Open or update a file in the server."""
        document = self._open.pop(path, None)
        if document is None:
            while len(self._open) >= self._most:
                self._close(next(iter(self._open)))
            document = OpenDocument(path, to_uri(path), text, stamp)
            opened = {
                "uri": document.uri,
                "languageId": self._name_language(path),
                "version": document.version,
                "text": text,
            }
            self._tell("textDocument/didOpen", {"textDocument": opened})
        else:
            self._change(document, text, stamp)
        # Move it to the end: the least recently used file is closed first.
        self._open[path] = document
        document.used_s = now_s
        return document

    def refresh(self, territory: Territory) -> None:
        """Update files that changed on disk; close those that are gone, hidden, or now reached through a link."""
        for path, document in tuple(self._open.items()):
            try:
                if find_stamp(path) != document.stamp:
                    self._change(document, *read_source(path, path, territory))
            except (OSError, ValueError, ToolFailed):
                self._close(path)

    def close_idle(self, before_s: float) -> None:
        """Close files that were last used before this time."""
        for path, document in tuple(self._open.items()):
            if document.used_s <= before_s:
                self._close(path)

    def find(self, uri: str) -> OpenDocument | None:
        return next((document for document in self._open.values() if document.uri == uri), None)

    def _change(self, document: OpenDocument, text: str, stamp: Stamp) -> None:
        document.stamp = stamp
        if text == document.text:
            return
        document.text = text
        document.version += 1
        self._tell(
            "textDocument/didChange",
            {
                "textDocument": {"uri": document.uri, "version": document.version},
                "contentChanges": [{"text": text}],
            },
        )
        # Some servers check a file only when it is saved; on disk it is.
        self._tell("textDocument/didSave", {"textDocument": {"uri": document.uri}})

    def _close(self, path: str) -> None:
        document = self._open.pop(path)
        self._tell("textDocument/didClose", {"textDocument": {"uri": document.uri}})


def find_stamp(path: str) -> Stamp:
    """Return values that change when the file does."""
    status = os.stat(path)
    return status.st_mtime_ns, status.st_size, status.st_ino


def read_source(path: str, shown: str, territory: Territory) -> tuple[str, Stamp]:
    """Return text and stamp of a real path. Raises OSError, ToolFailed, or ValueError if it is not a source file."""
    with open(open_real(path, shown, territory), "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise ValueError("not a regular file")
        if status.st_size > MAX_SOURCE:
            raise ValueError(f"{status.st_size} bytes are more than the {MAX_SOURCE} that are looked at")
        data = file.read(MAX_SOURCE + 1)
    return data.decode("utf-8", "replace"), (status.st_mtime_ns, status.st_size, status.st_ino)


def to_uri(path: str) -> str:
    return "file://" + quote(os.fsencode(path))


def to_path(uri: Any) -> str:
    """Return the path of a URI; a URI that is not a file is returned unchanged."""
    text = uri if isinstance(uri, str) else ""
    parts = urlsplit(text)
    return unquote(parts.path) if parts.scheme == "file" else text


def show_path(uri: Any, workspace: str) -> str:
    """Return the path for display, relative if it is in the workspace."""
    path = to_path(uri)
    try:
        return str(Path(path).relative_to(workspace))
    except ValueError:
        return path


class SourceWatch:
    """Detects changed source files below a directory by polling."""

    def __init__(self, root: str, extensions: Iterable[str], markers: Iterable[str] = ()) -> None:
        self._root = root
        self._extensions = tuple(extensions)
        self._markers = frozenset(markers)
        self._known: dict[str, int] | None = None

    def look(self) -> list[tuple[str, int]]:
        """Return paths and kinds of change since the last call; the first call returns nothing. Blocks."""
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
