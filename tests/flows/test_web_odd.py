"""Answers and arguments that are strange, and what the web tools and the converter make of them."""

import asyncio
import gzip
import json

import pytest

from retinue.core.tool import ToolContext
from retinue.tools.convert.readers.plain import read_rows
from retinue.tools.outbound.client import HttpClient
from retinue.tools.outbound.request import RequestBounds, RequestFailed, RequestReach
from retinue.tools.web.options import ProviderOptions, WebOptions
from tests.flows.document_world import DOCX, make_docx
from tests.flows.test_web_search import as_json, choose
from tests.flows.web_world import open_world, redirect, reply

ODD = "a\u202eb\u200bc\U000e0041d\u00ade\U000e0101f\u3164g\ud83d"


@pytest.mark.attack("D15")
@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ("<title>a&#x202e;b</title><p>a&#x202e;b&#8203;c&#xE0041;d&shy;e&#xe0101;f&#x3164;g</p>", "text/html"),
        (json.dumps(ODD), "application/json"),
        ("<rss><channel><title>a&#x202e;b</title><item><title>a&#x200b;b</title></item></channel></rss>", "text/xml"),
        ("a\u202eb\u200bc,x\n", "text/csv; charset=utf-8"),
    ],
)
async def test_unseen_characters_are_dropped(tmp_path, body, kind):
    async with open_world(tmp_path, page=reply(body, kind)) as world:
        page = await world.fetch(world.url("/page"))
        shown = page["content"] + page.get("title", "")
        assert (set("\u202e\u200b\U000e0041\u00ad\U000e0101\u3164\ud83d") & set(shown), "ab" in shown) == (set(), True)


@pytest.mark.attack("D15")
async def test_unseen_characters_of_hits_are_dropped(tmp_path):
    row = {"title": f"<b>{ODD}</b>", "url": "https://a.test/", "description": f"{ODD}\x1b[31m"}
    rows = [row, {"url": "https://a.test/" + "x" * 9000, "title": "t"}, {"url": "https://b.test/\u202e"}, 5, None]
    async with open_world(tmp_path, brave=as_json({"web": {"results": rows}})) as world:
        found = await world.call("web_search", choose(world, "brave"), query="x")
        hits = [{"title": "<b>abcdefg</b>", "url": "https://a.test/", "snippet": "abcdefg[31m"}]
        hits.append({"title": "https://b.test/", "url": "https://b.test/"})
        assert found["queries"][0]["results"] == hits


@pytest.mark.attack("D15")
async def test_unseen_text_of_documents_is_dropped(tmp_path):
    hidden = "<w:p><w:r><w:rPr><w:vanish/></w:rPr><w:t>EVIL</w:t></w:r><w:r><w:t>a&#x202e;b&#xE0041;</w:t></w:r></w:p>"
    (tmp_path / "a.docx").write_bytes(make_docx(hidden))
    (tmp_path / "a.html").write_text("<p hidden>EVIL</p><p>a&#x202e;b</p>")
    async with open_world(tmp_path) as world:
        assert (await world.convert(path="a.docx"))["content"] == f"{DOCX}\n\nab"
        assert (await world.convert(path="a.html"))["content"] == "ab"


async def test_wide_text_without_mark_is_read(tmp_path):
    page = "<?xml version='1.0' encoding='utf-16'?><rss><channel><title>T</title></channel></rss>"
    async with open_world(
        tmp_path, page=reply(page, "text/xml"), text=reply("x", "text/plain; charset=utf-16")
    ) as world:
        assert [(await world.fetch(world.url(path)))["truncated"] for path in ("/page", "/text")] == [False, False]


async def test_packed_bodies_are_whole(tmp_path):
    two = gzip.compress(b"one ") + gzip.compress(b"two")
    cut = gzip.compress(b"hello world " * 1000)[:-20]
    answers = {"two": two, "cut": cut, "padded": gzip.compress(b"one") + b"\0" * 50}
    pages = {name: reply(data, "text/plain", Content_Encoding="gzip") for name, data in answers.items()}
    async with open_world(tmp_path, **pages) as world:
        assert (await world.fetch(world.url("/two")))["content"] == "one two"
        assert (await world.fetch(world.url("/padded")))["content"] == "one"
        found = await world.fetch(world.url("/cut"))
        assert (found["truncated"], "compressed body ended too early" in found["parseWarning"]) == (True, True)


@pytest.mark.attack("D8")
async def test_many_packed_parts_are_one_bomb(tmp_path):
    bomb = gzip.compress(bytes(400_000)) * 200
    async with open_world(tmp_path, page=reply(bomb, "text/plain", Content_Encoding="gzip")) as world:
        assert "more than 150 times" in (await world.fetch(world.url("/page")))["message"]


async def test_cells_keep_their_lines_apart(tmp_path):
    table = "| a | b |\n| --- | --- |\n| x y | 2 |"
    async with open_world(tmp_path, page=reply('a,b\n"x\ny",2\n', "text/csv")) as world:
        assert (await world.fetch(world.url("/page")))["content"] == table
    assert read_rows(b'a,b\r\n"x\r\ny",2\r\n', ",") == table


async def test_spaces_in_redirects_are_sent(tmp_path):
    async with open_world(tmp_path, go=redirect("/to here?a=b c"), **{"to%20here": reply("x", "text/plain")}) as world:
        assert (await world.fetch(world.url("/go")))["url"] == world.url("/to%20here?a=b%20c")


@pytest.mark.parametrize("tool", ["fetch_content", "convert_content", "web_search"])
async def test_half_characters_are_refused(tmp_path, tool):
    async with open_world(tmp_path) as world:
        if tool == "web_search":
            found = (await world.call(tool, choose(world, "brave"), query="a\ud83db"))["error"]
        elif tool == "fetch_content":
            found = await world.fetch(world.url("/\ud83d"))
        else:
            found = await world.convert(url=world.url("/\ud83d"))
        wanted = {"fetch_content": "CONTENT_FETCH_INVALID_URL", "convert_content": "INVALID_INPUT"}
        assert found["code"] == wanted.get(tool, "WEB_SEARCH_INVALID_QUERY")
        json.dumps(found, ensure_ascii=False).encode()


async def test_odd_kinds_and_paths_are_escaped(tmp_path):
    async with open_world(tmp_path, page=reply(b"x", "text/plain;\x01\xff\u202e".encode().decode("latin-1"))) as world:
        page = await world.fetch(world.url("/page"))
        assert page["contentType"].isprintable() and page["contentType"].startswith("text/plain;")
        for path in ("a\nb", "\udcff", "../\x1b[31m"):
            found = await world.convert(path=path)
            assert (found["code"] in ("FILE_NOT_FOUND", "INVALID_INPUT"), found["message"].isprintable()) == (
                True,
                True,
            )


@pytest.mark.parametrize(
    ("provider", "answer", "results"),
    [
        ("brave", {"web": [1]}, None),
        ("brave", {"web": "x"}, None),
        ("brave", {"web": None}, []),
        (
            "openserp",
            {"organic_results": None, "results": [{"url": "https://a.test/", "title": "t"}]},
            ["https://a.test/"],
        ),
        ("openserp", [{"url": "https://a.test/", "title": "t", "description": "d"}], ["https://a.test/"]),
        ("tavily", {"results": {"a": 1}}, None),
        (
            "serper",
            {"organic": [[], {"link": 5}, {"link": "ftp://a"}, {"link": "https://a.test/"}]},
            ["https://a.test/"],
        ),
        ("searxng", {"results": [{"url": "https://a.test/", "title": None, "content": ["x"]}]}, ["https://a.test/"]),
    ],
)
async def test_odd_shapes_are_no_surprise(tmp_path, provider, answer, results):
    async with open_world(tmp_path, **{provider: as_json(answer)}) as world:
        found = await world.call("web_search", choose(world, provider), query="x")
        if results is None:
            assert found["error"]["code"] == "WEB_SEARCH_FAILED"
        else:
            assert [hit["url"] for hit in found["queries"][0]["results"]] == results


@pytest.mark.attack("D16")
async def test_addresses_of_providers_keep_their_secrets(tmp_path):
    async def stall(asked, writer):
        writer.write(b"HTTP/1.1 200 x\r\nContent-Length: 50\r\n\r\n{")
        await writer.drain()
        await asyncio.sleep(5)

    async with open_world(tmp_path, stall=stall, large=reply(b"x" * 5000), broken=b"nonsense\r\n\r\n") as world:
        bases = [
            f"http://me:sekret@127.0.0.1:{world.site.port}/",
            "http://a b/?t=sekret",
            "http://127.0.0.1:1/?t=sekret",
        ]
        bases += [world.local(f"/{name}?t=sekret") for name in ("stall", "large", "broken", "gone")]
        for base in bases:
            providers = {"searxng": ProviderOptions(True, base, engine="e")}
            options = WebOptions(provider="searxng", providers=providers, timeout_s=0.3, max_bytes=1000)
            found = await world.call("web_search", options, query="x")
            assert ("sekret" in json.dumps(found), found["error"]["message"].startswith("SearXNG")) == (False, True), (
                found
            )


@pytest.mark.parametrize(
    ("header", "told"),
    [("17", "; try again in 17 s"), ("Wed, 21 Oct 2099 07:28:00 GMT", ""), ("x" * 99, ""), ("-4", "")],
)
async def test_patience_is_told(tmp_path, header, told):
    async with open_world(tmp_path, brave=reply("no", status=429, Retry_After=header)) as world:
        found = await world.call("web_search", choose(world, "brave"), query="x")
        assert found["error"] == {
            "code": "PROVIDER_RATE_LIMITED",
            "message": f"Brave Search limits the rate of searches (HTTP 429){told}",
        }


async def test_keyless_providers_refuse_no_key(tmp_path):
    async with open_world(tmp_path, ddgs=reply("no", status=403), searxng=reply("no", status=401)) as world:
        found = [await world.call("web_search", choose(world, name), query="x") for name in ("ddgs", "searxng")]
        assert [each["error"]["message"] for each in found] == [
            "DuckDuckGo refuses to answer (HTTP 403)",
            "SearXNG refuses to answer (HTTP 401)",
        ]


@pytest.mark.parametrize("number", [float("inf"), float("nan"), 1e300, 10**400, -(10**400)])
async def test_endless_numbers_do_no_harm(tmp_path, number):
    (tmp_path / "a.txt").write_text("text")
    async with open_world(tmp_path, page=reply("x", "text/plain")) as world:
        tools = world.build()
        stored = (await tools["fetch_content"].call({"url": world.url("/page")}, ToolContext(tmp_path))).details
        for name in ("offset", "urlIndex"):
            arguments = {"responseId": stored["responseId"], name: number}
            result = await tools["get_search_content"].call(arguments, ToolContext(tmp_path))
            assert result.details.get("error", {}).get("code") in (None, "INVALID_INPUT", "NOT_FOUND")
        for name in ("maxContentChars", "timeoutMs"):
            assert (await world.convert(path="a.txt", **{name: number}))["content"] == "text"


async def test_converter_names_its_own_switch(tmp_path):
    async with open_world(tmp_path) as world:
        assert "convertContent.allowPrivateNetwork is off" in (await world.convert(url="http://127.0.0.1/"))["message"]
        assert "web.allowPrivateNetwork is off" in (await world.fetch("http://127.0.0.1/"))["message"]


async def test_foreign_errors_are_one_line(tmp_path):
    async with open_world(tmp_path, page=b"<p>no HTTP</p>") as world:
        assert "\n" not in (await world.fetch(world.url("/page")))["message"]


@pytest.mark.attack("D7")
async def test_stalled_body_ends_early(tmp_path):
    async def stall(asked, writer):
        writer.write(b"HTTP/1.1 200 x\r\nContent-Type: text/plain\r\nContent-Length: 50\r\n\r\nbegun")
        await writer.drain()
        await asyncio.sleep(20)

    async with open_world(tmp_path, stall=stall) as world:
        client = HttpClient(RequestReach(), agent="test", resolve=world.resolve, locate=world.locate)
        with pytest.raises(RequestFailed, match="timed out: 5 bytes came, then nothing") as caught:
            await client.fetch(world.url("/stall"), RequestBounds(total_s=60, silence_s=1))
        assert caught.value.kind == "timeout"


@pytest.mark.attack("D8")
async def test_body_of_many_parts_is_refused(tmp_path):
    parts = gzip.compress(b"") * 5000
    async with open_world(tmp_path, page=reply(parts, "text/plain", Content_Encoding="gzip")) as world:
        assert "compressed in more than 1000 parts" in (await world.fetch(world.url("/page")))["message"]
