"""The find tool: lists paths that match a glob and are not ignored by .gitignore."""

import os
import stat
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Self

from msgspec import UNSET

from retinue.core.errors import ToolRetry, quote
from retinue.core.model import ToolSpec
from retinue.core.tool import Effect, ToolContext, ToolResult
from retinue.tools.arguments import take_count, take_path, take_text
from retinue.tools.files.ripgrep import Ripgrep, SearchEnd, exclude_paths, ignore_arguments, note_search, open_boundary
from retinue.tools.path_guard import find_ground
from retinue.tools.paths import explain, name_kind, resolve_existing, show_name
from retinue.tools.registry import ToolOptions, load_description
from retinue.tools.truncate import MAX_BYTES, render_size, truncate_head

if TYPE_CHECKING:
    from retinue.tools.files.globs import Glob

_LIMIT = 1000


class FindTool:
    effect = Effect.READ
    hint = "Find files by glob (respects .gitignore)"
    guidelines: tuple[str, ...] = ()

    def __init__(self, ripgrep: Ripgrep) -> None:
        self._ripgrep = ripgrep

    @classmethod
    def build(cls, options: ToolOptions) -> Self:
        return cls(Ripgrep(options.trees))

    @cached_property
    def spec(self) -> ToolSpec:
        properties = {
            "pattern": {"type": "string", "description": "Glob"},
            "path": {"type": "string", "description": "Directory; default: working directory"},
            "limit": {"type": "integer", "description": f"Default {_LIMIT}"},
        }
        schema = {"type": "object", "properties": properties, "required": ["pattern"]}
        return ToolSpec("find", load_description(__file__), schema)

    async def call(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        from retinue.tools.files.globs import Glob

        glob = Glob(take_text(arguments, "pattern", blank=False))
        path = take_path(arguments, default=".")
        limit = take_count(arguments, "limit", _LIMIT)
        resolved = resolve_existing(path, context.cwd)
        resolved, hidden = find_ground(resolved, path, context.territory)
        _check_folder(path, resolved)
        listing = _Listing(glob, resolved, limit)
        options = ["--files", "--null", *ignore_arguments(resolved), *exclude_paths(hidden)]
        search = await self._search(options, listing, path, resolved, context)
        if search.error:
            raise ToolRetry(f"find failed: {search.error}")
        return _render(listing, search, self._ripgrep.timeout_s, limit)

    async def _search(
        self, options: list[str], listing: "_Listing", path: str, resolved: str, context: ToolContext
    ) -> SearchEnd:
        """Run the search; if there are hidden paths, keep only results that can be reached without following a link."""
        boundary = await open_boundary(context)
        run = partial(self._ripgrep.run, options, resolved, b"\0", context.cwd, boundary=boundary)
        if not context.territory.hidden:
            return await run(on_record=listing.take)
        from retinue.tools.files.ripgrep import Recheck

        try:
            with Recheck(resolved, context.territory) as again:
                return await run(on_record=lambda raw: again.has(os.fsdecode(raw)) and listing.take(raw))
        except OSError as error:
            raise explain(error, path, resolved) from None


class _Listing:
    """Collects matching files, and the directories that lead to any file, from a sorted walk."""

    def __init__(self, glob: "Glob", root: str, limit: int) -> None:
        self._glob = glob
        self._prefix = os.path.realpath(root).rstrip("/") + "/" if glob.is_absolute else ""
        self._limit = limit
        self._folder = ""
        self.found: list[str] = []
        self.is_full = False

    def take(self, raw: bytes) -> bool:
        """Check one file; return whether the limit is reached."""
        path = os.fsdecode(raw)
        folder = path[: path.rfind("/") + 1]
        if folder != self._folder:
            self._enter(folder)
        return self._add(path, path)

    def _enter(self, folder: str) -> None:
        # Paths are sorted, so a directory is new exactly when it is not a parent of the previous file.
        at = folder.find("/")
        while at >= 0:
            if not self._folder.startswith(folder[: at + 1]):
                self._add(folder[:at], folder[: at + 1])
            at = folder.find("/", at + 1)
        self._folder = folder

    def _add(self, path: str, shown: str) -> bool:
        if not self.is_full and self._glob.matches(self._prefix + path):
            self.is_full = len(self.found) >= self._limit
            if not self.is_full:
                self.found.append(shown)
        return self.is_full


def _check_folder(path: str, resolved: str) -> None:
    try:
        mode = os.stat(resolved).st_mode
    except OSError as error:
        raise explain(error, path, resolved) from None
    if not stat.S_ISDIR(mode):
        raise ToolRetry(f"{quote(path, 200)} is {name_kind(mode)}: expected a directory to search in.")


def _render(listing: _Listing, search: SearchEnd, timeout_s: float, limit: int) -> ToolResult:
    notes = note_search(search, timeout_s)
    details: dict[str, Any] = {}
    shown = truncate_head("\n".join(map(show_name, listing.found)), max_lines=max(1, limit))
    if listing.is_full:
        notes.insert(0, f"{limit} results limit reached. Use limit={limit * 2} for more, or refine pattern")
        details["resultLimitReached"] = limit
    if shown.truncated:
        notes.append(f"{render_size(MAX_BYTES)} limit reached")
        details["truncation"] = shown.to_details()
    if search.timed_out:
        details["timedOut"] = True
    text = shown.content or "No files found matching pattern"
    return ToolResult.of(text + (f"\n\n[{'. '.join(notes)}]" if notes else ""), details or UNSET)
