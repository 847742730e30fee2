"""Tavily."""

import json

from retinue.tools.outbound.client import Question
from retinue.tools.web.providers.base import Access, Hit, read_rows, to_hits


class Tavily:
    """Its search API."""

    label = "Tavily"
    needs_key = True

    def ask(self, access: Access, query: str, count: int) -> Question:
        body = {"api_key": access.key, "query": query, "max_results": count}
        return Question(access.url, body=json.dumps(body).encode())

    def read(self, body: bytes) -> list[Hit]:
        return to_hits(read_rows(body, lambda value: value.get("results")), url="url", snippet="content")
