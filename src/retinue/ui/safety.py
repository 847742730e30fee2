"""The last barrier before the terminal: whatever a widget draws, no character of it can command the terminal.

Views clean the texts they show, visibly; this catches what came in another way, such as an entity in markdown.
"""

import re

from rich.segment import Segment
from textual.color import Color
from textual.filter import LineFilter

# All of these have no width, so that leaving them out changes no layout; lone surrogates have and cannot be written.
_UNSAFE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\U000e0000-\U000e007f]"
)
_SURROGATE = re.compile("[\ud800-\udfff]")


class SafeText(LineFilter):
    """Leaves out what could command a terminal, and links that hide where they lead."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        """The same segments without it."""
        return [_clean(segment) for segment in segments]


def _clean(segment: Segment) -> Segment:
    text, style, control = segment
    if text.isascii() and text.isprintable() and (style is None or style.link is None):
        return segment
    safe = _SURROGATE.sub("?", _UNSAFE.sub("", text))
    if style is not None and style.link is not None:
        style = style.update_link(None)
    return Segment(safe, style, control)
