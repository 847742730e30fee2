"""What a server may send next, over whatever wire: answers to what was asked, and no flood of anything else.

Imports the library, so nothing imports this file before a server is used.
"""

from collections.abc import Callable
from typing import Any

import anyio
from mcp.types import JSONRPCError, JSONRPCNotification, JSONRPCRequest, JSONRPCResponse

MAX_NOTICES = 2_000
"""Notifications within one window; more is a flood."""
WINDOW_S = 10.0


class Guard:
    """Knows what may come next."""

    def __init__(self, on_asked: Callable[[str], None]) -> None:
        """`on_asked` hears what the server asks of us."""
        self._on_asked = on_asked
        self._sent: set[str | int] = set()
        self._window_s = 0.0
        self._notices = 0

    def note_sent(self, message: Any) -> None:
        """We have asked something."""
        if isinstance(message, JSONRPCRequest):
            self._sent.add(message.id)

    def find_fault(self, message: Any) -> str:
        """Why a message must be the last one; empty when it need not."""
        if isinstance(message, JSONRPCResponse | JSONRPCError):
            # A late answer to what was given up is fine; an answer to what nobody asked is not.
            is_strange = message.id is not None and message.id not in self._sent
            return "it answered a question that was never asked" if is_strange else ""
        if isinstance(message, JSONRPCRequest):
            self._on_asked(message.method)
        return self._count() if isinstance(message, JSONRPCRequest | JSONRPCNotification) else ""

    def _count(self) -> str:
        now_s = anyio.current_time()
        if now_s - self._window_s > WINDOW_S:
            self._window_s, self._notices = now_s, 0
        self._notices += 1
        return (
            f"it sent more than {MAX_NOTICES} notifications within {WINDOW_S:g} s"
            if self._notices > MAX_NOTICES
            else ""
        )
