"""What went wrong with a server, in words for a person and for a model."""

import asyncio

from retinue.core.errors import RetinueError

MAX_CHARS = 600


class McpFailed(RetinueError):
    """Raised when a server cannot do what it is asked; the message says why, without naming the server."""


class Trouble:
    """Why a connection has ended, if it has; the first reason given stays."""

    def __init__(self) -> None:
        self.reason = ""
        self.ended = asyncio.Event()

    def note(self, reason: str) -> None:
        """The connection has ended, or must."""
        if not self.ended.is_set():
            self.reason = reason[:MAX_CHARS]
            self.ended.set()
