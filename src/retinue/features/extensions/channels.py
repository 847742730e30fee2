"""The event bus that extensions share: any extension may emit and listen on any channel.

Events are plain data and may come from any thread; listeners run on the event loop. Must not know what the channels
mean.
"""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any
from uuid import uuid4

import msgspec

from retinue.core.errors import RetinueError, UsageError, quote
from retinue.features.extensions.contained import Function, Handler, get_log, make_handler
from retinue.features.extensions.handlers import RunningHandlers

MAX_NESTED = 50
"""Maximum nesting of listeners that emit to other listeners."""
MAX_CHANNEL_CHARS = 200
REQUEST_S = 30.0


class Channels:
    """The channels of one program. Must be created on its event loop."""

    def __init__(self, audience: RunningHandlers) -> None:
        self._audience = audience
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._listeners: dict[str, tuple[Handler, ...]] = {}
        self._nested = 0

    def has_listeners(self, prefix: str) -> bool:
        """Return whether any channel with this prefix has listeners; otherwise events need not be built."""
        return any(channel.startswith(prefix) for channel in list(self._listeners))

    def listen(self, channel: str, handler: Handler) -> Callable[[], None]:
        """Add a listener; returns a function that removes it. Thread-safe."""
        with self._lock:
            self._listeners[channel] = (*self._listeners.get(channel, ()), handler)

        def stop() -> None:
            with self._lock:
                left = tuple(each for each in self._listeners.get(channel, ()) if each is not handler)
                self._listeners[channel] = left
                if not left:
                    del self._listeners[channel]
            self._on_loop(partial(self._audience.dismiss, handler))

        return stop

    def emit(self, channel: str, data: Any = None) -> None:
        """Send data to all listeners, which share one copy. Thread-safe. Raises UsageError if it is not plain data."""
        try:
            payload = msgspec.to_builtins(data)
        except (TypeError, ValueError, RecursionError) as error:
            raise UsageError(f"{quote(channel)}: the event must be plain data: {error}") from error
        self._on_loop(partial(self._deliver, channel, payload))

    def _on_loop(self, call: Callable[[], None]) -> None:
        try:
            is_here = asyncio.get_running_loop() is self._loop
        except RuntimeError:
            is_here = False
        if is_here:
            call()
            return
        with suppress(RuntimeError):  # the loop was closed meanwhile
            self._loop.call_soon_threadsafe(call)

    def _deliver(self, channel: str, payload: Any) -> None:
        listeners = self._listeners.get(channel, ())
        if self._nested >= MAX_NESTED and listeners:
            get_log(listeners[0].extension).error("%s: listeners call each other endlessly; event dropped", channel)
            return
        self._nested += 1
        try:
            for handler in listeners:
                self._audience.tell(handler, payload)
        finally:
            self._nested -= 1


class ExtensionEvents:
    """The `api.events` of one extension, usable during `register` and afterwards."""

    def __init__(self, extension: str, path: str, channels: Channels | None = None) -> None:
        self._extension = extension
        self._path = path
        self._channels = channels
        self._stops: list[Callable[[], None]] = []

    def on(self, channel: str, handler: Function) -> Callable[[], None]:
        """Call the handler with each event of a channel; returns a function that stops it."""
        if not callable(handler):
            raise UsageError(f"api.events.on: expected a function, not {quote(type(handler).__name__)}")
        own = make_handler(self._extension, self._path, frozenset(), handler)
        stop = self._need("on", channel).listen(channel, own)
        self._stops.append(stop)

        def end() -> None:
            if stop in self._stops:
                self._stops.remove(stop)
                stop()

        return end

    def emit(self, channel: str, data: Any = None) -> None:
        """Send JSON-compatible data to a channel."""
        self._need("emit", channel).emit(channel, data)

    async def request(self, channel: str, data: dict[str, Any] | None = None, *, timeout_s: float = REQUEST_S) -> Any:
        """Send a request and return the reply's data. Raises RetinueError for an error reply, TimeoutError for none."""
        channels, request_id = self._need("request", channel), uuid4().hex
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        def settle(reply: Any) -> None:
            if not answer.done():
                answer.set_result(reply)

        own = make_handler(self._extension, self._path, frozenset(), settle)
        stop = channels.listen(f"{channel}:reply:{request_id}", own)
        try:
            channels.emit(channel, {**(data or {}), "requestId": request_id})
            async with asyncio.timeout(timeout_s):
                reply = await answer
        finally:
            stop()
        if isinstance(reply, dict) and reply.get("success") is True:
            return reply.get("data")
        error = reply.get("error") if isinstance(reply, dict) else None
        raise RetinueError(str(error or f"{channel}: the reply is not valid"))

    def close(self) -> None:
        """Remove all listeners of this extension."""
        while self._stops:
            self._stops.pop()()

    def _need(self, verb: str, channel: str) -> Channels:
        if not isinstance(channel, str) or not 0 < len(channel) <= MAX_CHANNEL_CHARS:
            raise UsageError(f"api.events.{verb}: {quote(channel)}: expected the name of a channel")
        if self._channels is None:
            raise UsageError(f"api.events.{verb}: there is no event bus here")
        return self._channels
