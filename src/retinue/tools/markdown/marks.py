"""Signs around words: bold, slanted, struck out, code, links. They are written when their end is known.

Knows the pieces of one line, and nothing of blocks.
"""

from typing import NamedTuple

SIGNS = {"strong": "**", "b": "**", "em": "*", "i": "*", "del": "~~", "s": "~~", "code": "`", "kbd": "`", "samp": "`"}


class _Mark(NamedTuple):
    name: str
    sign: str
    """Around the text; of a link, where it leads."""
    place: int


class Marks:
    """The marks that are open in a line."""

    def __init__(self, line: list[str], most: int) -> None:
        """`line` collects the pieces of the line; more than `most` inside of each other are read as one."""
        self._line = line
        self._most = most
        self._open: list[_Mark] = []

    def __bool__(self) -> bool:
        return bool(self._open)

    def begin(self, name: str) -> None:
        """Begin a mark here."""
        if len(self._open) < self._most:
            self._open.append(_Mark(name, SIGNS[name], len(self._line)))

    def begin_link(self, url: str) -> None:
        """Begin a link here; one inside of another is none."""
        marks = self._open
        if not marks or (len(marks) < self._most and all(mark.name != "a" for mark in marks)):
            marks.append(_Mark("a", url, len(self._line)))

    def end(self, name: str) -> None:
        """End a mark, and all that were begun in it."""
        marks = self._open
        # Nearly always it is the innermost one, or there is none.
        if marks and (marks[-1].name == name or any(mark.name == name for mark in marks)):
            while self._write() != name:
                pass

    def end_all(self) -> None:
        """End what is open with the line."""
        while self._open:
            self._write()

    def _write(self) -> str:
        """Put the innermost mark around its text; its name."""
        mark = self._open.pop()
        body = "".join(self._line[mark.place :])
        text = body.strip()
        if text and mark.sign:
            before, after = body[: len(body) - len(body.lstrip())], body[len(body.rstrip()) :]
            around = f"[{text}]({mark.sign})" if mark.name == "a" else f"{mark.sign}{text}{mark.sign}"
            self._line[mark.place :] = [f"{before and ' '}{around}{after and ' '}"]
        return mark.name
