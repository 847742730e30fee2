"""Call untrusted extension code: errors become ForeignFailed, time is limited, prints go to stderr.

Must not know what the code is for. Code that cannot be stopped is abandoned: a thread in an endless loop continues
without blocking anything.
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


class _PrintRedirect:
    """Replaces `sys.stdout` and sends prints of extensions to stderr."""

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
    """Send prints of this block, and of tasks started in it, to stderr. Blocks may overlap."""
    with _PrintRedirect.lock:
        # `sys.stdout` may be None, and typing does not allow a replacement.
        current: Any = sys.stdout
        divider = current if isinstance(current, _PrintRedirect) else _PrintRedirect(current)
        divider.users += 1
        sys.stdout = cast(TextIO, divider)
    token = _is_diverted.set(True)
    try:
        yield
    finally:
        with suppress(ValueError):  # closed in another context, e.g. as part of an abandoned task
            _is_diverted.reset(token)
        with _PrintRedirect.lock:
            divider.users -= 1
            if not divider.users and sys.stdout is cast(TextIO, divider):
                sys.stdout = cast(TextIO, divider.real)


T = TypeVar("T")
MAX_TEXT_CHARS = 500
_NOT_FOREIGN = ("<", os.path.dirname(__file__), os.path.dirname(importlib.__file__))


class ForeignFailed(RetinueError):
    """Raised when extension code failed; `cause` is what it raised, None if it took too long."""

    def __init__(self, text: str, cause: BaseException | None = None) -> None:
        super().__init__(text)
        self.cause = cause


class _Result(Generic[T]):
    def __init__(self, value: T | None = None, error: BaseException | None = None) -> None:
        self.value = value
        self.error = error

    def unwrap(self) -> T:
        if self.error is not None:
            raise ForeignFailed(describe_error(self.error), self.error) from self.error
        return self.value  # type: ignore[return-value]


def call_foreign(function: Callable[[], T]) -> T:
    """Call in this thread; the function must not block. Raises ForeignFailed."""
    return _call(function).unwrap()


async def call_in_thread(function: Callable[[], T], limit_s: float | None = None) -> T:
    """Call in a new thread, which is abandoned at the limit or on cancel. Raises ForeignFailed."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[_Result[T]] = loop.create_future()

    def settle(result: _Result[T]) -> None:
        if not done.done():
            done.set_result(result)
        elif inspect.iscoroutine(result.value):
            result.value.close()

    def work() -> None:
        result = _call(function)
        with suppress(RuntimeError):  # the loop was closed meanwhile
            loop.call_soon_threadsafe(settle, result)

    # A daemon thread and no pool: the program must be able to exit while the code hangs.
    context = contextvars.copy_context()
    threading.Thread(target=context.run, args=(work,), name="retinue-extension", daemon=True).start()
    try:
        async with asyncio.timeout(limit_s):
            result = await done
    except TimeoutError as error:
        raise _tell_late(limit_s) from error
    return result.unwrap()


async def await_foreign(start: Callable[[], Awaitable[T]]) -> T:
    """Await extension code without a limit. Raises ForeignFailed, or CancelledError if our task was cancelled."""
    return (await _await(start)).unwrap()


async def await_limited(start: Callable[[], Awaitable[T]], limit_s: float) -> T:
    """Await extension code with a limit, even if it ignores cancellation. Raises ForeignFailed."""
    try:
        async with asyncio.timeout(limit_s):
            [result] = await run_together([_await(start)])
    except TimeoutError as error:
        raise _tell_late(limit_s) from error
    return result.unwrap()


def describe_error(error: BaseException) -> str:
    """Return type and text of an exception in one bounded line, even if its `__str__` fails."""
    if isinstance(error, RetinueError):
        return escape_line(str(error), MAX_TEXT_CHARS)
    kind = type(error).__name__
    told = _call(lambda: error.msg if isinstance(error, SyntaxError) else str(error))
    text = escape_line(told.value, MAX_TEXT_CHARS) if isinstance(told.value, str) else "(it has no text)"
    return f"{kind}: {text}" if text else kind


def find_place(error: BaseException | None, path: str = "") -> tuple[str, int | None]:
    """Return file and line of an exception: the last frame in `path`, or without `path` the last extension frame."""
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
            raise  # the user pressed Ctrl+C
        return _Result(error=error)
    except BaseException as error:
        # Includes SystemExit: an extension must not exit the program.
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
        return _Result(error=error.cause or error)  # already wrapped by an inner call
    except BaseException as error:
        return _Result(error=error)
