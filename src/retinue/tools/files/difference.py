"""Renders what an edit changed, for people and for patch; pure. The places are known, so nothing is searched for."""

from bisect import bisect_right
from dataclasses import dataclass

from retinue.tools.files.replacing import Change
from retinue.tools.truncate import split_lines

_CONTEXT = 4
_MAX_ROWS = 4000


@dataclass(frozen=True, slots=True)
class Difference:
    """A change in two notations."""

    diff: str
    """With line numbers, for people."""
    patch: str
    """Unified."""
    first_changed_line: int
    """In the new text, from 1."""


@dataclass(slots=True)
class _Block:
    """Whole lines that were replaced."""

    start: int
    old: list[str]
    new: list[str]

    @property
    def end(self) -> int:
        return self.start + len(self.old)


def render_difference(path: str, original: str, changes: list[Change]) -> Difference:
    """Both notations of the changes of a text."""
    lines = split_lines(original)
    blocks = _to_blocks(original, lines, changes)
    width = len(str(len(lines) + sum(len(block.new) - len(block.old) for block in blocks) + 1))
    width = max(width, len(str(len(lines))))
    diff: list[str] = []
    patch = [f"--- {path}", f"+++ {path}"]
    moved = 0
    for group in _to_groups(blocks):
        first = max(0, group[0].start - _CONTEXT)
        last = min(len(lines), group[-1].end + _CONTEXT)
        if first > 0:
            diff.append(f" {'':{width}} ...")
        rows, numbered, grown = _render_group(lines, group, first, last, moved, width)
        old_count, new_count = last - first, last - first + grown
        patch.append(f"@@ -{_range(first, old_count)} +{_range(first + moved, new_count)} @@")
        patch += rows
        diff += numbered
        moved += grown
    if last < len(lines):
        diff.append(f" {'':{width}} ...")
    return Difference(_join(diff), _join(patch) + "\n", blocks[0].start + 1)


def _to_blocks(original: str, lines: list[str], changes: list[Change]) -> list[_Block]:
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line) + 1)
    blocks: list[_Block] = []
    texts: list[tuple[int, int, str]] = []
    for change in changes:
        first = min(bisect_right(starts, change.span.start) - 1, max(0, len(lines) - 1))
        # A place that ends with a line end does not reach into the next line.
        until = change.span.end - (1 if original[change.span.end - 1] == "\n" else 0)
        last = min(bisect_right(starts, max(until, change.span.start)), len(lines))
        texts.append((first, last, ""))
    index = 0
    while index < len(changes):
        first, last, _ = texts[index]
        until = index + 1
        while until < len(changes) and texts[until][0] < last:
            last = max(last, texts[until][1])
            until += 1
        end = min(starts[last], len(original))
        pieces: list[str] = []
        at = starts[first]
        for change in changes[index:until]:
            pieces += [original[at : change.span.start], change.new]
            at = max(at, change.span.end)
        if at > end:
            # The line end after the last line went too: the line that follows is now part of this one.
            last = min(last + 1, len(lines))
            end = min(starts[last], len(original))
        pieces.append(original[at:end])
        blocks.append(_trim(_Block(first, lines[first:last], split_lines("".join(pieces)))))
        index = until
    return blocks


def _trim(block: _Block) -> _Block:
    while block.old and block.new and block.old[0] == block.new[0]:
        block = _Block(block.start + 1, block.old[1:], block.new[1:])
    while block.old and block.new and block.old[-1] == block.new[-1]:
        block = _Block(block.start, block.old[:-1], block.new[:-1])
    return block


def _to_groups(blocks: list[_Block]) -> list[list[_Block]]:
    groups: list[list[_Block]] = []
    for block in blocks:
        if groups and block.start - groups[-1][-1].end <= 2 * _CONTEXT:
            groups[-1].append(block)
        else:
            groups.append([block])
    return groups


def _render_group(
    lines: list[str], group: list[_Block], first: int, last: int, moved: int, width: int
) -> tuple[list[str], list[str], int]:
    rows: list[str] = []
    numbered: list[str] = []
    grown = 0
    at = first

    def keep(until: int) -> None:
        for number in range(at, until):
            rows.append(f" {lines[number]}")
            numbered.append(f" {number + 1:{width}} {lines[number]}")

    for block in group:
        keep(block.start)
        for number, line in enumerate(block.old, block.start + 1):
            rows.append(f"-{line}")
            numbered.append(f"-{number:{width}} {line}")
        for number, line in enumerate(block.new, block.start + moved + grown + 1):
            rows.append(f"+{line}")
            numbered.append(f"+{number:{width}} {line}")
        grown += len(block.new) - len(block.old)
        at = block.end
    keep(last)
    return rows, numbered, grown


def _range(start: int, count: int) -> str:
    return f"{start + 1 if count else start},{count}"


def _join(rows: list[str]) -> str:
    if len(rows) > _MAX_ROWS:
        rows = [*rows[:_MAX_ROWS], f"[{len(rows) - _MAX_ROWS} more lines]"]
    return "\n".join(rows)
