"""Search keys on their way: to the provider, to children in processes of their own, and nowhere else."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

pytestmark = pytest.mark.fresh

KEYS = {"BRAVE_SEARCH_API_KEY": "brave-key-of-the-tests-1", "SERPER_API_KEY": "serper-key-of-the-tests-2"}
HITS = {"web": {"results": [{"title": "A page", "url": "http://somewhere.test/", "description": "about"}]}}
AGENT = "---\nname: seeker\ndescription: d\ntools: web_search\n---\n\nLook.\n"


def look_at(process):
    """What anybody sees of a process, and what only its user does."""
    try:
        return tuple((process / name).read_bytes().replace(b"\0", b"\n").decode() for name in ("cmdline", "environ"))
    except OSError:
        return "", ""


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.server.heard.append(self.headers.get("x-subscription-token", ""))
        seen = [look_at(each) for each in Path("/proc").iterdir() if each.name.isdigit()]
        mark = f"HOME={self.server.home}\n"
        self.server.seen += [each for each in seen if mark in each[1] and "PI_SUBAGENT_CHILD=1" in each[1]]
        is_right = self.server.heard[-1] == KEYS["BRAVE_SEARCH_API_KEY"]
        body = json.dumps(HITS).encode()
        self.send_response(200 if is_right else 401)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass


@pytest.fixture
def brave(place):
    """A provider that wants its key."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.heard, server.seen, server.home = [], [], place.home
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield server
        server.shutdown()


def prepare(place, brave, runner):
    own = {"enabled": True, "baseUrl": f"http://127.0.0.1:{brave.server_port}/", "apiKeyEnv": "BRAVE_SEARCH_API_KEY"}
    web = {"provider": "brave", "brave": own, "serper": {"enabled": True}}
    (place.agent_dir / "subagents.json").write_text(json.dumps({"runner": runner, "web": web}))
    (place.agent_dir / "agents").mkdir()
    (place.agent_dir / "agents" / "seeker.md").write_text(AGENT)


def run_agent(place, name, *calls):
    replies = [{"calls": [{"name": tool, "arguments": arguments} for tool, arguments in calls]}, {"text": "Found."}]
    done = place.run("run", "--json", name, "look", "--model", place.script(*replies), env=KEYS)
    result = json.loads(done.stdout)["details"]["results"][0]
    messages = [json.loads(line).get("message", {}) for line in Path(result["sessionFile"]).read_text().splitlines()]
    return done, [message for message in messages if message.get("role") == "toolResult"]


@pytest.mark.parametrize("runner", ["inprocess", "process"])
def test_children_search_with_the_key(place, brave, runner):
    prepare(place, brave, runner)
    done, [found] = run_agent(place, "seeker", ("web_search", {"query": "x"}))
    assert (found["isError"], found["details"]["provider"]) == (False, "brave"), found
    assert brave.heard == [KEYS["BRAVE_SEARCH_API_KEY"]]
    written = [path.read_text(errors="replace") for path in place.root.rglob("*") if path.is_file()]
    assert [key for key in KEYS.values() for text in (*written, done.stdout, done.stderr) if key in text] == []


@pytest.mark.attack("H1")
def test_children_get_only_the_keys_they_need(place, brave):
    prepare(place, brave, "process")
    run_agent(place, "seeker", ("web_search", {"query": "x"}))
    seen = [([key for key in KEYS if f"{key}=" in environ], "of-the-tests" in line) for line, environ in brave.seen]
    assert seen and set(map(str, seen)) == {str((["BRAVE_SEARCH_API_KEY"], False))}


def test_provider_is_in_the_log(place, brave):
    prepare(place, brave, "process")
    run_agent(place, "seeker", ("web_search", {"query": "x"}))
    [entry] = json.loads(place.run("logs", "--json").stdout)["entries"]
    assert (entry["tool"], entry["provider"], entry["agent"]) == ("web_search", "brave", "seeker")
    assert "brave: 1 requests, 100% success" in place.run("logs").stdout
