"""Reads formats that are already text: HTML, CSV, JSON, notebooks."""

import csv
import json

from retinue.tools.convert.readers.base import Unreadable
from retinue.tools.markdown.html import to_markdown
from retinue.tools.markdown.marks import render_table

MAX_ROWS, MAX_COLUMNS = 5_000, 100


def decode_text(data: bytes) -> str:
    """Decode as UTF-8, or UTF-16 if there is a byte order mark; else as Windows-1252."""
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return data.decode("utf-16", "replace")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return data.decode("cp1252", "replace")


def read_page(data: bytes) -> str:
    page = to_markdown(decode_text(data))
    has_title = page.title and not page.markdown.startswith("# ")
    return f"# {page.title}\n\n{page.markdown}" if has_title else page.markdown


def read_rows(data: bytes, delimiter: str) -> str:
    rows: list[list[str]] = []
    total = 0
    try:
        for row in csv.reader(decode_text(data).splitlines(keepends=True), delimiter=delimiter):
            total += bool(row)
            if row and len(rows) < MAX_ROWS:
                rows.append(row[:MAX_COLUMNS])
    except csv.Error as error:
        raise Unreadable(f"no valid table ({error})") from None
    note = f"\n\n[the first {MAX_ROWS} of {total} rows]" if total > MAX_ROWS else ""
    return render_table(rows) + note


def read_json(data: bytes) -> str:
    """Read JSON; a notebook gives its cells."""
    text = decode_text(data)
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Unreadable(f"no valid JSON ({error})") from None
    if isinstance(value, dict) and isinstance(value.get("cells"), list) and "nbformat" in value:
        return "\n\n".join(_render_cell(cell) for cell in value["cells"] if isinstance(cell, dict))
    return f"```json\n{json.dumps(value, indent=2, ensure_ascii=False)}\n```"


def _render_cell(cell: dict[str, object]) -> str:
    source = cell.get("source", "")
    text = "".join(map(str, source)) if isinstance(source, list) else str(source)
    return text if cell.get("cell_type") == "markdown" else f"```\n{text}\n```"
