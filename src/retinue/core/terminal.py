"""Escape untrusted text for a terminal: control, escape and direction-changing characters. Pure."""

from retinue.core.pattern import late_pattern

# C0 without tab and newline, DEL, C1, and characters that reorder or hide text.
_UNSAFE = late_pattern(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e0fff]"
)
# More combining marks on one letter than any script needs: they would cover the lines above and below.
_MARKS = "[\u0300-\u036f\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f]"
_FLOOD = late_pattern(f"({_MARKS}{{4}}){_MARKS}+")


def escape_text(text: str) -> str:
    """Show unsafe characters as `\\xNN` or `\\uNNNN`; newlines and tabs are kept."""
    if text.isascii() and text.isprintable():
        return text
    return _FLOOD.sub(r"\1", _UNSAFE.sub(lambda found: ascii(found[0])[1:-1], text))


def escape_line(text: str, limit: int) -> str:
    """Escape the text and shorten it to one line of at most `limit` characters."""
    cut = text[: limit * 2]
    line = " ".join(escape_text(cut).split())
    return line if len(line) <= limit and len(cut) == len(text) else line[: limit - 1] + "…"
