"""The read tool: returns lines of a text file, or an image. It never waits for a pipe, a device or a growing file."""

import asyncio
import codecs
import os
import stat
from functools import cached_property
from typing import Any, Self

from msgspec import UNSET

from retinue.core.errors import ToolRetry, quote
from retinue.core.messages import ImageContent, TextContent
from retinue.core.model import ToolSpec
from retinue.core.tool import Effect, ToolContext, ToolResult
from retinue.tools.arguments import take_count, take_path
from retinue.tools.file_changes import FileChanges
from retinue.tools.files.window import Window, decode_text, decode_wide, read_window
from retinue.tools.path_guard import open_reading
from retinue.tools.paths import Revision, explain, find_real_path, name_kind, resolve_existing
from retinue.tools.registry import ToolOptions, load_description
from retinue.tools.truncate import MAX_BYTES, render_size, split_lines, truncate_head

SNIFFED_BYTES = 4096
# Larger files are read in a thread. Below this size, switching to a thread costs more than reading.
_INLINE_BYTES = 256 * 1024
_LONG_LINE_SHOWN = 2048


def sniff_image(head: bytes) -> str:
    """Return the mime type of an image, or an empty string."""
    if head.startswith(b"\xff\xd8\xff") and head[3:4] != b"\xf7":
        return "image/jpeg"
    if head.startswith(b"\x89PNG\r\n\x1a\n") and head[12:16] == b"IHDR":
        return "image/png"
    if head.startswith((b"GIF87a", b"GIF89a")):
        return "image/gif"
    if head.startswith(b"RIFF") and head[8:12] == b"WEBP":
        return "image/webp"
    if _is_bmp(head):
        return "image/bmp"
    return ""


def _is_bmp(head: bytes) -> bool:
    # Two letters are a weak signature, so the header must be plausible too.
    if len(head) < 26 or not head.startswith(b"BM"):
        return False
    header_size = int.from_bytes(head[14:18], "little")
    pixels_at = int.from_bytes(head[10:14], "little")
    return header_size in (12, 40, 52, 56, 64, 108, 124) and pixels_at >= 14 + header_size


class ReadTool:
    effect = Effect.READ
    hint = "Read files and images"
    guidelines = ("Read files with read, not with cat or sed.",)

    def __init__(self, file_changes: FileChanges | None = None, *, max_image_bytes: int = 3_750_000) -> None:
        self.file_changes = file_changes or FileChanges()
        self._max_image_bytes = max_image_bytes

    @classmethod
    def build(cls, options: ToolOptions) -> Self:
        return cls(options.file_changes, max_image_bytes=options.max_image_bytes)

    @cached_property
    def spec(self) -> ToolSpec:
        properties = {
            "path": {"type": "string"},
            "offset": {"type": "integer", "description": "First line, from 1"},
            "limit": {"type": "integer", "description": "Number of lines"},
        }
        schema = {"type": "object", "properties": properties, "required": ["path"]}
        return ToolSpec("read", load_description(__file__), schema)

    async def call(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        path = take_path(arguments)
        # Models sometimes count from 0; they mean the first line.
        first = take_count(arguments, "offset", 1, least=0) or 1
        limit = take_count(arguments, "limit", 0) or None
        resolved = resolve_existing(path, context.cwd)
        try:
            # Nothing is read before the file type is known.
            handle = open_reading(resolved, path, context.territory)
        except OSError as error:
            raise explain(error, path, resolved) from None
        stopped = False
        try:
            status = os.fstat(handle)
            if not stat.S_ISREG(status.st_mode):
                hint = " Use ls to list it." if stat.S_ISDIR(status.st_mode) else ""
                raise ToolRetry(
                    f"{quote(path, 200)} is {name_kind(status.st_mode)}, not a file that can be read.{hint}"
                )
            self.file_changes.note_read(context.run_id, find_real_path(handle, resolved), Revision.of(status))
            if status.st_size <= _INLINE_BYTES:
                return self._read(handle, path, status.st_size, first, limit)
            # The thread gets its own descriptor, because a cancelled call closes ours while the thread may still read.
            own = os.dup(handle)
            return await asyncio.to_thread(self._read_owned, own, path, status.st_size, first, limit, lambda: stopped)
        except OSError as error:
            raise explain(error, path, resolved) from None
        finally:
            stopped = True
            os.close(handle)

    def _read_owned(self, handle: int, *rest: Any) -> ToolResult:
        try:
            return self._read(handle, *rest)
        finally:
            os.close(handle)

    def _read(
        self, handle: int, path: str, size: int, first: int, limit: int | None, is_stopped: Any = lambda: False
    ) -> ToolResult:
        head = _peek(handle)
        kind = sniff_image(head)
        if kind:
            return self._read_image(handle, path, kind, size)
        small = size <= _INLINE_BYTES
        if small and head[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
            wide = decode_wide(_read_up_to(handle, _INLINE_BYTES))
            if wide is not None:
                return render_small(path, wide.encode("utf-8", "replace"), first, limit)
        if b"\0" in head:
            text = (
                f"[{path} is a binary file of {render_size(size)}; it is not shown. Try bash with file, xxd or strings]"
            )
            return ToolResult.of(text)
        if small:
            return render_small(path, _read_up_to(handle, _INLINE_BYTES), first, limit)
        os.lseek(handle, 0, os.SEEK_SET)
        return _render_window(path, read_window(handle, first, limit, is_stopped), first, limit, size)

    def _read_image(self, handle: int, path: str, kind: str, size: int) -> ToolResult:
        note = f"Read image file [{kind}]"
        if size > self._max_image_bytes:
            most = render_size(self._max_image_bytes)
            return ToolResult.of(
                f"{note}\n[It has {render_size(size)}; images above {most} are not shown. Make it smaller]"
            )
        import base64

        os.lseek(handle, 0, os.SEEK_SET)
        data = _read_up_to(handle, self._max_image_bytes)
        return ToolResult([TextContent(note), ImageContent(base64.b64encode(data).decode("ascii"), kind)])


def _peek(handle: int) -> bytes:
    try:
        return os.read(handle, SNIFFED_BYTES)
    except BlockingIOError:
        return b""


def _read_up_to(handle: int, limit: int) -> bytes:
    """Read from the start up to the limit, also from a file that grows or has no size (as in /proc)."""
    os.lseek(handle, 0, os.SEEK_SET)
    data = b""
    while len(data) < limit:
        try:
            piece = os.read(handle, limit - len(data))
        except BlockingIOError:
            break
        if not piece:
            break
        data = data + piece if data else piece
    return data


def render_small(path: str, data: bytes, first: int, limit: int | None) -> ToolResult:
    if first == 1 and limit is None and len(data) <= MAX_BYTES and data.count(b"\n") < 2000:
        text, invalid = decode_text(data, complete=True)
        return ToolResult.of((text or "(empty file)") + _note_invalid(invalid))
    start = 0
    before = 0
    while before < first - 1:
        end = data.find(b"\n", start)
        if end < 0:
            before += 1 if start < len(data) else 0
            start = len(data)
            break
        start = end + 1
        before += 1
    total = data.count(b"\n") + (0 if data.endswith(b"\n") or not data else 1)
    window_data = data[start:]
    first_line = window_data.find(b"\n")
    window = Window(window_data, before, bool(window_data), total, first_line if first_line >= 0 else len(window_data))
    return _render_window(path, window, first, limit, len(data))


def _render_window(path: str, window: Window, first: int, limit: int | None, size: int) -> ToolResult:
    if not window.found:
        if first == 1:
            return ToolResult.of("(empty file)")
        raise ToolRetry(f"offset is {first}: the file has {window.lines_before} lines.")
    if window.first_line_bytes > MAX_BYTES:
        return _render_long_line(path, window, first, size)
    text, invalid = decode_text(window.data, complete=False)
    if limit is not None:
        lines = split_lines(text)
        if len(lines) > limit:
            text = "\n".join(lines[:limit])
    shown = truncate_head(text)
    last = first + shown.output_lines - 1
    of = f" of {window.total_lines}" if window.total_lines is not None else f" of a file of {render_size(size)}"
    details: Any = UNSET
    note = ""
    if shown.truncated:
        why = f" ({render_size(MAX_BYTES)} limit)" if shown.truncated_by == "bytes" else ""
        note = f"\n\n[Showing lines {first}-{last}{of}{why}. Use offset={last + 1} to continue.]"
        # The window was already cut, so take the totals from the file.
        totals = {"totalLines": window.total_lines, "totalBytes": size}
        details = {"truncation": shown.to_details() | totals}
    elif window.total_lines is None or last < window.total_lines:
        left = (
            f"{window.total_lines - last} more lines in file"
            if window.total_lines is not None
            else f"Lines {first}-{last}{of}"
        )
        note = f"\n\n[{left}. Use offset={last + 1} to continue.]"
    return ToolResult.of(shown.content + _note_invalid(invalid) + note, details)


def _render_long_line(path: str, window: Window, first: int, size: int) -> ToolResult:
    import shlex

    shown, _ = decode_text(window.data[:_LONG_LINE_SHOWN], complete=False)
    length = render_size(window.first_line_bytes)
    command = f"sed -n '{first}p' {shlex.quote(path)} | head -c {MAX_BYTES}"
    text = (
        f"{shown}\n\n[Line {first} is {length} long, over the {render_size(MAX_BYTES)} limit; its first "
        f"{render_size(len(shown.encode('utf-8', 'replace')))} are shown. For more use bash: {command}]"
    )
    truncation = truncate_head("x" * (MAX_BYTES + 1)).to_details()
    totals = {"totalLines": window.total_lines, "totalBytes": size}
    return ToolResult.of(text, {"truncation": truncation | totals})


def _note_invalid(count: int) -> str:
    return f"\n\n[{count} bytes are not UTF-8 text and are shown as \ufffd]" if count else ""
