"""Word processing: pieces of identifiers, light stemming, stop words and synonyms.

Pure. This file must not know questions, files or tools.
"""

from functools import lru_cache

from retinue.core.pattern import late_pattern

_PIECE = late_pattern(r"[A-Z]+(?![a-z])|[A-Z][a-z]+|[a-z]+|\d+")


def split_words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


_ENDINGS = split_words("ations ation ators ator ated ating ates ate ings ing ions ies ied ves ers ion ed es er or s")
_TAILS = frozenset(("", *split_words("s es e ed ing ings er ers or ors ion ions ation able y ies al r d")))


STOP = frozenset(
    split_words(
        """
        a about actually after all also am amount an and any anything anywhere are as at available be because been
        before behind being best between bug bugs but by came can cant change class classes code codebase come comes
        could current currently decide decided decides define defined defines definition describe describes
        determine determined did different do does doesn't doing done dont during each every everything exact
        exactly example exist exists explain far file files find fix follow followed following for found from
        function functions get gets give go goes going good got had handle handled handles handling happen
        happening happens has have having help here here's how i if implement implementation implemented
        implementing implements in inside internally into involved is isn't issue it it's its itself just kind know
        let lets like line list located location logic look looking made mainly make makes many may me mean means
        mechanism method methods might module modules more most mostly much must my need needs never new no not now
        number occur occurring occurs of off ok on once one only onto or other our out over own part parts perform
        performed place places please possible problem project purpose put question really related relevant repo
        repository responsible return returned returns same say see shall should show side so some somebody someone
        something somewhere still structure stuff such sure take takes tell than thank thanks that that's the their
        them then there these they thing things this those through time to together too try under up upon us use
        used uses using very want was way ways we well were what what's when whenever where where's whether which
        while who whole whose why will with within without work working works would write wrong yes you your
        """
    )
)

LIGHT = frozenset(split_words("default value type data name object user system path item key result info text"))
"""Words with little meaning alone: they only break ties."""

CALLS = frozenset(
    split_words("call calls called calling caller callers invoke invoked invokes import imports imported")
)

SYNONYMS = (
    ("write", "written", "save", "persist", "append", "store", "flush", "dump"),
    ("config", "settings", "options", "preferences", "configuration"),
    ("execute", "run", "exec", "invoke"),
    ("parallel", "concurrent", "gather", "taskgroup", "simultaneous"),
    ("start", "launch", "entry", "main", "boot", "startup"),
    ("disk", "file", "fsync"),
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
    ("message", "msg", "text"),
    ("argument", "args", "param", "parameter", "flag"),
    ("timeout", "deadline"),
    ("buffer", "buf"),
    ("initialize", "init"),
    ("allocate", "alloc"),
    ("connection", "conn"),
    ("log", "logging", "logger"),
    ("expiration", "expire", "expiry"),
    ("compress", "deflate", "gzip", "decompress"),
    ("resolve", "lookup"),
    ("truncate", "shorten", "cut"),
    ("shrink", "minimize", "reduce"),
)


def split_pieces(name: str) -> list[str]:
    """The lower-case words in an identifier or a path."""
    return [piece.lower() for piece in _PIECE.findall(name)]


@lru_cache(maxsize=4096)
def stem(word: str) -> str:
    """The part of a word that its forms share; at least four letters, if the word is that long."""
    word = word.lower()
    if word.endswith("eed"):
        return word[:-1]
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
        return len(piece) > 5 and piece.startswith("un") and piece.startswith(root, 2)
    rest = piece[len(root) :]
    if rest in _TAILS or (rest and rest[0] == root[-1] and rest[1:] in _TAILS):
        return True
    return len(root) >= 5 or (len(root) == 4 and len(rest) <= 3)


def find_synonyms(word: str) -> tuple[str, ...]:
    """Stems of words that are often used for this one in code."""
    root = stem(word)
    found: list[str] = []
    for group in SYNONYMS:
        roots = [stem(other) for other in group]
        if root in roots:
            found.extend(other for other in roots if other != root and other not in found)
    return tuple(found)
