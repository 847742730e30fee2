"""What an agent may be called, checked before a name is used for anything, a path above all. Pure."""

import re
import unicodedata
from functools import lru_cache

MAX_CHARS = 128
_DEVICES = (f"{port}{number}" for port in ("com", "lpt") for number in range(1, 10))
RESERVED = frozenset(("main", "all", "none", ".", "..", "con", "prn", "aux", "nul", *_DEVICES))
"""Words with a meaning of their own, here or as file names on some system."""
EXPECTED = "letters, digits, '.', '_' and '-', beginning with a letter or digit"
_SAFE = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9_-])?\Z")
# Letters of other scripts that look like Latin ones, and digits that look like letters.
_LOOKS = str.maketrans("аеорсухіјѕһԁԛԝвкмнтгοανρτυικηχγϲ01", "aeopcyxijshdqwbkmhtroavptuiknxycol")


def normalize_name(name: str) -> str:
    """The one form of a name that can be written in several ways."""
    return name if name.isascii() else unicodedata.normalize("NFC", name)


def find_fault(name: str) -> str:
    """Why this cannot be an agent's name, and what can; empty when it can."""
    if not name:
        return f"is empty; expected {EXPECTED}"
    if len(name) > MAX_CHARS:
        return f"is {len(name)} characters long; expected at most {MAX_CHARS}"
    if name.lower().split(".")[0] in RESERVED or name in RESERVED:
        return "is a reserved word; choose another"
    if _SAFE.match(name):
        return ""
    if name != normalize_name(name):
        return "is not in the composed form of Unicode (NFC)"
    first, last = name[0], name[-1]
    inside_ok = all(char in "._-" or char.isalnum() or unicodedata.category(char) in ("Mn", "Mc") for char in name)
    if inside_ok and first.isalnum() and last != ".":
        return ""
    return f"is no name; expected {EXPECTED}"


@lru_cache(maxsize=4096)  # each run that is asked for is looked up among all agents, several times
def fold_name(name: str) -> str:
    """What two names have in common that mean the same agent: everything but case."""
    return normalize_name(name).casefold()


def find_skeleton(name: str) -> str:
    """What two names have in common that look the same to a person."""
    return unicodedata.normalize("NFKC", name).casefold().translate(_LOOKS).replace("l", "i")


def suggest_name(text: str) -> str:
    """A name close to this text, or nothing."""
    slug = re.sub(r"[^a-z0-9._]+", "-", text.lower()).strip("-._")[:MAX_CHARS]
    return slug if slug and not find_fault(slug) else ""
