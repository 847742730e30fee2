"""Reads Word documents."""

from xml.etree.ElementTree import Element

from retinue.tools.convert.readers.base import join_blocks
from retinue.tools.convert.readers.zipped import Package
from retinue.tools.markdown.marks import render_table
from retinue.tools.markdown.xml import strip_name

MAIN = "word/document.xml"
_W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_R = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}"
_LEVELS = {"title": 1, **{f"heading{level}": level for level in range(1, 7)}}


def read_word(package: Package) -> str:
    """Return the text with headings, lists, links and tables."""
    body = package.read_xml(MAIN).find(f"{_W}body")
    links = package.read_links(MAIN)
    return join_blocks(_read_blocks(body, links)) if body is not None else ""


def _read_blocks(parent: Element, links: dict[str, str]) -> list[str]:
    blocks: list[str] = []
    was_item = False
    for child in parent:
        name = strip_name(child)
        if name == "p":
            text, is_item = _read_paragraph(child, links)
            if is_item and was_item and blocks and text:
                blocks[-1] += f"\n{text}"
            elif text:
                blocks.append(text)
            was_item = is_item if text else was_item
        elif name == "tbl":
            blocks.append(_read_table(child, links))
            was_item = False
        elif name in ("sdt", "sdtContent", "customXml", "smartTag"):
            blocks += _read_blocks(child, links)
    return blocks


def _read_paragraph(paragraph: Element, links: dict[str, str]) -> tuple[str, bool]:
    text = " ".join(_read_runs(paragraph, links).split(" ")).strip()
    properties = paragraph.find(f"{_W}pPr")
    if properties is None or not text:
        return text, False
    style = properties.find(f"{_W}pStyle")
    word = (style.get(f"{_W}val", "") if style is not None else "").lower().replace(" ", "")
    if word in _LEVELS:
        return f"{'#' * _LEVELS[word]} {text}", False
    numbered = properties.find(f"{_W}numPr")
    if numbered is not None or word.startswith("list"):
        level = numbered.find(f"{_W}ilvl") if numbered is not None else None
        depth = level.get(f"{_W}val", "0") if level is not None else "0"
        return f"{'  ' * min(int(depth) if depth.isdigit() else 0, 8)}- {text}", True
    return text, False


def _read_runs(parent: Element, links: dict[str, str]) -> str:
    pieces: list[str] = []
    for child in parent:
        name = strip_name(child)
        if name == "t":
            pieces.append(child.text or "")
        elif name in ("tab", "br", "cr"):
            pieces.append("\t" if name == "tab" else "\n")
        elif name == "r":
            pieces.append(_mark_run(child, _read_runs(child, links)))
        elif name == "hyperlink":
            inside, target = _read_runs(child, links), links.get(child.get(f"{_R}id", ""), "")
            pieces.append(f"[{inside}]({target})" if target.startswith("http") and inside.strip() else inside)
        elif name in ("ins", "smartTag", "sdt", "sdtContent", "fldSimple"):
            pieces.append(_read_runs(child, links))
    return "".join(pieces)


def _mark_run(run: Element, text: str) -> str:
    properties = run.find(f"{_W}rPr")
    if properties is None or not text.strip():
        return text
    if _is_on(properties, "vanish") or _is_on(properties, "webHidden"):
        return ""
    for tag, sign in (("b", "**"), ("i", "*")):
        if _is_on(properties, tag):
            bare = text.strip()
            text = text.replace(bare, f"{sign}{bare}{sign}", 1)
    return text


def _is_on(properties: Element, tag: str) -> bool:
    found = properties.find(f"{_W}{tag}")
    return found is not None and found.get(f"{_W}val", "1") not in ("0", "false", "off")


def _read_table(table: Element, links: dict[str, str]) -> str:
    rows = []
    for row in table.iter(f"{_W}tr"):
        rows.append([" ".join(_read_blocks(cell, links)) for cell in row.findall(f"{_W}tc")])
    return render_table([row for row in rows if row])
