"""Calls that failed for a reason the caller can mend, kept for a while: the long prompt need not be written again."""

import secrets
from collections.abc import Callable, Mapping
from typing import Any

from retinue.core.clock import Clock

KEEP_S = 600.0
MAX_KEPT = 200


def make_handle() -> str:
    """`retry-` and eight hexadecimal digits."""
    return f"retry-{secrets.token_hex(4)}"


class RetryBook:
    """The failed calls of one main session."""

    def __init__(self, clock: Clock, new_handle: Callable[[], str] = make_handle) -> None:
        self._clock = clock
        self._new_handle = new_handle
        self._saved: dict[str, tuple[float, dict[str, Any]]] = {}

    def save(self, arguments: Mapping[str, Any], handle: str | None = None) -> str:
        """Keep the arguments of a call, under the handle it was retried with if there was one."""
        self._sweep()
        handle = handle or self._new_handle()
        self._saved.pop(handle, None)
        self._saved[handle] = self._clock.steady_s(), dict(arguments)
        while len(self._saved) > MAX_KEPT:
            del self._saved[next(iter(self._saved))]
        return handle

    def find(self, handle: str) -> dict[str, Any] | None:
        """The arguments kept under a handle; None when there are none, or they are too old."""
        self._sweep()
        kept = self._saved.get(handle)
        return None if kept is None else dict(kept[1])

    def clear(self) -> None:
        """Forget everything: another session begins."""
        self._saved.clear()

    def _sweep(self) -> None:
        oldest_s = self._clock.steady_s() - KEEP_S
        for handle in [handle for handle, (saved_s, _) in self._saved.items() if saved_s <= oldest_s]:
            del self._saved[handle]
