"""A question in plain words, taken apart: its kind, what it is about and which names it mentions.

Pure text; this file must not know tools, files or answers.
"""

import re
from dataclasses import dataclass
from enum import StrEnum

from retinue.models.offline.words import STOP, find_synonyms, has_stem, split_pieces, stem


class Kind(StrEnum):
    """What would count as an answer."""

    CHAT = "chat"
    OVERVIEW = "overview"
    RUN = "run"
    FACT = "fact"
    FILES = "files"
    FILE = "file"
    USES = "uses"
    WHERE = "where"
    HOW = "how"


@dataclass(frozen=True, slots=True)
class Concept:
    """One thing the question is about, with the stems that may name it in code; the first is the asker's own."""

    word: str
    stems: tuple[str, ...]
    weight: float = 1.0

    def match(self, pieces: list[str]) -> float:
        """How well identifier pieces name this: 1 for the asker's word, 0.6 for a synonym, 0 for neither."""
        if any(has_stem(piece, self.stems[0]) for piece in pieces):
            return 1.0
        if any(has_stem(piece, other) for other in self.stems[1:] for piece in pieces):
            return 0.6
        return 0.0


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked."""

    text: str
    kind: Kind
    concepts: tuple[Concept, ...] = ()
    symbols: tuple[str, ...] = ()
    """Identifiers as they would stand in code."""
    paths: tuple[str, ...] = ()
    phrases: tuple[str, ...] = ()
    """Quoted text, to be found literally."""
    extensions: tuple[str, ...] = ()
    change: bool = False
    """Whether a change was asked for, not knowledge."""

    @property
    def wants_tests(self) -> bool:
        """Whether tests are what is asked about, so that they are no noise."""
        return any(has_stem(word, "test") or word in ("spec", "fixture") for word in split_pieces(self.text))

    @property
    def wants_value(self) -> bool:
        """Whether a setting or a default is asked for."""
        return bool(_VALUE.search(self.text))


_EXTENSIONS = (
    "py pyi js mjs cjs jsx ts mts cts tsx go rs java kt kts c h cc cpp cxx hpp hh cs rb php sh bash zsh pl lua swift scala "
    "ex exs erl hs ml m mm sql md rst txt toml yaml yml json jsonl ini cfg conf lock xml html css scss vue svelte proto "
    "mk cmake gradle tf svg env"
).split()
_LANGUAGES = {
    "python": ("py",),
    "javascript": ("js", "mjs", "cjs"),
    "typescript": ("ts", "tsx"),
    "golang": ("go",),
    "rust": ("rs",),
    "java": ("java",),
    "kotlin": ("kt",),
    "ruby": ("rb",),
    "shell": ("sh", "bash"),
    "markdown": ("md",),
    "yaml": ("yaml", "yml"),
    "json": ("json",),
    "toml": ("toml",),
    "html": ("html",),
    "css": ("css",),
    "sql": ("sql",),
    "header": ("h", "hpp"),
}
_KNOWN_FILES = ("makefile", "dockerfile", "readme", "license", "changelog", "contributing", "rakefile", "gemfile")

_PATH = re.compile(
    r"(?<![\w`/.-])((?:[\w@.~-]+/)+[\w@.-]*[\w]|[\w.-]+\.(?:" + "|".join(_EXTENSIONS) + r"))(?![\w/(])", re.IGNORECASE
)
_QUOTED = re.compile(r"`([^`\n]{1,200})`|\"([^\"\n]{1,200})\"|“([^”\n]{1,200})”|(?<![\w])'([^'\n]{1,200})'(?!\w)")
_IDENTIFIER = re.compile(r"[A-Za-z_$][\w$]*(?:(?:\.|::|->)[A-Za-z_$][\w$]*)*(?:\(\))?|--?[a-z][\w-]+")
_FILE_BLOCK = re.compile(r'<file name="([^"\n]{1,400})">.*?</file>', re.DOTALL)

_PROJECT = r"(?:project|repo|repository|codebase|code ?base|package|library|program|app|application|source code|workspace)"
_OVERVIEW = re.compile(
    rf"\bwhat(?:'s| is| does| do| are)?\b.{{0,20}}\b(?:this|the|that|these)\b.{{0,20}}\b{_PROJECT}\b"
    rf"(?:\s+(?:do|does|about|for|here))*\s*(?:\?|$|\.|,|and )"
    rf"|\b(?:overview|tour|summary|introduction)\b.{{0,30}}\b{_PROJECT}\b|\b{_PROJECT}\s+(?:overview|summary|structure|layout)\b"
    rf"|\b(?:summari[sz]e|explain|describe|introduce|understand)\s+(?:to me\s+)?(?:this|the|that)\s+(?:\w+\s+)?{_PROJECT}\b"
    rf"|\b(?:how is|how's)\s+(?:this|the)\s+(?:{_PROJECT}|code|source)\b.{{0,20}}\b(?:structured|organi[sz]ed|laid out|split|built)"
    r"|\b(?:overall|high[- ]level)\s+(?:architecture|structure|design|overview)\b|^\s*(?:give me an? )?overview\W*$"
    r"|\bwhat(?:'s| is) (?:this|here|in here)\s*\?*\s*$|\bwhat am i looking at\b|\btell me about this\b"
    r"|\bwhat does (?:this|it) do\s*\?*\s*$|^\s*(?:explain|describe|summari[sz]e)\s+(?:this|it|everything)\W*$"
    r"|\bwhat (?:are|is) the (?:main|major|key|most important) (?:parts?|modules?|components?|packages?|pieces)\b",
    re.IGNORECASE,
)
_RUN = re.compile(
    r"\bhow (?:do|can|would|should|to)\b(?: i| we| you| one)?\s+(?:can )?(?:go about )?"
    r"(run|start|launch|install|build|test|compile|set ?up|lint|deploy|execute|try|format|type-?check|benchmark)\b"
    r"|\b(?:command|commands|instructions?|steps)\b.{0,20}\b(run|test|build|install|start|lint)"
    r"|\b(?:run|running|execute|start) the (tests?|test suite|project|app|program|server|demo|linters?|benchmarks?)\b"
    r"|\bhow (?:are|is) (?:the )?(tests?) (?:run|executed|started)\b",
    re.IGNORECASE,
)
_RUN_WORDS = frozenset(
    "run start launch install build test compile setup lint deploy execute try format typecheck benchmark bench suite unit "
    "local locally server app program demo docs doc documentation ci dev development package command commands step steps "
    "instruction instructions machine scratch source e2e integration type check linter linters".split()  # noqa: SIM905
)
_FACT = re.compile(
    r"\b(?:what|which|list|show|tell me).{0,30}\b(dependenc(?:y|ies)|licen[cs]e|entry ?points?|npm scripts|python version"
    r"|node version|go version|rust version|required version|minimum (?:python|node|go|rust)\b|console scripts?"
    r"|(?:languages?|build system|package manager|test framework|make targets?)\b)"
    r"|\bwhat version\b|\bwhich version\b",
    re.IGNORECASE,
)
_USES = re.compile(
    r"\b(?:who|what|which(?: \w+){0,2}|where|list|find|show|all)\b.{0,40}?\b(?:calls?|callers?|uses|imports?|invokes?|references?|refers?"
    r"|instantiates?|depends? on|usages?)\b|\b(?:callers?|usages?|uses|references|call sites?)\s+(?:of|to|for)\b"
    r"|\bwhere\b.{0,60}\b(?:used|called|imported|referenced|invoked|instantiated)\b|\bhow is\b.{0,40}\b(?:used|called)\s*\?*$"
    r"|\bwho\b.{0,30}\buse\b",
    re.IGNORECASE,
)
_FILES = re.compile(
    r"\b(?:list|show|find|enumerate|count|name)\b.{0,40}\b(?:files|modules|tests|scripts|docs|documents|folders|directories)\b"
    r"|\b(?:which|what|how many)\b.{0,20}\b(?:files|directories|folders)\b|\bwhere are\b.{0,30}\b(?:files|tests|docs|scripts)\b"
    r"|\bfiles?\b.{0,12}\b(?:named|called|ending|matching)\b",
    re.IGNORECASE,
)
_WHERE = re.compile(
    r"\bwhere\b|\bwhich (?:file|module|class|function|line|method|package|part|place)\b|\bin what file\b"
    r"|\bdefin(?:ed|ition|es)\b|\blocate\b|\bfind (?:the |me )?(?:definition|class|function|method|code|place)\b"
    r"|\bwhat (?:file|module|class|function)\b|\bpoint me\b",
    re.IGNORECASE,
)
_VALUE = re.compile(
    r"\b(?:default|value|config\w*|settings?|option|options|limit|maximum|max|minimum|how (?:many|long|big|large|often))\b", re.I
)
_CHANGE = re.compile(
    r"^\s*(?:(?:please|now|then|also|ok|hey|hi|hello)[,:]?\s+)*(?:(?:can|could|would|will) you\s+(?:please\s+)?|(?:i|we) (?:want|need|would like)"
    r"(?: you)? to\s+|let'?s\s+|you (?:should|must)\s+|help me\s+(?:to\s+)?)?"
    r"(?:fix|write|add|implement|refactor|rename|remove|delete|change|update|create|make|replace|migrate|convert|optimi[sz]e"
    r"|port|upgrade|edit|modify|bump|generate|rewrite|move|extract|inline|improve|clean up|simplify|speed up|commit|apply|patch)\b",
    re.IGNORECASE,
)
_CHANGE_VERBS = frozenset(
    "fix write add implement refactor rename remove delete change update create make replace migrate convert optimize "
    "optimise port upgrade edit modify bump generate rewrite move extract inline improve clean simplify speed commit apply "
    "patch support".split()  # noqa: SIM905
)
_GREETING = re.compile(
    r"^\W*(?:hi|hello|hey|yo|good (?:morning|evening|afternoon|day)|thanks?(?: you)?|thx|bye|ok(?:ay)?|test|ping|help|sup"
    r"|how are you(?: doing)?|who are you|what are you|what can you do|what do you do|are you (?:there|an? (?:ai|llm|model|bot)).{0,20}"
    r"|which model are you|what model (?:are you|is this))(?:[\s,]+(?:there|you|all|retinue|friend|world))?\W*$",
    re.IGNORECASE,
)
_ELSEWHERE = re.compile(
    r"^[\s\d+*/().,=^%-]*\?*$|\b(?:weather|joke|poem|recipe|horoscope|capital of|president of|stock price|translate (?:this|the following)"
    r"|meaning of life|what time is it|today's date|what day is)\b",
    re.IGNORECASE,
)
_EXPLAIN_FILE = re.compile(r"\b(?:explain|describe|summari[sz]e|what(?:'s| is| does| do)|how does|walk me|outline|purpose|contents?)\b", re.I)
_PRONOUN = re.compile(r"\b(?:it|its|that|this|them|they|those|these|he)\b", re.IGNORECASE)
_FILLER = re.compile(r"\b(?:of|in|by|for|from|to)\b")


def parse_question(text: str, previous: "Question | None" = None) -> Question:
    """Take a question apart; words such as "it" reach back to the previous one."""
    paths = [name for name in _FILE_BLOCK.findall(text)]
    text = _select_text(_FILE_BLOCK.sub(" ", text))
    phrases, symbols, rest = _take_quoted(text, paths)
    rest = _take_paths(rest, paths)
    symbols += [name for name in _find_identifiers(rest) if name not in symbols]
    change = bool(_CHANGE.search(text))
    concepts = _find_concepts(rest, symbols, change=change)
    kind = _classify(text, concepts, symbols, paths, phrases)
    if kind in (Kind.WHERE, Kind.USES, Kind.HOW) and not symbols and len(concepts) == 1 and not phrases:
        symbols = [concepts[0].word]
    if previous is not None and not (symbols or paths or phrases) and len(concepts) < 2 and _PRONOUN.search(text):
        concepts = concepts + [each for each in previous.concepts if each not in concepts]
        symbols, paths, phrases = list(previous.symbols), list(previous.paths), list(previous.phrases)
        if kind is Kind.CHAT or (kind is Kind.OVERVIEW and previous.kind is not Kind.OVERVIEW):
            kind = previous.kind
    return Question(
        text=text,
        kind=kind,
        concepts=tuple(concepts[:6]),
        symbols=tuple(symbols[:4]),
        paths=tuple(dict.fromkeys(paths))[:4],
        phrases=tuple(phrases[:2]),
        extensions=_find_extensions(text) if kind is Kind.FILES else (),
        change=change,
    )


def _select_text(text: str) -> str:
    """The asking part of a long task: its sentences with a question mark, or its beginning."""
    text = text.strip()
    if len(text) <= 600:
        return text
    asked = re.findall(r"[^.?!\n]{8,300}\?", text[:20_000])
    return " ".join(part.strip() for part in asked[:3])[:900] if asked else text[:600]


def _take_quoted(text: str, paths: list[str]) -> tuple[list[str], list[str], str]:
    phrases: list[str] = []
    symbols: list[str] = []

    def take(found: re.Match[str]) -> str:
        inner = next(group for group in found.groups() if group is not None).strip()
        if _PATH.fullmatch(inner) and (_is_file(inner) or "/" in inner):
            paths.append(inner)
        elif _IDENTIFIER.fullmatch(inner):
            symbols.append(_clean(inner))
        elif len(inner) >= 3:
            phrases.append(inner)
        return " "

    return phrases, symbols, _QUOTED.sub(take, text)


def _take_paths(text: str, paths: list[str]) -> str:
    def take(found: re.Match[str]) -> str:
        path = found.group(1)
        if "/" in path and not _is_file(path) and not path.endswith("/") and path.count("/") == 1 and "." not in path:
            # "read/write", "client/server": two words, unless it says that it is a folder
            before, after = path.split("/")
            if not (before in ("src", "lib", "tests", "test", "docs", "pkg", "cmd", "app") or after in ("src", "lib", "tests")):
                return f"{before} {after}"
        paths.append(path)
        return " "

    text = _PATH.sub(take, text)
    for word in re.findall(r"\b[A-Za-z]+\b", text):
        if word.lower() in _KNOWN_FILES and (word[0].isupper() or word.lower() in ("makefile", "dockerfile")):
            paths.append(word)
    return text


def _is_file(path: str) -> bool:
    name = path.rsplit("/", 1)[-1]
    return "." in name and name.rsplit(".", 1)[-1].lower() in _EXTENSIONS


def _clean(name: str) -> str:
    return name.removesuffix("()")


def _find_identifiers(text: str) -> list[str]:
    found: list[str] = []
    for match in _IDENTIFIER.finditer(text):
        word = match.group()
        bare = _clean(word).strip("_$-")
        inner = bare[1:]
        is_code = (
            "_" in bare
            or "::" in word
            or "->" in word
            or word.endswith("()")
            or word.startswith(("_", "$", "--"))
            or ("." in inner and not word.endswith(".") and len(bare) > 4 and bare.lower() not in ("e.g", "i.e"))
            or (any(letter.isupper() for letter in inner) and any(letter.islower() for letter in bare))
        )
        if is_code and bare and bare not in ("I'm",):
            found.append(_clean(word).lstrip("-") if word.startswith("-") else _clean(word))
    return list(dict.fromkeys(found))


def _find_concepts(text: str, symbols: list[str], *, change: bool) -> list[Concept]:
    taken = {piece for name in symbols for piece in [name.lower()]}
    concepts: list[Concept] = []
    roots: set[str] = set()
    for index, word in enumerate(re.findall(r"[A-Za-z][A-Za-z0-9+#]*(?:-[A-Za-z0-9]+)*|\b\d{3,}\b", text)):
        for part in word.split("-"):
            low = part.lower()
            if low in STOP and not (low == "write" and index > 0 and not change) or len(low) < 2 or low in taken:
                continue
            if any(low == piece for name in symbols for piece in re.split(r"[^a-z0-9]+", name.lower())):
                continue
            if change and low in _CHANGE_VERBS:
                continue
            root = stem(low)
            if root in roots:
                continue
            synonyms = find_synonyms(low)
            if any(other in roots for other in synonyms) and any(root in each.stems for each in concepts):
                continue
            roots.add(root)
            concepts.append(Concept(part, (root, *synonyms), 1.0 if len(low) > 2 else 0.6))
    return concepts


def _classify(text: str, concepts: list[Concept], symbols: list[str], paths: list[str], phrases: list[str]) -> Kind:
    named = bool(symbols or paths or phrases)
    if not text or (not named and (_GREETING.match(text) or _ELSEWHERE.search(text))):
        return Kind.CHAT
    rules = (
        (Kind.OVERVIEW, not named and _OVERVIEW.search(text)),
        (Kind.RUN, not named and _RUN.search(text) and all(each.word.lower() in _RUN_WORDS for each in concepts)),
        (Kind.FACT, not symbols and len(concepts) <= 4 and _FACT.search(text)),
        (Kind.USES, _USES.search(text) and not re.search(r"\bused for\b|\bfiles?\b.{0,12}\bcalled\b", text)),
        (Kind.FILES, not symbols and _FILES.search(text)),
        (Kind.FILE, paths and not symbols and (_EXPLAIN_FILE.search(text) or not concepts)),
        (Kind.WHERE, _WHERE.search(text)),
        (Kind.CHAT, not named and not concepts),
    )
    return next((kind for kind, holds in rules if holds), Kind.HOW)


def _find_extensions(text: str) -> tuple[str, ...]:
    found: list[str] = []
    for word in re.findall(r"[*.]*\.?\b[A-Za-z0-9]+\b", text):
        low = word.lower().lstrip("*.")
        if word.startswith((".", "*")) and low in _EXTENSIONS:
            found.append(low)
        found.extend(_LANGUAGES.get(low, ()))
    return tuple(dict.fromkeys(found))
