"""Messages of the Agent Client Protocol over lines: garbage gets an error answer and the connection goes on."""

import json
from typing import Any

from retinue.core.jsonline import encode_json
from retinue.serve.outlet import Outlet
from retinue.serve.rpc.lines import Lines


class LineTransport:
    """The library's transport over our lines: garbage gets an error answer and the connection goes on."""

    def __init__(self, lines: Lines, outlet: Outlet) -> None:
        self._lines = aiter(lines)
        self._outlet = outlet

    async def receive(self) -> dict[str, Any] | None:
        async for line in self._lines:
            if line is not None and not line.strip():
                continue
            try:
                message = json.loads(line) if line is not None else None
            except (ValueError, RecursionError):
                self._refuse(-32700, "the line is not JSON")
                continue
            problem = _find_problem(message)
            if message is not None and not problem:
                # Parameters may be left out; the library wants them.
                return {**message, "params": message.get("params") or {}} if "method" in message else message
            self._refuse(-32600, problem, message.get("id") if isinstance(message, dict) else None)
        return None

    async def send(self, message: dict[str, Any]) -> None:
        self.write(message)

    def write(self, message: dict[str, Any]) -> None:
        self._outlet.write(encode_json(message) + b"\n")

    async def close(self) -> None: ...

    def _refuse(self, code: int, text: str, request_id: Any = None) -> None:
        known = request_id if isinstance(request_id, str | int) and not isinstance(request_id, bool) else None
        self.write({"jsonrpc": "2.0", "id": known, "error": {"code": code, "message": text}})


def _find_problem(message: Any) -> str:
    """Why a message cannot be handled; empty if it can."""
    if not isinstance(message, dict):
        return "expected one JSON object per line"
    if "method" in message:
        is_sound = isinstance(message["method"], str) and isinstance(message.get("params", {}), dict | list | None)
        return "" if is_sound else "method must be text, params an object"
    if not ("id" in message and ("result" in message or "error" in message)):
        return "the message has no method"
    return (
        "" if isinstance(message["id"], int | str) and isinstance(message.get("error") or {}, dict) else "bad response"
    )
