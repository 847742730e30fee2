"""Parses HTML tags as browsers do: end, name, attributes, and which of them hide their text. Pure."""

import re
from html import unescape

from retinue.core.pattern import late_pattern

VOID = frozenset(
    ("area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "param", "source", "track", "wbr")
)
"""Elements without content and end tag."""
is_plain = re.compile(r"""[^"']*(?:="[^"]*"[^"']*)*""").fullmatch
"""Whether all quotes in a piece enclose attribute values, so that its first `>` ends the tag."""
_COMMON = frozenset(
    f"/{name}" for name in ("a", "b", "i", "p", "em", "div", "span", "strong", "code", "li", "td", "tr")
)
_NAME = late_pattern(r"/?[a-zA-Z][^\s/>]*")
_STOP = late_pattern(r"[=>]")
_BARE = late_pattern(r"[^\s>]*")
_BLANK = late_pattern(r"\s*")
_ATTRIBUTE = late_pattern(r"""([^\s"'>/=]+)(?:\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s>]+)))?""")


def find_name(word: str) -> str:
    """Return the name of a tag, with a slash for an end tag; empty if it is not a tag."""
    if word.isalpha() and word.islower():
        return word
    if word in _COMMON:
        return word
    found = _NAME.match(word)
    return found[0].lower() if found else ""


def find_end(text: str) -> int:
    """Return the index of the first `>` outside a value, which ends the tag; -1 if there is none."""
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
    """Return the attributes of a tag; the first of duplicates counts."""
    name = _NAME.match(inside)
    found: dict[str, str] = {}
    for key, double, single, bare in _ATTRIBUTE.findall(inside, name.end() if name else 0):
        found.setdefault(key.lower(), unescape(double or single or bare))
    return found


# Controls, surrogates, and characters that reorder, hide, pad or tag text. Joiners stay, because scripts need them.
_UNSEEN = late_pattern(
    "[\0-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u200e\u200f"
    "\u202a-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e0fff]"
    # One variation selector chooses the form of a sign; a row of them can encode a message.
    "|(?<=[\ufe00-\ufe0f])[\ufe00-\ufe0f]+"
)


def drop_unseen(text: str) -> str:
    return _UNSEEN.sub("", text) if not text.isprintable() else text
