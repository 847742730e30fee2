"""MCP server for the delegation tools: JSON-RPC, one message per line. Knows the protocol, not agents.

Not based on the MCP library, which takes a second to import: a host starts this process for each of its sessions,
and only five methods are needed.
"""

import asyncio
import json
from collections.abc import AsyncIterable, Callable, Mapping
from typing import Any

import msgspec

from retinue.app.delegation_tools import Delegation
from retinue.core.jsonline import encode_json
from retinue.core.messages import ToolResultMessage

VERSIONS = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
"""Supported protocol versions, newest first; our methods are the same in all of them."""
PULSE_S = 2.0
"""Seconds between progress notifications during a call: hosts give up on silent calls."""
MAX_CALLS = 64
MAX_MESSAGE = 500
INSTRUCTIONS = """\
These tools delegate work to agents of retinue, which read, search and change files in the folder it was started in.
Agent starts one in the background and returns its id at once; get_subagent_result with wait: true returns its report.
subagent, if available, runs one and returns its report."""
_PARSE, _INVALID, _UNKNOWN, _PARAMS = -32700, -32600, -32601, -32602


class _Refused(Exception):
    """The request gets an error response."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class McpFrontend:
    """One connection to an MCP host."""

    def __init__(self, delegation: Delegation, write: Callable[[bytes], None], version: str) -> None:
        self._delegation = delegation
        self._write = write
        self._version = version
        self._calls: dict[str | int, asyncio.Task[None]] = {}

    async def serve(self, lines: AsyncIterable[bytes | None]) -> None:
        """Answer requests until the input ends, then cancel running calls."""
        async with asyncio.TaskGroup() as group:
            async for line in lines:
                self._take(line, group)
            for task in self._calls.values():
                task.cancel()

    def _take(self, line: bytes | None, group: asyncio.TaskGroup) -> None:
        if line is not None and not line.strip():
            return
        try:
            message = json.loads(line) if line is not None else None
        except (ValueError, RecursionError):
            self._fail(None, _PARSE, "the line is not JSON")
            return
        if not isinstance(message, dict):
            self._fail(None, _INVALID, "expected one JSON object per line")
            return
        method, request_id, params = message.get("method"), message.get("id"), message.get("params")
        params = {} if params is None else params
        if not isinstance(method, str):
            # A response; we send no requests, so it is ignored.
            if "result" not in message and "error" not in message:
                self._fail(_read_id(request_id), _INVALID, "the message has no method")
            return
        if "id" not in message:
            self._hear(method, params)
            return
        known = _read_id(request_id)
        if known is None or not isinstance(params, dict):
            self._fail(known, _INVALID, "expected an id that is text or a number, and params that are an object")
            return
        try:
            self._answer(known, method, params, group)
        except _Refused as error:
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
                self._send(request_id, {"tools": [_describe(tool) for tool in self._delegation.tools.values()]})
            case "tools/call":
                self._start_call(request_id, params, group)
            case _:
                raise _Refused(_UNKNOWN, f"unknown method {method[:80]!r}")

    def _start_call(self, request_id: str | int, params: dict[str, Any], group: asyncio.TaskGroup) -> None:
        name, arguments = params.get("name"), params.get("arguments", {})
        if not isinstance(name, str) or name not in self._delegation.tools:
            known = ", ".join(self._delegation.tools)
            raise _Refused(_PARAMS, f"unknown tool {str(name)[:80]!r}; available: {known}")
        if not isinstance(arguments, dict):
            raise _Refused(_PARAMS, "arguments must be an object")
        if request_id in self._calls:
            raise _Refused(_INVALID, f"a request with the id {request_id!r} is already running")
        if len(self._calls) >= MAX_CALLS:
            raise _Refused(_INVALID, f"{MAX_CALLS} calls are already running; wait for one of them")
        meta = params.get("_meta")
        token = meta.get("progressToken") if isinstance(meta, Mapping) else None
        self._calls[request_id] = group.create_task(self._call(request_id, name, arguments, token))

    async def _call(self, request_id: str | int, name: str, arguments: dict[str, Any], token: Any) -> None:
        pulse = _ProgressSender(token, self._notify, self._delegation.describe_work)
        try:
            async with asyncio.TaskGroup() as group:
                beating = group.create_task(pulse.beat())
                result = await self._delegation.call(str(request_id), name, arguments, pulse.tell)
                beating.cancel()
            # A host that has cancelled a call expects no answer.
            if self._calls.get(request_id) is asyncio.current_task():
                self._send(request_id, _to_result(result))
        finally:
            if self._calls.get(request_id) is asyncio.current_task():
                del self._calls[request_id]

    def _notify(self, method: str, params: dict[str, Any]) -> None:
        self._write(encode_json({"jsonrpc": "2.0", "method": method, "params": params}) + b"\n")

    def _send(self, request_id: str | int, result: dict[str, Any]) -> None:
        self._write(encode_json({"jsonrpc": "2.0", "id": request_id, "result": result}) + b"\n")

    def _fail(self, request_id: str | int | None, code: int, message: str) -> None:
        error = {"code": code, "message": message}
        self._write(encode_json({"jsonrpc": "2.0", "id": request_id, "error": error}) + b"\n")


class _ProgressSender:
    """Sends progress notifications for a call if the host asked for them."""

    def __init__(self, token: Any, notify: Callable[[str, dict[str, Any]], None], describe: Callable[[], str]) -> None:
        self._token = token if isinstance(token, str | int) and not isinstance(token, bool) else None
        self._notify = notify
        self._describe = describe
        self._count = 0

    async def beat(self) -> None:
        """Notify regularly until cancelled."""
        while self._token is not None:
            self.tell(self._describe())
            await asyncio.sleep(PULSE_S)

    def tell(self, message: str) -> None:
        if self._token is None:
            return
        self._count += 1
        text = " ".join(message.split())[:MAX_MESSAGE] or "working"
        self._notify("notifications/progress", {"progressToken": self._token, "progress": self._count, "message": text})


def _read_id(value: Any) -> str | int | None:
    return value if isinstance(value, str | int) and not isinstance(value, bool) else None


def _describe(tool: Any) -> dict[str, Any]:
    spec = tool.spec
    return {"name": spec.name, "description": spec.description, "inputSchema": {"type": "object", **spec.parameters}}


def _to_result(message: ToolResultMessage) -> dict[str, Any]:
    """Convert a result for MCP; details for programs go into `_meta`, which models do not see."""
    blocks = []
    for block in msgspec.to_builtins(message.content):
        kept = {"type": block["type"], **{key: block[key] for key in ("text", "data", "mimeType") if key in block}}
        blocks.append(kept)
    result: dict[str, Any] = {"content": blocks, "isError": message.is_error}
    details = None if message.details is msgspec.UNSET else msgspec.to_builtins(message.details, enc_hook=str)
    return {**result, "_meta": {"retinue/details": details}} if details else result
