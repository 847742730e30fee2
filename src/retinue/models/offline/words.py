"""Words: pieces of identifiers, light stemming, stop words and small groups of synonyms.

Pure text; this file must not know questions, files or tools.
"""

import re
from functools import lru_cache

_PIECE = re.compile(r"[A-Z]+(?![a-z])|[A-Z][a-z]+|[a-z]+|\d+")
_ENDINGS = ("ations", "ation", "ings", "ing", "ions", "ies", "ied", "ers", "ion", "ed", "es", "er", "or", "s")
_TAILS = frozenset(
    ("", "s", "es", "e", "ed", "ing", "er", "ers", "or", "ors", "ion", "ions", "ation", "able", "y", "ies", "al", "r", "d")
)

STOP = frozenset(
    """
    a about after all also am an and any anything are as at available be because been before being between but by came can
    cant change code codebase come comes could current currently define defined defines definition describe did different do
    does doing done dont during each every exact exactly example explain exist exists far file files find fix follow following for
    found from function functions get gets give given go goes going got had handle handled handles handling happen happens
    has have having help here how i if implement implementation implemented implements in inside into is it its itself just
    kind know let lets like line list located location logic look looking made make makes many may me mean means mechanism
    method methods might module modules more most much must my need needs never new no not now of off ok on once one only
    onto or other our out over own part parts perform performed place places please possible project purpose put question
    really repo repository responsible return returned returns same say see set sets shall should show side so some
    somebody someone something still such sure take takes tell than thank thanks that the their them then there these they
    thing things this those through time to together too try up us use used uses using very want was way ways we well were
    what when where whether which while who whole whose why will with within without work working works would wrong write
    yes you your class classes called calls calling caller callers call here's that's what's where's it's isn't doesn't
    determine determined decide decided decides mostly internally actually behind main mainly structure describes
    """.split()  # noqa: SIM905
)

SYNONYMS = (
    ("write", "written", "save", "persist", "append", "store", "flush", "dump"),
    ("config", "settings", "options", "preferences", "configuration"),
    ("start", "launch", "entry", "main", "boot", "startup"),
    ("test", "spec"),
    ("error", "exception", "failure", "fail"),
    ("parse", "decode", "load", "deserialize"),
    ("delete", "remove", "drop", "unlink"),
    ("create", "build", "construct", "make"),
    ("abort", "cancel", "interrupt", "kill"),
    ("limit", "max", "cap"),
    ("print", "render", "display", "format"),
    ("auth", "login", "credential", "token", "authentication"),
    ("retry", "backoff", "reattempt"),
    ("fetch", "download", "request"),
    ("check", "validate", "verify", "assert"),
    ("encode", "serialize", "dump"),
    ("directory", "folder", "dir"),
    ("environment", "env", "environ"),
    ("database", "db", "sql"),
    ("message", "msg"),
    ("argument", "args", "param", "parameter", "flag"),
    ("timeout", "deadline"),
    ("log", "logging", "logger"),
    ("expiration", "expire", "expiry"),
    ("compress", "deflate", "gzip", "decompress"),
    ("resolve", "lookup"),
    ("truncate", "shorten", "cut"),
    ("shrink", "minimize", "reduce"),
)


def split_pieces(name: str) -> list[str]:
    """The lower-case words inside an identifier or a path."""
    return [piece.lower() for piece in _PIECE.findall(name)]


@lru_cache(maxsize=4096)
def stem(word: str) -> str:
    """The part of a word that its other forms share, at least four letters where there are as many."""
    word = word.lower()
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= 4:
            return word[: -len(ending)]
    if word.endswith("s") and not word.endswith("ss") and len(word) > 3:
        return word[:-1]
    if len(word) > 4 and word.endswith(("e", "y")):
        return word[:-1]
    return word


@lru_cache(maxsize=65536)
def has_stem(piece: str, root: str) -> bool:
    """Whether a piece is a form of the stem: `parser` of `pars`, but not `login` of `log`."""
    if not piece.startswith(root):
        return False
    rest = piece[len(root) :]
    if rest in _TAILS or (rest and rest[0] == root[-1] and rest[1:] in _TAILS):
        return True
    return len(root) >= 5 or (len(root) == 4 and len(rest) <= 4)


def find_synonyms(word: str) -> tuple[str, ...]:
    """Stems of the words that often stand for this one in code."""
    root = stem(word)
    found: list[str] = []
    for group in SYNONYMS:
        roots = [stem(other) for other in group]
        if root in roots:
            found.extend(other for other in roots if other != root and other not in found)
    return tuple(found)
