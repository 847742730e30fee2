"""Brave Search."""

from typing import Any

from retinue.tools.outbound.client import Question
from retinue.tools.web.providers.base import Access, Hit, read_rows, to_hits


class Brave:
    """Its web search API."""

    label = "Brave Search"
    needs_key = True

    def ask(self, access: Access, query: str, count: int) -> Question:
        return Question(access.url, {"x-subscription-token": access.key}, {"q": query, "count": str(count)})

    def read(self, body: bytes) -> list[Hit]:
        rows = read_rows(body, _find_rows)
        return to_hits(rows, url="url", snippet="description")


def _find_rows(value: Any) -> Any:
    web = value.get("web")
    return web.get("results") if isinstance(web, dict) else None if web is None else ""
