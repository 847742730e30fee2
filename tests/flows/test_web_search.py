import asyncio
import json
import time
import uuid

import pytest

from retinue.core.tool import ToolContext
from retinue.tools.web.options import ProviderOptions, WebOptions
from tests.flows.web_world import open_world, reply

DDG = """<html><body><form action="/lite/"></form>
<a rel="nofollow" href="//duckduckgo.com/l/?uddg=https%3A%2F%2Fone.test%2Fa&amp;rut=x" class='result-link'>
One <b>hit</b></a>
<a href="https://duckduckgo.com/settings">Settings</a> <a href="https://two.test/">Two &amp; more</a>
<a href="//duckduckgo.com/l/?uddg=https%3A%2F%2Fone.test%2Fa">again</a> <a href="javascript:x">no</a></body></html>"""
SHAPES = {
    "brave": {"web": {"results": [{"title": "One  hit", "url": "https://one.test/a", "description": "about one"}]}},
    "tavily": {"results": [{"title": "One hit", "url": "https://one.test/a", "content": "about one", "score": 0.9}]},
    "serper": {"organic": [{"title": "One hit", "link": "https://one.test/a", "snippet": "about one", "position": 1}]},
    "openserp": {"organic_results": [{"title": "One hit", "link": "https://one.test/a", "snippet": "about one"}]},
    "searxng": {
        "results": [{"title": "One hit", "url": "https://one.test/a", "content": "about one", "engine": "bing"}]
    },
}
EMPTY = {"brave": {"web": {"results": []}}, "tavily": {"results": []}, "serper": {}, "openserp": {"results": []}}


def choose(world, provider, **options):
    names = {"brave": "B_KEY", "tavily": "T_KEY", "serper": "S_KEY", "openserp": "O_KEY"}
    world.environment |= {name: f"{name.lower()}-of-the-tests" for name in names.values()}
    providers = {name: ProviderOptions(True, world.local(f"/{name}"), key) for name, key in names.items()}
    providers["searxng"] = ProviderOptions(True, world.local("/searxng"), engine="bing")
    providers["ddgs"] = ProviderOptions(base_url=world.local("/ddgs"))
    return WebOptions(provider=provider, providers=providers, **options)


def as_json(value, **more):
    return reply(json.dumps(value), "application/json", **more)


@pytest.mark.parametrize("provider", SHAPES)
async def test_providers_are_read(tmp_path, provider):
    async with open_world(tmp_path, **{provider: as_json(SHAPES[provider])}) as world:
        found = await world.call("web_search", choose(world, provider), query="one", numResults=3)
        uuid.UUID(found.pop("responseId"))
        hit = {"title": "One hit", "url": "https://one.test/a", "snippet": "about one"}
        hit |= {"source": "bing"} if provider == "searxng" else {}
        assert found == {"provider": provider, "queries": [{"query": "one", "results": [hit]}]}


async def test_providers_are_asked_their_way(tmp_path):
    async with open_world(tmp_path, **{name: as_json(shape) for name, shape in SHAPES.items()}) as world:
        for provider in SHAPES:
            await world.call("web_search", choose(world, provider), query="a b&c", numResults=2)
        brave, tavily, serper, openserp, searxng = world.site.asked
        assert (brave.path, brave.headers["x-subscription-token"]) == ("/brave?q=a+b%26c&count=2", "b_key-of-the-tests")
        assert json.loads(tavily.body) == {"api_key": "t_key-of-the-tests", "query": "a b&c", "max_results": 2}
        assert (json.loads(serper.body), serper.headers["x-api-key"]) == (
            {"q": "a b&c", "num": 2},
            "s_key-of-the-tests",
        )
        assert (
            openserp.headers["authorization"]
            == f"Bearer {openserp.headers['x-api-key']}"
            == "Bearer o_key-of-the-tests"
        )
        fixed = "format=json&pageno=1&language=en&categories=general&engines=bing&count=2"
        assert searxng.path == f"/searxng?q=a+b%26c&{fixed}"


async def test_duckduckgo_needs_no_key(tmp_path):
    async with open_world(tmp_path, ddgs=reply(DDG)) as world:
        found = await world.call("web_search", choose(world, "ddgs"), query="x")
        assert found["queries"][0]["results"] == [
            {"title": "One hit", "url": "https://one.test/a", "source": "fallback"},
            {"title": "Two & more", "url": "https://two.test/", "source": "fallback"},
        ]


@pytest.mark.spec("devkit:66")
async def test_queries_are_merged(tmp_path):
    async with open_world(tmp_path, ddgs=reply(DDG)) as world:
        options = choose(world, "ddgs")
        assert (await world.call("web_search", options, query=" ", queries=["", "  "]))["error"] == {
            "code": "WEB_SEARCH_INVALID_QUERY",
            "message": "web_search requires a non-empty query or queries",
        }
        found = await world.call("web_search", options, query=" a ", queries=["a", "b", "c", "d", "e", "f"])
        assert [each["query"] for each in found["queries"]] == ["a", "b", "c", "d", "e"]


@pytest.mark.parametrize(
    ("asked", "count"), [(None, 5), (2.9, 2), (0, 1), (-4, 1), (99, 5), (float("nan"), 5), (True, 5)]
)
async def test_number_of_results_is_clamped(tmp_path, asked, count):
    async with open_world(tmp_path, brave=as_json(SHAPES["brave"])) as world:
        arguments = {} if asked is None else {"numResults": asked}
        await world.call("web_search", choose(world, "brave"), query="x", **arguments)
        assert world.site.asked[0].path == f"/brave?q=x&count={count}"


@pytest.mark.spec("devkit:67")
@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (reply("no", status=401), "PROVIDER_AUTH_FAILED"),
        (reply("no", status=403), "PROVIDER_AUTH_FAILED"),
        (reply("slow down", status=429), "PROVIDER_RATE_LIMITED"),
        (reply("down", status=503), "PROVIDER_UNAVAILABLE"),
        (reply("down", status=500), "PROVIDER_UNAVAILABLE"),
        (reply("odd", status=501), "WEB_SEARCH_FAILED"),
        (reply("x", status=302, Location="http://127.0.0.1/"), "WEB_SEARCH_FAILED"),
        (reply("{broken", "application/json"), "WEB_SEARCH_FAILED"),
        (reply("[1]", "application/json"), "WEB_SEARCH_FAILED"),
        (as_json({"web": {"results": "none"}}), "WEB_SEARCH_FAILED"),
        (reply(b"x" * 2_000_000, "application/json"), "WEB_SEARCH_FAILED"),
        (b"not HTTP at all\r\n\r\n", "NETWORK_ERROR"),
        (b"", "NETWORK_ERROR"),
    ],
)
async def test_provider_failures_have_codes(tmp_path, answer, code):
    async with open_world(tmp_path, brave=answer, ddgs=reply(DDG)) as world:
        found = await world.call("web_search", choose(world, "brave"), query="x")
        assert (found["error"]["code"], {asked.path for asked in world.site.asked}) == (code, {"/brave?q=x&count=5"})
        assert "of-the-tests" not in json.dumps(found)


@pytest.mark.spec("devkit:67")
async def test_unusable_providers_say_why(tmp_path):
    async with open_world(tmp_path) as world:
        options = {
            "off": WebOptions(
                provider="brave", providers={"brave": ProviderOptions(base_url="https://a.test", key_name="K")}
            ),
            "keyless": WebOptions(
                provider="brave", providers={"brave": ProviderOptions(True, "https://a.test", "NO_KEY")}
            ),
            "address": WebOptions(provider="searxng", providers={"searxng": ProviderOptions(True, "ftp://a")}),
            "unknown": WebOptions(provider="altavista"),
        }
        found = {name: (await world.call("web_search", each, query="x"))["error"] for name, each in options.items()}
        assert {name: (each["code"], each["message"].split(";")[0]) for name, each in found.items()} == {
            "off": ("INVALID_INPUT", "Brave Search is not enabled: set web.brave.enabled"),
            "keyless": ("PROVIDER_AUTH_FAILED", "Brave Search needs a key in the variable NO_KEY"),
            "address": ("INVALID_INPUT", "web.searxng.baseUrl is 'ftp://a': expected an http(s) address"),
            "unknown": ("INVALID_INPUT", "unknown search provider 'altavista'"),
        }


async def test_slow_provider_times_out(tmp_path):
    async def sleep(asked, writer):
        await asyncio.sleep(5)

    async with open_world(tmp_path, brave=sleep) as world:
        found = await world.call("web_search", choose(world, "brave", timeout_s=0.2), query="x")
        assert found["error"]["code"] == "WEB_SEARCH_TIMEOUT"


@pytest.mark.spec("devkit:68")
async def test_auto_goes_through_tiers(tmp_path):
    down = reply("down", status=503)
    async with open_world(tmp_path, tavily=down, serper=down, brave=down, openserp=down, ddgs=reply(DDG)) as world:
        priority = ("ddgs", "openserp", "serper", "tavily")
        found = await world.call("web_search", choose(world, "auto", priority=priority), query="x")
        order = [asked.path.partition("?")[0] for asked in world.site.asked]
        assert (order, len(found["queries"][0]["results"])) == (["/serper", "/tavily", "/openserp", "/ddgs"], 2)
        world.site.answers["/ddgs"] = reply("slow down", status=429)
        last = await world.call("web_search", choose(world, "auto"), query="x")
        assert last["error"]["code"] == "PROVIDER_RATE_LIMITED"
        none = await world.call("web_search", WebOptions(provider="auto", priority=("brave",)), query="x")
        assert none["error"]["code"] == "WEB_SEARCH_FAILED"


@pytest.mark.spec("devkit:69")
@pytest.mark.parametrize("provider", EMPTY)
async def test_no_hits_are_success(tmp_path, provider):
    async with open_world(tmp_path, **{provider: as_json(EMPTY[provider])}) as world:
        found = await world.call("web_search", choose(world, provider), query="x")
        assert found["queries"] == [{"query": "x", "results": []}]


async def test_contents_come_with_results(tmp_path):
    hits = [{"title": name, "url": f"http://public.test/{name}"} for name in ("a", "gone", "b")]
    answers = {
        "a": reply("<p>text a</p>"),
        "b": reply("text b", "text/plain"),
        "brave": as_json({"web": {"results": hits}}),
    }
    async with open_world(tmp_path, **answers) as world:
        options = choose(world, "brave", max_concurrent=1, max_waiting=1)
        found = await world.call("web_search", options, query="x", includeContent=True)
        contents = [hit.get("content", {}).get("content") for hit in found["queries"][0]["results"]]
        assert contents == ["text a", None, "text b"]


async def test_cache_knows_spellings(tmp_path):
    async with open_world(tmp_path, brave=as_json(SHAPES["brave"])) as world:
        tool = world.build(choose(world, "brave", cache_entries=1))["web_search"]
        for query in ("One  Two", "one two", "other", "one two"):
            await tool.call({"query": query}, ToolContext(tmp_path))
        assert [asked.path for asked in world.site.asked] == [
            "/brave?q=One++Two&count=5",
            "/brave?q=other&count=5",
            "/brave?q=one+two&count=5",
        ]


@pytest.mark.spec("devkit:74")
async def test_stored_results_are_found_again(tmp_path):
    answers = {
        "brave": as_json(SHAPES["brave"]),
        "a": reply(b"0123456789" * 10, "text/plain"),
        "b": reply("b", "text/plain"),
    }
    async with open_world(tmp_path, **answers) as world:
        tools = world.build(choose(world, "brave", max_chars=40))

        async def call(name, **arguments):
            return (await tools[name].call(arguments, ToolContext(tmp_path))).details

        searched = await call("web_search", queries=["x", "y"])
        whole = await call("get_search_content", responseId=searched["responseId"], url="ignored")
        assert whole["result"] == {"type": "search", "queries": searched["queries"]}
        one = await call("get_search_content", responseId=searched["responseId"], queryIndex=1, query="x")
        assert one["result"] == searched["queries"][1]
        fetched = await call("fetch_content", urls=[world.url("/a"), world.url("/b")])
        again = await call("get_search_content", responseId=fetched["responseId"], url=world.url("/b"))
        assert again["result"] == fetched["results"][1]
        text, offset = "", 0
        while offset is not None:
            page = (await call("get_search_content", responseId=fetched["responseId"], urlIndex=0, offset=offset))[
                "result"
            ]
            text, offset = text + page["content"], page.get("nextOffset")
        assert text == "0123456789" * 10


@pytest.mark.spec("devkit:74")
@pytest.mark.parametrize(
    ("arguments", "code", "part"),
    [
        ({"responseId": "  "}, "INVALID_INPUT", "get_search_content requires responseId"),
        ({"responseId": "gone"}, "NOT_FOUND", "nothing is stored under 'gone'"),
        ({"urlIndex": 7}, "NOT_FOUND", "no url at '7'; stored are 0: 'http://public.test/0'"),
        ({"urlIndex": -1}, "NOT_FOUND", "no url at '-1'"),
        ({"url": "http://b"}, "NOT_FOUND", ", …"),
        ({"offset": -1}, "INVALID_INPUT", "offset is '-1'"),
        ({"offset": 1, "urlIndex": 0}, "INVALID_INPUT", "offset is 1: the content has 1 characters"),
        ({"offset": 9}, "INVALID_INPUT", "offset is 9: the content has 1 characters"),
    ],
)
async def test_bad_selectors_are_refused(tmp_path, arguments, code, part):
    async with open_world(tmp_path, **{str(n): reply("x", "text/plain") for n in range(6)}) as world:
        tools = world.build()
        urls = [world.url(f"/{n}") for n in range(6)]
        fetched = (await tools["fetch_content"].call({"urls": urls}, ToolContext(tmp_path))).details
        asked = {"responseId": fetched["responseId"], **arguments}
        error = (await tools["get_search_content"].call(asked, ToolContext(tmp_path))).details["error"]
        assert (error["code"], part in error["message"]) == (code, True)


async def test_results_come_back_with_session(tmp_path):
    async with open_world(tmp_path, a=reply("kept", "text/plain")) as world:
        first = await world.call("fetch_content", url=world.url("/a"))
        old = {**world.records[0], "responseId": "old", "timestamp": int(time.time() * 1000) - 3_700_000}
        world.loaded = [old, *world.records, "nonsense", {"responseId": 5}]
        again = await world.call("get_search_content", responseId=first["responseId"], urlIndex=0)
        assert again["result"]["content"] == "kept"
        assert (await world.call("get_search_content", responseId="old"))["error"]["code"] == "NOT_FOUND"


async def test_oldest_results_go_first(tmp_path):
    async with open_world(tmp_path, a=reply("kept", "text/plain")) as world:
        tools = world.build(WebOptions(max_stored=2))
        ids = []
        for _ in range(3):
            found = await tools["fetch_content"].call({"url": world.url("/a")}, ToolContext(tmp_path))
            ids.append(found.details["responseId"])
        read = [await tools["get_search_content"].call({"responseId": each}, ToolContext(tmp_path)) for each in ids]
        assert [result.is_error for result in read] == [True, False, False]
