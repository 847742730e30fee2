"""Tune the garbage collector for bulk work."""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager

CALM_OBJECTS = 100_000
"""Number of new objects that triggers a collection; replaces Python's lower default."""


def calm_collector() -> Callable[[], None]:
    """Collect garbage less often in the whole process; returns a function that undoes it.

    Starting a run creates some hundreds of objects that live as long as the run: while a hundred runs start at once, a
    collection finds almost nothing. A higher threshold, or a disabled collector, is left as it is.
    """
    first, *rest = gc.get_threshold()
    if not 0 < first < CALM_OBJECTS:
        return lambda: None
    gc.set_threshold(CALM_OBJECTS, *rest)

    def undo() -> None:
        # Do not overwrite a threshold that was set in the meantime.
        if gc.get_threshold() == (CALM_OBJECTS, *rest):
            gc.set_threshold(first, *rest)

    return undo


@contextmanager
def paused_collector() -> Iterator[None]:
    """Disable garbage collection while creating about 100,000 objects that all stay: it would double the time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
