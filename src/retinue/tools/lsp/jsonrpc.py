"""A JSON-RPC client with the framing of language servers. Messages are plain dicts and may lack any field.

Must not know processes or what messages mean.
"""

import asyncio
import json
from collections.abc import Callable, Iterator
from typing import Any, Literal, TypeAlias

from retinue.core.errors import ToolFailed, quote

Code: TypeAlias = Literal["INVALID_INPUT", "LSP_ACTION_NOT_ALLOWED", "LSP_SERVER_NOT_FOUND", "LSP_SERVER_FAILED", ""]


class LspFailed(ToolFailed):
    """Raised if a request cannot be answered."""

    def __init__(self, text: str, code: Code = "LSP_SERVER_FAILED") -> None:
        super().__init__(text)
        self.code = code


class ServerTimeout(LspFailed):
    """Raised if a server is alive but does not answer in time."""


class NoServer(LspFailed):
    """Raised if there is no server for a file, which is not an error."""

    def __init__(self, text: str) -> None:
        super().__init__(text, "")


class ServerRefused(LspFailed):
    """Raised if a server answers with an error."""


MAX_HEADER = 4096
MAX_BODY = 32 * 1024 * 1024
_METHOD_NOT_FOUND = -32601
_INTERNAL = -32603


class Frames:
    """Splits a byte stream into messages."""

    def __init__(self) -> None:
        self._data = bytearray()
        self._wanted = -1
        """The size of the body being read; -1 while reading a header."""

    def feed(self, data: bytes) -> Iterator[dict[str, Any]]:
        """Yield the messages that are complete now. Raises ValueError if the stream is invalid."""
        self._data += data
        while (body := self._take()) is not None:
            message = json.loads(body)
            if not isinstance(message, dict):
                raise ValueError("a message that is not an object")
            yield message

    def _take(self) -> bytes | None:
        if self._wanted < 0:
            end = self._data.find(b"\r\n\r\n", 0, MAX_HEADER)
            if end < 0:
                if len(self._data) >= MAX_HEADER:
                    raise ValueError(f"no header but {quote(bytes(self._data[:40]).decode('latin-1'))}")
                return None
            self._wanted = _read_length(bytes(self._data[:end]))
            del self._data[: end + 4]
        if len(self._data) < self._wanted:
            return None
        body = bytes(self._data[: self._wanted])
        del self._data[: self._wanted]
        self._wanted = -1
        return body


def _read_length(header: bytes) -> int:
    for line in header.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"content-length":
            text = value.strip()
            if text.isdigit() and len(text) < 10 and int(text) <= MAX_BODY:
                return int(text)
            raise ValueError(f"a message of {quote(text.decode('latin-1'))} bytes")
    raise ValueError(f"a header without a length: {quote(header.decode('latin-1'))}")


class JsonRpcClient:
    """The client side of the connection to one server."""

    def __init__(
        self,
        send: Callable[[bytes], None],
        answer: Callable[[str, Any], Any],
        hear: Callable[[str, Any], None],
    ) -> None:
        """`answer` returns the result of a server's request or raises KeyError; `hear` receives its notifications."""
        self._send = send
        self._answer = answer
        self._hear = hear
        self._frames = Frames()
        self._last = 0
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self.over = ""
        """The reason for the end; empty while the connection is open."""

    async def ask(self, method: str, params: Any, timeout_s: float) -> Any:
        """Return the result of a request. Raises ServerTimeout, ServerRefused, or LspFailed if the server is gone.

        A request that times out or is cancelled is cancelled at the server too.
        """
        if self.over:
            raise LspFailed(self.over)
        self._last += 1
        number = self._last
        future = self._waiting[number] = asyncio.get_running_loop().create_future()
        self._write({"id": number, "method": method, "params": params})
        try:
            async with asyncio.timeout(timeout_s):
                return await future
        except TimeoutError:
            self.tell("$/cancelRequest", {"id": number})
            raise ServerTimeout(f"{method} was not answered within {timeout_s:g} s") from None
        except asyncio.CancelledError:
            self.tell("$/cancelRequest", {"id": number})
            raise
        finally:
            self._waiting.pop(number, None)

    def tell(self, method: str, params: Any) -> None:
        """Send a notification; it is lost if the server is gone."""
        if not self.over:
            self._write({"method": method, "params": params})

    def take(self, data: bytes) -> bool:
        """Process output of the server. Never raises; returns True if the stream is invalid."""
        if self.over:
            return True
        try:
            for message in self._frames.feed(data):
                self._dispatch(message)
        except (ValueError, RecursionError) as error:
            self.end(f"it does not speak the protocol: it sent {error}")
            return True
        return False

    def end(self, reason: str) -> None:
        """End the connection; pending requests fail with the reason."""
        self.over = self.over or reason
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(LspFailed(self.over))

    def _dispatch(self, message: dict[str, Any]) -> None:
        method = message.get("method")
        if not isinstance(method, str):
            self._settle(message)
        elif "id" not in message:
            self._hear(method, message.get("params"))
        else:
            self._reply(message["id"], method, message.get("params"))

    def _settle(self, message: dict[str, Any]) -> None:
        number, error = message.get("id"), message.get("error")
        future = self._waiting.get(number) if isinstance(number, int) else None
        if future is None or future.done():
            return  # the request was cancelled or timed out
        if error is None:
            future.set_result(message.get("result"))
        else:
            text = error.get("message") if isinstance(error, dict) else error
            future.set_exception(ServerRefused(f"the server says {quote(text, 300)}"))

    def _reply(self, number: Any, method: str, params: Any) -> None:
        try:
            self._write({"id": number, "result": self._answer(method, params)})
        except KeyError:
            self._write({"id": number, "error": {"code": _METHOD_NOT_FOUND, "message": f"no {method[:80]} here"}})
        except (TypeError, AttributeError, ValueError):
            self._write({"id": number, "error": {"code": _INTERNAL, "message": "unexpected parameters"}})

    def _write(self, message: dict[str, Any]) -> None:
        body = json.dumps({"jsonrpc": "2.0", **message}, separators=(",", ":")).encode("ascii")
        self._send(b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
