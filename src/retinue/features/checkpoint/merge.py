"""Merges three versions of a file line by line. Pure; content is bytes, so that every byte survives.

Unlike in git, changes of adjacent lines do not conflict: only changes of the same line, or lines added at one place.
"""

from collections import Counter
from collections.abc import Sequence
from difflib import SequenceMatcher
from typing import Literal, NamedTuple, TypeAlias

Side: TypeAlias = Literal["ours", "theirs"]
_MOST_WORK = 10_000_000
"""Above this number of equal pairs of lines, what lies between the first and the last change counts as one change."""


class LineChange(NamedTuple):
    """Lines `start` to `end` of the base were replaced by lines `first` to `last`."""

    start: int
    end: int
    first: int
    last: int

    @property
    def adds(self) -> bool:
        return self.last - self.first > self.end - self.start


class MergedFile(NamedTuple):
    content: bytes
    conflicts: list[tuple[int, int]]
    """Lines of ours that conflict, counted from 1; an insertion is the line that it precedes."""


def merge_lines(base: bytes, ours: bytes, theirs: bytes, prefer: Side | None = None) -> MergedFile:
    """Apply what changed from base to theirs to ours; `prefer` decides conflicts (default: ours)."""
    old, mine, other = map(_split, (base, ours, theirs))
    left = [(change, 0) for change in compare_lines(old, mine)]
    right = [(change, 1) for change in compare_lines(old, other)]
    merged: list[bytes] = []
    conflicts: list[tuple[int, int]] = []
    at = shift = 0
    for group in _group(sorted(left + right)):
        start, end = group[0][0].start, max(change.end for change, _ in group)
        merged += old[at:start]
        texts = [_apply(old, (mine, other)[side], start, end, [c for c, s in group if s == side]) for side in (0, 1)]
        sides = {side for _, side in group}
        if len(sides) == 2 and texts[0] != texts[1]:
            conflicts.append((start + shift + 1, max(start + shift + 1, start + shift + len(texts[0]))))
            merged += texts[1 if prefer == "theirs" else 0]
        else:
            merged += texts[min(sides)]
        shift += len(texts[0]) - (end - start)
        at = end
    return MergedFile(b"".join(merged + old[at:]), conflicts)


def compare_lines(old: Sequence[bytes], new: Sequence[bytes]) -> list[LineChange]:
    """Return what has changed, in order; removed lines one by one."""
    head = 0
    while head < min(len(old), len(new)) and old[head] == new[head]:
        head += 1
    tail = 0
    while tail < min(len(old), len(new)) - head and old[-1 - tail] == new[-1 - tail]:
        tail += 1
    left, right = old[head : len(old) - tail], new[head : len(new) - tail]
    if not left and not right:
        return []
    counts = Counter(right)
    if not left or not right or sum(counts[line] for line in left) > _MOST_WORK:
        return _split_removal(LineChange(head, head + len(left), head, head + len(right)))
    matcher = SequenceMatcher(None, left, right, autojunk=False)
    changes = [LineChange(*(head + each for each in row[1:])) for row in matcher.get_opcodes() if row[0] != "equal"]
    return [part for change in changes for part in _split_removal(change)]


def _split_removal(change: LineChange) -> list[LineChange]:
    start, end, first, last = change
    return [LineChange(at, at + 1, first, first) for at in range(start, end)] if first == last else [change]


def _split(text: bytes) -> list[bytes]:
    # bytes.splitlines would also split at a lone carriage return.
    lines = text.split(b"\n")
    return [line + b"\n" for line in lines[:-1]] + ([lines[-1]] if lines[-1] else [])


def _group(changes: list[tuple[LineChange, int]]) -> list[list[tuple[LineChange, int]]]:
    """Group changes that overlap, or that both add lines at one place, so that their order is open."""
    groups: list[list[tuple[LineChange, int]]] = []
    end = -1
    for change, side in changes:
        touches = bool(groups) and (
            change.start < end
            or any(each.end == change.start and each.adds and change.adds for each, of in groups[-1] if of != side)
        )
        groups[-1].append((change, side)) if touches else groups.append([(change, side)])
        end = max(end, change.end)
    return groups


def _apply(old: Sequence[bytes], new: Sequence[bytes], start: int, end: int, changes: list[LineChange]) -> list[bytes]:
    """Return lines `start` to `end` of the base with the changes of one side."""
    lines: list[bytes] = []
    for change in changes:
        lines += [*old[start : change.start], *new[change.first : change.last]]
        start = change.end
    return [*lines, *old[start:end]]
