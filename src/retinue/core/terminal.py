"""Untrusted text made safe for a terminal: no control, escape or direction-changing character gets through. Pure."""

import re

# C0 without tab and newline, DEL, C1, and the characters that reorder or hide text.
_UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff"
    "\U000e0000-\U000e007f]"
)


def escape_text(text: str) -> str:
    """Keep newlines and tabs; show everything unsafe as `\\xNN` or `\\uNNNN`."""
    return _UNSAFE.sub(lambda found: ascii(found[0])[1:-1], text)


def escape_line(text: str, limit: int) -> str:
    """One line of at most `limit` characters."""
    cut = text[: limit * 2]
    line = " ".join(escape_text(cut).split())
    return line if len(line) <= limit and len(cut) == len(text) else line[: limit - 1] + "…"
