"""Detects elements of a web page that are invisible to people, such as text for models only. Pure; standard library
only.

It checks attributes, inline styles, and simple rules of the page's own style sheets. What other files or scripts hide
is not detected.
"""

import re
from collections.abc import Iterator

from retinue.core.pattern import late_pattern
from retinue.tools.markdown.tags import find_name, read_attributes

MAX_CSS_CHARS = 300_000
_COMMENT = late_pattern(r"/\*.*?(?:\*/|$)", re.DOTALL)
_ESCAPE = late_pattern(r"\\(?:([0-9a-fA-F]{1,6})\s?|(.))", re.DOTALL)
_NUMBER = late_pattern(r"([+-]?(?:\d+\.?\d*|\.\d+))([a-z%]*)")
_SIMPLE = late_pattern(r"[a-z0-9]*([.#][\w-]+)", re.IGNORECASE)
_NAMES = late_pattern(r"[.#][\w-]+")
_RULE = late_pattern(r"([^{}]*)([{}])")
_TELLING = late_pattern(
    r"none|hidden|collapse|opacity|font-size|transparent|clip|indent|scale|absolute|fixed|rgba?\(|hsla?\(|background|#[0-9a-f]{3,7}0\b"
)
"""A style that matches none of these hides nothing."""
_CLASS = late_pattern(r"""class\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s>]+))""", re.IGNORECASE)
_CLEAR = late_pattern(
    r"transparent|(?:rgb|hsl)a?\((?:(?:[^,)]*,){3}|[^)/]*/)\s*0*\.?0*%?\s*\)|#[0-9a-f]{3}0|#[0-9a-f]{6}00"
)
_CLIPPED = late_pattern(r"rect\((?:[01](?:px)?[\s,]*){4}\)|inset\((?:[5-9]\d|100)%.*|circle\(0.*")
_FEW = 8
_ALL = frozenset(("html", "body"))
"""Scripts often hide these until the page is ready, so they are never treated as hidden."""


class Hidden:
    """What is hidden in one page."""

    def __init__(self) -> None:
        self.names: frozenset[str] = frozenset()
        """Classes (`.x`) and ids (`#x`) that its style sheets hide."""
        self._words: frozenset[str] = frozenset()
        self._has_ids = False
        self._few: re.Pattern[str] | None = None
        self._off: set[str] = set()
        self._on: set[str] = set()
        self._left = MAX_CSS_CHARS

    def learn(self, css: str) -> None:
        """Add the rules of a style sheet."""
        css = css[: self._left]
        self._left -= len(css)
        for selectors, declarations, is_top in _list_rules(css):
            lower = declarations.lower()
            if _TELLING.search(lower) and hides(lower):
                found = [_SIMPLE.fullmatch(each.strip()) for each in selectors.split(",")] if is_top else []
                self._off.update(each[1] for each in found if each is not None)
            elif "display" in lower or "visibility" in lower or "opacity" in lower:
                # A rule shows it under some condition, so treat it as always shown.
                self._on.update(_NAMES.findall(selectors))
        self.names = frozenset(self._off - self._on)
        self._words = frozenset(name[1:] for name in self.names)
        self._has_ids = any(name[0] == "#" for name in self.names)
        is_few = 0 < len(self._words) <= _FEW
        self._few = re.compile("|".join(map(re.escape, self._words))) if is_few else None

    def covers(self, inside: str) -> bool:
        """Whether a tag starts a hidden element."""
        lower = inside.lower()
        # A style may be written with character references or escapes.
        is_coded = "style" in lower and ("&" in inside or "\\" in inside)
        if not (is_coded or _TELLING.search(lower) or self.may_name(inside)):
            return False
        if find_name(inside) in _ALL:
            return False
        found = read_attributes(inside)
        if found.get("hidden", "until-found").lower() != "until-found":
            return True
        if found.get("aria-hidden", "").strip().lower() == "true" or ("style" in found and hides(found["style"])):
            return True
        own = {f".{name}" for name in found.get("class", "").split()} | {f"#{found.get('id')}"}
        return not self.names.isdisjoint(own)

    def may_name(self, inside: str) -> bool:
        """Whether a rule may match a tag: fast, but may be wrong."""
        if not self.names:
            return False
        if self._few is not None:
            return self._few.search(inside) is not None
        found = _CLASS.search(inside)
        own = (found[1] or found[2] or found[3] or "").split() if found is not None else []
        return not self._words.isdisjoint(own) or (self._has_ids and "id" in inside.lower())


def hides(style: str) -> bool:
    """Whether declarations make an element invisible."""
    own = _read_declarations(style)
    if not own:
        return False
    if own.get("display") == "none" or own.get("visibility") in ("hidden", "collapse"):
        return True
    if own.get("content-visibility") == "hidden" or "scale(0)" in own.get("transform", ""):
        return True
    # With a transform it is probably an animation that will show it.
    if _measure(own.get("opacity", "1")) <= 0.01 and "transform" not in own:
        return True
    return _is_tiny(own) or _is_blank(own) or _is_away(own)


def _read_declarations(style: str) -> dict[str, str]:
    if "\\" in style:
        style = _ESCAPE.sub(_to_character, style)
    if "/*" in style:
        style = _COMMENT.sub(" ", style)
    found: dict[str, str] = {}
    for part in style.lower().split(";"):
        name, colon, value = part.partition(":")
        if colon:
            found[name.strip()] = " ".join(value.partition("!")[0].split())
    return found


def _to_character(found: re.Match[str]) -> str:
    number = int(found[1], 16) if found[1] else 0
    return found[2] or (chr(number) if 0 < number < 0x110000 else "")


def _measure(value: str, *, relative: float = 1.0) -> float:
    """Return the leading number of a value in approximate pixels; a percentage is a part of `relative`."""
    found = _NUMBER.match(value)
    if found is None:
        return relative
    number, unit = float(found[1]), found[2]
    scale = {"em": 16.0, "rem": 16.0, "pt": 1.3, "cm": 38.0, "in": 96.0, "vw": 12.0, "vh": 8.0, "%": relative / 100}
    return number * scale.get(unit, 1.0)


def _is_tiny(own: dict[str, str]) -> bool:
    if "font-size" in own and 0 <= _measure(own["font-size"], relative=16) < 2:
        return True
    is_cut = any(own.get(name, "").startswith(("hidden", "clip")) for name in ("overflow", "overflow-x", "overflow-y"))
    sizes = (own.get(name, "auto") for name in ("height", "width", "max-height", "max-width"))
    return is_cut and any(_NUMBER.match(size) is not None and _measure(size, relative=1000) <= 1 for size in sizes)


def _is_blank(own: dict[str, str]) -> bool:
    color = own.get("color", "")
    ground = own.get("background-color") or own.get("background", "")
    return bool(color) and (_CLEAR.fullmatch(color) is not None or color == ground)


def _is_away(own: dict[str, str]) -> bool:
    if _measure(own.get("text-indent", "0"), relative=1000) <= -500:
        return True
    if any(_CLIPPED.fullmatch(own.get(name, "")) for name in ("clip", "clip-path")):
        return True
    is_placed = own.get("position") in ("absolute", "fixed")
    places = (own.get(name, "0") for name in ("left", "right", "top", "bottom"))
    return is_placed and any(_measure(place, relative=1000) <= -500 for place in places)


def _list_rules(css: str) -> Iterator[tuple[str, str, bool]]:
    """Yield selectors and declarations of all rules, and whether the rule is unconditional."""
    depth, head = 0, ""
    # The final brace closes an unclosed rule, which counts too.
    for found in _RULE.finditer(_COMMENT.sub(" ", css) + "}"):
        text, sign = found[1], found[2]
        if sign == "{":
            depth, head = depth + 1, text
            continue
        if head:
            yield head, text, depth == 1
        depth, head = max(0, depth - 1), ""
