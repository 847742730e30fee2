"""Reads PowerPoint presentations."""

from xml.etree.ElementTree import Element

from retinue.core.pattern import late_pattern
from retinue.tools.convert.readers.base import join_blocks
from retinue.tools.convert.readers.zipped import Package
from retinue.tools.markdown.marks import render_table
from retinue.tools.markdown.xml import strip_name

MAIN = "ppt/presentation.xml"
MAX_SLIDES = 1_000
_SLIDE = late_pattern(r"ppt/slides/slide(\d{1,6})\.xml")


def read_slides(package: Package) -> str:
    """Return the text of each slide in order, with its notes."""
    blocks: list[str] = []
    for number, part in enumerate(_list_slides(package)[:MAX_SLIDES], 1):
        root = package.read_xml(part)
        title, rest = _read_slide(root)
        hidden = " (hidden)" if root.get("show", "1") in ("0", "false") else ""
        blocks.append(f"## Slide {number}{': ' + title if title else ''}{hidden}")
        blocks += rest
        for note in package.read_links(part).values():
            if "/notesSlides/" in note and note in package:
                _, lines = _read_slide(package.read_xml(note))
                blocks += ["Notes:", *lines] if lines else []
    return join_blocks(blocks)


def _list_slides(package: Package) -> list[str]:
    links = package.read_links(MAIN)
    ids = [each for each in package.read_xml(MAIN).iter() if strip_name(each) == "sldId"]
    listed = [links.get(value, "") for each in ids for key, value in each.attrib.items() if key.endswith("}id")]
    found = [part for part in listed if part in package]
    return found or sorted(filter(_SLIDE.fullmatch, package.names), key=lambda name: int(_SLIDE.fullmatch(name)[1]))  # type: ignore[index]


def _read_slide(root: Element) -> tuple[str, list[str]]:
    title = ""
    blocks: list[str] = []
    for shape in root.iter():
        name = strip_name(shape)
        if name == "sp":
            kind = next((each.get("type", "") for each in shape.iter() if strip_name(each) == "ph"), "")
            lines = _read_lines(shape)
            if kind in ("title", "ctrTitle") and lines and not title:
                title = " ".join(lines)
            elif lines and kind not in ("sldNum", "dt", "ftr"):
                blocks.append("\n".join(lines))
        elif name == "tbl":
            rows = [
                [" ".join(_read_lines(cell)) for cell in row if strip_name(cell) == "tc"]
                for row in shape
                if strip_name(row) == "tr"
            ]
            blocks.append(render_table(rows))
    return title, blocks


def _read_lines(shape: Element) -> list[str]:
    paragraphs = [each for each in shape.iter() if strip_name(each) == "p"]
    lines = ["".join(each.text or "" for each in one.iter() if strip_name(each) == "t") for one in paragraphs]
    return [line.strip() for line in lines if line.strip()]
