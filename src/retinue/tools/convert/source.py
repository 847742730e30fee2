"""Loads the document to convert: a file of the workspace, or a download. Must not know converters."""

import asyncio
import os
import re
import stat
from pathlib import Path
from typing import Literal, TypeAlias
from urllib.parse import unquote, urlsplit

from msgspec import Struct

from retinue.core.errors import ToolFailed
from retinue.core.launch import Territory
from retinue.core.terminal import escape_line
from retinue.tools.outbound.client import HttpClient
from retinue.tools.outbound.request import RequestBounds, RequestFailed
from retinue.tools.path_guard import open_reading
from retinue.tools.paths import find_real_path

Code: TypeAlias = Literal[
    "INVALID_INPUT",
    "FILE_NOT_FOUND",
    "FILE_TOO_LARGE",
    "UNSUPPORTED_PROTOCOL",
    "COMMAND_NOT_FOUND",
    "CONVERT_TIMEOUT",
    "CONVERT_FAILED",
    "NETWORK_ERROR",
    "PRIVATE_NETWORK_BLOCKED",
]
_KINDS: dict[str, Code] = {
    "url": "INVALID_INPUT",
    "scheme": "UNSUPPORTED_PROTOCOL",
    "refused": "PRIVATE_NETWORK_BLOCKED",
    "secret": "INVALID_INPUT",
    "timeout": "CONVERT_TIMEOUT",
    "size": "FILE_TOO_LARGE",
    "bomb": "CONVERT_FAILED",
}
_ENDINGS = {
    "application/pdf": ".pdf",
    "text/html": ".html",
    "text/csv": ".csv",
    "application/json": ".json",
    "application/epub+zip": ".epub",
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document": ".docx",
    "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet": ".xlsx",
    "application/vnd.openxmlformats-officedocument.presentationml.presentation": ".pptx",
}
_PIECE = 1 << 20


class ConvertFailed(Exception):
    """Raised if a document cannot be loaded or converted."""

    def __init__(self, code: Code, message: str) -> None:
        super().__init__(message)
        self.code = code


class SourceDocument(Struct, frozen=True):
    """A document in memory, so that later changes of the file cannot bypass the checks."""

    name: str
    data: bytes
    content_type: str = ""


async def load_file(path: str, cwd: Path, territory: Territory, max_bytes: int) -> SourceDocument:
    """Load a file below the working directory. Raises ConvertFailed."""
    return await asyncio.to_thread(_load_file, path, cwd, territory, max_bytes)


def _load_file(path: str, cwd: Path, territory: Territory, max_bytes: int) -> SourceDocument:
    workspace = os.path.realpath(cwd)
    if "\0" in path or len(os.fsencode(path.encode("utf-8", "replace"))) > 4095:
        raise ConvertFailed("INVALID_INPUT", "the path contains a NUL character or is too long")
    asked = os.path.join(workspace, os.path.expanduser(path) if path.startswith("~/") else path)
    _check_inside(os.path.realpath(asked), workspace, path)
    missing = f"File not found: {_show(path)}"
    try:
        handle = open_reading(asked, path, territory)
    except ToolFailed as error:
        raise ConvertFailed("INVALID_INPUT", str(error)) from None
    except OSError as error:
        raise ConvertFailed("FILE_NOT_FOUND", f"{missing} ({(error.strerror or 'no file').lower()})") from None
    try:
        # Check what was really opened: the path may lead elsewhere by now.
        _check_inside(find_real_path(handle, asked), workspace, path)
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise ConvertFailed("FILE_NOT_FOUND", f"{missing} (it is not a regular file)")
        data = _read(handle, max_bytes + 1) if status.st_size <= max_bytes else b""
    finally:
        os.close(handle)
    if status.st_size > max_bytes or len(data) > max_bytes:
        raise ConvertFailed("FILE_TOO_LARGE", f"{_show(path)} has more than {max_bytes} bytes")
    return SourceDocument(_to_name(os.path.basename(asked)), data)


def _read(handle: int, most: int) -> bytes:
    pieces = bytearray()
    while len(pieces) < most and (piece := os.read(handle, min(_PIECE, most - len(pieces)))):
        pieces += piece
    return bytes(pieces)


def _show(path: str) -> str:
    """Return the path with invisible characters escaped."""
    return escape_line(path, 300)


def _check_inside(real: str, workspace: str, shown: str) -> None:
    if real != workspace and not real.startswith(workspace.rstrip("/") + "/"):
        raise ConvertFailed("INVALID_INPUT", f"Local path outside workspace is not allowed: {_show(shown)}")


async def download(url: str, client: HttpClient, bounds: RequestBounds) -> SourceDocument:
    """Download a document. Raises ConvertFailed."""
    try:
        page = await client.fetch(url, bounds)
    except RequestFailed as error:
        raise ConvertFailed(_KINDS.get(error.kind, "NETWORK_ERROR"), str(error)) from None
    if not 200 <= page.status < 300:
        raise ConvertFailed("NETWORK_ERROR", f"{_show(page.url)} returned HTTP {page.status}")
    kind = page.content_type.partition(";")[0].strip().lower()
    name = _to_name(unquote(urlsplit(page.url).path.rpartition("/")[2]))
    ending = _ENDINGS.get(kind, "")
    if ending and ("." not in name or kind != "text/html"):
        name = name if name.lower().endswith(ending) else f"{name}{ending}"
    return SourceDocument(name, page.body, kind)


def _to_name(name: str) -> str:
    """Return a safe file name that keeps the extension."""
    plain = re.sub(r"[^A-Za-z0-9._-]", "_", name).lstrip(".-")[-80:]
    return plain or "document"
