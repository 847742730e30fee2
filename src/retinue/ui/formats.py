"""Numbers, times, texts and sessions as the screen shows them. Pure."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from rich.cells import cell_len

from retinue.core.terminal import escape_text

SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
"""One frame each 80 ms."""
FRAME_S = 0.08
MOST_CHARS, MOST_ROWS = 60_000, 1500
"""More than anybody reads in one place of a screen."""
_MARKS = "\u0300-\u036f\u0483-\u0489\u0591-\u05bd\u0610-\u061a\u064b-\u065f\u0e31\u0e34-\u0e3a\u0e47-\u0e4e"
_MARKS += "\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe00-\ufe0f\ufe20-\ufe2f\u200c\u200d\u034f\u115f\u1160\u3164\uffa0"
_MARKS += "\u180b-\u180e"
_TOWERS = re.compile(f"([{_MARKS}]{{3}})[{_MARKS}]+")

_SKILL = re.compile(r'<skill name="([^"\n]+)" location="')
_SKILL_END = "\n</skill>"


def find_percent(tokens: int, window: int) -> int | None:
    """How full a context window is; None when it is not known."""
    return min(999, round(100 * tokens / window)) if tokens and window else None


def color_percent(percent: int) -> str:
    """The colour of a fill level, as a style variable's name."""
    return "error" if percent >= 85 else "warning" if percent >= 70 else "dim"


def clean(text: str) -> str:
    """Text that is safe on a terminal, with tabs as spaces; what nobody would read on a screen is cut off."""
    safe = _calm(escape_text(text[:MOST_CHARS]))[:MOST_CHARS].expandtabs(4)
    if safe.count("\n") > MOST_ROWS:
        rows = safe.split("\n")
        return "\n".join([*rows[:MOST_ROWS], f"… {len(rows) - MOST_ROWS} more lines"])
    return safe if len(text) <= MOST_CHARS else f"{safe}\n… {len(text) - MOST_CHARS} more characters"


def clean_whole(text: str) -> str:
    """The same without a cut, for what a person must see all of to decide."""
    return _calm(escape_text(text)).expandtabs(4)


def clean_line(text: str, limit: int = 400) -> str:
    """One safe line, cut where it gets too long."""
    line = " ".join(_calm(escape_text(text[: limit * 2])).split())
    return line if len(line) <= limit else f"{line[: limit - 1]}…"


def fit_parts(parts: Sequence[str], width: int) -> str:
    """Parts of a hint in one line; what does not fit is left out from the front, where the least matters."""
    left = [part for part in parts if part]
    while len(left) > 1 and cell_len(" · ".join(left)) > width:
        left.pop(0)
    return " · ".join(left)


def _calm(text: str) -> str:
    """Marks above and below letters, as many as a language needs and no tower of them."""
    return text if text.isascii() else _TOWERS.sub(r"\1", text)


def fold_middle(text: str, head: int, tail: int) -> tuple[str, int]:
    """The first and the last lines of a long text with a gap between, and how many lines the gap hides."""
    lines = text.split("\n")
    hidden = len(lines) - head - tail
    if hidden <= 1:
        return text, 0
    return "\n".join((*lines[:head], f"… {hidden} more lines …", *(lines[-tail:] if tail else ()))), hidden


def fold_skill(text: str) -> str:
    """What the user typed where a skill was put in place of its name; any other text stays as it is."""
    found = _SKILL.match(text)
    if found is None:
        return text
    end = text.rfind(_SKILL_END)
    rest = text[end + len(_SKILL_END) :].strip() if end >= 0 else "…"
    return f"/skill:{found[1]} {rest}".strip()


def describe_session(
    found: Mapping[str, Any], *, with_folder: bool = False, with_path: bool = False
) -> tuple[str, str]:
    """Its name, and the rest."""
    name = clean_line(found["name"] or fold_skill(found["firstMessage"] or "(empty)"), 80)
    more = found["path"] if with_path else found["cwd"] if with_folder else ""
    place = f" · {more}" if more else ""
    return name, f"{found['modified'][:16].replace('T', ' ')} · {found['messages']} messages{place}"
