"""Parse hand-written JSON and report the first mistake with line and column.

Pure. This file must not know files or what the data means.
"""

import json
import math
import re
from typing import Any, NoReturn

from retinue.core.errors import ConfigError, quote
from retinue.core.pattern import late_pattern

MAX_BYTES = 5_000_000
MAX_DEPTH = 100

_SPACE = late_pattern(r"[ \t\r\n]*")
_WORD = late_pattern(r"[\w$.+-]+")
_NUMBER = late_pattern(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?")
_BRACKETS = late_pattern(r'"(?:[^"\\]|\\.)*"|[\[\]{}]', re.DOTALL)
_LITERALS: dict[str, Any] = {"true": True, "false": False, "null": None}
_TYPE_NAMES = {dict: "an object", list: "an array", str: "a string", bool: "a boolean", type(None): "null"}


class JsonError(ConfigError):
    """A text is not valid JSON; line and column count from 1."""

    def __init__(self, where: str, line: int, column: int, message: str) -> None:
        self.line = line
        super().__init__(f"{where}:{line}:{column}: {message}")


def name_type(value: object) -> str:
    """The type of a JSON value, for a message."""
    return _TYPE_NAMES.get(type(value), "a number")


def parse_json(data: bytes, *, where: str, comments: bool = False) -> dict[str, Any]:
    """The object in a file. `comments` allows `//` comments and trailing commas, as pi does in models.json.

    Raises JsonError, and nothing else, for any other bytes.
    """
    text = _decode(data, where)
    try:
        value = _parse_fast(text)
    except (ValueError, RecursionError):
        reader = _Reader(text, where, comments=comments)
        value = reader.read_document()
    if not isinstance(value, dict):
        raise JsonError(where, 1, 1, f"found {name_type(value)}; expected an object {{…}}")
    return value


def _decode(data: bytes, where: str) -> str:
    if len(data) > MAX_BYTES:
        raise JsonError(where, 1, 1, f"the file has {len(data)} bytes; expected at most {MAX_BYTES}")
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise JsonError(where, 1, 1, "the file is UTF-16; expected UTF-8")
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        column = error.start - data.rfind(b"\n", 0, error.start)
        found = f"byte 0x{data[error.start]:02x} is not UTF-8; expected UTF-8 text"
        raise JsonError(where, line, column, found) from None
    return text.removeprefix("\ufeff")


def _parse_fast(text: str) -> Any:
    """Parse a text without mistakes. Raises ValueError if the slow reader is needed, which names the mistake."""
    # json accepts lone surrogates, which cannot be written or sent later.
    if "\\ud" in text or "\\uD" in text or _is_deep(text):
        raise ValueError("needs the careful reader")
    return json.loads(
        text, object_pairs_hook=_to_unique, parse_constant=_refuse, parse_float=_to_number, parse_int=_to_number
    )


def _is_deep(text: str) -> bool:
    if text.count("[") + text.count("{") <= MAX_DEPTH:
        return False
    depth = 0
    for bracket in _BRACKETS.findall(text):
        depth += {"[": 1, "{": 1, "]": -1, "}": -1}.get(bracket, 0)
        if depth > MAX_DEPTH:
            return True
    return False


def _to_unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("duplicate key")
    return found


def _refuse(name: str) -> NoReturn:
    raise ValueError(name)


def _to_number(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise ValueError(digits)
    return int(digits) if digits.lstrip("-").isdigit() else number


class _Reader:
    """A parser that stops at the first mistake and says what it is."""

    def __init__(self, text: str, where: str, *, comments: bool) -> None:
        self.text = text
        self.where = where
        self.comments = comments
        self.at = 0

    def read_document(self) -> Any:
        self._skip()
        if self.at == len(self.text):
            self._fail("the file is empty; expected an object {…}")
        value = self._read_value(0)
        self._skip()
        if self.at < len(self.text):
            self._fail(f"found {self._show()} after the end of the value; expected nothing more")
        return value

    def _fail(self, message: str, at: int | None = None) -> NoReturn:
        at = self.at if at is None else at
        line = self.text.count("\n", 0, at) + 1
        raise JsonError(self.where, line, at - self.text.rfind("\n", 0, at), message)

    def _is_at(self, *starts: str) -> bool:
        return self.text.startswith(starts, self.at)

    def _show(self) -> str:
        if self.at == len(self.text):
            return "the end of the file"
        word = _WORD.match(self.text, self.at)
        return quote(word.group() if word else self.text[self.at], 40)

    def _skip(self) -> None:
        """Move past blanks, and past comments if they are allowed."""
        self._skip_blanks()
        while self._is_at("//", "/*", "#"):
            if not self.comments or not self._is_at("//"):
                accepted = "only // is accepted" if self.comments else "JSON does not allow comments"
                self._fail(f"found a comment; {accepted}")
            end = self.text.find("\n", self.at)
            self.at = len(self.text) if end < 0 else end
            self._skip_blanks()

    def _skip_blanks(self) -> None:
        if found := _SPACE.match(self.text, self.at):
            self.at = found.end()

    def _read_value(self, depth: int) -> Any:
        if self._is_at("{", "["):
            if depth >= MAX_DEPTH:
                self._fail(f"nested deeper than {MAX_DEPTH} levels")
            return self._read_object(depth + 1) if self._is_at("{") else self._read_array(depth + 1)
        if self._is_at('"', "'"):
            return self._read_string()
        found = _WORD.match(self.text, self.at)
        word = found.group() if found else ""
        if not _NUMBER.fullmatch(word) and word not in _LITERALS:
            likely = (
                f"write {word.lower()}" if word.lower() in _LITERALS else "expected a value such as true, -1.5 or []"
            )
            self._fail(f"found {self._show()}; {likely}")
        try:
            value = _LITERALS[word] if word in _LITERALS else _to_number(word)
        except ValueError:
            self._fail(f"found {quote(word, 40)}; the number is too large")
        self.at += len(word)
        return value

    def _read_string(self) -> str:
        start = self.at
        value: str
        if self._is_at("'"):
            self._fail('found a single-quoted string; expected "double quotes"')
        try:
            value, self.at = json.JSONDecoder().raw_decode(self.text, start)
        except json.JSONDecodeError as error:
            if error.pos == start or self.text[error.pos] == "\n":
                self._fail("found a string that does not end on its line", start)
            self._fail('found a wrong escape or a control character; write \\" \\\\ \\n \\t or \\u0000', error.pos)
        if any("\ud800" <= character <= "\udfff" for character in value):
            self._fail("found half of a surrogate pair (\\ud800 … \\udfff); expected whole characters", start)
        return value

    def _read_array(self, depth: int) -> list[Any]:
        items: list[Any] = []
        while self._has_item("]", is_first=not items):
            items.append(self._read_value(depth))
        return items

    def _read_object(self, depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        while self._has_item("}", is_first=not found):
            start = self.at
            if not self._is_at('"', "'"):
                self._fail(f"found {self._show()}; expected a key in double quotes")
            key = self._read_string()
            if key in found:
                self._fail(f"duplicate key {quote(key)}; remove one of them", start)
            self._skip()
            if not self._is_at(":"):
                self._fail(f"found {self._show()} after the key {quote(key)}; expected ':'")
            self.at += 1
            self._skip()
            found[key] = self._read_value(depth)
        return found

    def _has_item(self, end: str, *, is_first: bool) -> bool:
        """Move to the next item; False at the end of the array or object."""
        if not is_first:
            self._skip()
        start = self.at
        if is_first or self._is_at(","):
            self.at += 1
            self._skip()
            if self._is_at(end) and not is_first and not self.comments:
                self._fail(f"found a comma before '{end}'; JSON allows none after the last item", start)
        elif not self._is_at(end):
            self._fail(f"found {self._show()}; expected ',' or '{end}'")
        if self._is_at(end):
            self.at += 1
            return False
        return True
