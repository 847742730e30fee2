"""A mock model server on loopback that plays a script in four wire formats, for tests, demos and benchmarks.

`python -m retinue.testing.server --script FILE` runs it as a separate process.
"""

import argparse
import asyncio
import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import orjson
from msgspec import DecodeError, ValidationError
from msgspec.structs import replace

from retinue.core.errors import RetinueError
from retinue.models.script import EXHAUSTED, Script, ScriptReply
from retinue.models.script_file import load_script, parse_script
from retinue.testing.faults import build_error, build_plan, pick_fault, to_spoken
from retinue.testing.http import Connection, RecordedRequest
from retinue.testing.plan import ResponsePlan, render_response
from retinue.testing.prompt_cache import PromptCache, TooManyMarks
from retinue.testing.wire.anthropic import AnthropicWire
from retinue.testing.wire.base import WireFormat, WireRequest
from retinue.testing.wire.chat import ChatWire
from retinue.testing.wire.google import GoogleWire
from retinue.testing.wire.responses import ResponsesWire

_ROUTES: dict[bytes, WireFormat] = {
    b"/chat/completions": ChatWire(),
    b"/messages": AnthropicWire(),
    b"/responses": ResponsesWire(),
}
_GOOGLE = GoogleWire()
_NOT_FOUND = ResponsePlan(render_response(404, b'{"error": {"message": "no such path", "type": "not_found_error"}}'))
_WRONG_KEY = ResponsePlan(render_response(401, b'{"error": {"message": "wrong key", "type": "authentication_error"}}'))
_BASE_PATHS = {
    "anthropic-messages": "",
    "openai-completions": "/v1",
    "openai-responses": "/v1",
    "google-generative-ai": "/v1beta",
}
APIS = tuple(_BASE_PATHS)


class MockServer:
    """Plays one script to any number of conversations.

    The number of assistant messages in a request determines which reply it gets. A repeated request gets the same reply
    again, unless a fault of that reply is limited to a number of `times`.
    """

    def __init__(
        self,
        script: Script | str | Path | list[Any] | dict[str, Any],
        *,
        port: int = 0,
        record: bool = True,
        log: str | Path | None = None,
        model: str = "mock-1",
        key: str = "",
        caches: bool = False,
    ) -> None:
        """`key` is the only API key that is accepted; empty accepts any.

        With `caches` the usage tells what the provider's prompt cache would have covered.
        """
        self._cache = PromptCache() if caches else None
        self.script = _to_script(script)
        self.model = model
        self._key = key.encode()
        self.port = port
        self.requests: list[RecordedRequest] = []
        """All requests in order of arrival."""
        self.streams = True
        """Whether it streams when asked to."""
        self._record = record
        self._log_path = log
        self._log_fd = -1
        self._full = self.script.has_matches
        self._numbers = {id(reply): index for index, reply in enumerate(self.script.replies)}
        self._plans: dict[tuple[object, ...], ResponsePlan] = {}
        self._attempts: dict[tuple[object, ...], int] = {}
        self._connections: set[Connection] = set()
        self._server: asyncio.Server | None = None

    @property
    def url(self) -> str:
        """The server's address without a path."""
        return f"http://127.0.0.1:{self.port}"

    def base_url(self, api: str) -> str:
        """Return the `baseUrl` to configure for one API."""
        return self.url + _BASE_PATHS[api]

    def models_json(
        self, *, provider: str = "mock", api: str = "openai-completions", model: str = "", **fields: Any
    ) -> dict[str, Any]:
        """Return a `models.json` with this server as its only provider; `fields` go to the model."""
        entry = {"id": model or self.model, "contextWindow": 128_000, "maxTokens": 16_384, **fields}
        return {
            "providers": {
                provider: {"baseUrl": self.base_url(api), "api": api, "apiKey": "mock-key", "models": [entry]}
            }
        }

    async def start(self) -> None:
        if self._log_path is not None:
            self._log_fd = os.open(self._log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: Connection(self._answer, self._connections), "127.0.0.1", self.port, backlog=4096
        )
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
            for connection in list(self._connections):
                connection.abort()
            await self._server.wait_closed()
            # The transports report their end in the next iteration of the event loop.
            await asyncio.sleep(0)
            self._server = None
        if self._log_fd >= 0:
            os.close(self._log_fd)
            self._log_fd = -1

    async def __aenter__(self) -> "MockServer":
        await self.start()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.stop()

    @classmethod
    @contextlib.contextmanager
    def in_thread(
        cls, script: Script | str | Path | list[Any] | dict[str, Any], **options: Any
    ) -> Iterator["MockServer"]:
        """Serve from a separate thread, for tests without an event loop."""
        server = cls(script, **options)
        loop = asyncio.new_event_loop()
        thread = threading.Thread(target=loop.run_forever, name="mock-server", daemon=True)
        thread.start()
        try:
            asyncio.run_coroutine_threadsafe(server.start(), loop).result(10)
            yield server
        finally:
            asyncio.run_coroutine_threadsafe(server.stop(), loop).result(10)
            loop.call_soon_threadsafe(loop.stop)
            thread.join(10)
            loop.close()

    def _answer(self, head: bytes, body: bytes) -> ResponsePlan:
        if self._record or self._log_fd >= 0:
            self._keep(RecordedRequest(head, body))
        if self._key and self._key not in head:
            return _WRONG_KEY
        method, path = head.split(b" ", 2)[:2]
        route, _, _query = path.partition(b"?")
        if method == b"GET":
            return self._answer_get(route)
        for end, wire in _ROUTES.items():
            if route.endswith(end):
                return self._reply(wire, body)
        if route.endswith((b":generateContent", b":streamGenerateContent")):
            model, _, action = route.rpartition(b"/")[2].partition(b":")
            return self._reply(_GOOGLE, body, model.decode("latin-1"), stream=action.startswith(b"stream"))
        return _NOT_FOUND

    def _keep(self, request: RecordedRequest) -> None:
        if self._record:
            self.requests.append(request)
        if self._log_fd >= 0:
            os.write(self._log_fd, request.to_log_line())

    def _answer_get(self, route: bytes) -> ResponsePlan:
        if route.endswith(b"/v1beta/models"):
            named = {"name": f"models/{self.model}", "displayName": self.model, "inputTokenLimit": 128_000}
            return ResponsePlan(render_response(200, orjson.dumps({"models": [named]})))
        if route.endswith(b"/models"):
            entry = {
                "id": self.model,
                "object": "model",
                "type": "model",
                "display_name": self.model,
                "owned_by": "mock",
            }
            dates = {"created": 1_700_000_000, "created_at": "2023-11-14T22:13:20Z"}
            page = {"has_more": False, "first_id": self.model, "last_id": self.model}
            return ResponsePlan(
                render_response(200, orjson.dumps({"object": "list", "data": [{**entry, **dates}], **page}))
            )
        return _NOT_FOUND

    def _reply(self, wire: WireFormat, body: bytes, model: str = "", *, stream: bool = False) -> ResponsePlan:
        try:
            asked = wire.parse_request(body, full=self._full)
        except (DecodeError, ValidationError, orjson.JSONDecodeError) as error:
            return build_error(wire, "request", 400, f"the request cannot be read: {error}")
        model = model or asked.model
        stream = (stream or asked.stream) and self.streams
        reply = self.script.find(asked.exchange) if asked.exchange is not None else self.script.at(asked.position)
        if reply is None:
            message = (
                f"{EXHAUSTED}: {self.script.source} has {len(self.script.replies)}, asked for {asked.position + 1}"
            )
            return build_error(wire, "request", 400, message)
        number = self._numbers[id(reply)]
        attempt = self._count_attempt(reply, number, asked)
        trouble = pick_fault(reply, attempt)
        if self._cache is not None:
            try:
                used = self._cache.count(orjson.loads(body))
            except TooManyMarks as error:
                return build_error(wire, "request", 400, str(error))
            reply = replace(reply, usage=replace(used, output=reply.usage_or_default.output))
            spoken = to_spoken(reply, position=asked.position, model=model, include_usage=asked.include_usage)
            return build_plan(wire, reply, spoken, trouble, stream=stream)
        key = (number, asked.position, wire, stream, model, asked.include_usage, trouble and id(trouble))
        plan = self._plans.get(key)
        if plan is None:
            spoken = to_spoken(reply, position=asked.position, model=model, include_usage=asked.include_usage)
            plan = self._plans[key] = build_plan(wire, reply, spoken, trouble, stream=stream)
        return plan

    def _count_attempt(self, reply: ScriptReply, number: int, asked: WireRequest) -> int:
        if not reply.faults and reply.error is None:
            return 0
        key = (number, asked.position, asked.conversation)
        attempt = self._attempts.get(key, 0)
        self._attempts[key] = attempt + 1
        return attempt


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve a script until standard input closes or SIGTERM comes."""
    parser = argparse.ArgumentParser(prog="python -m retinue.testing.server", description=main.__doc__)
    parser.add_argument("--script", required=True, help="file with the replies (docs/reference/scripts.md)")
    parser.add_argument("--port", type=int, default=0, help="port on 127.0.0.1; 0 takes a free one")
    parser.add_argument("--log", help="file that gets a line of JSON for each request")
    options = parser.parse_args(arguments)
    try:
        server = MockServer(load_script(options.script), port=options.port, record=False, log=options.log)
        asyncio.run(_serve(server))
    except RetinueError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_status
    except OSError as error:
        print(f"error: cannot serve: {error}", file=sys.stderr)
        return 1
    return 0


async def _serve(server: MockServer) -> None:
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    async with server:
        print(orjson.dumps({"port": server.port}).decode(), flush=True)
        # A file or /dev/null as standard input cannot be watched; then only a signal ends the server.
        with contextlib.suppress(OSError):
            loop.add_reader(0, _watch_input, ended)
        await ended.wait()
        loop.remove_reader(0)


def _watch_input(ended: asyncio.Event) -> None:
    if not os.read(0, 4096):
        ended.set()


def _to_script(script: Script | str | Path | list[Any] | dict[str, Any]) -> Script:
    if isinstance(script, Script):
        return script
    if isinstance(script, str | Path):
        return load_script(script)
    return parse_script(script)


if __name__ == "__main__":
    sys.exit(main())
