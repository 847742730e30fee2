"""Loads one web page and converts it to text. Must not know tools or tool results."""

import asyncio
from typing import Any

from msgspec import Struct

from retinue.core.errors import quote
from retinue.tools.markdown.tags import drop_unseen
from retinue.tools.outbound.client import HttpClient, HttpPage
from retinue.tools.outbound.request import RequestBounds, RequestFailed
from retinue.tools.web.options import WebOptions
from retinue.tools.web.page_text import (
    READABLE,
    Rendered,
    decode_body,
    detect_kind,
    explain_unreadable,
    render_body,
    tidy,
)
from retinue.tools.web.session import Throttle

ACCEPT = "text/html,application/xhtml+xml,application/json;q=0.9,text/*;q=0.9,application/xml;q=0.8,*/*;q=0.5"
_INLINE_BYTES = 32 * 1024
READER_TYPE = "text/markdown; source=jina"


class Fetched(Struct, frozen=True):
    """A page as text."""

    url: str
    content: str
    title: str = ""
    content_type: str = ""
    warning: str = ""
    is_cut: bool = False
    """Not everything was loaded or kept."""

    def to_data(self) -> dict[str, Any]:
        data: dict[str, Any] = {"url": self.url}
        data |= {"title": self.title} if self.title else {}
        data |= {"content": self.content, "truncated": self.is_cut}
        data |= {"contentType": self.content_type} if self.content_type else {}
        return data | ({"parseWarning": self.warning} if self.warning else {})


class Fetcher:
    """Loads pages, a few at a time."""

    def __init__(self, options: WebOptions, client: HttpClient, throttle: Throttle) -> None:
        self._options = options
        self._client = client
        self._throttle = throttle

    async def fetch(self, url: str, *, prefer_reader: bool = False) -> Fetched:
        """Fetch one page. Raises RequestFailed or QueueFull."""
        async with self._throttle:
            page = await self._client.fetch(url, self._options.bounds, accept=ACCEPT)
            if not 200 <= page.status < 300:
                raise RequestFailed("status", f"{quote(page.url, 200)} returned HTTP {page.status}", status=page.status)
            kind = detect_kind(page.content_type, page.url, page.body)
            if kind not in READABLE:
                told = explain_unreadable(kind, page.content_type)
                raise RequestFailed("status", f"{quote(page.url, 200)} cannot be shown: {told}")
            if len(page.body) <= _INLINE_BYTES:
                fetched, rendered = self._render(page, kind)
            else:
                fetched, rendered = await asyncio.to_thread(self._render, page, kind)
            if kind == "html" and self._wants_reader(rendered, prefer_reader=prefer_reader):
                return await self._ask_reader(page.url) or fetched
            return fetched

    def _render(self, page: HttpPage, kind: str) -> tuple[Fetched, Rendered]:
        text, charset = decode_body(page.body, page.content_type)
        rendered = render_body(kind, drop_unseen(text), page.url)
        most = self._options.max_stored_chars
        warning = "; ".join(filter(None, (page.note, charset, rendered.warning)))
        is_cut = page.is_cut or rendered.is_cut or len(rendered.content) > most
        # Again, because character references have only now become characters.
        kept, title = drop_unseen(rendered.content[:most]), drop_unseen(rendered.title[:500])
        return Fetched(page.url, kept, title, drop_unseen(page.content_type[:200]), warning, is_cut), rendered

    def _wants_reader(self, rendered: Rendered, *, prefer_reader: bool) -> bool:
        reader = self._options.reader
        return reader is not None and (prefer_reader or bool(set(reader.triggers) & set(rendered.triggers)))

    async def _ask_reader(self, url: str) -> Fetched | None:
        """Fetch the page through the reader service; None if that gives no text."""
        reader = self._options.reader
        assert reader is not None
        bounds = RequestBounds(reader.timeout_s, self._options.max_bytes)
        try:
            page = await self._client.fetch(reader.base_url + url, bounds, accept="text/markdown, text/plain")
        except RequestFailed:
            return None
        text = tidy(drop_unseen(decode_body(page.body, page.content_type)[0]))
        if not 200 <= page.status < 300 or not text:
            return None
        most = self._options.max_stored_chars
        return Fetched(url, text[:most], content_type=READER_TYPE, is_cut=page.is_cut or len(text) > most)
