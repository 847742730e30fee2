"""Reads what a client sends with a prompt or a new session: content and MCP servers."""

import base64
import re
from typing import Any
from urllib.parse import unquote, urlsplit

from retinue.core.errors import UsageError, quote
from retinue.core.messages import ImageContent, TextContent, UserContent

IMAGES = ("image/png", "image/jpeg", "image/gif", "image/webp")


def to_servers(servers: list[Any]) -> dict[str, Any]:
    """The editor's MCP servers in the form of `mcp.json`. Raises UsageError for a kind that is not offered."""
    found: dict[str, Any] = {}
    for server in servers:
        name = re.sub(r"[^A-Za-z0-9_-]", "-", server.name)[:40] or "server"
        match getattr(server, "type", "stdio"):
            case "stdio":
                env = {each.name: each.value for each in server.env}
                found[name] = {"command": server.command, "args": server.args, "env": env}
            case "http":
                headers = {each.name: each.value for each in server.headers}
                found[name] = {"type": "http", "url": server.url, "headers": headers}
            case kind:
                raise UsageError(f"MCP server {quote(server.name)}: {kind} is not offered; use stdio or http")
    return found


def to_blocks(prompt: list[Any]) -> list[UserContent]:
    """The content of a prompt for the model. Raises UsageError for what cannot be shown to it."""
    blocks: list[UserContent] = []
    for part in prompt:
        match part.type:
            case "text":
                blocks.append(TextContent(part.text))
            case "image":
                blocks.append(_to_image(part.data, part.mime_type))
            case "resource_link":
                blocks.append(TextContent(f"[{part.name}]({_to_path(part.uri)})"))
            case "resource":
                blocks.append(_to_resource(part.resource))
            case kind:
                raise UsageError(f"a prompt cannot contain {kind}; send text, images or resources")
    if not any(isinstance(block, ImageContent) or block.text.strip() for block in blocks):
        raise UsageError("the prompt is empty")
    return blocks


def _to_image(data: str, mime_type: str) -> ImageContent:
    # Checked here: a provider would refuse it in this request and in every later one of the session.
    if mime_type not in IMAGES:
        raise UsageError(f"an image has the type {quote(mime_type)}; send one of: {', '.join(IMAGES)}")
    try:
        is_empty = not base64.b64decode(data, validate=True)
    except ValueError:
        is_empty = True
    if is_empty:
        raise UsageError("the data of an image is not base64")
    return ImageContent(data, mime_type)


def _to_resource(resource: Any) -> UserContent:
    text = getattr(resource, "text", None)
    if text is not None:
        return TextContent(f'<file path="{_to_path(resource.uri)}">\n{text}\n</file>')
    if (resource.mime_type or "").startswith("image/"):
        return _to_image(resource.blob, resource.mime_type)
    return TextContent(f"[{_to_path(resource.uri)} is a binary file and is not shown]")


def _to_path(uri: str) -> str:
    try:
        parts = urlsplit(uri)
    except ValueError:
        return uri
    return unquote(parts.path) if parts.scheme == "file" else uri
