"""Detects the type and charset of a response body and renders it as text for a model. Pure.

A body that is invalid for its type is shown unchanged.
"""

import codecs
import csv
import json
import re
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple
from urllib.parse import urlsplit
from xml.etree.ElementTree import Element

from retinue.core.pattern import late_pattern
from retinue.tools.markdown.html import to_markdown
from retinue.tools.markdown.marks import clean_cell, render_table
from retinue.tools.markdown.xml import XmlError, parse_xml, strip_name

READABLE = ("html", "json", "csv", "tsv", "xml", "yaml", "markdown", "text")
"""The other kinds: document, picture, sound, film, font, archive, program, binary."""

_TYPES: dict[str, str] = {
    "text/html": "html",
    "application/xhtml+xml": "html",
    "application/json": "json",
    "text/json": "json",
    "application/ld+json": "json",
    "text/csv": "csv",
    "application/csv": "csv",
    "text/tab-separated-values": "tsv",
    "application/xml": "xml",
    "text/xml": "xml",
    "application/rss+xml": "xml",
    "application/atom+xml": "xml",
    "application/yaml": "yaml",
    "application/x-yaml": "yaml",
    "text/yaml": "yaml",
    "text/x-yaml": "yaml",
    "text/markdown": "markdown",
    "text/x-markdown": "markdown",
    "application/pdf": "document",
    "application/msword": "document",
    "application/rtf": "document",
    "application/epub+zip": "document",
    "application/zip": "archive",
    "application/gzip": "archive",
    "application/x-gzip": "archive",
    "application/x-tar": "archive",
    "application/x-bzip2": "archive",
    "application/x-xz": "archive",
    "application/zstd": "archive",
    "application/x-7z-compressed": "archive",
    "application/vnd.rar": "archive",
    "application/java-archive": "archive",
    "application/x-msdownload": "program",
    "application/x-executable": "program",
    "application/x-mach-binary": "program",
    "application/wasm": "program",
    "application/javascript": "text",
    "application/x-ndjson": "text",
    "application/toml": "text",
    "application/sql": "text",
}
_STARTS = (
    ("image/", "picture"),
    ("audio/", "sound"),
    ("video/", "film"),
    ("font/", "font"),
    ("application/vnd.openxmlformats", "document"),
    ("application/vnd.oasis.opendocument", "document"),
    ("application/vnd.ms-", "document"),
)
_NAMES: dict[str, str] = {
    **dict.fromkeys(("html", "htm", "xhtml"), "html"),
    **dict.fromkeys(("json", "jsonld", "geojson"), "json"),
    "csv": "csv",
    "tsv": "tsv",
    **dict.fromkeys(("xml", "rss", "atom", "rdf", "xsd"), "xml"),
    **dict.fromkeys(("yaml", "yml"), "yaml"),
    **dict.fromkeys(("md", "markdown"), "markdown"),
    **dict.fromkeys(("txt", "log", "rst", "toml", "ini", "py", "js", "ts", "rs", "go", "c", "h", "java", "sh"), "text"),
    **dict.fromkeys(
        ("pdf", "doc", "docx", "xls", "xlsx", "ppt", "pptx", "odt", "ods", "odp", "epub", "rtf"), "document"
    ),
    **dict.fromkeys(("png", "jpg", "jpeg", "gif", "webp", "ico", "bmp", "tif", "tiff", "avif", "svg"), "picture"),
    **dict.fromkeys(("mp3", "wav", "ogg", "flac", "m4a"), "sound"),
    **dict.fromkeys(("mp4", "webm", "mkv", "mov", "avi"), "film"),
    **dict.fromkeys(("zip", "gz", "tgz", "tar", "bz2", "xz", "zst", "7z", "rar", "jar", "whl"), "archive"),
    **dict.fromkeys(("exe", "dll", "so", "dylib", "msi", "deb", "rpm", "apk", "dmg", "iso", "bin", "wasm"), "program"),
}
_MAGIC = (
    (b"%PDF-", "document"),
    (b"\xd0\xcf\x11\xe0", "document"),
    (b"{\\rtf", "document"),
    (b"PK\x03\x04", "archive"),
    (b"\x1f\x8b", "archive"),
    (b"7z\xbc\xaf", "archive"),
    (b"\x89PNG", "picture"),
    (b"\xff\xd8\xff", "picture"),
    (b"GIF8", "picture"),
    (b"RIFF", "film"),
    (b"ID3", "sound"),
    (b"OggS", "sound"),
    (b"\x7fELF", "program"),
    (b"MZ", "program"),
    (b"\0asm", "program"),
)
_HTML = late_pattern(rb"\s*(?:<!--.{0,500}?-->\s*)?<(?:!doctype\s+html|html|head|body)\b", re.IGNORECASE | re.DOTALL)
_CHARSET = late_pattern(r"charset\s*=\s*[\"']?([\w.:-]{1,40})", re.IGNORECASE)
_META = late_pattern(
    rb"<(?:meta[^>]{0,300}?charset\s*=\s*[\"']?|\?xml[^>]{0,200}?encoding\s*=\s*[\"'])([\w.:-]{1,40})", re.I
)
_CODES = late_pattern(
    r"utf-(?:8|16|32).*|cp\d+|iso8859-\d+|koi8.*|gb.*|big5.*|shift_jis.*|euc_.*|iso2022_.*|mac-.*|johab|tis-620"
)
_SPACES = late_pattern(r"[ \t\r]+\n")
_LINES = late_pattern(r"\n{3,}")
MAX_ITEMS, MAX_JSON_CHARS = 50, 50_000
MAX_ROWS, MAX_COLUMNS, MAX_CELL, MAX_TABLE = 100, 20, 80, 1200
MAX_ENTRIES, MAX_SUMMARY = 20, 300
SHORT_CHARS, MANY_SCRIPTS = 200, 3
_LD_FIELDS = ("headline", "description", "url", "datePublished", "dateModified", "author", "publisher", "articleBody")


def detect_kind(content_type: str, url: str, body: bytes) -> str:
    """Return the kind, by a specific content type, else the URL's file name, else a vague content type or the bytes."""
    header = content_type.partition(";")[0].strip().lower()
    told = _find_told(header)
    is_weak = header in ("", "text/plain", "application/octet-stream", "binary/octet-stream") or (
        header.startswith("text/") and header not in _TYPES
    )
    if told and not is_weak:
        return told
    name = urlsplit(url).path.rpartition("/")[2]
    named = _NAMES.get(name.rpartition(".")[2].lower(), "") if "." in name else ""
    if named:
        return named
    if header.startswith("text/"):
        return "binary" if b"\0" in body[:1024] and not is_wide(body) else "text"
    return _sniff(body)


def is_wide(body: bytes) -> bool:
    """Whether it is UTF-16 text."""
    return body[:2] in (b"\xff\xfe", b"\xfe\xff")


def _find_told(header: str) -> str:
    found = _TYPES.get(header, "")
    found = found or next((kind for start, kind in _STARTS if header.startswith(start)), "")
    return found or ("json" if header.endswith("+json") else "xml" if header.endswith("+xml") else "")


def _sniff(body: bytes) -> str:
    head = body[:1024]
    found = next((kind for magic, kind in _MAGIC if head.startswith(magic)), "")
    if found:
        return found
    if _HTML.match(head):
        return "html"
    if head.lstrip().startswith(b"<?xml"):
        return "xml"
    return "binary" if b"\0" in head and not is_wide(body) else "text"


def explain_unreadable(kind: str, content_type: str) -> str:
    """Return why a body is not shown, and what to do."""
    told = content_type.partition(";")[0].strip() or "no content type"
    text = f"unsupported content: a {kind} ({told}); supported: text, HTML, JSON, CSV, XML, YAML and markdown"
    return f"{text}. Use convert_content with this URL to read a document" if kind == "document" else text


def decode_body(body: bytes, content_type: str) -> tuple[str, str]:
    """Return the text and a warning; the warning is empty if nothing is wrong."""
    for mark, name in ((codecs.BOM_UTF8, "utf-8-sig"), (b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16")):
        if body.startswith(mark):
            return body.decode(name, "replace"), ""
    told = _CHARSET.search(content_type)
    inside = None if told else _META.search(body[:2048])
    name = told[1] if told else inside[1].decode("ascii", "replace") if inside else ""
    # On the web, Latin-1 means Windows-1252.
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
    """Decode strictly, but allow a character at the end that the size limit has cut. Raises LookupError."""
    # Python knows more names: compressions, and host name codecs that take very long for a whole page.
    if not _CODES.fullmatch(codecs.lookup(name).name):
        raise LookupError(name)
    return codecs.getincrementaldecoder(name)("strict").decode(body, False)


def tidy(text: str) -> str:
    """Remove trailing spaces and repeated blank lines."""
    return _LINES.sub("\n\n", _SPACES.sub("\n", text.replace("\r\n", "\n").replace("\r", "\n"))).strip()


class Rendered(NamedTuple):
    """The text of a page."""

    content: str
    title: str = ""
    warning: str = ""
    triggers: tuple[str, ...] = ()
    """Signs that a browser would show more."""
    is_cut: bool = False


def render_body(kind: str, text: str, url: str) -> Rendered:
    """Render a body of a readable kind."""
    return _HANDLERS[kind](text, url)


def _render_html(text: str, url: str) -> Rendered:
    page = to_markdown(text, url)
    content = tidy(page.markdown)
    triggers = []
    if len(content) < SHORT_CHARS:
        triggers.append("short-html")
        if page.scripts > MANY_SCRIPTS:
            triggers.append("js-heavy-html")
    return Rendered(content, page.title, triggers=tuple(triggers))


def _render_text(text: str, url: str) -> Rendered:
    return Rendered(tidy(text))


def _render_json(text: str, url: str) -> Rendered:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        return Rendered(tidy(text), warning=f"not valid JSON: {str(error)[:200]}")
    summary = _summarise_linked(value)
    if summary:
        return Rendered(summary)
    cut = isinstance(value, list) and len(value) > MAX_ITEMS
    note = f"\n\n[the first {MAX_ITEMS} of {len(value)} items]" if cut else ""
    shown = json.dumps(value[:MAX_ITEMS] if cut else value, indent=2, ensure_ascii=False)
    is_long = len(shown) > MAX_JSON_CHARS
    return Rendered(shown[:MAX_JSON_CHARS] + note, is_cut=cut or is_long)


def _summarise_linked(value: Any) -> str:
    """Return the main facts of schema.org data; empty for other objects."""
    if not isinstance(value, dict) or "schema.org" not in str(value.get("@context", ""))[:500]:
        return ""
    graph = value.get("@graph")
    items = [item for item in graph if isinstance(item, dict)][:MAX_ITEMS] if isinstance(graph, list) else [value]
    return "\n\n".join(filter(None, map(_summarise_item, items)))


def _summarise_item(item: dict[str, Any]) -> str:
    name = item.get("name") or item.get("headline") or ""
    lines = [f"# {_to_line(name)}"] if name else []
    lines += [f"type: {_to_line(item['@type'])}"] if item.get("@type") else []
    lines += [f"{field}: {_to_line(item[field])}" for field in _LD_FIELDS if item.get(field) not in (None, "", name)]
    return "\n".join(lines)


def _to_line(value: Any) -> str:
    if isinstance(value, dict):
        value = value.get("name") or value.get("@id") or value.get("url") or ""
    if isinstance(value, list):
        return ", ".join(map(_to_line, value[:10]))
    return " ".join(str(value).split())[:2000]


def _render_rows(text: str, url: str, delimiter: str = ",") -> Rendered:
    rows: list[list[str]] = []
    used = total = 0
    is_cut = False
    try:
        for row in csv.reader(text.splitlines(keepends=True), delimiter=delimiter):
            if not any(cell.strip() for cell in row):
                continue
            total += 1
            shown = [clean_cell(cell, MAX_CELL) for cell in row[:MAX_COLUMNS]]
            used += sum(map(len, shown)) + 3 * len(shown) + 2
            if len(rows) >= MAX_ROWS or (rows and used > MAX_TABLE):
                is_cut = True
                continue
            is_cut = is_cut or len(row) > MAX_COLUMNS
            rows.append([cell.replace("\\|", "|") for cell in shown])
    except csv.Error as error:
        return Rendered(tidy(text), warning=f"not a valid table: {error}")
    if not rows:
        return Rendered(tidy(text), warning="the table is empty")
    note = f"\n\n[{len(rows)} of {total} rows]" if is_cut else ""
    return Rendered(render_table(rows, max_cell=MAX_CELL) + note, is_cut=is_cut)


def _render_xml(text: str, url: str) -> Rendered:
    try:
        root = parse_xml(text)
    except (XmlError, ValueError) as error:
        return Rendered(tidy(text), warning=f"not read as XML: {str(error)[:200]}")
    if strip_name(root) in ("rss", "feed", "RDF"):
        return _render_feed(root)
    return Rendered(tidy(text))


def _render_feed(root: Element) -> Rendered:
    entries = [each for each in root.iter() if strip_name(each) in ("item", "entry")]
    head = next((each for each in root if strip_name(each) == "channel"), root)
    title = _find_text(head, "title")
    lines = [f"# {title}"] if title else []
    for entry in entries[:MAX_ENTRIES]:
        link = _find_text(entry, "link") or next(
            (each.get("href", "") for each in entry if strip_name(each) == "link" and each.get("href")), ""
        )
        name = _find_text(entry, "title") or "(no title)"
        date = next(filter(None, (_find_text(entry, each) for each in ("pubDate", "updated", "published", "date"))), "")
        summary = next(filter(None, (_find_text(entry, each) for each in ("description", "summary", "content"))), "")
        summary = " ".join(to_markdown(summary).markdown.split())
        summary = summary if len(summary) <= MAX_SUMMARY else summary[: MAX_SUMMARY - 1] + "…"
        lines.append("\n".join(filter(None, (f"## {name}", link, date, summary))))
    if len(entries) > MAX_ENTRIES:
        lines.append(f"[the first {MAX_ENTRIES} of {len(entries)} entries]")
    return Rendered("\n\n".join(lines), title, is_cut=len(entries) > MAX_ENTRIES)


def _find_text(element: Element, name: str) -> str:
    found = next((each for each in element if strip_name(each) == name), None)
    return " ".join("".join(found.itertext()).split()) if found is not None else ""


_HANDLERS: dict[str, Callable[[str, str], Rendered]] = {
    "html": _render_html,
    "json": _render_json,
    "csv": _render_rows,
    "tsv": partial(_render_rows, delimiter="\t"),
    "xml": _render_xml,
    "yaml": _render_text,
    "markdown": _render_text,
    "text": _render_text,
}
