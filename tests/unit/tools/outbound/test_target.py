import pytest

from retinue.tools.outbound.request import RequestFailed
from retinue.tools.outbound.target import join_target, parse_target


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("HTTP://Example.ORG", "http://example.org/"),
        ("https://example.org:443/a b".replace(" ", "%20"), "https://example.org/a%20b"),
        ("http://example.org.:8080?q=ü#part", "http://example.org:8080/?q=%C3%BC"),
        ("https://bücher.example/é", "https://xn--bcher-kva.example/%C3%A9"),
        ("http://127.1/", "http://127.0.0.1/"),
        ("http://2130706433/", "http://127.0.0.1/"),
        ("http://0x7f.1/", "http://127.0.0.1/"),
        ("http://017700000001/", "http://127.0.0.1/"),
        ("http://0/", "http://0.0.0.0/"),
        ("http://127。0。0。1/", "http://127.0.0.1/"),
        ("http://①②⑦.⓪.⓪.①/", "http://127.0.0.1/"),
        ("http://[0:0:0:0:0:0:0:1]:8080/", "http://[::1]:8080/"),
    ],
)
def test_spellings_become_one(text, url):
    assert parse_target(text).url == url


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no scheme"),
        ("#part", "no scheme"),
        ("example.org/a", "no scheme"),
        ("http://exa mple.org", "a space"),
        ("http://example.org/\r\nHost: x", "control character"),
        ("http://a\0.org", "control character"),
        ("http:\\\\127.0.0.1", "backslash"),
        ("http:///etc", "expected http:// and a host"),
        ("http:example.org", "expected http:// and a host"),
        ("http://", "it has no host"),
        ("http://user@127.0.0.1/", "user names and passwords"),
        ("http://trusted.org@evil.test@x/", "user names and passwords"),
        ("http://%31%32%37.0.0.1/", "written with %"),
        ("http://[fe80::1%25lo]/", "written with %"),
        ("http://[::1/", "in brackets"),
        ("http://[::1]x/", "in brackets"),
        ("http://a:0/", "'0' is not a port"),
        ("http://a:65536/", "'65536' is not a port"),
        ("http://a:８０/", "is not a port"),
        ("http://1.2.3.4.5/", "ends with a number"),
        ("http://a..b/", "not a valid name"),
        (f"http://{'a' * 5000}/", "not a valid name"),
        (f"http://a/{'b' * 20_000}", "20009 characters"),
    ],
)
def test_doubtful_addresses_are_refused(text, reason):
    with pytest.raises(RequestFailed, match=reason.replace("(", r"\(")) as caught:
        parse_target(text)
    assert caught.value.kind == "url"


@pytest.mark.attack("D6")
@pytest.mark.parametrize("text", ["ftp://a/b", "file:///etc/passwd", "gopher://a", "data:text/html,x", "javascript:x"])
def test_other_schemes_are_refused(text):
    with pytest.raises(RequestFailed, match="only http and https") as caught:
        parse_target(text)
    assert caught.value.kind == "scheme"


def test_locations_are_joined():
    base = parse_target("https://a.test/x/y")
    found = [join_target(base, each).url for each in ("z", "/z", "//b.test", "?q", "http://c.test")]
    assert found == [
        "https://a.test/x/z",
        "https://a.test/z",
        "https://b.test/",
        "https://a.test/x/y?q",
        "http://c.test/",
    ]
