"""Parse hand-written JSON and report every mistake with line and column.

Pure. This file must not know files or what the data means.
"""

import json
import math
import re
from typing import Any, NamedTuple, NoReturn

from retinue.core.errors import ConfigError, quote

MAX_BYTES = 5_000_000
MAX_DEPTH = 100
MAX_PROBLEMS = 20
_MAX_DIGITS = 308

_SPACE = re.compile(r"[ \t\r\n]+")
_WORD = re.compile(r"[A-Za-z_$][\w$.-]*")
_NUMBER_LIKE = re.compile(r"[-+.]?[0-9][\w.+-]*|[-+](?:Infinity|NaN)|[-+.]+")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?")
_BRACKETS = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{}]', re.DOTALL)
_PLAIN = {'"': re.compile(r'[^"\\\x00-\x1f]+'), "'": re.compile(r"[^'\\\x00-\x1f]+")}
_ESCAPES = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_LITERALS: dict[str, Any] = {"true": True, "false": False, "null": None}
_TYPE_NAMES = {dict: "an object", list: "an array", str: "a string", bool: "a boolean", type(None): "null"}


class Problem(NamedTuple):
    """One mistake in a JSON text; lines and columns count from 1."""

    line: int
    column: int
    message: str


class JsonError(ConfigError):
    """A text is not valid JSON; carries every problem found."""

    def __init__(self, where: str, problems: list[Problem]) -> None:
        self.where = where
        self.problems = problems
        super().__init__("\n".join(f"{where}:{line}:{column}: {message}" for line, column, message in problems))


def name_type(value: object) -> str:
    """The type of a JSON value, for a message."""
    return _TYPE_NAMES.get(type(value), "a number")


def parse_json(data: bytes, *, where: str, comments: bool = False) -> dict[str, Any]:
    """The object in a file. `comments` allows `//` comments and trailing commas, as pi does in models.json.

    Raises JsonError, and nothing else, for any other bytes.
    """
    text = _decode(data, where)
    try:
        value, problems = _parse_fast(text), []
    except (ValueError, RecursionError):
        reader = _Reader(text, comments=comments)
        value, problems = reader.read_document(), reader.problems
    if problems:
        raise JsonError(where, problems)
    if not isinstance(value, dict):
        raise JsonError(where, [Problem(1, 1, f"found {name_type(value)}; expected an object {{…}}")])
    return value


def _decode(data: bytes, where: str) -> str:
    if len(data) > MAX_BYTES:
        raise JsonError(where, [Problem(1, 1, f"the file has {len(data)} bytes; expected at most {MAX_BYTES}")])
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise JsonError(where, [Problem(1, 1, "the file is UTF-16; expected UTF-8")])
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        column = error.start - data.rfind(b"\n", 0, error.start)
        found = f"byte 0x{data[error.start]:02x} is not UTF-8; expected UTF-8 text"
        raise JsonError(where, [Problem(line, column, found)]) from None
    return text.removeprefix("\ufeff")


def _parse_fast(text: str) -> Any:
    """Parse a text without mistakes. Raises ValueError if the slow reader is needed, which finds all mistakes."""
    # json accepts lone surrogates, which cannot be written or sent later.
    if "\\ud" in text or "\\uD" in text or _is_deep(text):
        raise ValueError("needs the careful reader")
    return json.loads(
        text,
        object_pairs_hook=_to_unique,
        parse_constant=_refuse,
        parse_float=_to_finite,
        parse_int=_to_bounded,
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


def _to_finite(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise ValueError(digits)
    return number


def _to_bounded(digits: str) -> int:
    if len(digits) > _MAX_DIGITS:
        raise ValueError(digits)
    return int(digits)


class _Stop(Exception):
    """Raised where the rest of the text cannot be parsed."""


class _Reader:
    """A tolerant parser: records a mistake and continues where the meaning is clear enough to find the next one."""

    def __init__(self, text: str, *, comments: bool) -> None:
        self.text = text
        self.comments = comments
        self.at = 0
        self.depth = 0
        self.problems: list[Problem] = []

    def read_document(self) -> Any:
        value = None
        try:
            self._skip()
            if self.at >= len(self.text):
                self._stop("the file is empty; expected an object {…}")
            value = self._read_value()
            self._skip()
            if self.at < len(self.text):
                self._stop(f"found {self._show()} after the end of the value; expected nothing more")
        except _Stop:
            pass
        return value

    def _note(self, message: str, at: int | None = None) -> None:
        at = self.at if at is None else at
        line = self.text.count("\n", 0, at) + 1
        self.problems.append(Problem(line, at - self.text.rfind("\n", 0, at), message))
        if len(self.problems) >= MAX_PROBLEMS:
            raise _Stop

    def _stop(self, message: str, at: int | None = None) -> NoReturn:
        self._note(message, at)
        raise _Stop

    def _show(self) -> str:
        if self.at >= len(self.text):
            return "the end of the file"
        word = _WORD.match(self.text, self.at)
        return quote(word.group() if word else self.text[self.at], 40)

    def _skip(self) -> None:
        while self.at < len(self.text):
            if space := _SPACE.match(self.text, self.at):
                self.at = space.end()
            elif self.text.startswith("//", self.at):
                if not self.comments:
                    self._note("found a comment; JSON does not allow comments")
                self._skip_line()
            elif self.text.startswith("/*", self.at):
                accepted = "only // is accepted" if self.comments else "JSON does not allow comments"
                self._note(f"found a /* comment */; {accepted}")
                end = self.text.find("*/", self.at + 2)
                self.at = len(self.text) if end < 0 else end + 2
            elif self.text[self.at] == "#":
                self._note("found a # comment; JSON does not allow it")
                self._skip_line()
            elif self.text[self.at] == "\0":
                self._stop("found a NUL character; expected text")
            else:
                return

    def _skip_line(self) -> None:
        end = self.text.find("\n", self.at)
        self.at = len(self.text) if end < 0 else end

    def _read_value(self) -> Any:
        if self.at >= len(self.text):
            self._stop("found the end of the file; expected a value")
        char = self.text[self.at]
        if char in "{[":
            if self.depth >= MAX_DEPTH:
                self._stop(f"nested deeper than {MAX_DEPTH} levels")
            self.depth += 1
            value: Any = self._read_object() if char == "{" else self._read_array()
            self.depth -= 1
            return value
        if char in "\"'":
            return self._read_string(char)
        if number := _NUMBER_LIKE.match(self.text, self.at):
            return self._read_number(number.group())
        if word := _WORD.match(self.text, self.at):
            return self._read_word(word.group())
        return self._stop(f"found {self._show()}; expected a value")

    def _read_word(self, word: str) -> Any:
        if word not in _LITERALS:
            lower = word.lower()
            hint = f"; write {lower}" if lower in _LITERALS else "; expected true, false, null, a number or a string"
            self._note(f"found {quote(word, 40)}{hint}")
        self.at += len(word)
        return _LITERALS.get(word)

    def _read_number(self, digits: str) -> float | int | None:
        start = self.at
        self.at += len(digits)
        if not _NUMBER.fullmatch(digits):
            self._note(f"found {quote(digits, 40)}; expected a number such as 10, -1.5 or 2e3", start)
            return None
        is_whole = not set(digits) & set(".eE")
        number = int(digits) if is_whole and len(digits) <= _MAX_DIGITS else float(digits)
        if isinstance(number, float) and not math.isfinite(number):
            self._note(f"found {quote(digits, 40)}; the number is too large", start)
            return None
        return number

    def _read_string(self, mark: str) -> str:
        start = self.at
        if mark == "'":
            self._note('found a single-quoted string; expected "double quotes"')
        self.at += 1
        parts: list[str] = []
        while True:
            if plain := _PLAIN[mark].match(self.text, self.at):
                parts.append(plain.group())
                self.at = plain.end()
            if self.at >= len(self.text) or self.text[self.at] == "\n":
                self._stop("found a string that does not end on its line", start)
            char = self.text[self.at]
            if char == mark:
                self.at += 1
                break
            if char == "\\":
                parts.append(self._read_escape(mark))
            else:
                self._note(f"found the control character {quote(char)} in a string; write it as an escape")
                self.at += 1
        return self._check_surrogates("".join(parts), start)

    def _read_escape(self, mark: str) -> str:
        start = self.at
        kind = self.text[start + 1 : start + 2]
        if kind == "u":
            digits = self.text[start + 2 : start + 6]
            self.at = start + 2
            if re.fullmatch(r"[0-9A-Fa-f]{4}", digits):
                self.at = start + 6
                return chr(int(digits, 16))
            self._note(f"found \\u{quote(digits)[1:-1]}; expected four hexadecimal digits", start)
            return ""
        self.at = min(start + 2, len(self.text))
        if kind in _ESCAPES:
            return _ESCAPES[kind]
        if kind != mark:
            self.at = start + 1 if kind in ("", "\n") else self.at
            escape = quote("\\" + kind)
            self._note(f'found the escape {escape}; expected one of \\" \\\\ \\/ \\b \\f \\n \\r \\t \\u', start)
        return kind if kind != "\n" else ""

    def _check_surrogates(self, text: str, start: int) -> str:
        joined = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        if "\ufffd" in joined and "\ufffd" not in text:
            self._note("found half of a surrogate pair (\\ud800 … \\udfff); expected whole characters", start)
        return joined

    def _read_array(self) -> list[Any]:
        items: list[Any] = []
        self.at += 1
        while self._has_item("]", first=not items):
            items.append(self._read_value())
        return items

    def _read_object(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        first = True
        self.at += 1
        while self._has_item("}", first=first):
            first = False
            start = self.at
            key = self._read_key()
            if key in found:
                self._note(f"duplicate key {quote(key)}; remove one of them", start)
            self._skip()
            if not self.text.startswith(":", self.at):
                self._stop(f"found {self._show()} after the key {quote(key)}; expected ':'")
            self.at += 1
            self._skip()
            found[key] = self._read_value()
        return found

    def _read_key(self) -> str:
        if self.text[self.at] in "\"'":
            return self._read_string(self.text[self.at])
        if word := _WORD.match(self.text, self.at):
            self._note(f'found the key {word.group()[:40]} without quotes; expected "{word.group()[:40]}"')
            self.at = word.end()
            return word.group()
        return self._stop(f"found {self._show()}; expected a key in double quotes")

    def _has_item(self, end: str, *, first: bool) -> bool:
        """Move to the next item; False at the end of the array or object."""
        self._skip()
        if not first and not self.text.startswith((end, ","), self.at):
            if self.at >= len(self.text) or self.text[self.at] in "]}:":
                self._stop(f"found {self._show()}; expected ',' or '{end}'")
            self._note(f"found {self._show()}; expected ',' or '{end}' before it")
            return True
        if not first and self.text.startswith(",", self.at):
            comma = self.at
            self.at += 1
            self._skip()
            if self.text.startswith(end, self.at) and not self.comments:
                self._note(f"found a comma before '{end}'; JSON allows none after the last item", comma)
        if self.text.startswith(end, self.at):
            self.at += 1
            return False
        if self.at >= len(self.text):
            self._stop(f"found the end of the file; expected '{end}'")
        return True
