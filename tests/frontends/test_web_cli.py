"""The program with the web tools and the converter, against a server on this machine."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from retinue.testing import make_repo
from tests.flows.document_world import DOCX, make_docx

LONG = "".join(f"line {number}\n" for number in range(5000)).strip()
HITS = {"results": [{"title": "A page", "url": "http://somewhere.test/", "content": "about", "engine": "bing"}]}
PAGES = {
    "/page": ("text/html", b"<title>T</title><h1>Hello</h1>"),
    "/long": ("text/plain", LONG.encode()),
    "/search": ("application/json", json.dumps(HITS).encode()),
    "/a.docx": ("application/octet-stream", make_docx()),
}


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        kind, body = PAGES[self.path.partition("?")[0]]
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass


@pytest.fixture
def site():
    """Where the server is."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def settle(place, **sections):
    (place.agent_dir / "subagents.json").write_text(json.dumps(sections))


def call(name, **arguments):
    return {"calls": [{"name": name, "arguments": arguments}]}


def read_results(done):
    found = [line for line in done.lines if line["type"] == "tool_execution_end"]
    return [(line["toolName"], line["isError"], line["result"]["details"]) for line in found]


def test_main_agent_fetches(place, site):
    settle(place, web={"allowPrivateNetwork": True})
    done = place.run(
        "-p", "--mode", "json", "x", replies=[call("fetch_content", url=f"{site}/page"), {"text": "Done."}]
    )
    [(name, is_error, details)] = read_results(done)
    page = {"url": f"{site}/page", "title": "T", "content": "# Hello", "truncated": False, "contentType": "text/html"}
    page |= {"offset": 0, "totalChars": 7}
    assert (name, is_error, details["results"]) == ("fetch_content", False, [page])


def test_private_network_is_refused(place, site):
    done = place.run("-p", "--mode", "json", "x", replies=[call("fetch_content", url=f"{site}/page"), {"text": "No."}])
    [(_, is_error, details)] = read_results(done)
    assert (is_error, details["error"]["code"]) == (True, "CONTENT_FETCH_FAILED")
    assert "web.allowPrivateNetwork is off" in details["error"]["message"]


def test_projects_cannot_open_the_network(place, site):
    (place.work / ".pi").mkdir()
    (place.work / ".pi" / "subagents.json").write_text('{"web": {"allowPrivateNetwork": true}}')
    replies = [call("fetch_content", url=f"{site}/page"), {"text": "No."}]
    done = place.run("-p", "-a", "--mode", "json", "x", replies=replies)
    assert read_results(done)[0][1] is True
    assert "allowPrivateNetwork" in done.stderr


def test_long_pages_outlive_the_process(place, site):
    settle(place, web={"allowPrivateNetwork": True, "maxContentChars": 1000})
    # A script goes on where the conversation is.
    replies = [call("fetch_content", url=f"{site}/long"), {"text": "Done."}]
    place.run("-p", "x", replies=replies)
    [entry] = [item for item in place.entries() if item.get("customType") == "web-tools-results"]
    text, offset = "", 0
    while len(text) < 3000:
        asked = call("get_search_content", responseId=entry["data"]["responseId"], urlIndex=0, offset=offset)
        replies += [asked, {"text": "Done."}]
        done = place.run("-p", "-c", "--mode", "json", "more", replies=replies)
        page = read_results(done)[0][2]["result"]
        text, offset = text + page["content"], page["nextOffset"]
    assert (text, page["totalChars"]) == (LONG[:3000], len(LONG))


def test_researcher_works(place, site):
    searxng = {"enabled": True, "baseUrl": site}
    open_ = {"allowPrivateNetwork": True}
    settle(place, web={**open_, "provider": "searxng", "searxng": searxng}, convertContent=open_)
    make_repo(place.work, {"b.docx": make_docx()})
    replies = [
        call("web_search", queries=["one", "two"]),
        call("fetch_content", url=f"{site}/page"),
        call("convert_content", url=f"{site}/a.docx"),
        call("convert_content", path="b.docx"),
        {"text": "Found."},
    ]
    done = place.run("run", "--json", "researcher", "look it up", "--model", place.script(*replies))
    result = json.loads(done.stdout)["details"]["results"][0]
    messages = [json.loads(line).get("message", {}) for line in Path(result["sessionFile"]).read_text().splitlines()]
    details = [message["details"] for message in messages if message.get("role") == "toolResult"]
    assert (result["output"], [query["query"] for query in details[0]["queries"]]) == ("Found.", ["one", "two"])
    assert details[0]["queries"][0]["results"][0]["source"] == "bing"
    assert [details[1]["results"][0]["content"], details[2]["content"], details[3]["content"]] == [
        "# Hello",
        DOCX,
        DOCX,
    ]


@pytest.mark.attack("D15")
def test_researcher_has_nothing_else(place):
    rows = json.loads(place.run("agents", "--json").stdout)["agents"]
    found = {row["name"]: (row["readonly"], row["tools"]) for row in rows}["researcher"]
    assert found == (True, ["web_search", "fetch_content", "get_search_content", "convert_content"])


def test_switches_take_tools_away(place):
    settle(place, web={"enabled": False})
    rows = json.loads(place.run("agents", "--json").stdout)["agents"]
    assert {row["name"]: row["tools"] for row in rows}["researcher"] == ["convert_content"]
    done = place.run("-p", "--tools", "web_search", "x", replies=[{"text": "x"}])
    assert (done.status, "there is no tool 'web_search'" in done.stderr) == (2, True)
    settle(place, enabled=False)
    rows = json.loads(place.run("agents", "--json").stdout)["agents"]
    assert {row["name"]: row["tools"] for row in rows}["researcher"] == []


def test_doctor_looks_at_providers(place):
    brave = {"enabled": True}
    settle(place, web={"provider": "serper", "brave": brave, "tavily": brave}, convertContent={"command": "no-such"})
    done = place.run("doctor", "--json", env={"TAVILY_API_KEY": "a-key-1234567", "https_proxy": "http://127.0.0.1:9"})
    items = [
        item for item in json.loads(done.stdout)["items"] if item["category"] in ("provider", "web-tools", "convert")
    ]
    assert [(item["status"], item["message"]) for item in items] == [
        ("pass", "DuckDuckGo configured"),
        ("info", "SearXNG is not enabled"),
        ("info", "OpenSERP is not enabled"),
        ("warn", "Brave Search requires BRAVE_SEARCH_API_KEY"),
        ("warn", "Serper is not enabled"),
        ("pass", "Tavily configured"),
        ("pass", "Web tools enabled"),
        ("info", "Proxies of the environment are not used by the web tools"),
        ("warn", "Converter 'no-such' not found"),
    ]
    assert "a-key-1234567" not in done.stdout


def test_agents_cannot_have_what_main_lacks(place):
    replies = [call("Agent", subagent_type="researcher", prompt="x", description="d"), {"text": "Done."}]
    done = place.run("-p", "--mode", "json", "--tools", "read,Agent", "x", replies=replies)
    assert "web_search" not in json.dumps([line for line in done.lines if line["type"].startswith("tool_")])
