"""Bytes of a page as text: which characters they mean. Pure."""

import codecs
import re

_CHARSET = re.compile(r"charset\s*=\s*[\"']?([\w.:-]{1,40})", re.IGNORECASE)
_META = re.compile(
    rb"<(?:meta[^>]{0,300}?charset\s*=\s*[\"']?|\?xml[^>]{0,200}?encoding\s*=\s*[\"'])([\w.:-]{1,40})", re.I
)
_CODES = re.compile(
    r"utf-(?:8|16|32).*|cp\d+|iso8859-\d+|koi8.*|gb.*|big5.*|shift_jis.*|euc_.*|iso2022_.*|mac-.*|johab|tis-620"
)
_SPACES = re.compile(r"[ \t\r]+\n")
_LINES = re.compile(r"\n{3,}")


def decode_body(body: bytes, content_type: str) -> tuple[str, str]:
    """The text, and what is wrong with it; empty when nothing is."""
    for mark, name in ((codecs.BOM_UTF8, "utf-8-sig"), (b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16")):
        if body.startswith(mark):
            return body.decode(name, "replace"), ""
    told = _CHARSET.search(content_type)
    inside = None if told else _META.search(body[:2048])
    name = told[1] if told else inside[1].decode("ascii", "replace") if inside else ""
    # What calls itself Latin-1 on the web is the Windows page that extends it.
    name = "cp1252" if name.lower() in ("iso-8859-1", "latin1", "latin-1", "us-ascii", "ascii") else name
    warning = ""
    if name:
        try:
            return _decode_cut(body, name), ""
        except LookupError:
            warning = f"unknown charset {name!r}"
        except UnicodeError:
            warning = f"not all of it is {name}, as it says"
    try:
        return _decode_cut(body, "utf-8"), warning
    except UnicodeDecodeError:
        return body.decode("cp1252", "replace"), warning or "not UTF-8; read as Windows-1252"


def _decode_cut(body: bytes, name: str) -> str:
    """Strict, but for a character at the very end that the size limit has cut. Raises LookupError."""
    # Python knows more names: packings, and codes for host names that take for ever on a whole page.
    if not _CODES.fullmatch(codecs.lookup(name).name):
        raise LookupError(name)
    return codecs.getincrementaldecoder(name)("strict").decode(body, False)


def tidy(text: str) -> str:
    """Without spaces at the ends of lines and more than one blank line."""
    return _LINES.sub("\n\n", _SPACES.sub("\n", text.replace("\r\n", "\n").replace("\r", "\n"))).strip()
