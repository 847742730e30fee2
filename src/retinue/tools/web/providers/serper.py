"""Serper."""

import json

from retinue.tools.outbound.client import Question
from retinue.tools.web.providers.base import Access, Hit, read_rows, to_hits


class Serper:
    """Its Google search API."""

    label = "Serper"
    needs_key = True

    def ask(self, access: Access, query: str, count: int) -> Question:
        body = json.dumps({"q": query, "num": count}).encode()
        return Question(access.url, {"x-api-key": access.key}, body=body)

    def read(self, body: bytes) -> list[Hit]:
        return to_hits(read_rows(body, lambda value: value.get("organic")), url="link", snippet="snippet")
