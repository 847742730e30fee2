"""Formats numbers, texts and sessions for the screen."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.cells import cell_len

from retinue.core.figures import format_duration
from retinue.core.pattern import late_pattern
from retinue.core.terminal import escape_text

SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
FRAME_S = 0.08
MOST_CHARS, MOST_ROWS = 60_000, 1500
"""Longest text shown in one place of the screen."""
_MARKS = "\u0300-\u036f\u0483-\u0489\u0591-\u05bd\u0610-\u061a\u064b-\u065f\u0e31\u0e34-\u0e3a\u0e47-\u0e4e"
_MARKS += "\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe00-\ufe0f\ufe20-\ufe2f\u200c\u200d\u034f\u115f\u1160\u3164\uffa0"
_MARKS += "\u180b-\u180e"
_TOWERS = late_pattern(f"([{_MARKS}]{{3}})[{_MARKS}]+")

_SKILL = late_pattern(r'<skill name="([^"\n]+)" location="')
_MORE = late_pattern(r"… (\d+) more lines")
_SKILL_END = "\n</skill>"


def find_percent(tokens: int, window: int) -> int | None:
    """How full a context window is, in percent; None if unknown."""
    return min(999, round(100 * tokens / window)) if tokens and window else None


def color_percent(percent: int) -> str:
    """The name of the theme colour for a fill level."""
    return "error" if percent >= 85 else "warning" if percent >= 70 else "dim"


def format_seconds(ms: float) -> str:
    """`3.2 s`; like other durations from a minute on."""
    return f"{ms / 1000:.1f} s" if ms < 59_950 else format_duration(ms)


def clean(text: str) -> str:
    """Escape text for a terminal, expand tabs, and cut it to a length that can be shown."""
    safe = _calm(escape_text(text[:MOST_CHARS]))[:MOST_CHARS].expandtabs(4)
    if safe.count("\n") > MOST_ROWS:
        rows = safe.split("\n")
        return "\n".join([*rows[:MOST_ROWS], f"… {text.count(chr(10)) + 1 - MOST_ROWS} more lines"])
    return safe if len(text) <= MOST_CHARS else f"{safe}\n… {len(text) - MOST_CHARS} more characters"


def clean_whole(text: str) -> str:
    """Like `clean` without the cut, for text that the user must see in full to make a decision."""
    return _calm(escape_text(text)).expandtabs(4)


def clean_line(text: str, limit: int = 400) -> str:
    """One escaped line, cut to the limit."""
    line = " ".join(_calm(escape_text(text[: limit * 2])).split())
    return line if len(line) <= limit else f"{line[: limit - 1]}…"


def cut_words(text: str, limit: int) -> str:
    """Cut a text after the last word that fits; a word longer than the limit is cut."""
    if len(text) <= limit:
        return text
    kept = text[: limit - 1]
    if not kept[-1:].isspace() and not text[limit - 1].isspace():
        kept = kept.rsplit(None, 1)[0]
    return kept.rstrip(" ,;:\n") + "…"


def fit_parts(parts: Sequence[str], width: int) -> str:
    """Join parts of a hint into one line; drops parts from the front, the least important, if they do not fit."""
    left = [part for part in parts if part]
    while len(left) > 1 and cell_len(" · ".join(left)) > width:
        left.pop(0)
    return " · ".join(left)


def _calm(text: str) -> str:
    """Limit combining marks to three per letter."""
    return text if text.isascii() else _TOWERS.sub(r"\1", text)


def fold_middle(text: str, head: int, tail: int) -> tuple[str, int]:
    """Replace the middle of a long text with one line; returns the text and the number of hidden lines."""
    lines = text.split("\n")
    hidden = len(lines) - head - tail
    if hidden <= 1:
        return text, 0
    if not tail and (cut := _MORE.fullmatch(lines[-1])) is not None:
        hidden += int(cut[1]) - 1  # `clean` has cut the text already
    return "\n".join((*lines[:head], f"… {hidden} more lines …", *(lines[-tail:] if tail else ()))), hidden


def fold_skill(text: str) -> str:
    """Turn an expanded skill back into what the user typed; return any other text unchanged."""
    found = _SKILL.match(text)
    if found is None:
        return text
    end = text.rfind(_SKILL_END)
    rest = text[end + len(_SKILL_END) :].strip() if end >= 0 else "…"
    return f"/skill:{found[1]} {rest}".strip()


def describe_session(
    found: Mapping[str, Any], *, with_folder: bool = False, with_path: bool = False
) -> tuple[str, str]:
    """The session's name, and a line with date, size and place."""
    name = clean_line(found["name"] or fold_skill(found["firstMessage"] or "(empty)"), 80)
    more = found["path"] if with_path else found["cwd"] if with_folder else ""
    place = f" · {more}" if more else ""
    return name, f"{found['modified'][:16].replace('T', ' ')} · {found['messages']} messages{place}"
