"""OpenSERP."""

from retinue.tools.outbound.client import Question
from retinue.tools.web.providers.base import Access, Hit, read_rows, to_hits


class OpenSerp:
    """Its search API."""

    label = "OpenSERP"
    needs_key = True

    def ask(self, access: Access, query: str, count: int) -> Question:
        headers = {"authorization": f"Bearer {access.key}", "x-api-key": access.key}
        return Question(access.url, headers, {"q": query, "num": str(count)})

    def read(self, body: bytes) -> list[Hit]:
        # A server of one's own answers with the list itself, and has other words in it.
        rows = read_rows(body, lambda value: value.get("organic_results") or value.get("results"), may_be_list=True)
        return to_hits(rows, url="url", snippet="snippet", other="description")
