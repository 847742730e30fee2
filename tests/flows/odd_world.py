"""A server on loopback that answers with exactly the events it is given, as no tidy server would."""

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from retinue.testing.process import CliResult, fresh_home, run_cli

ANTHROPIC, CHAT, RESPONSES, GOOGLE = (
    "anthropic-messages",
    "openai-completions",
    "openai-responses",
    "google-generative-ai",
)


class OddServer:
    """What the server says, one list of events a request, and what it was asked."""

    def __init__(self, replies: Sequence[Any]) -> None:
        self.replies = list(replies)
        self.requests: list[dict[str, Any]] = []
        self.url = ""

    def models(self, api: str, **fields: Any) -> dict[str, Any]:
        """A `models.json` for it."""
        model = {"id": "odd-1", "contextWindow": 100_000, "maxTokens": 1000, **fields}
        return {"providers": {"odd": {"baseUrl": self.url, "api": api, "apiKey": "none", "models": [model]}}}

    def run(self, api: str, root: Any, *args: str) -> CliResult:
        """Run the real program once with this model."""
        home, work = fresh_home(root, self.models(api)), root / "work"
        work.mkdir(exist_ok=True)
        settings = {"retry": {"baseDelayMs": 1, "maxRetries": 1}}
        (home / ".pi" / "agent" / "settings.json").write_text(json.dumps(settings))
        return run_cli(["--model", "odd/odd-1", "--mode", "json", "-p", *(args or ("go",))], work, home=home)


@contextmanager
def serve(*replies: Any) -> Iterator[OddServer]:
    """Serve these replies in order; a reply is a list of events, or a status and a body."""
    odd = OddServer(replies)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            odd.requests.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            reply = odd.replies.pop(0) if odd.replies else (400, {"error": {"message": "no more replies"}})
            status, kind, payload = 200, "text/event-stream", b""
            if isinstance(reply, tuple):
                status, kind, payload = reply[0], "application/json", json.dumps(reply[1]).encode()
            else:
                payload = b"".join(event if isinstance(event, bytes) else to_event(event) for event in reply)
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(payload)))
            self.end_headers()
            self.wfile.write(payload)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    odd.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield odd
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def to_event(event: Any) -> bytes:
    """One server-sent event."""
    return b"data: " + json.dumps(event).encode() + b"\n\n"


DONE = b"data: [DONE]\n\n"


def chunk(finish: str | None = None, /, **delta: Any) -> dict[str, Any]:
    """A chat completion chunk."""
    return {"id": "c", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


def piece(name: str | None = None, arguments: Any = None, **fields: Any) -> dict[str, Any]:
    """A chat completion chunk with a piece of a tool call; fields that are not given are not there."""
    function = {"arguments": arguments} | ({"name": name} if name is not None else {})
    return chunk(tool_calls=[{**fields, "function": function}])
