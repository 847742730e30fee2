"""Tags as browsers tell them from text: where one ends, what it is called, what it has. Pure; standard library only."""

import re
from html import unescape

VOID = frozenset(
    ("area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "param", "source", "track", "wbr")
)
"""Elements that have nothing inside and no end."""
is_plain = re.compile(r"""[^"']*(?:="[^"]*"[^"']*)*""").fullmatch
"""Whether all quotes in a piece are around values, so that its first `>` is the end of the tag."""
_COMMON = frozenset(
    f"/{name}" for name in ("a", "b", "i", "p", "em", "div", "span", "strong", "code", "li", "td", "tr")
)
_NAME = re.compile(r"/?[a-zA-Z][^\s/>]*")
_STOP = re.compile(r"[=>]")
_BARE = re.compile(r"[^\s>]*")
_BLANK = re.compile(r"\s*")
_ATTRIBUTE = re.compile(r"""([^\s"'>/=]+)(?:\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s>]+)))?""")


def find_name(word: str) -> str:
    """The name of a tag, with the sign of its end; empty for what is no tag."""
    if word.isalpha() and word.islower():
        return word
    if word in _COMMON:
        return word
    found = _NAME.match(word)
    return found[0].lower() if found else ""


def find_end(text: str) -> int:
    """Where a tag ends: at the first `>` that is in no value; -1 when it does not end here."""
    at = 0
    while (found := _STOP.search(text, at)) is not None:
        if found[0] == ">":
            return found.start()
        at = _BLANK.match(text, found.end()).end()  # type: ignore[union-attr]
        if text[at : at + 1] in ('"', "'"):
            closing = text.find(text[at], at + 1)
            if closing < 0:
                return -1
            at = closing + 1
        else:
            at = _BARE.match(text, at).end()  # type: ignore[union-attr]
    return -1


def read_attributes(inside: str) -> dict[str, str]:
    """The attributes of a tag; of two with one name the first counts."""
    name = _NAME.match(inside)
    found: dict[str, str] = {}
    for key, double, single, bare in _ATTRIBUTE.findall(inside, name.end() if name else 0):
        found.setdefault(key.lower(), unescape(double or single or bare))
    return found
