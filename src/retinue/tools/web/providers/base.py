"""What all search providers share. Pure; must not know how a request is made."""

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from msgspec import Struct

from retinue.tools.markdown.unseen import drop_unseen
from retinue.tools.outbound.client import Question
from retinue.tools.outbound.target import MAX_URL_CHARS

MAX_SNIPPET = 1000
MAX_TITLE = 300


class SearchFailed(Exception):
    """Raised when a provider cannot be asked, or gives no usable answer."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.provider = ""
        """Who was asked, where somebody was."""


class Hit(Struct, frozen=True):
    """One result."""

    title: str
    url: str
    snippet: str = ""
    source: str = ""

    def to_data(self) -> dict[str, Any]:
        data: dict[str, Any] = {"title": self.title, "url": self.url}
        data |= {"snippet": self.snippet} if self.snippet else {}
        return data | ({"source": self.source} if self.source else {})


class Access(Struct, frozen=True):
    """Where a provider is, and with which key."""

    url: str
    key: str = ""
    engine: str = ""


class Provider(Protocol):
    """One of them."""

    @property
    def label(self) -> str:
        """For people."""
        ...

    @property
    def needs_key(self) -> bool: ...

    def ask(self, access: Access, query: str, count: int) -> Question:
        """What is sent."""
        ...

    def read(self, body: bytes) -> list[Hit]:
        """The results in an answer. Raises SearchFailed."""
        ...


def read_rows(body: bytes, find: Callable[[Any], Any], *, may_be_list: bool = False) -> list[Mapping[str, Any]]:
    """The list of results in a JSON answer; an answer without one has none. Raises SearchFailed."""
    try:
        value = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise SearchFailed("WEB_SEARCH_FAILED", f"the answer is no JSON ({str(error)[:100]})") from None
    if isinstance(value, list) and may_be_list:
        value = {"results": value}
    if not isinstance(value, dict):
        raise SearchFailed("WEB_SEARCH_FAILED", "the answer is no JSON object")
    rows = find(value)
    if rows is None:
        return []
    if not isinstance(rows, list):
        raise SearchFailed("WEB_SEARCH_FAILED", "the answer has no list of results")
    return [row for row in rows if isinstance(row, dict)]


def to_hits(
    rows: Iterable[Mapping[str, Any]], *, url: str, snippet: str, other: str = "", source: str = ""
) -> list[Hit]:
    """Results out of rows that name their fields so; what has no address is none."""
    found: dict[str, Hit] = {}
    for row in rows:
        address = row.get(url) or row.get("url") or row.get("link")
        address = to_text(address, MAX_URL_CHARS + 1)
        if address.startswith(("http://", "https://")) and len(address) <= MAX_URL_CHARS:
            title = to_text(row.get("title"), MAX_TITLE) or address[:MAX_TITLE]
            engine = to_text(row.get(source), 40) if source else ""
            about = to_text(row.get(snippet) or row.get(other), MAX_SNIPPET)
            found.setdefault(address, Hit(title, address, about, engine))
    return list(found.values())


def to_text(value: Any, most: int) -> str:
    """A value of an answer as one line."""
    return " ".join(drop_unseen(value).split())[:most] if isinstance(value, str) else ""
