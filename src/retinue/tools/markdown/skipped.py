"""Where an element ends that is passed over, by the rules of browsers for tags that are left out or stray. Pure."""

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
"""Elements that the end of a mark inside of them does not end."""
_MARKS = frozenset(("a", "b", "big", "code", "em", "font", "i", "nobr", "s", "small", "strike", "strong", "tt", "u"))
"""These end all the same."""
_SCOPES = frozenset(("button", "table", "td", "th", "caption", "object", "template", "select"))
_INLINE_BLOCKS = frozenset(("button", "object", "select", "template", "caption", "body", "html"))
_CELLS, _ROWS = frozenset(("td", "th")), frozenset(("td", "th", "tr"))
_GROUPS = frozenset((*_ROWS, "tbody", "thead", "tfoot"))
_TERMS, _ITEMS, _NOTHING = frozenset(("dt", "dd")), frozenset(("li",)), frozenset[str]()
_IMPLIED = {"td": _CELLS, "th": _CELLS, "tr": _ROWS, **dict.fromkeys(("tbody", "thead", "tfoot"), _GROUPS)}
_FOREIGN = frozenset(("svg", "math"))


class Level:
    """What is open inside of one element."""

    def __init__(self, name: str, is_outside: Callable[[str], bool]) -> None:
        """`is_outside` says whether an element of a name is open around this one."""
        self._open = [name]
        self._names = {name: 1}
        """How many of each name are open: a plain table, since most elements are small and many."""
        self._is_outside = is_outside
        self._deeper: dict[str, int] = {}

    def ends_before(self, tag: str) -> bool:
        """Whether a tag ends the element and is no part of it."""
        if tag[0] != "/":
            return self._find_ended(tag) == 0
        name = tag[1:]
        return name in BLOCKS and not self._names.get(name) and not self._deeper.get(name) and self._is_outside(name)

    def take(self, tag: str, *, is_closed: bool) -> bool:
        """Note a tag, `is_closed` by a slash of its own; True when it is the end of the element."""
        if tag[0] == "/":
            return self._close(tag[1:])
        ended = self._find_ended(tag)
        if ended is not None:
            self._cut(ended)
        # The slash means something in drawings and formulas only.
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
        """The place of the open element that a new one ends unsaid."""
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
