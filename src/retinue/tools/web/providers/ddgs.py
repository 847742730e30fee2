"""DuckDuckGo's plain pages: no key, no promise."""

import re
from html import unescape
from urllib.parse import parse_qs, urlsplit

from retinue.tools.outbound.client import Question
from retinue.tools.web.providers.base import MAX_TITLE, Access, Hit, to_text

MAX_HITS = 5
_HREF = re.compile(r"""\bhref\s*=\s*(?:"([^"]*)"|'([^']*)')""", re.IGNORECASE)
_TAG = re.compile(r"<[^>]*>")


class Ddgs:
    """Links on the results page."""

    label = "DuckDuckGo"
    needs_key = False

    def ask(self, access: Access, query: str, count: int) -> Question:
        return Question(access.url, {"Accept": "text/html"}, {"q": query})

    def read(self, body: bytes) -> list[Hit]:
        found: dict[str, Hit] = {}
        for part in body.decode("utf-8", "replace").split("</a>")[:-1]:
            attributes, _, inside = part[part.rfind("<a ") + 3 :].partition(">")
            href = _HREF.search(attributes)
            url = _unwrap(unescape((href[1] or href[2] or "") if href else ""))
            title = to_text(unescape(_TAG.sub("", inside)), MAX_TITLE)
            if url and title and url not in found:
                found[url] = Hit(title, url, source="fallback")
            if len(found) >= MAX_HITS:
                break
        return list(found.values())


def _unwrap(url: str) -> str:
    """Where a link leads in the end; empty for links of the page itself."""
    try:
        parts = urlsplit("https:" + url if url.startswith("//") else url)
        wrapped = parse_qs(parts.query).get("uddg", [""])[0]
        target = urlsplit(wrapped) if wrapped else parts
    except ValueError:
        return ""
    host = target.hostname or ""
    is_own = host == "duckduckgo.com" or host.endswith(".duckduckgo.com")
    return target.geturl() if target.scheme in ("http", "https") and host and not is_own else ""
