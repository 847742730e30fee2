"""Resolves the links and images of a page and writes them in markdown."""

import re
from html import unescape
from urllib.parse import urljoin, urlsplit

from retinue.core.pattern import late_pattern

_HREF = re.compile(r"""\bhref\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s"'>]+))""", re.IGNORECASE)
_SRC = re.compile(r"""\bsrc\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s"'>]+))""", re.IGNORECASE)
_ALT = late_pattern(r"""\balt\s*=\s*(?:"([^"]*)"|'([^']*)')""", re.IGNORECASE)
_ROUND = late_pattern(r"\([^()]*\)")
_SCHEME = late_pattern(r"[a-z][a-z0-9+.-]*:", re.IGNORECASE)
_SAFE = ("http:", "https:", "mailto:", "ftp:", "tel:")
_BRACKETS = str.maketrans("[]", "()")


class Links:
    """Makes the URLs of one page absolute."""

    def __init__(self, base_url: str) -> None:
        self._base = base_url
        self._origin = _find_origin(base_url) if base_url else ""
        self._is_based = False

    def rebase(self, inside: str) -> None:
        """Apply a `base` tag; the first valid one counts."""
        if not self._is_based and (url := self.find_target(inside)):
            self._is_based = True
            self._base = urljoin(self._base, url)
            self._origin = _find_origin(self._base)

    def find_target(self, inside: str) -> str:
        """Return the target of a link; empty for a fragment or an unsafe scheme such as javascript:."""
        return self._find_url(_HREF, inside)

    def render_image(self, inside: str) -> str:
        """Return the image with its alt text; empty if it has none."""
        found = _ALT.search(inside)
        alt = " ".join(unescape(found[1] or found[2] or "").translate(_BRACKETS).split()) if found else ""
        url = self._find_url(_SRC, inside) if alt else ""
        return f"![{alt}]({url})" if url else alt

    def _find_url(self, pattern: re.Pattern[str], inside: str) -> str:
        found = pattern.search(inside)
        if found is None:
            return ""
        url: str = found[1] or found[2] or found[3] or ""
        if "&" in url:
            url = unescape(url)
        if " " in url or "\n" in url:
            url = "".join(url.split())
        if not url.startswith(("https://", "http://", "mailto:")):
            url = self._make_absolute(url)
        return url if ")" not in url or not _has_loose_bracket(url) else url.replace("(", "%28").replace(")", "%29")

    def _make_absolute(self, url: str) -> str:
        if not url or url[0] == "#":
            return ""
        if url[0] == "/" and url[1:2] != "/":
            return self._origin + url
        scheme = _SCHEME.match(url)
        if scheme is not None and scheme[0].lower() not in _SAFE:
            return ""
        try:
            return urljoin(self._base, url)
        except ValueError:
            return ""


def _find_origin(url: str) -> str:
    return "{0.scheme}://{0.netloc}".format(urlsplit(url))


def _has_loose_bracket(url: str) -> bool:
    """Whether unbalanced parentheses would end a markdown link too early."""
    bare = _ROUND.sub("", url)
    return "(" in bare or ")" in bare
