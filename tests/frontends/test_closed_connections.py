"""Servers that promise to keep a connection and close it, before the real program."""

import json
import socket
import socketserver
import struct
import threading
from contextlib import contextmanager

import pytest

TOOL_TURNS = 4


class HangUp(socketserver.StreamRequestHandler):
    """Answers so many requests of a connection, and ends it at the next one without a word."""

    def handle(self):
        for number in range(1, 100):
            body = self.read_request()
            if body is None:
                return
            self.server.seen.append(body)
            if number > self.server.kept:
                if self.server.resets:
                    self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                return
            reply = b"".join(b"data: %s\n\n" % json.dumps(chunk).encode() for chunk in to_chunks(body))
            head = f"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: {len(reply) + 14}\r\n"
            self.wfile.write(head.encode() + b"Connection: keep-alive\r\n\r\n" + reply + b"data: [DONE]\n\n")

    def read_request(self):
        length = 0
        while (line := self.rfile.readline()) not in (b"\r\n", b""):
            if line.lower().startswith(b"content-length:"):
                length = int(line.split(b":")[1])
        return json.loads(self.rfile.read(length)) if length else None


def to_chunks(body):
    turn = sum(message["role"] == "tool" for message in body["messages"])
    call = {"index": 0, "id": f"c{turn}", "function": {"name": "ls", "arguments": "{}"}}
    is_last = turn == TOOL_TURNS
    delta = {"content": "Here."} if is_last else {"tool_calls": [call]}
    yield {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
    yield {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop" if is_last else "tool_calls"}]}


@contextmanager
def serve(place, *, kept, resets=False, **settings):
    socketserver.ThreadingTCPServer.daemon_threads = True
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), HangUp) as server:
        server.kept, server.resets, server.seen = kept, resets, []
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_address[1]}/v1"
        provider = {"baseUrl": url, "api": "openai-completions", "apiKey": "k", "models": [{"id": "m"}]}
        (place.agent_dir / "models.json").write_text(json.dumps({"providers": {"mock": provider}}))
        (place.agent_dir / "settings.json").write_text(json.dumps({"retry": settings}))
        yield server
        server.shutdown()


@pytest.mark.parametrize("resets", [False, True], ids=["closed", "reset"])
@pytest.mark.parametrize("kept", [1, 2])
def test_closed_connection_is_no_failure(place, kept, resets):
    with serve(place, kept=kept, resets=resets, enabled=False) as server:
        done = place.run("-p", "--model", "mock/m", "hi")
    assert (done.stdout, done.stderr, done.status) == ("Here.\n", "", 0)
    # So many were sent twice.
    assert len(server.seen) - len({json.dumps(body) for body in server.seen}) == 2 // kept


@pytest.mark.parametrize("resets", [False, True], ids=["closed", "reset"])
def test_new_connection_that_closes_is_a_failure(place, resets):
    with serve(place, kept=0, resets=resets, maxRetries=2, baseDelayMs=10) as server:
        done = place.run("-p", "--model", "mock/m", "hi")
    assert (done.stdout, done.status, len(server.seen)) == ("", 1, 3)
    assert done.stderr.count("retrying in") == 2
