"""What a run is doing, in some words: its tools as verbs, else how its answer begins. Pure; knows no widget."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from retinue.core.run import Run
from retinue.ui.formats import clean_line

OPENING_CHARS = 60
"""So much of an answer is shown."""
THINKING = "thinking"
_VERBS = {
    "read": ("reading", "reading {} files"),
    "bash": ("running command", "running {} commands"),
    "edit": ("editing", "editing {} files"),
    "write": ("writing", "writing {} files"),
    "grep": ("searching", "searching {} patterns"),
    "find": ("finding files", "finding files by {} patterns"),
    "ls": ("listing", "listing {} folders"),
}


@dataclass(frozen=True, slots=True)
class Glimpse:
    """What was overheard of a run in this moment."""

    tools: tuple[str, ...] = ()
    """Those that work now, by name; one may be there twice."""
    opening: str = ""
    """How the reply begins that the run is in the middle of."""


NOTHING = Glimpse()


def describe_activity(run: Run, glimpse: Glimpse = NOTHING) -> str:
    """What a run is doing, as a person would say it."""
    if glimpse.tools:
        return ", ".join(_describe_tools(glimpse.tools))
    if run.activity in ("", THINKING):
        return find_opening(glimpse.opening) or f"{THINKING}…"
    return ", ".join(_describe_tools([run.activity]))


def find_opening(text: str) -> str:
    """The first characters of an answer, in one line."""
    lines = (line.strip().lstrip("#>*- ") for line in text.splitlines())  # without the marks of a heading or a list
    return clean_line(next((line for line in lines if line), ""), OPENING_CHARS)


def _describe_tools(names: Iterable[str]) -> list[str]:
    words = []
    for name, count in Counter(names).items():
        one, many = _VERBS.get(name, (clean_line(name, 60), ""))
        words.append(one if count == 1 else many.format(count) if many else f"{one} × {count}")
    return words
