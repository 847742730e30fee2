"""The files a server has open, shown to it as they are on disk, few at a time; and which source files have changed, for
servers that leave watching to their client.

Blocks for the time of a small read. Whoever asks says what may be read.
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
    """One open file."""

    path: str
    uri: str
    text: str
    stamp: Stamp
    version: int = 1
    used_s: float = 0.0

    def count_lines(self) -> int:
        """How many lines it has; one that is empty has one."""
        return self.text.count("\n") + 1

    def get_line(self, number: int) -> str:
        """A line by its number from 0; nothing beyond the end."""
        lines = self.text.split("\n")
        return lines[number].rstrip("\r") if 0 <= number < len(lines) else ""


class Documents:
    """Those that are open."""

    def __init__(self, tell: Callable[[str, Any], None], name_language: Callable[[str], str], *, most: int) -> None:
        """`tell` sends a notification; `name_language` says what a file's language is called."""
        self._tell = tell
        self._name_language = name_language
        self._most = most
        self._open: dict[str, OpenDocument] = {}

    def __len__(self) -> int:
        return len(self._open)

    def show(self, path: str, text: str, stamp: Stamp, now_s: float) -> OpenDocument:
        """Have a file open with this text."""
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
        # The one used last is the last one to go.
        self._open[path] = document
        document.used_s = now_s
        return document

    def refresh(self, territory: Territory) -> None:
        """Show again what has changed on disk, and close what is gone, hidden, or reached by a link now."""
        for path, document in tuple(self._open.items()):
            try:
                if find_stamp(path) != document.stamp:
                    self._change(document, *read_source(path, path, territory))
            except (OSError, ValueError, ToolFailed):
                self._close(path)

    def close_idle(self, before_s: float) -> None:
        """Close what was not used since."""
        for path, document in tuple(self._open.items()):
            if document.used_s <= before_s:
                self._close(path)

    def find(self, uri: str) -> OpenDocument | None:
        """An open file by the name that the server knows it by."""
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
        # Some check a file only when it is saved, and on disk it is.
        self._tell("textDocument/didSave", {"textDocument": {"uri": document.uri}})

    def _close(self, path: str) -> None:
        document = self._open.pop(path)
        self._tell("textDocument/didClose", {"textDocument": {"uri": document.uri}})


def find_stamp(path: str) -> Stamp:
    """What changes when a file does."""
    status = os.stat(path)
    return status.st_mtime_ns, status.st_size, status.st_ino


def read_source(path: str, shown: str, territory: Territory) -> tuple[str, Stamp]:
    """Text and stamp of the file at a real path. Raises OSError, ToolFailed, or ValueError for what is no source."""
    with open(open_real(path, shown, territory), "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise ValueError("not a regular file")
        if status.st_size > MAX_SOURCE:
            raise ValueError(f"{status.st_size} bytes are more than the {MAX_SOURCE} that are looked at")
        data = file.read(MAX_SOURCE + 1)
    return data.decode("utf-8", "replace"), (status.st_mtime_ns, status.st_size, status.st_ino)


def to_uri(path: str) -> str:
    """A path as servers name it."""
    return "file://" + quote(os.fsencode(path))


def to_path(uri: Any) -> str:
    """The path of a name that a server uses; the name itself when it is no file."""
    text = uri if isinstance(uri, str) else ""
    parts = urlsplit(text)
    return unquote(parts.path) if parts.scheme == "file" else text


def show_path(uri: Any, workspace: str) -> str:
    """The path for people and models: relative where it is in the workspace."""
    path = to_path(uri)
    try:
        return str(Path(path).relative_to(workspace))
    except ValueError:
        return path


class SourceWatch:
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
