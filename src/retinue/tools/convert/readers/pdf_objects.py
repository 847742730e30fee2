"""Finds and parses the objects of a PDF file by scanning it, so that broken cross-reference tables do not matter."""

import base64
import binascii
import re
import zlib
from typing import Any, NamedTuple

from retinue.tools.convert.readers.base import Unreadable

MAX_STREAM = 32 * 1024 * 1024
MAX_UNPACKED = 256 * 1024 * 1024
MAX_OBJECTS = 300_000
MAX_DEPTH = 50
_OBJECT = re.compile(rb"(?<![0-9])(\d{1,10})[ \t\r\n\f\0]{1,20}\d{1,5}[ \t\r\n\f\0]{1,20}obj\b")
_SPACE = b" \t\r\n\f\0"
_REGULAR = re.compile(rb"[^ \t\r\n\f\0()<>\[\]{}/%]+")
_NUMBER = re.compile(rb"[+-]?(?:\d+\.?\d*|\.\d+)")
_REFERENCE = re.compile(rb"(\d{1,10})[ \t\r\n\f\0]{1,20}\d{1,5}[ \t\r\n\f\0]{1,20}R(?![A-Za-z0-9])")
_ESCAPES = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"b": b"\b", b"f": b"\f"}


class Ref(NamedTuple):
    """A reference to an object."""

    number: int


class Word(NamedTuple):
    """A bare word: an operator, or true, false, null."""

    text: bytes


class Name(NamedTuple):
    """A name such as /Type."""

    text: str


class Scanner:
    """Parses values one by one."""

    def __init__(self, data: bytes, at: int = 0) -> None:
        self._data = data
        self.at = at

    def skip(self) -> bool:
        """Skip spaces and comments; return False at the end."""
        data, at, end = self._data, self.at, len(self._data)
        while at < end:
            if data[at] in _SPACE:
                at += 1
            elif data[at] == 0x25:
                stops = [place for place in (data.find(b"\n", at), data.find(b"\r", at)) if place >= 0]
                at = min(stops) if stops else end
            else:
                break
        self.at = at
        return at < end

    def read(self, depth: int = 0) -> Any:
        """Return the next value. Raises Unreadable if values are nested too deep, StopIteration at the end."""
        if not self.skip():
            raise StopIteration
        if depth > MAX_DEPTH:
            raise Unreadable("the document is damaged (values too deep)")
        data, at = self._data, self.at
        first = data[at : at + 1]
        if first == b"<" and data[at + 1 : at + 2] == b"<":
            return self._read_dict(depth)
        if first == b"[":
            return self._read_list(depth)
        if first == b"(":
            return self._read_string()
        if first == b"<":
            end = data.find(b">", at)
            end = len(data) if end < 0 else end
            self.at = end + 1
            digits = bytes(each for each in data[at + 1 : end] if each not in _SPACE)
            try:
                return binascii.unhexlify(digits + b"0" * (len(digits) % 2))
            except binascii.Error:
                return b""
        if first == b"/":
            found = _REGULAR.match(data, at + 1)
            self.at = found.end() if found else at + 1
            return Name(_unescape_name(found[0]) if found else "")
        return self._read_word(at)

    def _read_word(self, at: int) -> Any:
        reference = _REFERENCE.match(self._data, at)
        if reference:
            self.at = reference.end()
            return Ref(int(reference[1]))
        found = _REGULAR.match(self._data, at)
        if found is None:
            self.at = at + 1
            return Word(self._data[at : at + 1])
        self.at = found.end()
        number = _NUMBER.fullmatch(found[0][:40])
        return float(number[0]) if number else Word(found[0])

    def _read_dict(self, depth: int) -> dict[str, Any]:
        self.at += 2
        found: dict[str, Any] = {}
        while self.skip() and self._data[self.at : self.at + 2] != b">>":
            key = self.read(depth + 1)
            if not self.skip() or self._data[self.at : self.at + 2] == b">>":
                break
            value = self.read(depth + 1)
            if isinstance(key, Name):
                found[key.text] = value
        self.at += 2
        return found

    def _read_list(self, depth: int) -> list[Any]:
        self.at += 1
        found: list[Any] = []
        while self.skip() and self._data[self.at] != 0x5D:
            found.append(self.read(depth + 1))
        self.at += 1
        return found

    def _read_string(self) -> bytes:
        data, at, depth = self._data, self.at + 1, 1
        out = bytearray()
        while at < len(data):
            each = data[at : at + 1]
            if each == b"\\":
                following = data[at + 1 : at + 2]
                octal = re.match(rb"[0-7]{1,3}", data[at + 1 : at + 4])
                if octal:
                    out.append(int(octal[0], 8) & 0xFF)
                    at += 1 + len(octal[0])
                    continue
                if following not in (b"\r", b"\n"):
                    out += _ESCAPES.get(following, following)
                at += 2
                continue
            if each == b"(":
                depth += 1
            elif each == b")":
                depth -= 1
                if not depth:
                    break
            out += each
            at += 1
        self.at = at + 1
        return bytes(out)


def _unescape_name(data: bytes) -> str:
    return re.sub(rb"#([0-9A-Fa-f]{2})", lambda found: bytes([int(found[1], 16)]), data).decode("latin-1")


class Objects:
    """All objects of a file by number; the last of several with one number counts."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._places: dict[int, tuple[bytes, int]] = {}
        self._values: dict[int, Any] = {}
        self._left = MAX_UNPACKED
        for count, found in enumerate(_OBJECT.finditer(data)):
            if count > MAX_OBJECTS:
                raise Unreadable(f"the document has more than {MAX_OBJECTS} objects")
            self._places[int(found[1])] = (data, found.end())
        if re.search(rb"/Encrypt[ \t\r\n\f\0]{0,20}(?:\d|<<)", data):
            raise Unreadable("the document is protected with a password")
        for number in list(self._places):
            value = self.get(Ref(number))
            if isinstance(value, dict) and value.get("Type") == Name("ObjStm"):
                self._unpack(value, number)

    def _unpack(self, value: dict[str, Any], number: int) -> None:
        """Register the objects of an object stream."""
        data, first = self.read_stream(number), value.get("First", 0)
        scanner = Scanner(data)
        for _ in range(min(int(value.get("N", 0)), MAX_OBJECTS)):
            try:
                inner, offset = scanner.read(), scanner.read()
            except StopIteration:
                return
            if isinstance(inner, float) and isinstance(offset, float) and isinstance(first, float):
                self._places.setdefault(int(inner), (data, int(first + offset)))

    @property
    def numbers(self) -> list[int]:
        return sorted(self._places)

    def get(self, value: Any) -> Any:
        """Resolve references; None if one leads nowhere."""
        for _ in range(MAX_DEPTH):
            if not isinstance(value, Ref):
                return value
            if value.number not in self._values:
                data, at = self._places.get(value.number, (b"", 0))
                try:
                    self._values[value.number] = Scanner(data, at).read()
                except StopIteration:
                    self._values[value.number] = None
            value = self._values[value.number]
        return None

    def read_stream(self, number: int) -> bytes:
        """Return the decoded stream of an object; empty if the filter is unknown. Raises Unreadable."""
        data, at = self._places.get(number, (b"", 0))
        scanner = Scanner(data, at)
        try:
            head = scanner.read()
        except StopIteration:
            return b""
        start = data.find(b"stream", scanner.at, scanner.at + 40)
        if not isinstance(head, dict) or start < 0:
            return b""
        start += 6
        start += 2 if data[start : start + 2] == b"\r\n" else 1
        length = self.get(head.get("Length"))
        end = start + int(length) if isinstance(length, float) else -1
        if end < 0 or not data[end : end + 12].lstrip().startswith(b"endstream"):
            end = data.find(b"endstream", start)
        return self._decode(data[start : end if end >= 0 else len(data)], head)

    def _decode(self, data: bytes, head: dict[str, Any]) -> bytes:
        filters = self.get(head.get("Filter"))
        for each in filters if isinstance(filters, list) else [filters] if filters else []:
            name = self.get(each)
            kind = name.text if isinstance(name, Name) else ""
            if kind in ("FlateDecode", "Fl"):
                data = self._inflate(data)
            elif kind in ("ASCIIHexDecode", "AHx"):
                data = Scanner(b"<" + data + b">").read()
            elif kind in ("ASCII85Decode", "A85"):
                try:
                    data = base64.a85decode(data.strip().removesuffix(b"~>").removeprefix(b"<~"))
                except ValueError:
                    return b""
            else:
                return b""
        return data

    def _inflate(self, data: bytes) -> bytes:
        unpack = zlib.decompressobj()
        most = min(MAX_STREAM, self._left)
        try:
            found = unpack.decompress(data, most + 1)
        except zlib.error:
            return b""
        if len(found) > most:
            raise Unreadable(f"a part of the document unpacks to more than {most} bytes")
        self._left -= len(found)
        return found
