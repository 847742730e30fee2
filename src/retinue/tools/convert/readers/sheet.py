"""Reads Excel workbooks."""

from datetime import datetime, timedelta
from xml.etree.ElementTree import Element

from retinue.core.pattern import late_pattern
from retinue.tools.convert.readers.base import join_blocks
from retinue.tools.convert.readers.zipped import Package
from retinue.tools.markdown.marks import render_table
from retinue.tools.markdown.xml import strip_name

MAIN = "xl/workbook.xml"
MAX_ROWS, MAX_COLUMNS, MAX_SHEETS = 5_000, 100, 100
_R = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}"
_COLUMN = late_pattern(r"[A-Z]{1,3}")
_DATES = frozenset((*range(14, 23), *range(27, 37), *range(45, 48), *range(50, 59)))
"""Built-in number formats for dates and times."""
_LITERAL = late_pattern(r'"[^"]*"|\\.|\[[^\]]*\]|_.|\*.')
_EPOCH = datetime(1899, 12, 30)


class _Book:
    """What the cells of all sheets share."""

    def __init__(self, package: Package) -> None:
        self.strings = _read_strings(package)
        self._dates = _read_dates(package)

    def is_date(self, style: str) -> bool:
        return style.isdigit() and len(style) < 7 and int(style) in self._dates


def read_workbook(package: Package) -> str:
    """Return each sheet as a table; values as stored, except dates."""
    links = package.read_links(MAIN)
    book = _Book(package)
    blocks: list[str] = []
    sheets = [each for each in package.read_xml(MAIN).iter() if strip_name(each) == "sheet"]
    for sheet in sheets[:MAX_SHEETS]:
        part = links.get(sheet.get(f"{_R}id", ""), "")
        if part in package:
            # Marked, because users do not see it in Excel.
            hidden = " (hidden)" if sheet.get("state", "visible") != "visible" else ""
            blocks.append(f"## {sheet.get('name', '')}{hidden}")
            blocks += _read_sheet(package.read_xml(part), book)
    return join_blocks(blocks)


def _read_strings(package: Package) -> list[str]:
    if "xl/sharedStrings.xml" not in package:
        return []
    root = package.read_xml("xl/sharedStrings.xml")
    return ["".join(each.text or "" for each in item.iter() if strip_name(each) == "t") for item in root]


def _read_sheet(root: Element, book: _Book) -> list[str]:
    rows: list[list[str]] = []
    total = 0
    for row in (each for each in root.iter() if strip_name(each) == "row"):
        total += 1
        if len(rows) < MAX_ROWS:
            cells = _read_row(row, book)
            if any(cells):
                rows.append(cells)
    note = [f"[the first {MAX_ROWS} of {total} rows]"] if total > MAX_ROWS else []
    return [render_table(rows), *note] if rows else ["(empty)"]


def _read_row(row: Element, book: _Book) -> list[str]:
    cells: list[str] = []
    for cell in (each for each in row if strip_name(each) == "c"):
        place = _find_column(cell.get("r", ""), len(cells))
        if place >= MAX_COLUMNS:
            break
        cells += [""] * (place - len(cells))
        cells.append(_read_value(cell, book))
    return cells


def _find_column(name: str, usual: int) -> int:
    found = _COLUMN.match(name)
    if found is None:
        return usual
    number = 0
    for letter in found[0]:
        number = number * 26 + ord(letter) - 64
    return max(number - 1, usual)


def _read_value(cell: Element, book: _Book) -> str:
    kind = cell.get("t", "n")
    if kind == "inlineStr":
        return "".join(each.text or "" for each in cell.iter() if strip_name(each) == "t")
    value = next((each.text or "" for each in cell if strip_name(each) == "v"), "")
    if kind == "s":
        strings = book.strings
        return strings[int(value)] if value.isdigit() and len(value) < 10 and int(value) < len(strings) else ""
    if kind == "b":
        return "TRUE" if value == "1" else "FALSE"
    return _to_date(value) if kind == "n" and book.is_date(cell.get("s", "")) else value


def _read_dates(package: Package) -> frozenset[int]:
    """Return the cell styles whose numbers are dates."""
    if "xl/styles.xml" not in package:
        return frozenset()
    root = package.read_xml("xl/styles.xml")
    own = {each.get("numFmtId", ""): each.get("formatCode", "") for each in root.iter() if strip_name(each) == "numFmt"}
    formats = next((each for each in root if strip_name(each) == "cellXfs"), ())
    names = [each.get("numFmtId", "") for each in formats]
    return frozenset(place for place, name in enumerate(names) if _is_date_format(name, own.get(name, "")))


def _is_date_format(name: str, code: str) -> bool:
    bare = _LITERAL.sub("", code).lower()
    return any(sign in bare for sign in "ydhs") if code else name.isdigit() and int(name[:6]) in _DATES


def _to_date(value: str) -> str:
    """Format a serial number as date and time; return it unchanged if it is invalid."""
    try:
        moment = _EPOCH + timedelta(seconds=round(float(value) * 86_400))
    except (ValueError, OverflowError):
        return value
    if float(value) < 1:
        return moment.strftime("%H:%M:%S")
    return moment.strftime("%Y-%m-%d" if moment.time() == datetime.min.time() else "%Y-%m-%d %H:%M:%S")
