"""MCP server on standard input and output: JSON-RPC, one message per line.

The revisions with a handshake need five methods and are answered here, without the library, which takes a second to
import: a host starts this process for each of its sessions. The first request of a newer revision loads it.
"""

import asyncio
import json
from collections.abc import AsyncIterable, Callable, Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from retinue.core.jsonline import encode_json
from retinue.serve.mcp.calls import (
    INTERNAL,
    INVALID,
    PARSE,
    UNKNOWN,
    CallRefused,
    HostCall,
    HostCalls,
    describe_tool,
    to_result,
)

if TYPE_CHECKING:
    from retinue.serve.mcp.server import McpStream

VERSIONS = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
"""Protocol versions with a handshake, newest first; our methods are the same in all of them."""
ENVELOPE = "io.modelcontextprotocol/protocolVersion"
"""In `_meta` of each request of a newer version."""
INSTRUCTIONS = """\
These tools delegate work to agents of retinue, which read, search and change files in the folder it was started in.
Agent starts one in the background and returns its id at once; get_subagent_result with wait: true returns its report.
subagent, if available, runs one and returns its report."""


class McpFrontend:
    """One connection to an MCP host."""

    def __init__(self, calls: HostCalls, write: Callable[[bytes], None], version: str) -> None:
        self._host_calls = calls
        self._write = write
        self._version = version
        self._calls: dict[str | int, asyncio.Task[None]] = {}
        self._is_greeted = False
        self._stream: McpStream | None = None
        """Answers a host of a newer version."""

    async def serve(self, lines: AsyncIterable[bytes | None]) -> None:
        """Answer requests until the input ends, then cancel running calls."""
        async with asyncio.TaskGroup() as group:
            async for line in lines:
                if (message := self._parse(line)) is None:
                    continue
                if self._stream is None and self._is_newer(message):
                    self._stream = await _open_stream(self._host_calls, self._write, self._version, group)
                if self._stream is None:
                    self._take(message, group)
                elif not await self._stream.feed(message):
                    self._fail(_read_id(message.get("id")), INVALID, "the message does not follow the protocol")
            if self._stream is not None:
                await self._stream.close()
            for task in self._calls.values():
                task.cancel()

    def _parse(self, line: bytes | None) -> dict[str, Any] | None:
        if line is not None and not line.strip():
            return None
        try:
            message = json.loads(line) if line is not None else None
        except (ValueError, RecursionError):
            self._fail(None, PARSE, "the line is not JSON")
            return None
        if not isinstance(message, dict):
            self._fail(None, INVALID, "expected one JSON object per line")
            return None
        return message

    def _is_newer(self, message: dict[str, Any]) -> bool:
        """Whether this is the first request of a host of a newer version, and the library is there to answer it."""
        params = message.get("params")
        meta = params.get("_meta") if isinstance(params, dict) else None
        is_enveloped = isinstance(meta, dict) and ENVELOPE in meta and message.get("method") != "initialize"
        return is_enveloped and not self._is_greeted and _has_library()

    def _take(self, message: dict[str, Any], group: asyncio.TaskGroup) -> None:
        method, request_id, params = message.get("method"), message.get("id"), message.get("params")
        params = {} if params is None else params
        if not isinstance(method, str):
            # A response; we send no requests, so it is ignored.
            if "result" not in message and "error" not in message:
                self._fail(_read_id(request_id), INVALID, "the message has no method")
            return
        if "id" not in message:
            self._hear(method, params)
            return
        known = _read_id(request_id)
        if known is None or not isinstance(params, dict):
            self._fail(known, INVALID, "expected an id that is text or a number, and params that are an object")
            return
        try:
            self._answer(known, method, params, group)
        except CallRefused as error:
            self._fail(known, error.code, str(error))

    def _hear(self, method: str, params: Any) -> None:
        """Handle a notification; unknown ones are ignored."""
        if method == "notifications/cancelled" and isinstance(params, dict):
            task = self._calls.pop(_read_id(params.get("requestId")) or "", None)
            if task is not None:
                task.cancel()

    def _answer(self, request_id: str | int, method: str, params: dict[str, Any], group: asyncio.TaskGroup) -> None:
        match method:
            case "initialize":
                self._is_greeted = True
                asked = params.get("protocolVersion")
                self._send(
                    request_id,
                    {
                        "protocolVersion": asked if asked in VERSIONS else VERSIONS[0],
                        "capabilities": {"tools": {"listChanged": False}},
                        "serverInfo": {"name": "retinue", "version": self._version},
                        "instructions": INSTRUCTIONS,
                    },
                )
            case "ping":
                self._send(request_id, {})
            case "tools/list":
                tools = self._host_calls.delegation.tools.values()
                self._send(request_id, {"tools": [describe_tool(tool) for tool in tools]})
            case "tools/call":
                if request_id in self._calls:
                    raise CallRefused(INVALID, f"a request with the id {request_id!r} is already running")
                call = self._host_calls.start(params.get("name"), params.get("arguments", {}))
                meta = params.get("_meta")
                token = meta.get("progressToken") if isinstance(meta, Mapping) else None
                self._calls[request_id] = group.create_task(self._call(request_id, call, token))
            case _:
                raise CallRefused(UNKNOWN, f"unknown method {method[:80]!r}")

    async def _call(self, request_id: str | int, call: HostCall, token: Any) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                telling = group.create_task(self._report(call, token))
                await self._host_calls.settle(call)
                telling.cancel()
            # A host that has cancelled a call expects no answer.
            if self._calls.get(request_id) is asyncio.current_task():
                if call.result is not None:
                    self._send(request_id, to_result(call.result))
                else:
                    self._fail(request_id, INTERNAL, call.error or "the call was stopped")
        finally:
            if self._calls.get(request_id) is asyncio.current_task():
                del self._calls[request_id]

    async def _report(self, call: HostCall, token: Any) -> None:
        """Send progress notifications if the host asked for them."""
        if _read_id(token) is None:
            return
        count = 0
        async for text in self._host_calls.follow(call):
            count += 1
            self._notify("notifications/progress", {"progressToken": token, "progress": count, "message": text})

    def _notify(self, method: str, params: dict[str, Any]) -> None:
        self._write(encode_json({"jsonrpc": "2.0", "method": method, "params": params}) + b"\n")

    def _send(self, request_id: str | int, result: dict[str, Any]) -> None:
        self._write(encode_json({"jsonrpc": "2.0", "id": request_id, "result": result}) + b"\n")

    def _fail(self, request_id: str | int | None, code: int, message: str) -> None:
        error = {"code": code, "message": message}
        self._write(encode_json({"jsonrpc": "2.0", "id": request_id, "error": error}) + b"\n")


def _read_id(value: Any) -> str | int | None:
    return value if isinstance(value, str | int) and not isinstance(value, bool) else None


def _has_library() -> bool:
    # Version 1 has another interface; its types are no package of their own.
    return find_spec("mcp_types") is not None


async def _open_stream(
    calls: HostCalls, write: Callable[[bytes], None], version: str, group: asyncio.TaskGroup
) -> "McpStream":
    """Load the library in a thread: the import takes longer than a ping may."""

    def load() -> None:
        from retinue.serve.mcp import server  # noqa: F401

    await asyncio.to_thread(load)
    from retinue.serve.mcp.server import McpStream, build_server

    return McpStream(build_server(calls, version, INSTRUCTIONS), write, group)
