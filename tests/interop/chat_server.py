"""A loopback server that answers OpenAI chat completion requests from a list of scripted replies and keeps the bodies.

Small and apart from retinue.testing on purpose: the recordings must not depend on the code they are compared with.
"""

import json
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True, slots=True)
class Scripted:
    """One reply: the deltas of its chunks, or an HTTP error."""

    deltas: Sequence[dict[str, Any]] = ()
    finish: str = "stop"
    status: int = 200
    error: str = ""
    usage: tuple[int, int] = (100, 10)
    stall_s: float = 0.0
    """Silence after the deltas, for tests that interrupt a reply."""


def say(*pieces: str, finish: str = "stop", usage: tuple[int, int] = (100, 10), stall_s: float = 0.0) -> Scripted:
    """A reply of text, in these pieces."""
    return Scripted([{"content": piece} for piece in pieces], finish, usage=usage, stall_s=stall_s)


def think(thought: Sequence[str], *pieces: str) -> Scripted:
    """A reply that reasons first."""
    return Scripted([{"reasoning_content": piece} for piece in thought] + [{"content": piece} for piece in pieces])


def call(*calls: tuple[str, str, str], text: str = "", finish: str = "tool_calls") -> Scripted:
    """A reply with tool calls, each (id, name, JSON of its arguments), streamed in two halves."""
    deltas: list[dict[str, Any]] = [{"content": text}] if text else []
    for index, (call_id, name, arguments) in enumerate(calls):
        half = len(arguments) // 2
        start = {"index": index, "id": call_id, "type": "function"}
        deltas.append({"tool_calls": [start | {"function": {"name": name, "arguments": arguments[:half]}}]})
        deltas.append({"tool_calls": [{"index": index, "function": {"arguments": arguments[half:]}}]})
    return Scripted(deltas, finish)


def fail(status: int, message: str) -> Scripted:
    """An HTTP error in OpenAI's form."""
    return Scripted(status=status, error=message)


@dataclass(slots=True)
class ChatServer:
    """What a running server was asked and where it listens."""

    replies: list[Scripted]
    requests: list[dict[str, Any]] = field(default_factory=list)
    arrived: threading.Event = field(default_factory=threading.Event)
    """Set once the deltas of a stalling reply are out."""
    stop: threading.Event = field(default_factory=threading.Event)
    port: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def take(self, body: dict[str, Any]) -> tuple[int, Scripted]:
        """Keep the request and find its reply; beyond the script every request is an error nobody retries."""
        self.requests.append(body)
        number = len(self.requests)
        if number > len(self.replies):
            return number, fail(400, "the script has no more replies")
        return number, self.replies[number - 1]


def to_chunks(number: int, reply: Scripted, model: str) -> Iterator[dict[str, Any]]:
    """The chunks of a streamed reply, usage last."""
    head = {"id": f"chatcmpl-{number}", "object": "chat.completion.chunk", "created": 1, "model": model}
    for delta in reply.deltas:
        yield head | {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
    yield head | {"choices": [{"index": 0, "delta": {}, "finish_reason": reply.finish}]}
    read, written = reply.usage
    usage = {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}
    yield head | {"choices": [], "usage": usage}


def to_completion(number: int, reply: Scripted, model: str) -> dict[str, Any]:
    """The same reply for a client that does not stream."""
    message: dict[str, Any] = {"role": "assistant", "content": None}
    calls: list[dict[str, Any]] = []
    for delta in reply.deltas:
        for key in ("content", "reasoning_content"):
            if key in delta:
                message[key] = (message.get(key) or "") + delta[key]
        for piece in delta.get("tool_calls", ()):
            if piece["index"] == len(calls):
                calls.append({"id": piece["id"], "type": "function", "function": dict(piece["function"])})
            else:
                calls[piece["index"]]["function"]["arguments"] += piece["function"]["arguments"]
    if calls:
        message["tool_calls"] = calls
    read, written = reply.usage
    return {
        "id": f"chatcmpl-{number}",
        "object": "chat.completion",
        "created": 1,
        "model": model,
        "choices": [{"index": 0, "message": message, "finish_reason": reply.finish}],
        "usage": {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written},
    }


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    chat: ChatServer

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        number, reply = self.chat.take(body)
        if reply.status != 200:
            error = {"error": {"message": reply.error, "type": "mock_error"}}
            self._send(reply.status, json.dumps(error).encode())
        elif body.get("stream"):
            self._stream(number, reply, body["model"])
        else:
            self._send(200, json.dumps(to_completion(number, reply, body["model"])).encode())

    def _send(self, status: int, payload: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(payload)))
        self.end_headers()
        self.wfile.write(payload)

    def _stream(self, number: int, reply: Scripted, model: str) -> None:
        self.close_connection = True
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        deltas = len(reply.deltas)
        for position, chunk in enumerate(to_chunks(number, reply, model)):
            if position == deltas and reply.stall_s:
                self.chat.arrived.set()
                self.chat.stop.wait(reply.stall_s)
                return
            self.wfile.write(b"data: " + json.dumps(chunk).encode() + b"\n\n")
            self.wfile.flush()
            # A client reads chunk by chunk only when they do not arrive together.
            time.sleep(0.002)
        self.wfile.write(b"data: [DONE]\n\n")

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing: stderr belongs to the program under test."""


@contextmanager
def serve_replies(replies: Sequence[Scripted]) -> Iterator[ChatServer]:
    """Serve the replies in order, one a request."""
    chat = ChatServer(list(replies))
    handler = type("Handler", (_Handler,), {"chat": chat})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    chat.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield chat
    finally:
        chat.stop.set()
        server.shutdown()
        thread.join()
        server.server_close()
