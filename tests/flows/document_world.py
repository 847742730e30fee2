"""Documents made by hand, right ones and hostile ones."""

import io
import struct
import zipfile
import zlib
from collections.abc import Mapping

W = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
R = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
S = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
P = "http://schemas.openxmlformats.org/presentationml/2006/main"
A = "http://schemas.openxmlformats.org/drawingml/2006/main"
RELS = "http://schemas.openxmlformats.org/package/2006/relationships"


def pack(parts: Mapping[str, str | bytes]) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as package:
        for name, content in parts.items():
            package.writestr(name, content)
    return file.getvalue()


def relate(**targets: str) -> str:
    external = {key: 'TargetMode="External"' if ":" in to else "" for key, to in targets.items()}
    rows = "".join(f'<Relationship Id="{key}" Target="{to}" {external[key]}/>' for key, to in targets.items())
    return f'<Relationships xmlns="{RELS}">{rows}</Relationships>'


def make_docx(extra: str = "", prolog: str = "") -> bytes:
    body = (
        '<w:p><w:pPr><w:pStyle w:val="Heading1"/></w:pPr><w:r><w:t>Report</w:t></w:r></w:p>'
        '<w:p><w:r><w:rPr><w:b/></w:rPr><w:t>Bold</w:t></w:r><w:r><w:t xml:space="preserve"> and </w:t></w:r>'
        '<w:hyperlink r:id="r1"><w:r><w:t>link</w:t></w:r></w:hyperlink></w:p>'
        '<w:p><w:pPr><w:numPr><w:ilvl w:val="0"/></w:numPr></w:pPr><w:r><w:t>item</w:t></w:r></w:p>'
        '<w:p><w:pPr><w:numPr><w:ilvl w:val="1"/></w:numPr></w:pPr><w:r><w:t>deeper</w:t></w:r></w:p>'
        "<w:tbl><w:tr><w:tc><w:p><w:r><w:t>a</w:t></w:r></w:p></w:tc><w:tc><w:p><w:r><w:t>b</w:t></w:r></w:p></w:tc></w:tr>"
        "<w:tr><w:tc><w:p><w:r><w:t>1</w:t></w:r></w:p></w:tc><w:tc><w:p><w:r><w:t>2</w:t></w:r></w:p></w:tc></w:tr></w:tbl>"
    )
    text = f'{prolog}<w:document xmlns:w="{W}" xmlns:r="{R}"><w:body>{body}{extra}</w:body></w:document>'
    links = relate(r1="https://e.org/")
    return pack({"word/document.xml": text, "word/_rels/document.xml.rels": links})


DOCX = "# Report\n\n**Bold** and [link](https://e.org/)\n\n- item\n  - deeper\n\n| a | b |\n| --- | --- |\n| 1 | 2 |"


def make_xlsx() -> bytes:
    rows = '<row><c r="A1" t="s"><v>0</v></c><c r="C1" t="inlineStr"><is><t>x|y</t></is></c></row>'
    rows += '<row><c r="A2"><v>1.5</v></c><c r="B2" t="b"><v>1</v></c></row>'
    sheets = '<sheets><sheet name="Data" r:id="r1"/></sheets>'
    return pack(
        {
            "xl/workbook.xml": f'<workbook xmlns="{S}" xmlns:r="{R}">{sheets}</workbook>',
            "xl/_rels/workbook.xml.rels": relate(r1="worksheets/sheet1.xml"),
            "xl/sharedStrings.xml": f'<sst xmlns="{S}"><si><t>Name</t></si></sst>',
            "xl/worksheets/sheet1.xml": f'<worksheet xmlns="{S}"><sheetData>{rows}</sheetData></worksheet>',
        }
    )


def make_dates() -> bytes:
    """A workbook with days, times, numbers that look like them, and a sheet that nobody sees."""
    cells = [("1", "45413"), ("2", "45413.5"), ("3", "0.25"), ("0", "45413"), ("4", "45413"), ("1", "1e300")]
    row = "".join(f'<c s="{style}"><v>{value}</v></c>' for style, value in cells)
    formats = '<numFmts><numFmt numFmtId="164" formatCode="yyyy\\-mm\\-dd h:mm"/>'
    formats += '<numFmt numFmtId="165" formatCode="0.00 &quot;days&quot;"/></numFmts>'
    styles = "".join(f'<xf numFmtId="{number}"/>' for number in (0, 14, 164, 20, 165))
    sheets = '<sheet name="Days" r:id="r1"/><sheet name="Off" state="hidden" r:id="r1"/>'
    return pack(
        {
            "xl/workbook.xml": f'<workbook xmlns="{S}" xmlns:r="{R}"><sheets>{sheets}</sheets></workbook>',
            "xl/_rels/workbook.xml.rels": relate(r1="worksheets/sheet1.xml"),
            "xl/styles.xml": f'<styleSheet xmlns="{S}">{formats}<cellXfs>{styles}</cellXfs></styleSheet>',
            "xl/worksheets/sheet1.xml": f'<worksheet xmlns="{S}"><sheetData><row>{row}</row></sheetData></worksheet>',
        }
    )


_DAYS = "| 2024-05-01 | 2024-05-01 12:00:00 | 06:00:00 | 45413 | 45413 | 1e300 |\n|" + " --- |" * 6
DATES = f"## Days\n\n{_DAYS}\n\n## Off (hidden)\n\n{_DAYS}"
XLSX = "## Data\n\n| Name |  | x\\|y |\n| --- | --- | --- |\n| 1.5 | TRUE |  |"


def make_pptx() -> bytes:
    def shape(text: str, kind: str = "") -> str:
        mark = f'<p:nvSpPr><p:nvPr><p:ph type="{kind}"/></p:nvPr></p:nvSpPr>' if kind else ""
        return f"<p:sp>{mark}<p:txBody><a:p><a:r><a:t>{text}</a:t></a:r></a:p></p:txBody></p:sp>"

    slide = f'<p:sld xmlns:p="{P}" xmlns:a="{A}">{shape("Title", "title")}{shape("Point one")}</p:sld>'
    ids = '<p:sldIdLst><p:sldId id="1" r:id="r1"/></p:sldIdLst>'
    shown = f'<p:presentation xmlns:p="{P}" xmlns:r="{R}">{ids}</p:presentation>'
    notes = f'<p:notes xmlns:p="{P}" xmlns:a="{A}">{shape("Say this", "body")}</p:notes>'
    return pack(
        {
            "ppt/presentation.xml": shown,
            "ppt/_rels/presentation.xml.rels": relate(r1="slides/slide1.xml"),
            "ppt/slides/slide1.xml": slide,
            "ppt/slides/_rels/slide1.xml.rels": relate(n1="../notesSlides/notesSlide1.xml"),
            "ppt/notesSlides/notesSlide1.xml": notes,
        }
    )


PPTX = "## Slide 1: Title\n\nPoint one\n\nNotes:\n\nSay this"


def make_odt() -> bytes:
    names = " ".join(
        f'xmlns:{key}="urn:oasis:names:tc:opendocument:xmlns:{key}:1.0"' for key in ("office", "text", "table")
    )
    table = '<table:table table:name="T"><table:table-row><table:table-cell><text:p>a</text:p></table:table-cell>'
    table += '<table:table-cell table:number-columns-repeated="2"><text:p>b</text:p></table:table-cell>'
    table += "</table:table-row></table:table>"
    body = f'<text:h text:outline-level="2">Head</text:h><text:p>Text</text:p>{table}'
    whole = f"<office:body><office:text>{body}</office:text></office:body>"
    text = f"<office:document-content {names}>{whole}</office:document-content>"
    return pack({"mimetype": "application/vnd.oasis.opendocument.text", "content.xml": text})


def _make_open(body: str) -> bytes:
    names = ("office", "text", "table", "drawing")
    spaces = " ".join(f'xmlns:{key[:5]}="urn:oasis:names:tc:opendocument:xmlns:{key}:1.0"' for key in names)
    return pack(
        {
            "mimetype": "application/vnd.oasis",
            "content.xml": f"<offic:document-content {spaces}><offic:body>{body}</offic:body></offic:document-content>",
        }
    )


def make_ods() -> bytes:
    cell = "<table:table-cell><text:p>{}</text:p></table:table-cell>"
    rows = [cell.format("a") + cell.format("b"), cell.format("1") + "<table:table-cell/>" * 3]
    table = "".join(f"<table:table-row>{row}</table:table-row>" for row in rows)
    return _make_open(f'<offic:spreadsheet><table:table table:name="T">{table}</table:table></offic:spreadsheet>')


def make_odp() -> bytes:
    pages = "".join(
        f"<drawi:page><drawi:frame><text:p>{text}</text:p></drawi:frame></drawi:page>" for text in ("First", "Second")
    )
    return _make_open(f"<offic:presentation>{pages}</offic:presentation>")


ODT = "## Head\n\nText\n\n## T\n\n| a | b | b |\n| --- | --- | --- |"


def make_epub() -> bytes:
    spine = '<spine><itemref idref="a"/></spine>'
    return pack(
        {
            "META-INF/container.xml": '<container><rootfiles><rootfile full-path="b/o.opf"/></rootfiles></container>',
            "b/o.opf": f'<package><manifest><item id="a" href="a.xhtml"/></manifest>{spine}</package>',
            "b/a.xhtml": "<html><body><h1>Chapter</h1><p>Text</p></body></html>",
        }
    )


def make_stream(data: bytes) -> bytes:
    packed = zlib.compress(data)
    return b"<< /Length %d /Filter /FlateDecode >>\nstream\n%s\nendstream" % (len(packed), packed)


def make_pdf(
    *pages: bytes, extra: bytes = b"", font: bytes = b"/Type1", more: Mapping[int, bytes] | None = None
) -> bytes:
    """One page for each stream of drawing commands."""
    first = 10
    kids = b" ".join(b"%d 0 R" % (first + 2 * place) for place in range(len(pages)))
    objects = {
        1: b"<< /Type /Catalog /Pages 2 0 R >>",
        2: b"<< /Type /Pages /Kids [%s] /Count %d /Resources << /Font << /F1 3 0 R >> >> >>" % (kids, len(pages)),
        3: b"<< /Type /Font /Subtype %s /BaseFont /Helvetica %s >>" % (font, extra),
        **(more or {}),
    }
    for place, page in enumerate(pages):
        objects[first + 2 * place] = b"<< /Type /Page /Parent 2 0 R /Contents %d 0 R >>" % (first + 2 * place + 1)
        objects[first + 2 * place + 1] = make_stream(page)
    body = b"".join(b"%d 0 obj\n%s\nendobj\n" % item for item in sorted(objects.items()))
    return b"%PDF-1.4\n" + body + b"trailer << /Root 1 0 R >>\n%%EOF"


PAGE = rb"BT /F1 12 Tf 72 700 Td (Hello \(PDF\) w\366rld) Tj 0 -14 Td [(Sec) -20 (ond) -300 (line)] TJ ET"


def make_bomb(mebibytes: int) -> bytes:
    """A stream of zeros, compressed twice: a few kilobytes that unpack to more than any process may have."""
    packer = zlib.compressobj()
    pieces = [packer.compress(bytes(1 << 20)) + packer.flush(zlib.Z_FULL_FLUSH) for _ in range(2)]
    twice = zlib.compress(pieces[0] + pieces[1] * mebibytes + packer.flush())
    return b"<< /Length %d /Filter [/FlateDecode /FlateDecode] >>\nstream\n%s\nendstream" % (len(twice), twice)


def make_lying_zip(size: int) -> bytes:
    """A document whose only part says that it is small."""
    data = pack({"word/document.xml": bytes(size)})
    small = struct.pack("<L", 100)
    central = data.rfind(b"PK\x01\x02")
    data = data[: central + 24] + small + data[central + 28 :]
    return data[:22] + small + data[26:]
