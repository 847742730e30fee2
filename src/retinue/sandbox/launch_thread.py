"""One thread from which commands are started, so that they share what it has bound itself to.

Where the kernel can, it is cut off from abstract sockets that others have made: a command with the network would else
reach the user's desktop by them. Where root has a control group, it is in that. Nothing of this costs a command more.
"""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from retinue.sandbox import landlock
from retinue.sandbox.cgroup import Corral

Started = TypeVar("Started")


class ThreadPen:
    """The thread, made when something is first started. It stays: processes die with the one they come from."""

    def __init__(self, corral: Corral, *, scoped: bool) -> None:
        self._corral = corral
        self._scoped = scoped
        self._thread: ThreadPoolExecutor | None = None
        self._failure: OSError | None = None

    def run(self, start: Callable[[], Started]) -> Started:
        """Start something there. Raises OSError when the thread could not be bound: nothing is started then."""
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, "retinue-pen", initializer=self._enter)
        return self._thread.submit(self._start, start).result()

    def close(self) -> None:
        """End the thread."""
        if self._thread is not None:
            self._thread.shutdown()
            self._thread = None

    def _enter(self) -> None:
        try:
            self._corral.enter(threading.get_native_id())
            if self._scoped:
                landlock.leave_sockets()
        except OSError as error:
            self._failure = error

    def _start(self, start: Callable[[], Started]) -> Started:
        if self._failure is not None:
            raise self._failure
        return start()
