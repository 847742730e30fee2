"""Matches paths against glob patterns, in linear time for any pattern. Pure.

`*` and `?` match within a name, `**` crosses directories, `{a,b}` are alternatives, `[a-z]` and `[!a-z]` are classes.
"""

import fnmatch
import re
from itertools import pairwise

from retinue.core.errors import ToolRetry, quote

_MAX_ALTERNATIVES = 256
_MAX_CHARS = 1000


class Glob:
    """A pattern for names, or with a slash for paths at any depth; without capital letters it ignores case."""

    def __init__(self, pattern: str) -> None:
        _check(pattern)
        self.pattern = pattern
        flags = 0 if any(letter.isupper() for letter in pattern) else re.IGNORECASE
        alternatives = _expand_braces(pattern)
        self.is_absolute = pattern.startswith("/")
        self._names: re.Pattern[str] | None = None
        self._paths: list[list[re.Pattern[str] | None]] = []
        if all("/" not in each for each in alternatives):
            self._names = re.compile("|".join(f"(?:{_translate(each)})" for each in alternatives), flags)
            return
        for each in alternatives:
            parts = [part for part in each.split("/") if part not in ("", ".")]
            compiled = [None if part == "**" else re.compile(_translate(part), flags) for part in parts]
            self._paths.append(compiled if self.is_absolute else [None, *compiled])

    def matches(self, path: str) -> bool:
        """Whether a path, relative to the search root, matches."""
        if self._names is not None:
            return self._names.match(path[path.rfind("/") + 1 :]) is not None
        name = path[path.rfind("/") + 1 :]
        # Compare the name first: most paths fail there, and it is much cheaper.
        likely = [each for each in self._paths if each[-1] is None or each[-1].match(name)]
        if not likely:
            return False
        parts = [part for part in path.split("/") if part]
        return any(_match_parts(parts, pattern) for pattern in likely)


def _match_parts(parts: list[str], pattern: list[re.Pattern[str] | None]) -> bool:
    # reached[i]: the first i parts of the path match the pattern so far.
    reached = [True] + [False] * len(parts)
    for piece in pattern:
        if True not in reached:
            return False
        if piece is None:
            first = reached.index(True)
            reached = [index >= first for index in range(len(reached))]
        else:
            reached = [False] + [reached[index] and piece.match(part) is not None for index, part in enumerate(parts)]
    return reached[-1]


def _translate(part: str) -> str:
    # fnmatch compiles `*` without backtracking, so no pattern is slow. It has no escapes of its own.
    part = re.sub(r"\*\*+", "*", part)
    part = re.sub(r"\\(.)", lambda found: f"[{found[1]}]", part)
    return fnmatch.translate(part.replace("[^", "[!"))


def _expand_braces(pattern: str) -> list[str]:
    done: list[str] = []
    waiting = [pattern]
    while waiting:
        current = waiting.pop()
        opening, closing, commas = _find_braces(current)
        if opening < 0:
            done.append(current)
            continue
        cuts = [opening, *commas, closing]
        choices = [current[start + 1 : end] for start, end in pairwise(cuts)]
        waiting += [current[:opening] + choice + current[closing + 1 :] for choice in choices]
        if len(waiting) + len(done) > _MAX_ALTERNATIVES:
            raise ToolRetry(f"The glob {quote(pattern)} has more than {_MAX_ALTERNATIVES} alternatives.")
    return done


def _find_braces(text: str) -> tuple[int, int, list[int]]:
    """Return the positions of the first pair of braces and of the commas directly inside it."""
    opening, depth = -1, 0
    commas: list[int] = []
    for index, letter in enumerate(text):
        if letter == "{":
            depth += 1
            opening = index if opening < 0 else opening
        elif letter == "}" and depth:
            depth -= 1
            if depth == 0:
                return opening, index, commas
        elif letter == "," and depth == 1:
            commas.append(index)
    return -1, -1, []


def _check(pattern: str) -> None:
    if "\0" in pattern or len(pattern) > _MAX_CHARS:
        raise ToolRetry(f"The glob {quote(pattern)} is not valid: at most {_MAX_CHARS} characters, none of them NUL.")
    bare = re.sub(r"\\.", "", pattern)
    opened = re.sub(r"\[[!^]?\]?[^\]]*\]", "", bare)
    if "[" in opened:
        raise ToolRetry(
            f"The glob {quote(pattern)} is not valid: a '[' at position {pattern.rfind('[') + 1} is not closed."
        )
    if opened.count("{") != opened.count("}"):
        which = "{" if opened.count("{") > opened.count("}") else "}"
        raise ToolRetry(
            f"The glob {quote(pattern)} is not valid: the braces do not match ('{which}' at position "
            f"{pattern.rfind(which) + 1})."
        )
