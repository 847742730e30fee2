"""Long pastes: a mark stands for each in the editor until the words are sent. Pure."""

import re

LINES = 10
CHARS = 1000
_MARK = re.compile(r"\[paste #\d+ [^\]\n]*\]")


class Pastes:
    """Marks and what they stand for. A mark that somebody has changed is just words."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}
        self._count = 0

    def add(self, text: str) -> str:
        """What to put into the editor for a paste: itself when it is short, else its mark."""
        lines = text.count("\n") + 1
        if lines <= LINES and len(text) <= CHARS:
            return text
        self._count += 1
        size = f"+{lines} lines" if lines > 1 else f"{len(text)} chars"
        mark = f"[paste #{self._count} {size}]"
        self._texts[mark] = text
        return mark

    def expand(self, text: str) -> str:
        """The words with all pastes in full."""
        return _MARK.sub(lambda found: self._texts.get(found[0], found[0]), text)

    def find_mark(self, before: str) -> int:
        """How long the mark is that a text ends with; 0 when it ends with none."""
        if not before.endswith("]"):
            return 0
        mark = before[before.rfind("[") :]
        return len(mark) if mark in self._texts else 0

    def clear(self) -> None:
        """Forget all; numbers go on, so that no two marks are alike."""
        self._texts.clear()
