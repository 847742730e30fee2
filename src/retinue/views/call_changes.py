"""What a call of `edit` or `write` would change: a diff with the file as it is now, for the person who is asked.

The diff is only shown. It is not stored with the question, because it contains parts of a file that the agent may not
be allowed to read.
"""

import difflib
import json
import os
import stat
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from retinue.core.errors import RetinueError
from retinue.core.run import Question
from retinue.tools.files.edit import parse_edits

if TYPE_CHECKING:
    from retinue.tools.files.replacement import TextChange

MAX_BYTES = 256 * 1024
MAX_ROWS = 400
_MAX_COMPARED = 2000
"""Lines up to which a new content is compared line by line."""


class CallChange(Struct, frozen=True):
    path: str
    """As in the call; with the real path, if a link leads elsewhere."""
    rows: tuple[str, ...]
    """A numbered diff, not escaped; at most MAX_ROWS rows."""
    is_new: bool = False
    added: int = 0
    removed: int = 0
    hidden: int = 0
    """Rows of the diff that are left out."""


def find_change(question: Question) -> CallChange | None:
    """Return what the call in question would change; None if that is unknown or too large to compare."""
    if not question.folder:
        return None
    try:
        arguments = json.loads(question.text)
        path = arguments["path"]
        place = os.path.join(question.folder, os.path.expanduser(path))
        old = _read(place)
        rows = _compare(path, old, arguments)
    except (ValueError, RecursionError, KeyError, TypeError, OSError, RetinueError):
        return None
    real = os.path.realpath(place)
    is_elsewhere = real != os.path.normpath(os.path.join(os.path.realpath(question.folder), os.path.expanduser(path)))
    return CallChange(
        path=f"{path} → {real}" if is_elsewhere else path,
        rows=tuple(rows[:MAX_ROWS]),
        is_new=old is None,
        added=sum(row.startswith("+") for row in rows),
        removed=sum(row.startswith("-") for row in rows),
        hidden=max(0, len(rows) - MAX_ROWS),
    )


def read_texts(question: Question) -> tuple[str, str | None, str] | None:
    """Return the path and the whole text before and after the call in question; None if that is unknown."""
    from retinue.tools.files.replacement import apply_edits

    if not question.folder:
        return None
    try:
        arguments = json.loads(question.text)
        path = arguments["path"]
        place = os.path.normpath(os.path.join(question.folder, os.path.expanduser(path)))
        old = _read(place)
        new = arguments.get("content")
        new = apply_edits(old or "", parse_edits(arguments), path).text if new is None else new
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError, OSError, RetinueError):
        return None
    return (place, old, new) if isinstance(new, str) else None


def _read(path: str) -> str | None:
    """Read a small regular file; None if there is none. Raises OSError for anything else."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    except FileNotFoundError:
        return None
    with open(handle, "rb") as file:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode) or status.st_size > MAX_BYTES:
            raise OSError(f"{path} is not a small file")
        return file.read(MAX_BYTES).decode("utf-8", "replace")


def _compare(path: str, old: str | None, arguments: dict[str, Any]) -> list[str]:
    """Return the rows of the diff. Raises RetinueError if an edit does not match."""
    from retinue.tools.files.difference import render_difference
    from retinue.tools.files.replacement import apply_edits

    if "content" not in arguments:
        edited = apply_edits(old or "", parse_edits(arguments), path)
        return render_difference(path, old or "", edited.changes).diff.split("\n")
    new = arguments["content"]
    if not isinstance(new, str) or len(new) > MAX_BYTES:
        raise ValueError("the new content cannot be compared")
    if not old:
        lines = new.removesuffix("\n").split("\n") if new else []
        width = len(str(len(lines)))
        return [f"+{number:{width}} {line}" for number, line in enumerate(lines, 1)]
    return render_difference(path, old, changes).diff.split("\n") if (changes := _find_changes(old, new)) else []


def _find_changes(old: str, new: str) -> "list[TextChange]":
    from retinue.tools.files.replacement import TextChange, TextSpan

    before, after = old.splitlines(keepends=True), new.splitlines(keepends=True)
    if max(len(before), len(after)) > _MAX_COMPARED:
        return [TextChange(TextSpan(0, len(old)), new)] if old != new else []
    starts = [0]
    for line in before:
        starts.append(starts[-1] + len(line))
    codes = difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes()
    return [
        TextChange(TextSpan(starts[one], starts[two]), "".join(after[three:four]))
        for tag, one, two, three, four in codes
        if tag != "equal"
    ]
