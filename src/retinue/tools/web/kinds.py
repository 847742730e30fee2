"""What kind of thing a body is, by what its server says, its name, and its first bytes. Pure."""

import re
from urllib.parse import urlsplit

READABLE = ("html", "json", "csv", "tsv", "xml", "yaml", "markdown", "text")
"""The others: document, picture, sound, film, font, archive, program, binary."""

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
_HTML = re.compile(rb"\s*(?:<!--.{0,500}?-->\s*)?<(?:!doctype\s+html|html|head|body)\b", re.IGNORECASE | re.DOTALL)


def detect_kind(content_type: str, url: str, body: bytes) -> str:
    """One of the kinds: a clear word of the server, the name in the address, its unclear word, the bytes."""
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
    """Whether it is text of two bytes a character."""
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
    """Why a body is not shown, and what to do."""
    told = content_type.partition(";")[0].strip() or "no content type"
    text = f"unsupported content: a {kind} ({told}); text, HTML, JSON, CSV, XML, YAML and markdown are read"
    return f"{text}. Use convert_content with this URL to read a document" if kind == "document" else text
