"""File tools whose user has an editor: `read` shows unsaved text, and changes go through the editor.

Only UTF-8 text without a byte order mark is exchanged, because anything else would come back changed. The editor has to
notice a change of another file by itself.
"""

import codecs
import os
from typing import Any, Protocol

from retinue.core.errors import ToolFailed, quote
from retinue.core.tool import Tool, ToolContext, ToolResult, WrappedTool
from retinue.tools.arguments import take_count, take_path
from retinue.tools.file_changes import FileChanges, PathLocks
from retinue.tools.files.read import render_small
from retinue.tools.path_guard import open_parent
from retinue.tools.paths import Revision, resolve_existing

MAX_BYTES = 1024 * 1024


class Editor(Protocol):
    """The editor of the user; None and False mean that it cannot."""

    async def read_text(self, path: str) -> str | None: ...

    async def save_text(self, path: str, text: str) -> bool:
        """Save the unsaved text of a file, before a call changes it."""
        ...

    async def show_text(self, path: str, text: str) -> bool:
        """Show, and save again, the text that a call has written."""
        ...


class EditedFileTool(WrappedTool):
    """The tool `read`, `edit` or `write` beside an editor."""

    def __init__(self, tool: Tool, editor: Editor, locks: PathLocks) -> None:
        """`locks` are not the tool's own: they are held around its calls."""
        super().__init__(tool)
        self._editor = editor
        self._locks = locks

    async def call(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        path = take_path(arguments)
        place = resolve_existing(path, context.cwd)
        if self.spec.name == "read":
            # The tool decides whether the file may be read at all.
            result = await self._tool.call(arguments, context)
            unsaved = await self._find_unsaved(place)
            if unsaved is None:
                return result
            first, limit = take_count(arguments, "offset", 1, least=0) or 1, take_count(arguments, "limit", 0) or None
            shown = render_small(path, unsaved.encode("utf-8", "replace"), first, limit)
            return ToolResult(shown.content, {"unsaved": True})
        async with self._locks.hold(place):
            await self._save(place, path, context)
            result = await self._tool.call(arguments, context)
            await self._show(place)
            return result

    async def _find_unsaved(self, place: str) -> str | None:
        """Return the editor's text if it differs from the file."""
        stored = _read_text(place)
        text = None if stored is None else await self._editor.read_text(place)
        # Editors keep the kind of line ends to themselves.
        is_same = text is None or stored is None or text.replace("\r\n", "\n") == stored.replace("\r\n", "\n")
        return None if is_same else text

    async def _save(self, place: str, path: str, context: ToolContext) -> None:
        unsaved = await self._find_unsaved(place)
        if unsaved is None:
            return
        os.close(open_parent(place, path, context.territory)[0])
        if not await self._editor.save_text(place, unsaved):
            text = f"{quote(path, 200)} has unsaved changes in the user's editor, which cannot save them"
            raise ToolFailed(f"{text}; nothing was written. Ask the user to save the file.")

    async def _show(self, place: str) -> None:
        text, before = _read_text(place), _find_revision(place)
        if text is None or not await self._editor.show_text(place, text):
            return
        after = _find_revision(place)
        if before is not None and after is not None and _read_text(place) == text:
            changes: FileChanges = self._tool.file_changes  # type: ignore[attr-defined]
            changes.note_rewritten(place, before, after)


def _read_text(path: str) -> str | None:
    """Read a text file of moderate size; None if it is anything else."""
    try:
        # Opening a pipe would wait for a writer.
        if not os.path.isfile(path):
            return None
        with open(path, "rb") as file:
            data = file.read(MAX_BYTES + 1)
        is_plain = len(data) <= MAX_BYTES and b"\0" not in data and not data.startswith(codecs.BOM_UTF8)
        return data.decode() if is_plain else None
    except (OSError, ValueError):
        return None


def _find_revision(path: str) -> Revision | None:
    try:
        return Revision.of(os.stat(path))
    except OSError:
        return None
