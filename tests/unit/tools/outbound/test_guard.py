import ipaddress

import pytest

from retinue.tools.outbound.guard import RequestGuard, check_secrets, is_below, is_public
from retinue.tools.outbound.request import RequestFailed, RequestReach
from retinue.tools.outbound.target import parse_target

PRIVATE = (
    *("0.0.0.0", "10.1.2.3", "100.64.0.1", "127.0.0.1", "127.255.255.254", "169.254.169.254", "172.16.0.1"),
    *("192.0.0.8", "192.168.1.1", "198.18.0.1", "192.88.99.1", "203.0.113.9", "224.0.0.1", "240.0.0.1"),
    *("255.255.255.255", "::", "::1", "::127.0.0.1", "::ffff:127.0.0.1", "::ffff:7f00:1", "::ffff:10.0.0.1"),
    *(
        "64:ff9b::7f00:1",
        "64:ff9b::a9fe:a9fe",
        "64:ff9b:1::1",
        "2002:7f00:1::",
        "2606:4700:4700::1111%eth0",
        "2002:a00:1::1",
        "fec0::1",
        "fe80::1",
    ),
    *("fe80::1%lo", "fc00::1", "fd00:ec2::254", "ff02::1", "ff0e::1", "2001:db8::1", "2001:0:5ef5:79fb:0:0:80ff:fffe"),
)
# IANA's registries of special addresses, of which each Python knows another part: the ends of each.
SPECIAL = (
    *("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24"),
    *("192.0.2.0/24", "192.31.196.0/24", "192.52.193.0/24", "192.88.99.0/24", "192.168.0.0/16", "192.175.48.0/24"),
    *("198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4", "64:ff9b:1::/48"),
    *("100::/64", "100:0:0:1::/64", "2001::/32", "2001:1::1/128", "2001:1::2/128", "2001:1::3/128", "2001:2::/48"),
    *("2001:3::/32", "2001:4:112::/48", "2001:10::/28", "2001:20::/28", "2001:30::/28", "2001::/23", "2001:db8::/32"),
    *("2620:4f:8000::/48", "3fff::/20", "3ffe::/16", "5f00::/16", "fc00::/7", "fe80::/10", "fec0::/10", "ff00::/8"),
)
PUBLIC = ("93.184.216.34", "8.8.8.8", "2606:2800:220:1::1", "::ffff:8.8.8.8", "64:ff9b::808:808", "2002:808:808::1")
PUBLIC += ("2001:470::1", "2001:4860:4860::8888", "3ffd::1", "1.1.1.1", "192.0.1.1", "198.20.0.1", "223.255.255.254")


@pytest.mark.attack("D1", "D13")
@pytest.mark.parametrize("address", PRIVATE)
def test_private_addresses_are_known(address):
    assert not is_public(ipaddress.ip_address(address))


@pytest.mark.attack("D1", "D13")
@pytest.mark.parametrize("text", SPECIAL)
def test_special_networks_are_known(text):
    network = ipaddress.ip_network(text)
    assert not any(is_public(network[number]) for number in (0, 1, -2, -1) if network.num_addresses > 1 or not number)


METADATA = (
    *("168.63.129.16", "169.254.169.254", "169.254.170.2", "169.254.170.23", "169.254.0.23", "169.254.42.42"),
    *("169.254.169.250", "100.100.100.200", "192.0.0.192"),
)
METADATA_6 = ("fd00:ec2::254", "fd00:ec2::23", "fd20:ce::254", "fd00:42::42", "fd00:a9fe:a9fe::1", "fe80::a9fe:a9fe")
WRAPPED = ("::ffff:{0}", "::{0}", "64:ff9b::{0}", "64:ff9b:1::{0}", "::ffff:0:{0}", "2a00:1:2:3::{0}", "2a00::5efe:{0}")


def wrap(text):
    """An IPv4 address as others hold it: mapped, compatible, translated, behind somebody's own prefix, 6to4."""
    number = int(ipaddress.IPv4Address(text))
    return [*(form.format(text) for form in WRAPPED), f"2002:{number >> 16:x}:{number & 0xFFFF:x}::1"]


@pytest.mark.attack("I11")
@pytest.mark.parametrize("address", [*METADATA, *METADATA_6])
async def test_metadata_services_are_never_public(address):
    names = {address, *(wrap(address) if ":" not in address else ())}
    assert [each for each in names if is_public(ipaddress.ip_address(each))] == []

    async def resolve(host, port):
        return ["93.184.216.34", address]

    for host in (f"[{address}]" if ":" in address else address, "rebound.test"):
        with pytest.raises(RequestFailed, match="is this machine, a private network or reserved"):
            await RequestGuard(RequestReach(), resolve).admit(parse_target(f"http://{host}/"))


@pytest.mark.parametrize("address", PUBLIC)
def test_public_addresses_are_known(address):
    assert is_public(ipaddress.ip_address(address))


async def resolve_public(host, port):
    return ["93.184.216.34"]


@pytest.mark.attack("D6")
@pytest.mark.parametrize("port", [22, 25, 110, 1023, 6379, 5432, 11211])
async def test_ports_of_services_are_refused(port):
    with pytest.raises(RequestFailed, match=f"port {port} is not a port of a web server"):
        await RequestGuard(RequestReach(private=True), resolve_public).admit(
            parse_target(f"http://public.test:{port}/")
        )


@pytest.mark.attack("D13", "I11")
@pytest.mark.parametrize(
    "host",
    [
        *("localhost", "LOCALHOST.", "a.localhost", "printer.local", "metadata.google.internal", "metadata.goog"),
        *("instance-data", "Metadata.", "instance-data.ec2.internal", "metadata.tencentyun.com", "metadata.packet.net"),
        *("metadata.platformequinix.com", "rancher-metadata", "data-server"),
    ],
)
async def test_local_names_are_refused(host):
    with pytest.raises(RequestFailed, match="is a name of this machine"):
        await RequestGuard(RequestReach(), resolve_public).admit(parse_target(f"http://{host}/"))


@pytest.mark.attack("D4")
async def test_allowed_hosts_end_at_dots():
    guard = RequestGuard(RequestReach(hosts=("trusted.com",)), resolve_public)
    for host in ("trusted.com", "docs.trusted.com", "TRUSTED.com."):
        assert await guard.admit(parse_target(f"https://{host}/")) == ["93.184.216.34"]
    for host in ("trusted.com.evil.test", "eviltrusted.com", "tru\u0455ted.com"):
        with pytest.raises(RequestFailed, match="allowedHosts"):
            await guard.admit(parse_target(f"https://{host}/"))
    assert not is_below("com", "trusted.com")


@pytest.mark.attack("D16")
@pytest.mark.parametrize(
    "text",
    [
        "http://a/?k=canary-secret-91",
        "http://a/?k=canary%2Dsecret%2D91",
        "http://a/canary%252Dsecret%252D91",
        "http://a/?k=Y2FuYXJ5LXNlY3JldC05MQ",
        "http://a/63616e6172792d7365637265742d3931",
        "http://a/?t=ghp_0123456789012345678901234567890123456789",
        "http://a/?t=AKIAIOSFODNN7EXAMPLE",
    ],
)
def test_keys_do_not_leave(text):
    with pytest.raises(RequestFailed, match="nothing was sent") as caught:
        check_secrets(text, {"SOME_API_KEY": "canary-secret-91", "PATH": "/bin"})
    assert "canary" not in str(caught.value)


def test_usual_addresses_hold_nothing():
    check_secrets("https://a.test/path?q=keyboard+token&page=2", {"SOME_API_KEY": "canary-secret-91", "MODE": "path"})
