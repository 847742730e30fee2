"""A JSON-RPC client in the framing of language servers: plain dicts, whatever a server says or leaves out.

Knows neither processes nor what the messages mean.
"""

import asyncio
import json
from collections.abc import Callable, Iterator
from typing import Any, Literal, TypeAlias

from retinue.core.errors import ToolFailed, quote

Code: TypeAlias = Literal["INVALID_INPUT", "LSP_ACTION_NOT_ALLOWED", "LSP_SERVER_NOT_FOUND", "LSP_SERVER_FAILED", ""]


class LspFailed(ToolFailed):
    """Raised when a request cannot be answered."""

    def __init__(self, text: str, code: Code = "LSP_SERVER_FAILED") -> None:
        super().__init__(text)
        self.code = code


class Unanswered(LspFailed):
    """Raised when a server lives and does not answer in time."""


class NoServer(LspFailed):
    """Raised where no server can be asked about a file: nothing has gone wrong, there is just nobody to ask."""

    def __init__(self, text: str) -> None:
        super().__init__(text, "")


class Declined(LspFailed):
    """Raised when a server answers with an error of its own."""


MAX_HEADER = 4096
MAX_BODY = 32 * 1024 * 1024
_METHOD_NOT_FOUND = -32601
_INTERNAL = -32603


class Frames:
    """Cuts a stream of bytes into messages, however they arrive."""

    def __init__(self) -> None:
        self._data = bytearray()
        self._wanted = -1
        """Bytes of the body that is being read; -1 in a header."""

    def feed(self, data: bytes) -> Iterator[dict[str, Any]]:
        """The messages that are complete now. Raises ValueError for what is no such stream."""
        self._data += data
        while (body := self._take()) is not None:
            message = json.loads(body)
            if not isinstance(message, dict):
                raise ValueError("a message that is no object")
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
    """Our side of the talk with one server."""

    def __init__(
        self,
        send: Callable[[bytes], None],
        answer: Callable[[str, Any], Any],
        hear: Callable[[str, Any], None],
    ) -> None:
        """`answer` gives the result of a server's request or raises KeyError; `hear` gets its notifications."""
        self._send = send
        self._answer = answer
        self._hear = hear
        self._frames = Frames()
        self._last = 0
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._over = ""

    async def ask(self, method: str, params: Any, timeout_s: float) -> Any:
        """A request's result. Raises Unanswered, Declined, or LspFailed when the server is gone.

        One that nobody waits for any longer is taken back.
        """
        if self._over:
            raise LspFailed(self._over)
        self._last += 1
        number = self._last
        future = self._waiting[number] = asyncio.get_running_loop().create_future()
        self._write({"id": number, "method": method, "params": params})
        try:
            async with asyncio.timeout(timeout_s):
                return await future
        except TimeoutError:
            self._take_back(number)
            raise Unanswered(f"{method} was not answered within {timeout_s:g} s") from None
        except asyncio.CancelledError:
            self._take_back(number)
            raise
        finally:
            self._waiting.pop(number, None)

    def tell(self, method: str, params: Any) -> None:
        """Send a notification; to a server that is gone it is lost."""
        if not self._over:
            self._write({"method": method, "params": params})

    def take(self, data: bytes) -> bool:
        """Take what the server has written. Never raises; True when it makes no sense any more."""
        if self._over:
            return True
        try:
            for message in self._frames.feed(data):
                self._dispatch(message)
        except (ValueError, RecursionError) as error:
            self.end(f"it does not speak the protocol: it sent {error}")
            return True
        return False

    def end(self, reason: str) -> None:
        """Nothing more will come: whoever waits learns why."""
        self._over = self._over or reason
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(LspFailed(self._over))

    @property
    def over(self) -> str:
        """Why nothing more will come; empty while something may."""
        return self._over

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
            return  # nobody waits for it any longer
        if error is None:
            future.set_result(message.get("result"))
        else:
            text = error.get("message") if isinstance(error, dict) else error
            future.set_exception(Declined(f"the server says {quote(text, 300)}"))

    def _reply(self, number: Any, method: str, params: Any) -> None:
        try:
            self._write({"id": number, "result": self._answer(method, params)})
        except KeyError:
            self._write({"id": number, "error": {"code": _METHOD_NOT_FOUND, "message": f"no {method[:80]} here"}})
        except (TypeError, AttributeError, ValueError):
            self._write({"id": number, "error": {"code": _INTERNAL, "message": "unexpected parameters"}})

    def _take_back(self, number: int) -> None:
        self.tell("$/cancelRequest", {"id": number})

    def _write(self, message: dict[str, Any]) -> None:
        body = json.dumps({"jsonrpc": "2.0", **message}, separators=(",", ":")).encode("ascii")
        self._send(b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
