"""Chooses the reader of a document by its content, or by its name if the content does not tell."""

import re

from retinue.core.pattern import late_pattern
from retinue.tools.convert.readers import opendocument, pdf, plain, sheet, slides, word
from retinue.tools.convert.readers.base import Unreadable, Unsupported
from retinue.tools.convert.readers.zipped import Package

FORMATS = (
    *("pdf", "docx", "xlsx", "pptx", "odt", "ods", "odp", "epub"),
    *("html", "csv", "tsv", "json", "ipynb", "xml", "txt", "md"),
)
_DOCUMENTS = FORMATS[:8]
"""The formats that are never plain text."""
_PARTS = (
    (word.MAIN, word.read_word),
    (sheet.MAIN, sheet.read_workbook),
    (slides.MAIN, slides.read_slides),
    ("META-INF/container.xml", opendocument.read_book),
    (opendocument.MAIN, opendocument.read_opendocument),
)
_HTML = late_pattern(rb"\s*<(?:!doctype\s+html|html|head|body)\b", re.IGNORECASE)
_BINARY = (b"\x89PNG", b"\xff\xd8\xff", b"GIF8", b"\x7fELF", b"\x1f\x8b", b"RIFF", b"{\\rtf")


def is_packed(data: bytes) -> bool:
    return data.startswith((b"PK\x03\x04", b"PK\x05\x06"))


def read_document(data: bytes, name: str) -> str:
    """Return the document as markdown. Raises Unreadable or Unsupported."""
    if not data.strip():
        raise Unreadable("the document is empty")
    ending = name.rpartition(".")[2].lower()
    if is_packed(data):
        return _read_packed(Package(data))
    if b"%PDF-" in data[:1024]:
        return pdf.read_pdf(data)
    if data.startswith(b"\xd0\xcf\x11\xe0"):
        if ending in ("docx", "xlsx", "pptx"):
            raise Unreadable("the document is protected with a password")
        raise Unsupported("an Office document from before 2007")
    is_wide = data[:2] in (b"\xff\xfe", b"\xfe\xff")
    if data.startswith(_BINARY) or (b"\0" in data[:4096] and not is_wide):
        if ending in _DOCUMENTS:
            raise Unreadable(f"the document is damaged: it is not a {ending} file")
        raise Unsupported(f"a file of type {ending or 'unknown'}")
    return _read_text(data, ending)


def _read_packed(package: Package) -> str:
    for part, read in _PARTS:
        if part in package:
            return read(package)
    raise Unsupported("an archive that is not a document")


def _read_text(data: bytes, ending: str) -> str:
    if ending in ("html", "htm", "xhtml") or _HTML.match(data[:1024]):
        return plain.read_page(data)
    if ending in ("csv", "tsv"):
        return plain.read_rows(data, "," if ending == "csv" else "\t")
    if ending in ("json", "ipynb"):
        return plain.read_json(data)
    if ending in _DOCUMENTS:
        raise Unreadable(f"the document is damaged: it is not a {ending} file")
    return plain.decode_text(data)
