"""A long text of markdown in parts that are drawn each by itself: of one that grows only the last changes. Pure."""

import re

SIZE = 3000
"""Characters of a part, more or less: as much as can be drawn many times a second."""
MOST_CHARS = 300_000
"""Beyond this nobody reads a reply on a screen."""
_PATIENCE = 4
"""How many sizes a part may have when it offers no good place to end."""
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")


def split_parts(text: str) -> list[str]:
    """The parts in order. Where a part ends depends only on what is before it, so earlier parts never change."""
    parts, begin, at, fence = list[str](), 0, 0, ""
    cut = text[:MOST_CHARS]
    while at < len(cut):
        end = cut.find("\n", at)
        end = len(cut) if end < 0 else end + 1
        fence = _follow_fence(cut[at : min(end, at + 40)], fence)
        size = end - begin
        if size >= SIZE * _PATIENCE:
            # No place is good: a wall of text, or of code, which goes on in a fence of its own.
            end = max(at, begin + SIZE * _PATIENCE) if end - at > SIZE else end
            parts.append(cut[begin:end])
            begin = end
        elif size >= SIZE and not fence and _ends_block(cut, end):
            parts.append(cut[begin:end])
            begin = end
        at = end
    if begin < len(cut):
        parts.append(cut[begin:])
    if len(text) > MOST_CHARS:
        parts.append(f"… {len(text) - MOST_CHARS} more characters")
    return parts


def _follow_fence(line: str, fence: str) -> str:
    """The fence that is open after a line; empty outside of code."""
    found = _FENCE.match(line)
    if found is None:
        return fence
    if not fence:
        return found[1]
    return "" if found[1][0] == fence[0] and len(found[1]) >= len(fence) else fence


def _ends_block(text: str, end: int) -> bool:
    """Whether a blank line ends here, and what follows begins anew instead of continuing a list."""
    return text[max(0, end - 2) : end] == "\n\n" and end < len(text) and not text[end].isspace()
