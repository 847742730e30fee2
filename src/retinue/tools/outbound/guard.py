"""Decides which hosts and IP addresses a request may reach, and that no key is sent (protection against SSRF).

A name is refused if any of its addresses is, and an address if any address embedded in it is. Must not know what is
fetched, or why.
"""

import asyncio
import base64
import ipaddress
import socket
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from typing import TypeAlias
from urllib.parse import unquote_plus

from retinue.core.errors import quote
from retinue.core.redaction import Redactor, is_secret_name, is_telling
from retinue.tools.outbound.request import RequestFailed, RequestReach
from retinue.tools.outbound.target import Address, HttpTarget

Resolve: TypeAlias = Callable[[str, int], Awaitable[list[str]]]
"""Resolves a name to all its addresses; raises OSError if it has none."""

_LOCAL_NAMES = frozenset(
    (
        *("localhost", "ip6-localhost", "ip6-loopback", "metadata", "instance-data", "rancher-metadata", "data-server"),
        *("metadata.goog", "metadata.tencentyun.com", "metadata.packet.net", "metadata.platformequinix.com"),
    )
)
_LOCAL_ENDS = (".localhost", ".localdomain", ".local", ".internal", ".home.arpa")
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_COMPATIBLE = ipaddress.IPv6Network("::/96")
_UNICAST = ipaddress.IPv6Network("2000::/3")
# IANA's registries of special addresses, including globally routed ones: relays and anycast lead to places that others
# choose. Listed here because what ipaddress knows of them depends on its version. The rest of IPv6 is outside _UNICAST.
_SPECIAL = tuple(
    ipaddress.ip_network(text)
    for text in (
        *("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24"),
        *("192.0.2.0/24", "192.31.196.0/24", "192.52.193.0/24", "192.88.99.0/24", "192.168.0.0/16", "192.175.48.0/24"),
        *("198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4"),
        *("2001::/23", "2001:db8::/32", "2620:4f:8000::/48", "3ffe::/16", "3fff::/20"),
    )
)
# Metadata services of clouds, which give keys to any client inside. Not all of them are in a private network.
_METADATA = frozenset(
    ipaddress.IPv4Address(text)
    for text in (
        *("168.63.129.16", "169.254.169.254", "169.254.170.2", "169.254.170.23", "169.254.0.23", "169.254.42.42"),
        *("169.254.169.250", "100.100.100.200", "192.0.0.192"),
    )
)
_SERVICES = frozenset(
    (
        *(1433, 1521, 1719, 1720, 1723, 2049, 2181, 2375, 2376, 2379, 2380, 3268, 3306, 3389, 3659, 4045, 4190, 4369),
        *(5060, 5061, 5432, 5671, 5672, 5900, 5984, 5985, 5986, 6000, 6379, 6443, 6566, 6665, 6666, 6667, 6668, 6669),
        *(6679, 6697, 7000, 7001, 8500, 9042, 9092, 9200, 9300, 10080, 10250, 11211, 15672, 26379, 27017, 27018, 50070),
    )
)
"""Ports of services that are not web servers and may act on the text of an HTTP request."""
_SHAPES = Redactor(patterns=True)


async def resolve_name(host: str, port: int) -> list[str]:
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(item[4][0]) for item in found]


class RequestGuard:
    def __init__(self, reach: RequestReach, resolve: Resolve = resolve_name) -> None:
        self._reach = reach
        self._resolve = resolve

    async def admit(self, target: HttpTarget) -> list[str]:
        """Return the addresses to connect to, all of them checked. Raises RequestFailed."""
        self._check_host(target)
        if target.number:
            self._check_address(target, target.number)
            return [target.number]
        try:
            found = list(dict.fromkeys(await self._resolve(target.host, target.port)))
        except (OSError, UnicodeError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise RequestFailed("network", f"the host {quote(target.host)} was not found ({reason})") from None
        if not found:
            raise RequestFailed("network", f"the host {quote(target.host)} was not found")
        for text in found:
            # One refused address is enough: a server that returns both kinds wants the forbidden one to be used.
            self._check_address(target, text)
        return found

    def _check_host(self, target: HttpTarget) -> None:
        host = target.host
        if target.port not in (80, 443) and (target.port < 1024 or target.port in _SERVICES):
            raise RequestFailed(
                "refused", f"{_show(target)} is not fetched: port {target.port} is not a port of a web server"
            )
        if self._reach.hosts and not any(is_below(host, name) for name in self._reach.hosts):
            raise RequestFailed(
                "refused", f"{_show(target)} is not fetched: web.allowedHosts does not name {quote(host)}"
            )
        if not self._reach.private and (host in _LOCAL_NAMES or host.endswith(_LOCAL_ENDS)):
            raise self._refuse_private(target, f"{quote(host)} is a name of this machine or of a private network")

    def _check_address(self, target: HttpTarget, text: str) -> None:
        if self._reach.private:
            return
        try:
            address = ipaddress.ip_address(text)
        except ValueError:
            raise self._refuse_private(target, f"{quote(text)} is not an IP address") from None
        if not is_public(address):
            raise self._refuse_private(target, f"{text} is this machine, a private network or reserved")

    def _refuse_private(self, target: HttpTarget, reason: str) -> RequestFailed:
        return RequestFailed("refused", f"{_show(target)} is not fetched: {reason} ({self._reach.switch} is off)")


def is_below(host: str, name: str) -> bool:
    """Whether a host is equal to a configured name or a subdomain of it."""
    name = name.lower().strip(".")
    return host == name or host.endswith(f".{name}")


def is_public(address: Address) -> bool:
    """Whether an address, and each address embedded in it, is publicly routed."""
    if isinstance(address, ipaddress.IPv4Address):
        return address not in _METADATA and not _is_special(address)
    # Check the last 32 bits, because a network may choose its own prefix for embedded IPv4 addresses.
    if address.scope_id is not None or ipaddress.IPv4Address(int(address) & 0xFFFFFFFF) in _METADATA:
        return False
    inner = list(_unwrap(address))
    if inner:
        return all(is_public(each) for each in inner)
    return address in _UNICAST and not _is_special(address)


def is_metadata(address: Address) -> bool:
    """Whether an address, or one embedded in it, is a cloud's metadata service or local to the link."""
    inner = address if isinstance(address, ipaddress.IPv4Address) else ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address.is_link_local or inner.is_link_local or inner in _METADATA


def _is_special(address: Address) -> bool:
    return any(address in network for network in _SPECIAL if network.version == address.version)


def _unwrap(address: ipaddress.IPv6Address) -> Iterator[ipaddress.IPv4Address]:
    if address.ipv4_mapped is not None:
        yield address.ipv4_mapped
    elif address.sixtofour is not None:
        yield address.sixtofour
    elif address in _NAT64 or address in _COMPATIBLE:
        yield ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)


def _show(target: HttpTarget) -> str:
    return quote(target.url, 200)


def check_secrets(text: str, environment: Mapping[str, str], *, is_given: bool = False) -> None:
    """Raise RequestFailed if a text contains a key of the environment, or what looks like one. The key is never shown.

    `is_given` marks text that a server sent. It may contain keys of its own, as signed URLs do.
    """
    shown = (text, unquote_plus(text), unquote_plus(unquote_plus(text)))
    for name, value in environment.items():
        is_key = is_secret_name(name) and is_telling(value.strip())
        if is_key and any(form in each for form in _spell(value.strip()) for each in shown):
            raise RequestFailed("secret", f"the request contains the value of {name}; nothing was sent")
    if not is_given and any(_SHAPES.redact(each) != each for each in shown):
        raise RequestFailed("secret", "the request contains what looks like a key or a token; nothing was sent")


def _spell(value: str) -> Iterable[str]:
    data = value.encode("utf-8", "replace")
    packed = base64.b64encode(data).decode("ascii").rstrip("=")
    return value, packed, packed.replace("+", "-").replace("/", "_"), data.hex()
