"""Extracts the text of PDF files in drawing order, without layout, images or rare scripts."""

import re
from collections.abc import Iterator
from typing import Any

from retinue.tools.convert.readers.base import MAX_TEXT_CHARS, Unreadable, join_blocks
from retinue.tools.convert.readers.pdf_objects import Name, Objects, Ref, Scanner, Word

MAX_PAGES = 2_000
_GAP = -180.0
"""A gap of more than this many thousandths of an em is a space."""
_HEX = re.compile(rb"<([0-9A-Fa-f\s]{0,400})>")
_SECTION = re.compile(rb"begin(bfchar|bfrange)(.{0,200000}?)end\1", re.DOTALL)
_GLYPHS = {
    **{"space": " ", "hyphen": "-", "period": ".", "comma": ",", "colon": ":", "semicolon": ";", "quotesingle": "'"},
    **{"parenleft": "(", "parenright": ")", "slash": "/", "quoteright": "’", "quoteleft": "‘", "endash": "–"},
    **{"emdash": "—", "bullet": "•", "quotedblleft": "“", "quotedblright": "”", "fi": "fi", "fl": "fl", "ff": "ff"},
    **{"zero": "0", "one": "1", "two": "2", "three": "3", "four": "4", "five": "5", "six": "6", "seven": "7"},
    **{"eight": "8", "nine": "9", "equal": "=", "plus": "+", "percent": "%", "at": "@", "underscore": "_"},
    **{"adieresis": "ä", "odieresis": "ö", "udieresis": "ü", "germandbls": "ß", "eacute": "é", "egrave": "è"},
}


def read_pdf(data: bytes) -> str:
    """Return the text of all pages. Raises Unreadable if there is none."""
    objects = Objects(data)
    blocks: list[str] = []
    used = pages = 0
    for page in _list_pages(objects):
        pages += 1
        text = _Page(objects, page).read()
        if text:
            blocks.append(f"<!-- page {pages} -->\n{text}")
            used += len(text)
        if pages >= MAX_PAGES or used > MAX_TEXT_CHARS:
            break
    if not pages:
        raise Unreadable("the document is damaged: it has no pages")
    if not blocks:
        raise Unreadable(f"there is no text in its {pages} pages: they are probably scanned pictures")
    return join_blocks(blocks)


def _list_pages(objects: Objects) -> Iterator[dict[str, Any]]:
    """Yield pages in page order; without a page tree, in file order."""
    roots = (objects.get(Ref(number)) for number in objects.numbers)
    catalogue = [each for each in roots if isinstance(each, dict) and each.get("Type") == Name("Catalog")]
    found = list(_walk(objects, catalogue[-1].get("Pages"), {}, set())) if catalogue else []
    if found:
        yield from found
        return
    for number in objects.numbers:
        value = objects.get(Ref(number))
        if isinstance(value, dict) and value.get("Type") == Name("Page"):
            yield value


def _walk(objects: Objects, node: Any, inherited: dict[str, Any], seen: set[int]) -> Iterator[dict[str, Any]]:
    waiting: list[tuple[Any, dict[str, Any]]] = [(node, inherited)]
    count = 0
    while waiting and count < MAX_PAGES:
        node, above = waiting.pop()
        if isinstance(node, Ref):
            if node.number in seen:
                continue
            seen.add(node.number)
        value = objects.get(node)
        if not isinstance(value, dict):
            continue
        passed = {**above, **({"Resources": value["Resources"]} if "Resources" in value else {})}
        kids = objects.get(value.get("Kids"))
        if isinstance(kids, list):
            waiting += [(kid, passed) for kid in reversed(kids)]
        else:
            count += 1
            yield {**passed, **value}


class _Font:
    """Maps the character codes of a font to text."""

    def __init__(self, objects: Objects, value: dict[str, Any]) -> None:
        self.is_wide = value.get("Subtype") == Name("Type0")
        self._known: dict[int, str] = {}
        unicode = value.get("ToUnicode")
        if isinstance(unicode, Ref):
            self._known = _read_map(objects.read_stream(unicode.number))
        encoding = objects.get(value.get("Encoding"))
        if isinstance(encoding, dict) and not self._known:
            code = 0
            for each in objects.get(encoding.get("Differences")) or ():
                if isinstance(each, float):
                    code = int(each)
                elif isinstance(each, Name):
                    self._known[code] = _name_glyph(each.text)
                    code += 1

    def decode(self, data: bytes) -> str:
        if not self.is_wide:
            text = data.decode("cp1252", "replace") if not self._known else ""
            return text or "".join(self._known.get(code) or bytes([code]).decode("cp1252", "replace") for code in data)
        codes = [int.from_bytes(data[place : place + 2], "big") for place in range(0, len(data) - 1, 2)]
        return "".join(self._known.get(code, "") for code in codes)


def _name_glyph(name: str) -> str:
    if name in _GLYPHS or len(name) == 1:
        return _GLYPHS.get(name, name)
    found = re.fullmatch(r"uni([0-9A-Fa-f]{4})|u([0-9A-Fa-f]{4,6})", name)
    number = int(found[1] or found[2], 16) if found else 0
    return chr(number) if 0 < number < 0x110000 else ""


def _read_map(data: bytes) -> dict[int, str]:
    found: dict[int, str] = {}
    for kind, inside in _SECTION.findall(data):
        if kind == b"bfchar":
            items = _HEX.findall(inside)
            for code, text in zip(items[::2], items[1::2], strict=False):
                found[_to_code(code)] = _to_text(text)
            continue
        for line in re.findall(rb"<[^>]{0,20}>\s*<[^>]{0,20}>\s*(?:<[^>]{0,400}>|\[[^\]]{0,20000}\])", inside):
            low, high, *rest = _HEX.findall(line)
            first, last = _to_code(low), min(_to_code(high), _to_code(low) + 0xFFFF)
            if b"[" in line:
                found.update((first + step, _to_text(text)) for step, text in enumerate(rest))
            elif rest and (start := _to_text(rest[0])):
                for code in range(first, last + 1):
                    found[code] = start[:-1] + chr(min(ord(start[-1]) + code - first, 0x10FFFF))
    return found


def _to_code(digits: bytes) -> int:
    return int(b"".join(digits.split()) or b"0", 16)


def _to_text(digits: bytes) -> str:
    plain = b"".join(digits.split())
    return bytes.fromhex(plain.decode() if len(plain) % 2 == 0 else "").decode("utf-16-be", "replace")


class _Page:
    """Interprets the drawing operators of one page and collects its text."""

    def __init__(self, objects: Objects, page: dict[str, Any]) -> None:
        self._objects = objects
        resources = objects.get(page.get("Resources"))
        fonts = objects.get(resources.get("Font")) if isinstance(resources, dict) else None
        self._fonts = fonts if isinstance(fonts, dict) else {}
        self._opened: dict[str, _Font | None] = {}
        self._contents = page.get("Contents")
        self._font: _Font | None = None
        self._out: list[str] = []

    def read(self) -> str:
        streams = self._contents if isinstance(self._contents, Ref) else self._objects.get(self._contents)
        listed = self._objects.get(streams)
        refs = listed if isinstance(listed, list) else [streams]
        data = b"\n".join(self._objects.read_stream(each.number) for each in refs if isinstance(each, Ref))
        self._draw(Scanner(data))
        lines = [" ".join(line.split()) for line in "".join(self._out).split("\n")]
        return "\n".join(line for line in lines if line)

    def _draw(self, scanner: Scanner) -> None:
        operands: list[Any] = []
        while True:
            try:
                value = scanner.read()
            except StopIteration:
                return
            if not isinstance(value, Word):
                operands.append(value)
                del operands[:-50]
                continue
            if value.text == b"ID":
                return
            self._apply(value.text, operands)
            operands.clear()

    def _apply(self, operator: bytes, operands: list[Any]) -> None:
        if operator == b"Tf" and len(operands) > 1 and isinstance(operands[0], Name):
            self._font = self._find_font(operands[0].text)
        elif operator in (b"Tj", b"'", b'"') and operands and isinstance(operands[-1], bytes):
            self._out.append("" if operator == b"Tj" else "\n")
            self._show(operands[-1])
        elif operator == b"TJ" and operands and isinstance(operands[-1], list):
            for each in operands[-1]:
                if isinstance(each, bytes):
                    self._show(each)
                elif isinstance(each, float) and each < _GAP:
                    self._out.append(" ")
        elif operator in (b"Td", b"TD") and len(operands) > 1:
            is_same = isinstance(operands[-1], float) and abs(operands[-1]) < 0.5
            self._out.append(" " if is_same else "\n")
        elif operator in (b"T*", b"Tm", b"ET"):
            self._out.append("\n")

    def _show(self, data: bytes) -> None:
        self._out.append(self._font.decode(data) if self._font else data.decode("cp1252", "replace"))

    def _find_font(self, name: str) -> _Font | None:
        if name not in self._opened:
            value = self._objects.get(self._fonts.get(name))
            self._opened[name] = _Font(self._objects, value) if isinstance(value, dict) else None
        return self._opened[name]
