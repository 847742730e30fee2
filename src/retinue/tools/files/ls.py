"""The ls tool: lists one directory."""

import asyncio
import os
from functools import cached_property
from typing import Any, Self

from msgspec import UNSET

from retinue.core.errors import ToolRetry, quote
from retinue.core.model import ToolSpec
from retinue.core.tool import Effect, ToolContext, ToolResult
from retinue.tools.arguments import take_count, take_path
from retinue.tools.path_guard import find_ground, open_folder
from retinue.tools.paths import explain, name_kind, resolve_existing, show_name
from retinue.tools.registry import ToolOptions, load_description
from retinue.tools.truncate import MAX_BYTES, render_size, truncate_head

_LIMIT = 500
_MAX_SCANNED = 200_000
# Larger directories are listed in a thread.
_INLINE_ENTRIES = 2000


class LsTool:
    effect = Effect.READ
    hint = "List a directory"
    guidelines: tuple[str, ...] = ()

    @classmethod
    def build(cls, options: ToolOptions) -> Self:
        return cls()

    @cached_property
    def spec(self) -> ToolSpec:
        properties = {
            "path": {"type": "string", "description": "Default: working directory"},
            "limit": {"type": "integer", "description": f"Default {_LIMIT}"},
        }
        return ToolSpec("ls", load_description(__file__), {"type": "object", "properties": properties})

    async def call(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        path = take_path(arguments, default=".")
        limit = take_count(arguments, "limit", _LIMIT)
        resolved = resolve_existing(path, context.cwd)
        names: list[tuple[str, str]] = []
        resolved, _ = find_ground(resolved, path, context.territory)
        try:
            with open_folder(resolved, path, context.territory) as folder, os.scandir(folder) as entries:
                if _scan(entries, names, _INLINE_ENTRIES):
                    await asyncio.to_thread(_scan, entries, names, _MAX_SCANNED)
        except NotADirectoryError:
            raise ToolRetry(f"{quote(path, 200)} is {name_kind(os.stat(resolved).st_mode)}, not a directory.") from None
        except OSError as error:
            raise explain(error, path, resolved) from None
        return _render(names, limit)


def _scan(entries: Any, names: list[tuple[str, str]], most: int) -> bool:
    """Add entries up to a total of `most`; return whether there may be more."""
    while len(names) < most:
        entry = next(entries, None)
        if entry is None:
            return False
        try:
            suffix = "/" if entry.is_dir() else ""
        except OSError:
            suffix = ""
        names.append((entry.name, suffix))
    return True


def _render(names: list[tuple[str, str]], limit: int) -> ToolResult:
    if not names:
        return ToolResult.of("(empty directory)")
    names.sort(key=lambda each: (each[0].lower(), each[0]))
    shown = truncate_head("\n".join(show_name(name) + suffix for name, suffix in names[:limit]), max_lines=len(names))
    details: dict[str, Any] = {}
    notes = []
    if len(names) > limit:
        total = f"at least {_MAX_SCANNED}" if len(names) >= _MAX_SCANNED else str(len(names))
        notes.append(f"{limit} of {total} entries shown. Use limit={min(2 * limit, len(names))} for more")
        details["entryLimitReached"] = limit
    if shown.truncated:
        notes.append(f"{render_size(MAX_BYTES)} limit reached")
        details["truncation"] = shown.to_details()
    text = shown.content + (f"\n\n[{'. '.join(notes)}]" if notes else "")
    return ToolResult.of(text, details or UNSET)
