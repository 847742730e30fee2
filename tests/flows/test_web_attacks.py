import asyncio
from itertools import pairwise

import pytest

from retinue.core.tool import ToolContext
from retinue.tools.outbound.request import RequestReach
from retinue.tools.web.options import WebOptions
from tests.flows.web_world import PUBLIC, open_canaries, open_world, redirect, reply

HOSTS = (
    *(
        "127.0.0.1",
        "127.1",
        "2130706433",
        "0x7f000001",
        "0177.0.0.1",
        "017700000001",
        "0x7f.1",
        "localhost",
        "LOCALHOST",
    ),
    *("0.0.0.0", "0", "[::1]", "[::]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[0:0:0:0:0:0:0:1]", "127。0。0。1"),
    *("user@127.0.0.1", "%31%32%37.0.0.1", "127.0.0.1.", "localhost.", "127.255.255.254", "127.0.0.2"),
    *(
        "①②⑦.⓪.⓪.①",
        "１２７.０.０.１",
        "[::127.0.0.1]",
        "[64:ff9b::7f00:1]",
        "[2002:7f00:1::]",
        "[fec0::1]",
        "[fe80::1%25lo]",
    ),
    *("169.254.169.254", "[fd00:ec2::254]", "100.64.0.1", "198.18.0.1", "192.0.0.1", "224.0.0.1", "240.0.0.1"),
    *("255.255.255.255", "[ff02::1]", "split.test", "mixed.test", "hosts-file.test", "a\0b", "a\r\nb", "a" * 5000),
    *(
        "a@b@127.0.0.1",
        "public.test\\@127.0.0.1",
        "127.0.0.1\\",
        "[::1%25eth0]",
        "metadata.google.internal",
        "ip6-localhost",
    ),
    *("sub.localhost", "127.0.0.1:22@", "[::ffff:0:127.0.0.1]", "0x7f.0x0.0x0.0x1", "127.0.1", "0000127.0.0.1"),
)


@pytest.mark.attack("D1", "D13", "SEC-7")
async def test_no_spelling_reaches_loopback(tmp_path, measure):
    async with open_world(tmp_path) as world, open_canaries() as (port, heard):
        world.names |= {
            "split.test": ["10.0.0.7"],
            "mixed.test": [PUBLIC, "::1"],
            "hosts-file.test": ["127.0.0.1"],
        }
        urls = [f"http://{host}:{port}/" for host in HOSTS]
        urls += [f"http://127.0.0.1:{port}#@public.test/", f"http:/\\127.0.0.1:{port}/", f"http:127.0.0.1:{port}/"]
        urls += [
            f"//127.0.0.1:{port}/",
            f"http://127.0.0.1:{port}?@public.test",
            f"http://public.test:0@127.0.0.1:{port}/",
        ]
        codes = {url: (await world.fetch(url)).get("code", "FETCHED") for url in urls}
        allowed = {"CONTENT_FETCH_FAILED", "CONTENT_FETCH_INVALID_URL"}
        measure("SEC-7", "spellings", connections=len(heard), urls=len(urls))
        assert ({url: code for url, code in codes.items() if code not in allowed}, heard) == ({}, [])
        assert (len(urls) > 60, world.site.asked) == (True, [])


@pytest.mark.attack("D1")
async def test_canaries_can_be_heard(tmp_path):
    async with open_world(tmp_path) as world, open_canaries() as (port, heard):
        options = WebOptions(reach=RequestReach(private=True))
        for host in ("127.0.0.1", "127.1", "[::1]"):
            assert (await world.fetch(f"http://{host}:{port}/", options))["content"] == "the canary"
        assert len(heard) == 3


@pytest.mark.attack("D2", "SEC-7")
@pytest.mark.spec("devkit:70")
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_redirects_stay_outside(tmp_path, status, measure):
    async with open_world(tmp_path) as world, open_canaries() as (port, heard):
        targets = [f"http://127.0.0.1:{port}/", f"//127.0.0.1:{port}/", f"http://[::1]:{port}/", "file:///etc/passwd"]
        targets += [
            f"http://hosts-file.test:{port}/",
            "gopher://127.0.0.1/",
            f"http:\\\\127.0.0.1:{port}/",
            f"127.0.0.1:{port}",
        ]
        targets += [f"http://user@127.0.0.1:{port}/", "http://169.254.169.254/latest/meta-data/"]
        world.names["hosts-file.test"] = ["127.0.0.1"]
        for hops, target in enumerate(targets):
            for hop in range(hops % 4):
                world.site.answers[f"/{hop}"] = redirect(f"/{hop + 1}", status)
            world.site.answers[f"/{hops % 4}"] = redirect(target, status)
            found = await world.fetch(world.url("/0"))
            assert (target, found.get("code")) == (target, "CONTENT_FETCH_FAILED")
        measure("SEC-7", f"redirect {status}", connections=len(heard), redirects=len(targets))
        assert heard == []


@pytest.mark.attack("D2")
async def test_refresh_is_not_followed(tmp_path):
    async with open_world(tmp_path) as world, open_canaries() as (port, heard):
        head = f'<meta http-equiv="refresh" content="0; url=http://127.0.0.1:{port}/">'
        world.site.answers["/page"] = reply(f"{head}<p>here</p>", Refresh=f"0; url=http://127.0.0.1:{port}/")
        assert ((await world.fetch(world.url("/page")))["content"], heard) == ("here", [])


@pytest.mark.attack("D3")
async def test_changing_names_stay_pinned(tmp_path):
    async with open_world(tmp_path, page=reply("first", "text/plain")) as world:
        answers = iter([[PUBLIC], ["127.0.0.1"], ["127.0.0.1"]])

        async def resolve(host, port):
            world.looked_up.append(host)
            return next(answers)

        world.resolve = resolve
        tools = world.build()
        found = await tools["fetch_content"].call({"url": "http://rebind.test/page"}, ToolContext(tmp_path))
        assert (found.details["results"][0]["content"], world.looked_up) == ("first", ["rebind.test"])
        again = await tools["fetch_content"].call({"url": "http://rebind.test/page"}, ToolContext(tmp_path))
        assert "127.0.0.1 is this machine" in again.details["error"]["message"]
        assert len(world.site.asked) == 1


@pytest.mark.attack("D3")
@pytest.mark.parametrize("addresses", [[PUBLIC, "::1"], ["127.0.0.1", PUBLIC], ["fe80::1%eth0"], ["nonsense"], []])
async def test_one_bad_address_refuses_all(tmp_path, addresses):
    async with open_world(tmp_path) as world:
        world.names["mixed.test"] = addresses
        assert ((await world.fetch("http://mixed.test/"))["code"], world.site.asked) == ("CONTENT_FETCH_FAILED", [])


@pytest.mark.attack("D4")
@pytest.mark.parametrize(
    "host",
    [
        "trusted.com.evil.test",
        "eviltrusted.com",
        "trusted.com@public.test",
        "trusted.com\0.evil.test",
        "tru\u0455ted.com",
    ],
)
async def test_lookalikes_are_not_trusted(tmp_path, host):
    async with open_world(tmp_path, page=reply("x", "text/plain")) as world:
        world.names |= {
            name: [PUBLIC] for name in ("trusted.com.evil.test", "eviltrusted.com", "trusted.com", "xn--truted-bvf.com")
        }
        options = WebOptions(reach=RequestReach(hosts=("trusted.com",)))
        assert (await world.fetch("http://trusted.com/page", options))["content"] == "x"
        assert (await world.fetch(f"http://{host}/page", options))["code"].startswith("CONTENT_FETCH_")
        assert len(world.site.asked) == 1


@pytest.mark.attack("D5")
async def test_proxies_are_not_used(tmp_path, monkeypatch):
    async with open_world(tmp_path, page=reply("direct", "text/plain")) as world, open_canaries() as (port, heard):
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "HTTPS_PROXY"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{port}")
            world.environment[name] = f"http://127.0.0.1:{port}"
        assert ((await world.fetch(world.url("/page")))["content"], heard) == ("direct", [])


@pytest.mark.attack("D6")
async def test_services_are_not_spoken_to(tmp_path):
    async with open_world(tmp_path) as world:
        for port in (22, 25, 6379):
            found = await world.fetch(f"http://public.test:{port}/")
            assert "is not a port of a web server" in found["message"]
        assert (await world.fetch("data:text/html," + "x" * 100_000))["code"] == "CONTENT_FETCH_INVALID_URL"
        assert world.looked_up == []


@pytest.mark.attack("D10")
async def test_entities_in_feeds_stay_shut(tmp_path):
    pairs = [f'<!ENTITY {name} "&{before};&{before};">' for before, name in pairwise("abcdefgh")]
    lines = "".join(["<!ENTITY a 'xx'>", *pairs])
    bomb = f"<?xml version='1.0'?><!DOCTYPE rss [{lines}]><rss><channel><title>&h;</title></channel></rss>"
    outside = "<!DOCTYPE r [<!ENTITY x SYSTEM 'file:///etc/passwd'>]><rss><channel><title>&x;</title></channel></rss>"
    async with open_world(
        tmp_path, bomb=reply(bomb, "text/xml"), outside=reply(outside, "application/rss+xml")
    ) as world:
        for path in ("/bomb", "/outside"):
            found = await world.fetch(world.url(path))
            assert "declares entities" in found["parseWarning"]
            assert "root:" not in found["content"] and len(found["content"]) < 2000


@pytest.mark.attack("D16")
async def test_secrets_are_not_fetched(tmp_path):
    async with open_world(tmp_path, page=redirect("/next?k=canary-secret-91")) as world:
        world.environment["SOME_API_KEY"] = "canary-secret-91"
        for path in ("/x?k=canary-secret-91", "/x/canary%2Dsecret%2D91", "/page"):
            found = await world.fetch(world.url(path))
            assert found == {
                "code": "CONTENT_FETCH_FAILED",
                "message": "the request contains the value of SOME_API_KEY; nothing was sent",
            }
        world.site.answers["/release"] = redirect("/file?X-Amz-Credential=AKIAIOSFODNN7EXAMPLE")
        world.site.answers["/file"] = reply("signed", "text/plain")
        assert (await world.fetch(world.url("/release")))["content"] == "signed"
        searched = await world.call("web_search", query="what is canary-secret-91")
        assert searched["error"]["code"] == "WEB_SEARCH_FAILED"
        assert "canary" not in str([asked.line for asked in world.site.asked])


async def test_many_attacks_at_once(tmp_path):
    async with open_world(tmp_path) as world, open_canaries() as (port, heard):
        found = await asyncio.gather(*(world.fetch(f"http://{host}:{port}/") for host in HOSTS[:20]))
        assert ({each["code"] for each in found} <= {"CONTENT_FETCH_FAILED", "CONTENT_FETCH_INVALID_URL"}, heard) == (
            True,
            [],
        )
