"""MCP tools as retinue tools: their specs, calls and results."""

import json
import os
import secrets
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from retinue.core.messages import ImageContent, TextContent, UserContent
from retinue.core.model import ToolSpec
from retinue.core.tool import Effect, ToolContext, ToolResult
from retinue.features.mcp.link import ServerLink
from retinue.features.mcp.server import McpFailed
from retinue.features.mcp.tool_list import ListedTool, clean_text
from retinue.tools.selectors import MCP, Offer
from retinue.tools.truncate import MAX_BYTES

MAX_IMAGES = 10
MAX_IMAGE_CHARS = 7_000_000
"""Base64 characters, about five megabytes."""
_IMAGES = ("image/png", "image/jpeg", "image/gif", "image/webp")


def to_result(
    tool: str, raw: Mapping[str, Any], spill_dir: Path | None, redact: Callable[[str], str] = str
) -> ToolResult:
    """Convert the result of a call for the model; `redact` removes secrets, also from text saved to a file."""
    texts: list[str] = []
    images: list[UserContent] = []
    for block in raw.get("content", ()):
        image = _read_image(block)
        if image is not None and len(images) < MAX_IMAGES:
            images.append(image)
        else:
            texts.append(_read_text(block))
    if not texts and not images and raw.get("structuredContent") is not None:
        texts.append(json.dumps(raw["structuredContent"], ensure_ascii=False))
    text = _bound(redact("\n".join(texts)), spill_dir)
    if raw.get("isError"):
        return fail_call(tool, text or "no reason given")
    content: list[UserContent] = [TextContent(text)] if text or not images else []
    return ToolResult([*content, *images])


def fail_call(tool: str, reason: str) -> ToolResult:
    return ToolResult.of(f"MCP tool '{tool}' failed: {reason}", is_error=True)


def _read_image(block: Mapping[str, Any]) -> ImageContent | None:
    data, kind = block.get("data"), block.get("mimeType")
    is_image = block.get("type") == "image" and kind in _IMAGES and isinstance(data, str)
    return ImageContent(str(data), str(kind)) if is_image and len(str(data)) <= MAX_IMAGE_CHARS else None


def _read_text(block: Mapping[str, Any]) -> str:
    match block.get("type"):
        case "text":
            return _tidy(block.get("text"))
        case "resource_link":
            return f"[resource {_tidy(block.get('uri'))}]"
        case "resource":
            inner = block.get("resource")
            inner = inner if isinstance(inner, Mapping) else {}
            text = inner.get("text")
            return _tidy(text) if isinstance(text, str) else f"[binary resource {_tidy(inner.get('uri'))}]"
    kind, size = _tidy(block.get("mimeType")) or _tidy(block.get("type")), len(_tidy(block.get("data")))
    return f"[{kind} of {size} characters, not shown]"


def _tidy(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _bound(text: str, spill_dir: Path | None) -> str:
    """Return the text; if it is too long, its beginning and end and the path of a file with all of it."""
    data = text.encode("utf-8", "replace")
    if len(data) <= MAX_BYTES:
        return data.decode()
    half = MAX_BYTES // 2
    head, tail = data[:half].decode("utf-8", "ignore"), data[-half:].decode("utf-8", "ignore")
    left = len(data) - 2 * half
    path = _spill(data, spill_dir)
    return f"{head}\n\n[… {left} bytes left out; all of it: {path} …]\n\n{tail}"


def _spill(data: bytes, folder: Path | None) -> str:
    folder = Path(tempfile.gettempdir()) if folder is None else folder
    path = folder / f"retinue-mcp-{secrets.token_hex(8)}.txt"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
            file.write(data)
    except OSError as error:
        return f"not kept ({error.strerror})"
    return str(path)


class McpTool:
    hint = ""
    guidelines: tuple[str, ...] = ()

    def __init__(self, link: ServerLink, listed: ListedTool, name: str) -> None:
        self._link = link
        self._listed = listed
        text = listed.description or f"{listed.name} of the MCP server {link.server.name}."
        self.spec = ToolSpec(name, text, listed.schema)

    @property
    def effect(self) -> Effect:
        """The effect by the user's settings; the server's own read-only hints are ignored."""
        return self._link.server.find_effect(self._listed.name)

    @property
    def deferred(self) -> bool:
        """Whether the tool is hidden until the model finds it with `tool_search`."""
        return self._link.server.is_deferred(self._listed.name)

    @property
    def offer(self) -> Offer:
        return Offer(self.effect, MCP, self._link.server.name, self._listed.name, is_deferred=self.deferred)

    async def call(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        """Call the tool on the server once, without retries."""
        name = self._listed.name

        def tell(progress: float, total: float | None, message: str | None) -> None:
            share = f"{progress:g}" if total is None else f"{progress:g} of {total:g}"
            context.progress(ToolResult.of(clean_text(f"{share} {message or ''}".strip(), 500)))

        try:
            answer = await self._link.call(name, arguments, tell)
            return to_result(name, answer, context.spill_dir, context.redact)
        except McpFailed as failure:
            return fail_call(name, f"server '{self._link.server.name}': {failure}")
