"""Finds the end of a skipped HTML element by the browsers' rules for missing and stray tags. Pure."""

from collections.abc import Callable

from retinue.tools.markdown.tags import VOID

MAX_LEVELS = 200
BLOCKS = frozenset(
    (
        *(
            "address",
            "article",
            "aside",
            "blockquote",
            "body",
            "button",
            "caption",
            "center",
            "dd",
            "details",
            "dialog",
        ),
        *("div", "dl", "dt", "fieldset", "figcaption", "figure", "footer", "form", "h1", "h2", "h3", "h4", "h5", "h6"),
        *("header", "hgroup", "html", "li", "main", "menu", "nav", "object", "ol", "p", "pre", "section", "select"),
        *("summary", "table", "tbody", "td", "template", "tfoot", "th", "thead", "tr", "ul"),
    )
)
"""An end tag inside one of these elements does not close an element around it…"""
_MARKS = frozenset(("a", "b", "big", "code", "em", "font", "i", "nobr", "s", "small", "strike", "strong", "tt", "u"))
"""…except for these elements, whose end tags close them anyway."""
_SCOPES = frozenset(("button", "table", "td", "th", "caption", "object", "template", "select"))
_INLINE_BLOCKS = frozenset(("button", "object", "select", "template", "caption", "body", "html"))
_CELLS, _ROWS = frozenset(("td", "th")), frozenset(("td", "th", "tr"))
_GROUPS = frozenset((*_ROWS, "tbody", "thead", "tfoot"))
_TERMS, _ITEMS, _NOTHING = frozenset(("dt", "dd")), frozenset(("li",)), frozenset[str]()
_IMPLIED = {"td": _CELLS, "th": _CELLS, "tr": _ROWS, **dict.fromkeys(("tbody", "thead", "tfoot"), _GROUPS)}
_FOREIGN = frozenset(("svg", "math"))


class Level:
    """The open elements inside a skipped element."""

    def __init__(self, name: str, is_outside: Callable[[str], bool]) -> None:
        """`is_outside` returns whether an element of that name is open around this one."""
        self._open = [name]
        self._names = {name: 1}
        """How many elements of each name are open. A plain dict, because most elements are small and there are many."""
        self._is_outside = is_outside
        self._deeper: dict[str, int] = {}

    def ends_before(self, tag: str) -> bool:
        """Whether a tag ends the element without being part of it."""
        if tag[0] != "/":
            return self._find_ended(tag) == 0
        name = tag[1:]
        return name in BLOCKS and not self._names.get(name) and not self._deeper.get(name) and self._is_outside(name)

    def take(self, tag: str, *, is_closed: bool) -> bool:
        """Process a tag, `is_closed` if it ends with a slash; return True if it ends the element."""
        if tag[0] == "/":
            return self._close(tag[1:])
        ended = self._find_ended(tag)
        if ended is not None:
            self._cut(ended)
        # The slash has a meaning only in svg and math.
        if tag in VOID or (is_closed and (tag in _FOREIGN or any(self._names.get(each) for each in _FOREIGN))):
            return False
        if len(self._open) < MAX_LEVELS:
            self._open.append(tag)
            self._names[tag] = self._names.get(tag, 0) + 1
        else:
            self._deeper[tag] = self._deeper.get(tag, 0) + 1
        return False

    def _close(self, name: str) -> bool:
        if self._deeper.get(name):
            self._deeper[name] -= 1
            return False
        if not self._names.get(name):
            return False
        is_strong = name in BLOCKS or name in _MARKS
        for place in range(len(self._open) - 1, -1, -1):
            if self._open[place] == name:
                self._cut(place)
                return place == 0
            if not is_strong and self._open[place] in BLOCKS:
                break
        return False

    def _cut(self, place: int) -> None:
        for name in self._open[place:]:
            self._names[name] -= 1
        del self._open[place:]

    def _find_ended(self, name: str) -> int | None:
        """Return the index of the open element that a new tag implicitly closes."""
        if name in _IMPLIED:
            return self._find_part(_IMPLIED[name])
        wanted = _TERMS if name in _TERMS else _ITEMS if name == "li" else _NOTHING
        closes_text = (name in BLOCKS and name not in _INLINE_BLOCKS) or name == "hr"
        if not any(self._names.get(each) for each in wanted) and not (closes_text and self._names.get("p")):
            return None
        for place in range(len(self._open) - 1, -1, -1):
            open_ = self._open[place]
            if open_ in wanted or (closes_text and open_ == "p"):
                return place
            if open_ in _SCOPES or (wanted and open_ in BLOCKS and open_ not in ("address", "div", "p")):
                return None
        return None

    def _find_part(self, wanted: frozenset[str]) -> int | None:
        if not any(self._names.get(each) for each in wanted):
            return None
        found = None
        for place in range(len(self._open) - 1, -1, -1):
            if self._open[place] == "table":
                break
            found = place if self._open[place] in wanted else found
        return found
