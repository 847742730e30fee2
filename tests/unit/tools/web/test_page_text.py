import json

import pytest

from retinue.tools.web.page_text import decode_body, detect_kind, render_body


@pytest.mark.parametrize(
    ("header", "url", "body", "kind"),
    [
        ("text/html; charset=utf-8", "http://a/x.json", b"", "html"),
        ("application/problem+json", "http://a/", b"", "json"),
        ("application/atom+xml", "http://a/", b"", "xml"),
        ("text/plain", "http://a/data.csv?x=1", b"a,b", "csv"),
        ("text/plain", "http://a/readme", b"a", "text"),
        ("text/x-python", "http://a/x", b"a", "text"),
        ("application/octet-stream", "http://a/x.yml", b"", "yaml"),
        ("application/octet-stream", "http://a/x", b"PK\x03\x04", "archive"),
        ("", "http://a/x", b"  <!DOCTYPE html><p>", "html"),
        ("", "http://a/x", b"<?xml version='1.0'?>", "xml"),
        ("", "http://a/x", b"%PDF-1.4", "document"),
        ("", "http://a/x", b"\x89PNG", "picture"),
        ("", "http://a/x", b"a\0b", "binary"),
        ("", "http://a/x", "ä".encode("utf-16"), "text"),
        ("image/svg+xml", "http://a/x", b"<svg/>", "picture"),
        ("text/plain", "http://a/x", b"a\0b", "binary"),
    ],
)
def test_kinds_are_detected(header, url, body, kind):
    assert detect_kind(header, url, body) == kind


@pytest.mark.parametrize(
    ("body", "header", "text", "warning"),
    [
        ("ä".encode(), "", "ä", ""),
        ("ä x".encode("cp1252"), "", "ä x", "not UTF-8; read as Windows-1252"),
        ("ä".encode("latin-1"), "text/plain; charset=ISO-8859-1", "ä", ""),
        (b"<meta charset='shift_jis'>" + "日".encode("shift_jis"), "", "<meta charset='shift_jis'>日", ""),
        ("ä".encode("utf-16"), "text/plain; charset=utf-8", "ä", ""),
        (b"a", "text/plain; charset=punycode", "a", "unknown charset 'punycode'"),
        (b"a", "text/plain; charset=zlib", "a", "unknown charset 'zlib'"),
        (b"a", "text/plain; charset=nonsense", "a", "unknown charset 'nonsense'"),
        ("aä".encode()[:2], "", "a", ""),
    ],
)
def test_characters_are_decoded(body, header, text, warning):
    assert decode_body(body, header) == (text, warning)


def test_json_is_indented():
    assert render_body("json", '{"a":[1]}', "").content == '{\n  "a": [\n    1\n  ]\n}'
    many = render_body("json", json.dumps(list(range(60))), "")
    assert (many.is_cut, many.content.endswith("[the first 50 of 60 items]")) == (True, True)
    assert "not valid JSON" in render_body("json", "[" * 100_000, "").warning


def test_linked_data_is_summarised():
    data = {
        "@context": "https://schema.org",
        "@type": "Article",
        "headline": "H",
        "author": [{"name": "A"}, {"name": "B"}],
    }
    assert render_body("json", json.dumps(data), "").content == "# H\ntype: Article\nauthor: A, B"


def test_rows_become_tables():
    assert render_body("csv", 'a,b\n1,"x|y\nz"\n', "").content.startswith("| a | b |\n| --- | --- |\n| 1 | x")
    long = render_body("tsv", "\n".join(f"{n}\t{'v' * 100}" for n in range(500)), "")
    assert (long.is_cut, len(long.content) < 1400, "of 500 rows]" in long.content) == (True, True, True)
    wide = render_body("csv", ",".join(map(str, range(30))), "")
    assert wide.content.splitlines()[0].count("|") == 21
    assert "not a valid table" in render_body("csv", "x" * 200_000, "").warning


@pytest.mark.parametrize(
    "feed",
    [
        "<rss><channel><title>T</title><item><title>A</title><link>http://a/</link>"
        "<pubDate>today</pubDate><description>&lt;p&gt;s &lt;b&gt;t&lt;/b&gt;&lt;/p&gt;</description></item>"
        "</channel></rss>",
        "<feed xmlns='http://www.w3.org/2005/Atom'><title>T</title><entry><title>A</title><link href='http://a/'/>"
        "<updated>today</updated><summary type='html'>s &lt;b&gt;t&lt;/b&gt;</summary></entry></feed>",
    ],
)
def test_feeds_become_lists(feed):
    found = render_body("xml", feed, "")
    assert (found.title, found.content) == ("T", "# T\n\n## A\nhttp://a/\ntoday\ns **t**")


def test_long_feeds_are_cut():
    items = "".join(f"<item><title>{n}</title><description>{'x' * 500}</description></item>" for n in range(30))
    found = render_body("xml", f"<rss><channel>{items}</channel></rss>", "")
    assert (found.is_cut, found.content.count("## "), found.content.count("x" * 299 + "…")) == (True, 20, 20)


def test_other_xml_stays_text():
    assert render_body("xml", "<a>  <b/>\n\n\n\n</a>", "").content == "<a>  <b/>\n\n</a>"
    assert "not read as XML" in render_body("xml", "<a>", "").warning
