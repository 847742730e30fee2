"""The garbage collector, kept out of the way of bulk work. Must not know what the work is."""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager

CALM_OBJECTS = 20_000
"""So many new objects before the young ones are searched, instead of 700."""


def calm_collector() -> Callable[[], None]:
    """Search for garbage more rarely, in the whole process, as the collector works; returns what undoes it.

    Beginning a run makes some hundreds of objects that live as long as it does: while a hundred begin at once, each
    search finds next to nothing. Whoever has chosen a higher number, or none, keeps it.
    """
    first, *rest = gc.get_threshold()
    if not 0 < first < CALM_OBJECTS:
        return lambda: None
    gc.set_threshold(CALM_OBJECTS, *rest)

    def undo() -> None:
        # What somebody else has set since is theirs.
        if gc.get_threshold() == (CALM_OBJECTS, *rest):
            gc.set_threshold(first, *rest)

    return undo


@contextmanager
def paused_collector() -> Iterator[None]:
    """No search for garbage while a hundred thousand objects are made that all stay: it would double the time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
