"""Keeps standard output clean while foreign code runs: what it prints goes to standard error.

Only what is printed from inside is diverted; other work of the process still reaches standard output. Bytes that a
process started by an extension writes to descriptor 1 are out of reach here: a face that must be sure owns it.
"""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Any, TextIO, cast

_is_diverted: ContextVar[bool] = ContextVar("retinue_is_diverted", default=False)


class _Divider:
    """Stands in for `sys.stdout` and asks who is printing."""

    lock = threading.Lock()

    def __init__(self, real: TextIO | None) -> None:
        self.real = real
        self.users = 0

    def write(self, text: str) -> int:
        target = self._find_target()
        return len(text) if target is None else target.write(text)

    def flush(self) -> None:
        target = self._find_target()
        if target is not None:
            target.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._find_target(), name)

    def _find_target(self) -> TextIO | None:
        return sys.stderr if _is_diverted.get() else self.real


@contextmanager
def divert_output() -> Iterator[None]:
    """Inside, and in every task begun inside, prints go to standard error. May overlap with others of its kind."""
    with _Divider.lock:
        # Typing has no room for a stand-in, and a program without a terminal may have no output at all.
        current: Any = sys.stdout
        divider = current if isinstance(current, _Divider) else _Divider(current)
        divider.users += 1
        sys.stdout = cast(TextIO, divider)
    token = _is_diverted.set(True)
    try:
        yield
    finally:
        with suppress(ValueError):  # closed from elsewhere, as the last of a task that nobody waits for
            _is_diverted.reset(token)
        with _Divider.lock:
            divider.users -= 1
            if not divider.users and sys.stdout is cast(TextIO, divider):
                sys.stdout = cast(TextIO, divider.real)
