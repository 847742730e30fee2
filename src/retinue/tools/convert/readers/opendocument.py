"""Reads OpenDocument files (texts, spreadsheets, presentations) and EPUB books."""

from posixpath import dirname, join, normpath
from xml.etree.ElementTree import Element

from retinue.tools.convert.readers.base import Unreadable, join_blocks
from retinue.tools.convert.readers.zipped import Package
from retinue.tools.markdown.html import to_markdown
from retinue.tools.markdown.marks import render_table
from retinue.tools.markdown.xml import strip_name

MAIN = "content.xml"
_MAX_REPEAT, _MAX_ROWS, _MAX_COLUMNS = 50, 5_000, 100
_TABLE = "{urn:oasis:names:tc:opendocument:xmlns:table:1.0}"
_TEXT = "{urn:oasis:names:tc:opendocument:xmlns:text:1.0}"


def read_opendocument(package: Package) -> str:
    body = next((each for each in package.read_xml(MAIN) if strip_name(each) == "body"), None)
    return join_blocks(list(_read_blocks(body))) if body is not None else ""


def _read_blocks(parent: Element) -> list[str]:
    blocks: list[str] = []
    for child in parent:
        name = strip_name(child)
        if name == "h":
            level = child.get(f"{_TEXT}outline-level", "1")
            blocks.append(f"{'#' * min(int(level) if level.isdigit() else 1, 6)} {_read_text(child)}")
        elif name == "p":
            blocks.append(_read_text(child))
        elif name == "list":
            blocks.append("\n".join(f"- {_read_text(item)}" for item in child if strip_name(item) == "list-item"))
        elif name == "table":
            blocks += [f"## {title}"] if (title := child.get(f"{_TABLE}name", "")) else []
            blocks.append(render_table(_read_rows(child)))
        else:
            blocks += _read_blocks(child)
    return blocks


def _read_text(element: Element) -> str:
    return " ".join("".join(element.itertext()).split())


def _read_rows(table: Element) -> list[list[str]]:
    rows: list[list[str]] = []
    for row in (each for each in table.iter() if strip_name(each) == "table-row"):
        cells: list[str] = []
        for cell in (each for each in row if strip_name(each) == "table-cell"):
            repeat = cell.get(f"{_TABLE}number-columns-repeated", "1")
            times = min(int(repeat), _MAX_REPEAT) if repeat.isdigit() and len(repeat) < 9 else 1
            text = _read_text(cell)
            cells += [text] * (times if text else 1)
        while cells and not cells[-1]:
            cells.pop()
        if cells and len(rows) < _MAX_ROWS:
            rows.append(cells[:_MAX_COLUMNS])
    return rows


def read_book(package: Package) -> str:
    """Return the chapters of an EPUB book in order."""
    container = package.read_xml("META-INF/container.xml")
    path = next((each.get("full-path", "") for each in container.iter() if strip_name(each) == "rootfile"), "")
    if path not in package:
        raise Unreadable("the book has no list of its chapters")
    root = package.read_xml(path)
    files = {each.get("id", ""): each.get("href", "") for each in root.iter() if strip_name(each) == "item"}
    order = [files.get(each.get("idref", ""), "") for each in root.iter() if strip_name(each) == "itemref"]
    blocks = []
    for href in order:
        name = normpath(join(dirname(path), href)) if href else ""
        if name in package:
            blocks.append(to_markdown(package.read(name).decode("utf-8", "replace")).markdown)
    return join_blocks(blocks)
