"""Calls code that is not ours: its errors become one kind of error, it has a time limit, its prints go to stderr.

Must not know what the code is for. What cannot be stopped is left behind: a thread in an endless loop goes on, but in
nobody's way.
"""

import asyncio
import contextvars
import importlib
import inspect
import os
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Any, Generic, TextIO, TypeVar, cast

from retinue.core.errors import RetinueError
from retinue.core.terminal import escape_line
from retinue.engine.scope import run_together

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


T = TypeVar("T")
MAX_TEXT_CHARS = 500
_NOT_FOREIGN = ("<", os.path.dirname(__file__), os.path.dirname(importlib.__file__))


class ForeignFailed(RetinueError):
    """Raised when foreign code failed; `cause` is what it raised, None when it took too long."""

    def __init__(self, text: str, cause: BaseException | None = None) -> None:
        super().__init__(text)
        self.cause = cause


class _Result(Generic[T]):
    """What came of a call: a value, or what was raised."""

    def __init__(self, value: T | None = None, error: BaseException | None = None) -> None:
        self.value = value
        self.error = error

    def unwrap(self) -> T:
        if self.error is not None:
            raise ForeignFailed(describe_error(self.error), self.error) from self.error
        return self.value  # type: ignore[return-value]


def call_foreign(function: Callable[[], T]) -> T:
    """Call here and now; the function must not block. Raises ForeignFailed."""
    return _call(function).unwrap()


async def call_in_thread(function: Callable[[], T], limit_s: float | None = None) -> T:
    """Call in a thread of its own, which is left behind at the limit or on cancel. Raises ForeignFailed."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[_Result[T]] = loop.create_future()

    def settle(result: _Result[T]) -> None:
        if not done.done():
            done.set_result(result)
        elif inspect.iscoroutine(result.value):
            result.value.close()

    def work() -> None:
        result = _call(function)
        with suppress(RuntimeError):  # the loop was closed in the meantime
            loop.call_soon_threadsafe(settle, result)

    # A daemon and no pool: the program must be able to end while the code is stuck.
    context = contextvars.copy_context()
    threading.Thread(target=context.run, args=(work,), name="retinue-extension", daemon=True).start()
    try:
        async with asyncio.timeout(limit_s):
            result = await done
    except TimeoutError as error:
        raise _tell_late(limit_s) from error
    return result.unwrap()


async def await_foreign(start: Callable[[], Awaitable[T]]) -> T:
    """Start foreign work and wait as long as it takes. Raises ForeignFailed, and a cancel that is really one."""
    return (await _await(start)).unwrap()


async def await_limited(start: Callable[[], Awaitable[T]], limit_s: float) -> T:
    """Wait for a limited time, also for work that does not let itself be cancelled. Raises ForeignFailed."""
    try:
        async with asyncio.timeout(limit_s):
            [result] = await run_together([_await(start)])
    except TimeoutError as error:
        raise _tell_late(limit_s) from error
    return result.unwrap()


def describe_error(error: BaseException) -> str:
    """The kind and the text of an exception in one bounded line, also of one that cannot say what it is."""
    if isinstance(error, RetinueError):
        return escape_line(str(error), MAX_TEXT_CHARS)
    kind = type(error).__name__
    told = _call(lambda: error.msg if isinstance(error, SyntaxError) else str(error))
    text = escape_line(told.value, MAX_TEXT_CHARS) if isinstance(told.value, str) else "(it has no text)"
    return f"{kind}: {text}" if text else kind


def find_place(error: BaseException | None, path: str = "") -> tuple[str, int | None]:
    """The file and line an exception comes from: the last step inside `path`; without one the last foreign step."""
    if isinstance(error, SyntaxError) and error.filename and path in ("", error.filename):
        return error.filename, error.lineno
    found: tuple[str, int | None] = (path, None)
    step = None if error is None else error.__traceback__
    while step is not None:
        file = step.tb_frame.f_code.co_filename
        if file == path or (not path and not file.startswith(_NOT_FOREIGN)):
            found = (file, step.tb_lineno)
        step = step.tb_next
    return found


def _tell_late(limit_s: float | None) -> ForeignFailed:
    return ForeignFailed(f"did not finish within {limit_s:g} s")


def _call(function: Callable[[], T]) -> _Result[T]:
    try:
        with divert_output():
            return _Result(function())
    except KeyboardInterrupt as error:
        if threading.current_thread() is threading.main_thread():
            raise  # the user's, not the code's
        return _Result(error=error)
    except BaseException as error:
        # Also an exit: an extension's is not the program's.
        return _Result(error=error)


async def _await(start: Callable[[], Awaitable[T]]) -> _Result[T]:
    try:
        with divert_output():
            return _Result(await start())
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        return _Result(error=error)
    except (GeneratorExit, KeyboardInterrupt):
        raise
    except ForeignFailed as error:
        return _Result(error=error.cause or error)  # it was contained further in
    except BaseException as error:
        return _Result(error=error)
