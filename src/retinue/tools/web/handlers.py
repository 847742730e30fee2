"""What each kind of text looks like for a model. Pure; what cannot be read as its kind is shown as it is."""

import csv
import json
from collections.abc import Callable
from typing import Any, NamedTuple
from xml.etree.ElementTree import Element

from retinue.tools.markdown.html import to_markdown
from retinue.tools.markdown.tables import clean_cell, render_table
from retinue.tools.markdown.xml import XmlError, parse_xml, strip_name
from retinue.tools.web.text import tidy

MAX_ITEMS, MAX_JSON_CHARS = 50, 50_000
MAX_ROWS, MAX_COLUMNS, MAX_CELL, MAX_TABLE = 100, 20, 80, 1200
MAX_ENTRIES, MAX_SUMMARY = 20, 300
SHORT_CHARS, MANY_SCRIPTS = 200, 3
_LD_FIELDS = ("headline", "description", "url", "datePublished", "dateModified", "author", "publisher", "articleBody")


class Rendered(NamedTuple):
    """What is shown of a page."""

    content: str
    title: str = ""
    warning: str = ""
    triggers: tuple[str, ...] = ()
    """Signs that a browser would show more."""
    is_cut: bool = False


def render_body(kind: str, text: str, url: str) -> Rendered:
    """A body of a readable kind."""
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
    """The main facts of schema.org data; empty for other objects."""
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


def _render_csv(text: str, url: str) -> Rendered:
    return _render_rows(text, ",")


def _render_tsv(text: str, url: str) -> Rendered:
    return _render_rows(text, "\t")


def _render_rows(text: str, delimiter: str) -> Rendered:
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
    "csv": _render_csv,
    "tsv": _render_tsv,
    "xml": _render_xml,
    "yaml": _render_text,
    "markdown": _render_text,
    "text": _render_text,
}
