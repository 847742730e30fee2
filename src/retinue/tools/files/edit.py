"""The edit tool: replaces exact pieces of text in one file and leaves every other byte unchanged."""

import os
import stat
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

from msgspec.structs import replace

from retinue.core.errors import ToolRetry, quote
from retinue.core.launch import Territory
from retinue.core.model import ToolSpec
from retinue.core.tool import Effect, ToolContext, ToolResult
from retinue.tools.arguments import take_path
from retinue.tools.file_changes import FileChange, FileChanges, PathLocks
from retinue.tools.files.write import encode_text, explain_write, finish_thread, note_links
from retinue.tools.path_guard import open_reading
from retinue.tools.paths import Revision, explain, name_kind, resolve_existing
from retinue.tools.registry import ToolOptions, load_description
from retinue.tools.truncate import render_size

if TYPE_CHECKING:  # imported by the first call, to start faster
    from retinue.tools.atomic_write import Replaced
    from retinue.tools.files.difference import Difference
    from retinue.tools.files.replacement import Edit, EditedText

# Above this size, finding the most similar text may take so long that it is done in a thread.
_INLINE_BYTES = 16 * 1024
_MAX_BYTES = 64 * 1024 * 1024
_BOM = b"\xef\xbb\xbf"


class EditTool:
    effect = Effect.WRITE
    records_changes = True
    """Each change is recorded by the tool itself, before it is made."""
    hint = "Replace exact text in a file, several places in one call"
    guidelines = (
        "Use edit for changes to a file; put all changes of one file in one call, each oldText short but unique.",
    )

    def __init__(self, locks: PathLocks, file_changes: FileChanges | None = None) -> None:
        self._locks = locks
        self.file_changes = file_changes or FileChanges()

    @classmethod
    def build(cls, options: ToolOptions) -> Self:
        return cls(options.locks, options.file_changes)

    @cached_property
    def spec(self) -> ToolSpec:
        """`edits` is not required, because older callers pass oldText and newText next to the path."""
        text = {"type": "string"}
        edit = {"type": "object", "properties": {"oldText": text, "newText": text}, "required": ["oldText", "newText"]}
        properties = {"path": {"type": "string"}, "edits": {"type": "array", "items": edit}}
        return ToolSpec(
            "edit", load_description(__file__), {"type": "object", "properties": properties, "required": ["path"]}
        )

    async def call(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        """Apply all edits or none."""
        path = take_path(arguments)
        edits = parse_edits(arguments)
        resolved = resolve_existing(path, context.cwd)
        async with self._locks.hold(resolved):
            try:
                size = os.stat(resolved).st_size + sum(len(edit.new) for edit in edits)
                if size <= _INLINE_BYTES:
                    edited, difference, done = self._edit(path, resolved, edits, context)
                else:
                    edited, difference, done = await finish_thread(self._edit, path, resolved, edits, context)
            except FileNotFoundError as error:
                raise explain(error, path, resolved) from None
            except OSError as error:
                raise explain_write(error, path, resolved) from None
        details = {
            "diff": difference.diff,
            "patch": difference.patch,
            "firstChangedLine": difference.first_changed_line,
        }
        text = f"Successfully replaced {len(edits)} block(s) in {path}.{note_links(done)}{_note_forgiven(edited)}"
        return ToolResult.of(text, details)

    def _edit(
        self, path: str, resolved: str, edits: "list[Edit]", context: ToolContext
    ) -> "tuple[EditedText, Difference, Replaced]":
        from retinue.tools.atomic_write import replace_file
        from retinue.tools.files.difference import render_difference
        from retinue.tools.files.replacement import apply_edits

        data, revision = _read_whole(resolved, path, context.territory)
        target = os.path.realpath(resolved)
        self.file_changes.check(context.run_id, target, path, revision, is_blind=False)
        bom = _BOM if data.startswith(_BOM) else b""
        # Bytes that are not UTF-8 survive decoding and encoding.
        original = data[len(bom) :].decode("utf-8", "surrogateescape")
        edited = apply_edits(original, edits, path)
        difference = render_difference(path, original, edited.changes)
        new = bom + edited.text.encode("utf-8", "surrogateescape")
        with self.file_changes.recording(context.run_id, target, new):
            done = replace_file(resolved, new, expected=revision, territory=context.territory)
        difference = _without_escapes(difference)
        if done.revision is not None:
            change = FileChange(context.run_id, context.run_name, done.revision, difference.patch)
            self.file_changes.note_change(target, change)
        return edited, difference, done


def parse_edits(arguments: dict[str, Any]) -> "list[Edit]":
    """Read the edits of a call in any of the forms that models use."""
    given = arguments.get("edits")
    if isinstance(given, str):
        import json

        try:
            given = json.loads(given)
        except (ValueError, RecursionError):
            raise ToolRetry(f"edits is {quote(given)}: expected a list of {{oldText, newText}}.") from None
    entries = [given] if isinstance(given, dict) else given
    if entries is None:
        entries = []
    if not isinstance(entries, list):
        raise ToolRetry(f"edits is {quote(given)}: expected a list of {{oldText, newText}}.")
    if "oldText" in arguments or "newText" in arguments:
        entries = [*entries, arguments]
    if not entries:
        raise ToolRetry("edits is empty: expected at least one {oldText, newText}.")
    return [_parse_edit(entry, index) for index, entry in enumerate(entries)]


def _parse_edit(entry: Any, index: int) -> "Edit":
    from retinue.tools.files.replacement import Edit

    if not isinstance(entry, dict):
        raise ToolRetry(f"edits[{index}] is {quote(entry)}: expected an object with oldText and newText.")
    for name in ("oldText", "newText"):
        value = entry.get(name)
        if not isinstance(value, str):
            what = "missing" if value is None else quote(value)
            raise ToolRetry(f"edits[{index}].{name} is {what}: expected a string.")
        encode_text(value, f"edits[{index}].{name}")
    return Edit(entry["oldText"], entry["newText"])


def _read_whole(resolved: str, path: str, territory: Territory) -> "tuple[bytes, Revision]":
    handle = open_reading(resolved, path, territory)
    with open(handle, "rb", buffering=0) as file:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise ToolRetry(f"{quote(path, 200)} is {name_kind(status.st_mode)}: expected a regular file.")
        if status.st_size > _MAX_BYTES:
            size, most = render_size(status.st_size), render_size(_MAX_BYTES)
            raise ToolRetry(f"{quote(path, 200)} has {size}; files above {most} cannot be edited. Use bash with sed.")
        # One byte more than the size. A file that grew is noticed when the revision is compared.
        data = file.read(status.st_size + 1) or b""
        while len(data) < status.st_size and (piece := file.read(status.st_size - len(data))):
            data += piece
        return data, Revision.of(status)


def _note_forgiven(edited: "EditedText") -> str:
    if not edited.forgiven:
        return ""
    which = ", ".join(f"edits[{index}]" for index in edited.forgiven)
    return f" {which} matched only with typographic quotes, dashes, spaces and trailing blanks forgiven."


def _without_escapes(difference: "Difference") -> "Difference":
    # Surrogates that stand for raw bytes cannot be part of a message.
    def clean(text: str) -> str:
        return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")

    return replace(difference, diff=clean(difference.diff), patch=clean(difference.patch))
