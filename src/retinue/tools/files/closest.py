"""Shows what a file has instead of the text an edit looked for; pure and bounded."""

import difflib

_LINES_SCANNED = 20_000
_LINES_SHOWN = 12
_CHARS_COMPARED = 400
_CHARS_SHOWN = 200
_CANDIDATES = 5
_LEAST_SIMILAR = 0.5


def render_closest(text: str, wanted: str) -> str:
    """The lines most like the wanted ones, with their numbers and the difference; nothing when none come close."""
    lines = text.split("\n")[:_LINES_SCANNED]
    sought = wanted.strip("\n").split("\n")
    start, similarity = _find_closest(lines, sought)
    if similarity < _LEAST_SIMILAR:
        return ""
    count = min(len(sought), len(lines) - start)
    found = lines[start : start + count]
    where = f"line {start + 1}" if count == 1 else f"lines {start + 1}-{start + count}"
    if [line.split() for line in found] == [line.split() for line in sought]:
        head = f"Only the spaces differ from {where}:"
    else:
        head = f"The closest text is at {where}:"
    rows = [head]
    for number, (have, want) in enumerate(zip(found, sought, strict=False), start + 1):
        if len(rows) > _LINES_SHOWN:
            rows.append("  ...")
            break
        if have == want:
            rows.append(f"  {number} | {have[:_CHARS_SHOWN]}")
        else:
            rows.append(f"- oldText: {_show(want, have)}")
            rows.append(f"+ line {number}: {_show(have, want)}")
    return "\n".join(rows)


def _show(line: str, other: str) -> str:
    # Blanks are often the very difference and invisible otherwise.
    shown = line[:_CHARS_SHOWN]
    return shown.replace("\t", "→").replace(" ", "·") if line.split() == other.split() else shown


def _find_closest(lines: list[str], sought: list[str]) -> tuple[int, float]:
    """Where the block begins that is most like the sought one, and how like it is."""
    key_at = next((index for index, line in enumerate(sought) if line.strip()), 0)
    key = sought[key_at].strip()[:_CHARS_COMPARED]
    words = set(key.split())
    scored = []
    for index, line in enumerate(lines):
        stripped = line.strip()[:_CHARS_COMPARED]
        if not stripped:
            continue
        if stripped == key:
            scored.append((1.0, index))
            continue
        others = set(stripped.split())
        shared = len(words & others) / max(1, len(words | others))
        prefix = 0.3 if key[:8] == stripped[:8] else 0.0
        if shared + prefix > 0.2:
            scored.append((min(0.99, shared + prefix), index))
    scored.sort(key=lambda pair: (-pair[0], pair[1]))
    best = (0, 0.0)
    for _, index in scored[:_CANDIDATES]:
        start = max(0, index - key_at)
        found = "\n".join(
            line.strip()[:_CHARS_COMPARED] for line in lines[start : start + min(len(sought), _LINES_SHOWN)]
        )
        want = "\n".join(line.strip()[:_CHARS_COMPARED] for line in sought[:_LINES_SHOWN])
        similarity = difflib.SequenceMatcher(None, found, want, autojunk=True).ratio()
        if similarity > best[1]:
            best = (start, similarity)
    return best
