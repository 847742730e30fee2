"""The write tool: replaces the whole content of a file atomically."""

import asyncio
import os
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

from retinue.core.errors import ToolRetry, quote
from retinue.core.launch import Territory
from retinue.core.model import ToolSpec
from retinue.core.tool import Effect, ToolContext, ToolResult
from retinue.tools.arguments import take_path, take_text
from retinue.tools.file_changes import FileChange, FileChanges, PathLocks
from retinue.tools.path_guard import open_reading
from retinue.tools.paths import Revision, explain, resolve_path
from retinue.tools.registry import ToolOptions, load_description

if TYPE_CHECKING:
    from retinue.tools.atomic_write import Replaced

# Larger content is written in a thread, so that a slow disk does not block the other runs.
_INLINE_BYTES = 256 * 1024
# Larger files are not diffed with their new content.
_MAX_COMPARED = 64 * 1024


class WriteTool:
    effect = Effect.WRITE
    records_changes = True
    """Each change is recorded by the tool itself, before it is made."""
    hint = "Create or overwrite files"
    guidelines = ("Use write for new files and complete rewrites only.",)

    def __init__(self, locks: PathLocks, file_changes: FileChanges | None = None) -> None:
        self._locks = locks
        self.file_changes = file_changes or FileChanges()

    @classmethod
    def build(cls, options: ToolOptions) -> Self:
        return cls(options.locks, options.file_changes)

    @cached_property
    def spec(self) -> ToolSpec:
        properties = {"path": {"type": "string"}, "content": {"type": "string"}}
        schema = {"type": "object", "properties": properties, "required": ["path", "content"]}
        return ToolSpec("write", load_description(__file__), schema)

    async def call(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        path = take_path(arguments)
        data = encode_text(take_text(arguments, "content"), "content")
        resolved = resolve_path(path, context.cwd)
        if resolved.endswith("/"):
            raise ToolRetry(f"{quote(path, 200)} names a directory: expected the path of a file.")
        async with self._locks.hold(resolved):
            try:
                if len(data) <= _INLINE_BYTES:
                    done = self._write(path, resolved, data, context)
                else:
                    # Shielded, because the lock must be held until the thread has finished writing.
                    done = await finish_thread(self._write, path, resolved, data, context)
            except OSError as error:
                raise explain_write(error, path, resolved) from None
        return ToolResult.of(f"Successfully wrote to {path}{note_links(done)}")

    def _write(self, path: str, resolved: str, data: bytes, context: ToolContext) -> "Replaced":
        from retinue.tools.atomic_write import replace_file

        target = os.path.realpath(resolved)
        try:
            old: Revision | None = Revision.of(os.stat(target))
        except OSError:
            old = None
        self.file_changes.check(context.run_id, target, path, old, is_blind=True)
        is_small = old is not None and old.size <= _MAX_COMPARED
        patch = _render_patch(path, target, data, context.territory) if is_small else ""
        with self.file_changes.recording(context.run_id, target, data):
            done = replace_file(resolved, data, territory=context.territory, make_folders=True)
        if done.revision is not None:
            self.file_changes.note_change(target, FileChange(context.run_id, context.run_name, done.revision, patch))
        return done


def _render_patch(path: str, target: str, data: bytes, territory: Territory) -> str:
    """Render what writing changes, for other runs that know the old content."""
    from retinue.tools.files.difference import render_difference
    from retinue.tools.files.replacement import TextChange, TextSpan

    try:
        handle = open_reading(target, path, territory)
        with open(handle, "rb", buffering=0) as file:
            old = (file.read(_MAX_COMPARED) or b"").decode("utf-8", "replace")
    except OSError:
        return ""
    new = data.decode("utf-8", "replace")
    return "" if new == old or not old else render_difference(path, old, [TextChange(TextSpan(0, len(old)), new)]).patch


async def finish_thread(function: Any, *arguments: Any) -> Any:
    """Run in a thread to its end; a cancellation is raised only after that."""
    work = asyncio.get_running_loop().run_in_executor(None, function, *arguments)
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        await asyncio.wait([work])
        raise


def encode_text(text: str, name: str) -> bytes:
    """Encode an argument as UTF-8. Raises ToolRetry for lone surrogates."""
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError as error:
        bad = quote(text[error.start : error.start + 20])
        raise ToolRetry(
            f"{name} has a lone surrogate at character {error.start}: {bad}. Expected valid text."
        ) from None


def explain_write(error: OSError, path: str, resolved: str) -> ToolRetry:
    """Return an error that says why nothing was written."""
    return ToolRetry(f"{explain(error, path, resolved)} Nothing was written.")


def note_links(done: "Replaced") -> str:
    """Return a note that other hard links keep the old content; empty if there are none."""
    if not done.other_names:
        return ""
    return f" (it had {done.other_names} more hard links; they keep the old content)"
