"""Excel workbooks."""

import re
from xml.etree.ElementTree import Element

from retinue.tools.convert.readers.base import join_blocks
from retinue.tools.convert.readers.zipped import Package
from retinue.tools.markdown.tables import render_table
from retinue.tools.markdown.xml import strip_name

MAIN = "xl/workbook.xml"
MAX_ROWS, MAX_COLUMNS, MAX_SHEETS = 5_000, 100, 100
_R = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}"
_COLUMN = re.compile(r"[A-Z]{1,3}")


def read_workbook(package: Package) -> str:
    """Each sheet as a table; values as they are stored, without their formats."""
    links = package.read_links(MAIN)
    strings = _read_strings(package)
    blocks: list[str] = []
    sheets = [each for each in package.read_xml(MAIN).iter() if strip_name(each) == "sheet"]
    for sheet in sheets[:MAX_SHEETS]:
        part = links.get(sheet.get(f"{_R}id", ""), "")
        if part in package:
            blocks.append(f"## {sheet.get('name', '')}")
            blocks += _read_sheet(package.read_xml(part), strings)
    return join_blocks(blocks)


def _read_strings(package: Package) -> list[str]:
    if "xl/sharedStrings.xml" not in package:
        return []
    root = package.read_xml("xl/sharedStrings.xml")
    return ["".join(each.text or "" for each in item.iter() if strip_name(each) == "t") for item in root]


def _read_sheet(root: Element, strings: list[str]) -> list[str]:
    rows: list[list[str]] = []
    total = 0
    for row in (each for each in root.iter() if strip_name(each) == "row"):
        total += 1
        if len(rows) < MAX_ROWS:
            cells = _read_row(row, strings)
            if any(cells):
                rows.append(cells)
    note = [f"[the first {MAX_ROWS} of {total} rows]"] if total > MAX_ROWS else []
    return [render_table(rows), *note] if rows else ["(empty)"]


def _read_row(row: Element, strings: list[str]) -> list[str]:
    cells: list[str] = []
    for cell in (each for each in row if strip_name(each) == "c"):
        place = _find_column(cell.get("r", ""), len(cells))
        if place >= MAX_COLUMNS:
            break
        cells += [""] * (place - len(cells))
        cells.append(_read_value(cell, strings))
    return cells


def _find_column(name: str, usual: int) -> int:
    found = _COLUMN.match(name)
    if found is None:
        return usual
    number = 0
    for letter in found[0]:
        number = number * 26 + ord(letter) - 64
    return max(number - 1, usual)


def _read_value(cell: Element, strings: list[str]) -> str:
    kind = cell.get("t", "n")
    if kind == "inlineStr":
        return "".join(each.text or "" for each in cell.iter() if strip_name(each) == "t")
    value = next((each.text or "" for each in cell if strip_name(each) == "v"), "")
    if kind == "s":
        return strings[int(value)] if value.isdigit() and int(value) < len(strings) else ""
    if kind == "b":
        return "TRUE" if value == "1" else "FALSE"
    return value
