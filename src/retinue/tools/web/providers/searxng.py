"""SearXNG, a server of one's own."""

from urllib.parse import urlsplit

from retinue.tools.outbound.client import Question
from retinue.tools.web.providers.base import Access, Hit, read_rows, to_hits


class Searxng:
    """Its JSON output, which the server's settings must allow."""

    label = "SearXNG"
    needs_key = False

    def ask(self, access: Access, query: str, count: int) -> Question:
        url = access.url
        if urlsplit(url).path in ("", "/"):
            url = url.rstrip("/") + "/search"
        fixed = {"format": "json", "pageno": "1", "language": "en", "categories": "general"}
        return Question(url, query={"q": query, **fixed, "engines": access.engine, "count": str(count)})

    def read(self, body: bytes) -> list[Hit]:
        rows = read_rows(body, lambda value: value.get("results"))
        return to_hits(rows, url="url", snippet="content", source="engine")
