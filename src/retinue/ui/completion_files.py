"""The names of the project's files, ready to be searched with every key. Pure: somebody else lists them."""

from collections.abc import Sequence

from retinue.core.terminal import escape_text
from retinue.ui.matching import rank_matches

_FUZZY_CHARS = 2
"""Letters that must be there before names are searched for them with gaps between."""


class FileIndex:
    """Finds names by a part of them; those that a terminal could not show are left out."""

    def __init__(self, names: Sequence[str] = ()) -> None:
        self._names = [name for name in names if _is_plain(name)]
        self._lows = [name.lower() for name in self._names]
        self._narrowed: tuple[str, list[int]] = ("", [])

    def __len__(self) -> int:
        return len(self._names)

    def find(self, needle: str, most: int) -> list[str]:
        """The names that fit best; the nearest ones without a needle."""
        low = needle.lower().removeprefix("./")
        if not low:
            return self._names[:most]
        places = self._narrow(low)
        if not places and len(low) >= _FUZZY_CHARS:
            return [self._names[at] for at in rank_matches(low, self._lows)[:most]]
        ranked = sorted(places, key=lambda at: _rank(low, self._lows[at], at))
        return [self._names[at] for at in ranked[:most]]

    def _narrow(self, low: str) -> list[int]:
        """Those that hold it; what has been typed before has narrowed them already."""
        before, kept = self._narrowed
        places = kept if before and before in low else range(len(self._lows))
        found = [at for at in places if low in self._lows[at]]
        self._narrowed = (low, found)
        return found


def _rank(low: str, name: str, at: int) -> tuple[int, int]:
    base = name.rstrip("/").rpartition("/")[2]
    if name.startswith(low):
        return 0, at
    if base.startswith(low):
        return 1, at
    return (2 if low in base else 3), at


def _is_plain(name: str) -> bool:
    return '"' not in name and "\n" not in name and escape_text(name) == name
