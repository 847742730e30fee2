"""The grep tool: finds lines that match a pattern, in files that are not ignored by .gitignore."""

import os
import re
import stat
from functools import cached_property
from typing import Any, Self

from msgspec import UNSET

from retinue.core.errors import ToolRetry, quote
from retinue.core.model import ToolSpec
from retinue.core.tool import Effect, ToolContext, ToolResult
from retinue.tools.arguments import take_count, take_flag, take_path, take_text
from retinue.tools.files.ripgrep import Ripgrep, SearchEnd, exclude_paths, ignore_arguments, note_search, open_boundary
from retinue.tools.path_guard import find_ground
from retinue.tools.paths import explain, name_kind, resolve_existing, show_raw_name
from retinue.tools.registry import ToolOptions, load_description
from retinue.tools.truncate import MAX_BYTES, MAX_LINE_CHARS, cut_line, render_size, truncate_head

_LIMIT = 100
_MAX_PATTERN = 64 * 1024
_MAX_CONTEXT = 1000
# ripgrep itself cuts longer lines. Four bytes for each character that is shown.
_COLUMNS = 4 * MAX_LINE_CHARS + 4
_CUT_BY_RIPGREP = r" \[\.\.\. (?:omitted end of long line|\d+ more match(?:es)?)\]$"
_BATCH = 64
"""How many files the second search opens at once."""
_HANDLES = "/proc/self/fd" if os.path.isdir("/proc/self/fd") else "/dev/fd"
_BINARY = rb"(?:\A|\n)([^\n]*): binary file matches \(found [^\n]*\)\n"


class GrepTool:
    effect = Effect.READ
    hint = "Search file contents (respects .gitignore)"
    guidelines: tuple[str, ...] = ()

    def __init__(self, ripgrep: Ripgrep) -> None:
        self._ripgrep = ripgrep

    @classmethod
    def build(cls, options: ToolOptions) -> Self:
        return cls(Ripgrep(options.trees))

    @cached_property
    def spec(self) -> ToolSpec:
        properties = {
            "pattern": {"type": "string", "description": "Regex, or text with literal"},
            "path": {"type": "string", "description": "File or directory; default: working directory"},
            "glob": {"type": "string", "description": "Only these files, e.g. '*.ts'"},
            "ignoreCase": {"type": "boolean"},
            "literal": {"type": "boolean"},
            "context": {"type": "integer", "description": "Lines around each match"},
            "limit": {"type": "integer", "description": f"Matches, default {_LIMIT}"},
        }
        schema = {"type": "object", "properties": properties, "required": ["pattern"]}
        return ToolSpec("grep", load_description(__file__), schema)

    async def call(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        path = take_path(arguments, default=".")
        limit = take_count(arguments, "limit", _LIMIT)
        around = min(_MAX_CONTEXT, take_count(arguments, "context", 0, least=0))
        options = _to_options(arguments, around)
        resolved = resolve_existing(path, context.cwd)
        resolved, hidden = find_ground(resolved, path, context.territory)
        folder, target = _split_target(path, resolved)
        matches = _Matches(limit)
        where = [*ignore_arguments(folder), *exclude_paths(hidden), "--", target]
        boundary = await open_boundary(context)
        if boundary is None and context.territory.hidden:
            search = await self._look_twice(options, where, folder, context, matches)
        else:
            search = await self._ripgrep.run([*options, *where], folder, b"\n", context.cwd, matches.take, boundary)
        if search.error:
            raise ToolRetry(f"grep failed: {search.error}")
        return _render(matches, search, self._ripgrep.timeout_s)

    async def _look_twice(
        self, options: list[str], where: list[str], folder: str, context: ToolContext, matches: "_Matches"
    ) -> SearchEnd:
        """Search by name first, then again in the files that can be opened without following links; show only those."""
        from retinue.tools.files.ripgrep import Recheck

        names: list[str] = []

        def note(raw: bytes) -> bool:
            names.append(os.fsdecode(raw))
            return len(names) > matches.limit

        listing = [*options, "--files-with-matches", *where]
        search = await self._ripgrep.run(listing, folder, b"\0", context.cwd, note)
        try:
            with Recheck(folder, context.territory) as again:
                while names and not matches.is_enough and not search.error:
                    batch, names[:_BATCH] = names[:_BATCH], []
                    held = {name: handle for name in batch if (handle := again.open(name)) is not None}
                    try:
                        search = search.add(await self._look_into(held, options, folder, context, matches))
                    finally:
                        for handle in held.values():
                            os.close(handle)
        except OSError as error:
            raise explain(error, folder, folder) from None
        return search

    async def _look_into(
        self, held: dict[str, int], options: list[str], folder: str, context: ToolContext, matches: "_Matches"
    ) -> SearchEnd:
        matches.names = {os.fsencode(f"{_HANDLES}/{handle}"): os.fsencode(name) for name, handle in held.items()}
        if not held:
            return SearchEnd(False, 0, "")
        wanted = [*options, "--threads=1", "--", *(f"{_HANDLES}/{handle}" for handle in held.values())]
        handles = tuple(held.values())
        return await self._ripgrep.run(wanted, folder, b"\n", context.cwd, matches.take, pass_fds=handles)


def _to_options(arguments: dict[str, Any], around: int) -> list[str]:
    pattern = take_text(arguments, "pattern")
    if not pattern or "\0" in pattern or len(pattern) > _MAX_PATTERN:
        raise ToolRetry(f"pattern is {quote(pattern)}: expected 1 to {_MAX_PATTERN} characters, none of them NUL.")
    if not _is_text(pattern):
        raise ToolRetry(f"pattern is {quote(pattern)}: a lone surrogate is not valid text.")
    options = ["--line-number", "--with-filename", "--no-heading", "--null", "--no-context-separator"]
    options += [f"--max-columns={_COLUMNS}", "--max-columns-preview", f"--context={around}"]
    options += ["--ignore-case"] if take_flag(arguments, "ignoreCase") else []
    options += ["--fixed-strings"] if take_flag(arguments, "literal") else []
    glob = take_text(arguments, "glob", default="")
    if glob.strip():
        options += _to_filter(glob.strip())
    return [*options, f"--regexp={pattern}"]


def _to_filter(glob: str) -> list[str]:
    from retinue.tools.files.globs import Glob

    Glob(glob.removeprefix("!"))
    name = glob.removeprefix("**/")
    if "/" not in name and ":" not in name and not name.startswith("!"):
        # As a file type, not with --glob, which would also include files that .gitignore excludes.
        return [f"--type-add=wanted:{name}", "--type=wanted"]
    if "/" in glob and not glob.startswith(("/", "**/", "!")):
        glob = f"**/{glob}"
    return [f"--glob={glob}"]


def _is_text(value: str) -> bool:
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _split_target(path: str, resolved: str) -> tuple[str, str]:
    """Return the folder to run in and the target in it. Only files and directories are accepted: others may block."""
    try:
        mode = os.stat(resolved).st_mode
        if stat.S_ISDIR(mode):
            return resolved, "./"
        if not stat.S_ISREG(mode):
            raise ToolRetry(f"{quote(path, 200)} is {name_kind(mode)}: expected a file or a directory.")
        # ripgrep would only count a file that cannot be opened as unreadable.
        os.close(os.open(resolved, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC))
    except OSError as error:
        raise explain(error, path, resolved) from None
    return os.path.dirname(resolved), f"./{os.path.basename(resolved)}"


class _Matches:
    """Collects lines until a limit is reached."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        # One read beyond what is shown is enough to know that there is more.
        self._room = 2 * MAX_BYTES
        self._begun = b""
        self.count = 0
        self.rows: list[str] = []
        self.binary: list[str] = []
        self.is_full = False
        self.has_cut_lines = False
        self.names: dict[bytes, bytes] = {}
        """Searched path → the real name, for files that are searched through a descriptor."""

    @property
    def is_enough(self) -> bool:
        """Whether further lines would not be shown."""
        return self.is_full or self._room <= 0

    def take(self, line: bytes) -> bool:
        """Take one line of output; return whether the limit is reached."""
        # A record is NAME NUL NUMBER (: or -) TEXT. The name may contain newlines.
        record = self._begun + line
        name, nul, rest = record.partition(b"\0")
        if not nul:
            self._begun = b"" if self._take_binary(record) else record + b"\n"
            return False
        self._begun = b""
        found = re.match(rb"(\d+)([:-])", rest)
        if found is None:
            return False
        is_match = found[2] == b":"
        if is_match and self.count >= self.limit:
            self.is_full = True
            return True
        self.count += is_match
        self._add(name, found, rest[found.end() :])
        return self._room <= 0

    def _take_binary(self, record: bytes) -> bool:
        found = re.fullmatch(_BINARY, record + b"\n")
        if found is not None:
            self.binary.append(self._show(found[1]))
        return found is not None

    def _show(self, name: bytes) -> str:
        return show_raw_name(self.names.get(name, name).removeprefix(b"./"))

    def _add(self, name: bytes, found: re.Match[bytes], raw: bytes) -> None:
        text = raw.decode("utf-8", "replace").rstrip("\r")
        text, cut_before = re.subn(_CUT_BY_RIPGREP, "", text) if len(raw) > _COLUMNS else (text, 0)
        text, cut = cut_line(text)
        self.has_cut_lines |= bool(cut_before) or cut
        number = found[1].decode()
        shown = self._show(name)
        row = f"{shown}:{number}: {text}" if found[2] == b":" else f"{shown}-{number}- {text}"
        self.rows.append(row)
        self._room -= len(row)


def _render(matches: _Matches, search: SearchEnd, timeout_s: float) -> ToolResult:
    limit = matches.limit
    notes = note_search(search, timeout_s)
    details: dict[str, Any] = {}
    shown = truncate_head("\n".join(matches.rows), max_lines=max(1, len(matches.rows)))
    if matches.is_full:
        notes.insert(0, f"{limit} matches limit reached. Use limit={limit * 2} for more, or refine pattern")
        details["matchLimitReached"] = limit
    if shown.truncated:
        notes.append(f"{render_size(MAX_BYTES)} limit reached")
        details["truncation"] = shown.to_details()
    if matches.has_cut_lines:
        notes.append(f"Some lines are cut at {MAX_LINE_CHARS} characters. Use read to see them whole")
        details["linesTruncated"] = True
    if matches.binary:
        notes.append(f"Binary files that match: {', '.join(matches.binary[:20])}")
    if search.timed_out:
        details["timedOut"] = True
    text = shown.content or "No matches found"
    return ToolResult.of(text + (f"\n\n[{'. '.join(notes)}]" if notes else ""), details or UNSET)
