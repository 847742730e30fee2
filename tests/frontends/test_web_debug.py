"""`web.debug`: a note of each request of the web tools, in a file of ours, without what was asked or answered."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

CLOSED = 59999
"""A port that nobody listens on."""


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        is_moved = self.path.startswith("/moved")
        self.send_response(302 if is_moved else 200)
        self.send_header("Location", "/page?private=question") if is_moved else None
        self.send_header("Content-Type", "text/plain")
        self.send_header("Content-Length", "5")
        self.end_headers()
        self.wfile.write(b"words")

    def log_message(self, *args):
        pass


@pytest.fixture
def port():
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield server.server_port
        server.shutdown()


def ask(place, port, debug):
    base = f"http://127.0.0.1:{port}"
    searxng = {"enabled": True, "baseUrl": f"{base}/search?token=sekret"}
    web = {"debug": debug, "allowPrivateNetwork": True, "provider": "searxng", "searxng": searxng}
    (place.agent_dir / "subagents.json").write_text(json.dumps({"web": web}))
    calls = [
        ("fetch_content", {"url": f"{base}/moved?private=question"}),
        ("web_search", {"query": "private question"}),
    ]
    calls += [
        ("fetch_content", {"url": f"http://127.0.0.1:{CLOSED}/"}),
        ("fetch_content", {"url": "http://127.0.0.1:22/"}),
    ]
    replies = [{"calls": [{"name": name, "arguments": arguments}]} for name, arguments in calls]
    done = place.run("-p", "x", replies=[*replies, {"text": "Done."}])
    assert (done.stdout, done.stderr) == ("Done.\n", "")
    path = place.agent_dir / "retinue" / "web.log"
    return path, [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def test_nothing_is_noted_unasked(place, port):
    path, _ = ask(place, port, False)
    assert not path.exists()


@pytest.mark.parametrize("debug", ["minimal", "verbose"])
def test_requests_are_noted(place, port, debug):
    path, notes = ask(place, port, debug)
    assert path.stat().st_mode & 0o777 == 0o600
    assert all(note.pop("atMs") > 0 and note.pop("durationMs") >= 0 for note in notes)
    host = f"127.0.0.1:{port}"
    page, search = {"kind": "text/plain", "path": "/page", "redirects": 1}, {"kind": "text/plain"}
    wanted = [
        {"method": "GET", "host": host, "status": 200, "bytes": 5, **(page if debug == "verbose" else {})},
        {"method": "GET", "host": host, "status": 200, "bytes": 5, **(search if debug == "verbose" else {})},
        {
            "method": "GET",
            "host": f"127.0.0.1:{CLOSED}",
            "failure": "network",
            **({"path": "/"} if debug == "verbose" else {}),
        },
        {
            "method": "GET",
            "host": "127.0.0.1:22",
            "failure": "refused",
            **({"path": "/"} if debug == "verbose" else {}),
        },
    ]
    assert notes == wanted
    assert not any(word in path.read_text() for word in ("question", "sekret", "token", "words"))


def test_doctor_tells_where_notes_are(place, port):
    ask(place, port, True)
    items = json.loads(place.run("doctor", "--json").stdout)["items"]
    found = {item["message"]: item["details"] for item in items if item["category"] == "web-tools"}
    assert found["Web tools enabled"] == "Provider: searxng, Debug: minimal"
    assert found["Requests of the web tools are logged"].endswith("retinue/web.log")
