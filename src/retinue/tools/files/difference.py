"""Renders the changes of an edit as a numbered diff for people and as a unified patch. Pure."""

from bisect import bisect_right
from itertools import accumulate

from msgspec import Struct

from retinue.tools.files.replacement import TextChange
from retinue.tools.truncate import split_lines

_CONTEXT = 4
_MAX_ROWS = 4000


class Difference(Struct, frozen=True):
    diff: str
    patch: str
    first_changed_line: int
    """In the new text, counted from 1."""


class _Block(Struct, frozen=True):
    start: int
    old: list[str]
    new: list[str]

    @property
    def end(self) -> int:
        return self.start + len(self.old)


def render_difference(path: str, original: str, changes: list[TextChange]) -> Difference:
    text = _Text(original)
    blocks, new_open = _to_blocks(text, changes)
    total = len(text.lines)
    width = len(str(total + max(0, sum(len(block.new) - len(block.old) for block in blocks))))
    diff: list[str] = []
    patch = [f"--- {path}", f"+++ {path}"]
    moved = 0
    last = 0
    for group in _to_groups(blocks):
        first = max(0, group[0].start - _CONTEXT)
        last = min(total, group[-1].end + _CONTEXT)
        if first > 0:
            diff.append(f" {'':{width}} ...")
        rows, grown = _to_rows(text, group, first, last, moved)
        patch.append(f"@@ -{_range(first, last - first)} +{_range(first + moved, last - first + grown)} @@")
        for row in rows:
            patch.append(f"{row.sign}{row.text}")
            diff.append(f"{row.sign}{row.number:{width}} {row.text}")
            if (text.is_open and row.is_last_old) or (new_open and row.is_last_new):
                patch.append("\\ No newline at end of file")
        moved += grown
    if last < total:
        diff.append(f" {'':{width}} ...")
    return Difference(_join(diff), _join(patch) + "\n", blocks[0].start + 1)


class _Text:
    """A text and the positions where its lines begin."""

    def __init__(self, original: str) -> None:
        self.original = original
        self.lines = split_lines(original)
        self.is_open = not original.endswith("\n")
        """Whether the last line has no newline."""
        self.starts = [0, *accumulate(len(line) + 1 for line in self.lines)]

    def find_line(self, at: int) -> int:
        """Return the line of a position, counted from 0."""
        return bisect_right(self.starts, at) - 1


def _to_blocks(text: _Text, changes: list[TextChange]) -> tuple[list[_Block], bool]:
    """Return the changed lines, and whether the last line of the new text has no newline."""
    blocks: list[_Block] = []
    original = text.original
    new_open = text.is_open
    index = 0
    while index < len(changes):
        first = text.find_line(changes[index].span.start)
        at = text.starts[first]
        end = last = 0
        new = ""
        while index < len(changes) and (not end or changes[index].span.start < end):
            change = changes[index]
            new += original[at : change.span.start] + change.new
            at = change.span.end
            last = text.find_line(at)
            # Unless the span ends at a line end, the rest of its last line belongs to the block.
            if text.starts[last] != at or (new and not new.endswith("\n")):
                last = min(last + 1, len(text.lines))
            end = min(text.starts[last], len(original))
            index += 1
        new += original[at:end]
        reaches_end = last == len(text.lines)
        if reaches_end:
            new_open = bool(new) and not new.endswith("\n")
        ends_differ = reaches_end and new_open != text.is_open
        blocks.append(_trim(_Block(first, text.lines[first:last], split_lines(new)), ends_differ=ends_differ))
    return blocks, new_open


def _trim(block: _Block, *, ends_differ: bool) -> _Block:
    """Remove unchanged lines at the start and the end."""
    old, new = block.old, block.new
    shared = min(len(old), len(new)) - (1 if ends_differ else 0)
    head = 0
    while head < shared and old[head] == new[head]:
        head += 1
    tail = 0
    while not ends_differ and tail < shared - head and old[-1 - tail] == new[-1 - tail]:
        tail += 1
    return _Block(block.start + head, old[head : len(old) - tail], new[head : len(new) - tail])


def _to_groups(blocks: list[_Block]) -> list[list[_Block]]:
    groups: list[list[_Block]] = []
    for block in blocks:
        if groups and block.start - groups[-1][-1].end <= 2 * _CONTEXT:
            groups[-1].append(block)
        else:
            groups.append([block])
    return groups


class _Row(Struct, frozen=True):
    sign: str
    number: int
    text: str
    is_last_old: bool = False
    is_last_new: bool = False


def _to_rows(text: _Text, group: list[_Block], first: int, last: int, moved: int) -> tuple[list[_Row], int]:
    """Return the rows of one hunk, and the number of lines by which it grows."""
    rows: list[_Row] = []
    total = len(text.lines)
    grown = 0
    at = first
    for block in group:
        rows += [_Row(" ", number + 1, text.lines[number]) for number in range(at, block.start)]
        rows += [_Row("-", n, line, is_last_old=n == total) for n, line in enumerate(block.old, block.start + 1)]
        until = len(block.new) if block.end == total else 0
        base = block.start + moved + grown
        rows += [_Row("+", base + n, line, is_last_new=n == until) for n, line in enumerate(block.new, 1)]
        grown += len(block.new) - len(block.old)
        at = block.end
    rows += [_Row(" ", number + 1, text.lines[number], is_last_old=number + 1 == total) for number in range(at, last)]
    return rows, grown


def _range(start: int, count: int) -> str:
    return f"{start + 1 if count else start},{count}"


def _join(rows: list[str]) -> str:
    if len(rows) > _MAX_ROWS:
        rows = [*rows[:_MAX_ROWS], f"[{len(rows) - _MAX_ROWS} more lines]"]
    return "\n".join(rows)
