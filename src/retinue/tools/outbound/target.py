"""Parses a URL written by a model or a page strictly, so that it has exactly one meaning. Pure.

Every spelling of a host becomes one name or one IP address; ambiguous URLs are refused. Must not know which hosts may
be reached.
"""

import ipaddress
import socket
import unicodedata
from typing import TypeAlias
from urllib.parse import quote as percent
from urllib.parse import urljoin

from msgspec import Struct

from retinue.core.errors import quote
from retinue.core.pattern import late_pattern
from retinue.tools.outbound.request import RequestFailed

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
MAX_URL_CHARS = 8192
_PORTS = {"http": 80, "https": 443}
_SCHEME = late_pattern(r"([A-Za-z][A-Za-z0-9+.-]*):")
_LABEL = late_pattern(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")
_NUMBER = late_pattern(r"(?:0x[0-9a-f]*|[0-9]+)")
_FULL_STOPS = str.maketrans({"\u3002": ".", "\uff0e": ".", "\uff61": "."})
_SAFE = "/%:@!$&'()*+,;=~-._"


class HttpTarget(Struct, frozen=True):
    scheme: str
    host: str
    """Lower case, ASCII, without a final dot; an IP address in its usual notation."""
    port: int
    path: str
    """With the query, without the fragment."""
    number: str = ""
    """The host again, if it is an IP address and not a name."""

    @property
    def url(self) -> str:
        """The normalized URL that is sent."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        port = "" if self.port == _PORTS[self.scheme] else f":{self.port}"
        return f"{self.scheme}://{host}{port}{self.path}"


def parse_target(text: str) -> HttpTarget:
    """Parse a URL. Raises RequestFailed."""
    if len(text) > MAX_URL_CHARS:
        raise _reject(text, f"it has {len(text)} characters, at most {MAX_URL_CHARS} are sent")
    if any(ord(character) <= 32 or ord(character) == 127 or character == "\\" for character in text):
        raise _reject(text, "it contains a space, a control character or a backslash")
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise _reject(text, "it contains an incomplete character")
    found = _SCHEME.match(text)
    if found is None or (
        found[1].lower() not in _PORTS and not text[found.end() :].startswith("//") and "." in found[1]
    ):
        raise _reject(text, "it has no scheme; expected http:// or https://")
    scheme = found[1].lower()
    if scheme not in _PORTS:
        raise RequestFailed(
            "scheme", f"{quote(text, 200)} is not fetched: only http and https are, not {quote(scheme)}"
        )
    rest = text[found.end() :]
    if not rest.startswith("//") or rest.startswith("///"):
        raise _reject(text, f"expected {scheme}:// and a host")
    end = next((place for place, character in enumerate(rest[2:], 2) if character in "/?#"), len(rest))
    authority, tail = rest[2:end], rest[end:].partition("#")[0]
    if "@" in authority:
        raise _reject(text, "user names and passwords in addresses are not sent")
    if "%" in authority:
        raise _reject(text, "its host is written with %")
    host, number, port = _read_authority(text, authority, _PORTS[scheme])
    path, mark, question = tail.partition("?")
    path = percent(path, _SAFE) or "/"
    return HttpTarget(scheme, host, port, path + (f"?{percent(question, _SAFE + '?')}" if mark else ""), number)


def join_target(base: HttpTarget, location: str) -> HttpTarget:
    """Resolve the location of a redirect. Raises RequestFailed."""
    # Servers often leave spaces unescaped. A host with a space is still refused.
    return parse_target(urljoin(base.url, location.strip().replace(" ", "%20")))


def _read_authority(text: str, authority: str, usual: int) -> tuple[str, str, int]:
    if authority.startswith("["):
        inside, bracket, after = authority[1:].partition("]")
        try:
            address = ipaddress.IPv6Address(inside)
        except ValueError:
            raise _reject(text, "its host is not a valid address in brackets") from None
        if not bracket or (after and not after.startswith(":")):
            raise _reject(text, "its host is not a valid address in brackets")
        return str(address), str(address), _read_port(text, after[1:], usual)
    name, colon, port = authority.partition(":")
    host = _read_host(text, name)
    number = _read_number(text, host)
    return number or host, number, _read_port(text, port if colon else "", usual)


def _read_port(text: str, port: str, usual: int) -> int:
    if not port:
        return usual
    if not (port.isascii() and port.isdigit() and len(port) <= 5 and 0 < int(port) < 65536):
        raise _reject(text, f"{quote(port)} is not a port")
    return int(port)


def _read_host(text: str, name: str) -> str:
    plain = unicodedata.normalize("NFKC", name.translate(_FULL_STOPS)).translate(_FULL_STOPS).lower()
    plain = plain.removesuffix(".")
    if not plain.isascii():
        try:
            plain = plain.encode("idna").decode("ascii")
        except UnicodeError:
            raise _reject(text, "its host is not a valid name") from None
    if not plain or len(plain) > 253 or not all(_LABEL.fullmatch(label) for label in plain.split(".")):
        raise _reject(text, "its host is not a valid name" if plain else "it has no host")
    return plain


def _read_number(text: str, host: str) -> str:
    """Return the usual notation of an address written in another one: 127.1, 0x7f000001, 017700000001."""
    if not _NUMBER.fullmatch(host.rpartition(".")[2]):
        return ""
    try:
        return str(ipaddress.IPv4Address(socket.inet_aton(host)))
    except (OSError, ValueError):
        raise _reject(text, "its host ends with a number but is not an address") from None


def _reject(text: str, reason: str) -> RequestFailed:
    return RequestFailed("url", f"{quote(text, 200)} cannot be fetched: {reason}")
