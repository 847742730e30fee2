"""Find model servers on this machine by asking the usual loopback ports, all at once and with a short timeout.

Uses raw sockets, since importing an HTTP client would take longer than the requests.
"""

import socket
import time
from collections.abc import Sequence
from threading import Thread
from typing import Any

import orjson

from retinue.core.model import ModelInfo
from retinue.models.catalog import GUESSED_OUTPUT, GUESSED_WINDOW, SERVERS, LocalServer

PROBE_TIMEOUT_S = 0.15
_LARGEST_REPLY = 1_000_000


def find_local_models(
    servers: Sequence[LocalServer] = SERVERS, *, timeout_s: float = PROBE_TIMEOUT_S
) -> tuple[ModelInfo, ...]:
    """The models available now, in the order of the servers. Blocks for at most `timeout_s`; never raises."""
    replies: dict[LocalServer, bytes] = {}
    deadline = time.monotonic() + timeout_s
    threads = [Thread(target=_ask, args=(server, timeout_s, replies), daemon=True) for server in servers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    return tuple(_to_model(server, item) for server in servers for item in _read_models(replies.get(server, b"")))


def _ask(server: LocalServer, timeout_s: float, replies: dict[LocalServer, bytes]) -> None:
    request = (
        f"GET /v1/models HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nAccept: application/json\r\n"
        "Connection: close\r\n\r\n"
    )
    reply = b""
    try:
        with socket.create_connection(("127.0.0.1", server.port), timeout_s) as connection:
            connection.sendall(request.encode())
            while not _is_complete(reply) and len(reply) < _LARGEST_REPLY and (piece := connection.recv(65_536)):
                reply += piece
    except OSError:
        return
    replies[server] = reply


def _is_complete(reply: bytes) -> bool:
    head, end, body = reply.partition(b"\r\n\r\n")
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            length = line.partition(b":")[2].strip()
            return bool(end) and length.isdigit() and len(body) >= int(length)
    return False


def _read_models(reply: bytes) -> list[dict[str, Any]]:
    head, _, body = reply.partition(b"\r\n\r\n")
    if not head.startswith((b"HTTP/1.1 200", b"HTTP/1.0 200")):
        return []
    if b"transfer-encoding: chunked" in head.lower():
        body = _join_chunks(body)
    try:
        data = orjson.loads(body)
    except orjson.JSONDecodeError:
        return []
    items = data.get("data") if isinstance(data, dict) else None
    return [
        item
        for item in (items if isinstance(items, list) else ())
        if isinstance(item, dict) and isinstance(item.get("id"), str) and item["id"] and "embed" not in item["id"]
    ]


def _join_chunks(body: bytes) -> bytes:
    joined = b""
    while body:
        size, _, rest = body.partition(b"\r\n")
        try:
            length = int(size.split(b";")[0], 16)
        except ValueError:
            break
        joined += rest[:length]
        body = rest[length + 2 :]
    return joined


def _to_model(server: LocalServer, item: dict[str, Any]) -> ModelInfo:
    meta = item.get("meta")
    window = meta.get("n_ctx") if isinstance(meta, dict) else None
    return ModelInfo(
        provider=server.provider,
        id=item["id"],
        api="openai-completions",
        name=f"{item['id']} ({server.name})",
        base_url=f"http://127.0.0.1:{server.port}/v1",
        context_window=window if isinstance(window, int) and window > 0 else GUESSED_WINDOW,
        max_tokens=GUESSED_OUTPUT,
        compat={"supportsStore": False, "supportsDeveloperRole": False, "maxTokensField": "max_tokens"},
    )
