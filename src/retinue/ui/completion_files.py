"""The names of the project's files, ready to be searched with every key. Pure: somebody else lists them."""

import re
from collections.abc import Sequence

from retinue.core.terminal import escape_text
from retinue.ui.fuzzy import rank_matches

_FUZZY_CHARS = 2
"""Letters that must be there before names are searched for them with gaps between."""
_MOST_RANKED = 2000
"""Names with gaps that are compared with each other; more letters leave fewer."""


class FileIndex:
    """Finds names by a part of them; those that a terminal could not show are left out."""

    def __init__(self, names: Sequence[str] = ()) -> None:
        self._names = [name for name in names if _is_plain(name)]
        self._lows = [name.lower() for name in self._names]
        self._bases = [low.rstrip("/").rpartition("/")[2] for low in self._lows]
        self._narrowed: tuple[str, list[int]] = ("", [])

    def __len__(self) -> int:
        return len(self._names)

    def find(self, needle: str, most: int) -> list[str]:
        """The names that fit best; the nearest ones without a needle."""
        low = needle.lower().removeprefix("./")
        if not low:
            return self._names[:most]
        places = self._narrow(low)
        found = self._rank(low, places, most) if places else self._guess(low, most)
        return [self._names[at] for at in found]

    def _narrow(self, low: str) -> list[int]:
        """Those that hold it; what has been typed before has narrowed them already."""
        before, kept = self._narrowed
        places = kept if before and before in low else range(len(self._lows))
        lows = self._lows
        found = [at for at in places if low in lows[at]]
        self._narrowed = (low, found)
        return found

    def _rank(self, low: str, places: Sequence[int], most: int) -> list[int]:
        """Whole paths that begin with it, then names that do, then names that hold it, then all others."""
        ranks: tuple[list[int], ...] = ([], [], [], [])
        lows, bases = self._lows, self._bases
        for at in places:
            base = bases[at]
            if low in base:
                ranks[0 if lows[at].startswith(low) else 1 if base.startswith(low) else 2].append(at)
            else:
                ranks[0 if lows[at].startswith(low) else 3].append(at)
        return [at for rank in ranks for at in rank[:most]][:most]

    def _guess(self, low: str, most: int) -> list[int]:
        """Those that hold the letters in this order, with gaps between."""
        if len(low) < _FUZZY_CHARS:
            return []
        # Each gap ends at the next letter, so that no name can make this slow.
        letters = [re.escape(sign) for sign in low]
        gaps = re.compile(letters[0] + "".join(f"[^{letter}]*{letter}" for letter in letters[1:]))
        places = [at for at, name in enumerate(self._lows) if gaps.search(name)][:_MOST_RANKED]
        return [places[at] for at in rank_matches(low, [self._lows[at] for at in places])[:most]]


def _is_plain(name: str) -> bool:
    return '"' not in name and "\n" not in name and escape_text(name) == name
