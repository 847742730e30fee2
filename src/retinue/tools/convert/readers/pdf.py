"""Extracts the text of PDF files with PDFium, which is native code: only the limited child process may import it."""

from typing import Any

from retinue.tools.convert.readers.base import MAX_TEXT_CHARS, Unreadable, join_blocks

MAX_PAGES = 2_000


def read_pdf(data: bytes) -> str:
    """Return the visible text of all pages. Raises Unreadable if there is none."""
    import pypdfium2  # type: ignore[import-untyped]

    try:
        document = pypdfium2.PdfDocument(data)
    except pypdfium2.PdfiumError:
        if b"/Encrypt" in data:
            raise Unreadable("the document is protected with a password") from None
        raise Unreadable("the document is damaged: it has no pages") from None
    blocks: list[str] = []
    used = unread = 0
    pages = min(len(document), MAX_PAGES)
    for number in range(pages):
        try:
            text = _read_page(document[number])
        except pypdfium2.PdfiumError:
            unread += 1
            continue
        if text:
            blocks.append(f"<!-- page {number + 1} -->\n{text}")
            used += len(text)
        if used > MAX_TEXT_CHARS:
            break
    if unread == pages:
        raise Unreadable("the document is damaged: it has no pages")
    if not blocks:
        raise Unreadable(f"there is no text in its {pages} pages: they are probably scanned pictures")
    return join_blocks(blocks)


def _read_page(page: Any) -> str:
    content = page.get_textpage()
    # Text outside of the page, which nobody sees, is not part of it.
    text: str = content.get_text_bounded(errors="replace")
    content.close()
    page.close()
    lines = (" ".join(line.split()) for line in text.splitlines())
    return "\n".join(line for line in lines if line)
