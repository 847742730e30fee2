"""Parse a question in natural language: its kind, its concepts and the names it mentions.

Pure. This file must not know tools, files or answers.
"""

import re
from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace

from retinue.models.offline import cues
from retinue.models.offline.words import CALLS, LIGHT, STOP, find_synonyms, has_stem, split_pieces, stem

MAX_PARTS = 5


class Kind(StrEnum):
    """What kind of answer is wanted."""

    CHAT = "chat"
    OVERVIEW = "overview"
    RUN = "run"
    FACT = "fact"
    FILE = "file"
    USES = "uses"
    WHERE = "where"
    HOW = "how"


class Concept(Struct, frozen=True):
    """One thing the question is about, with stems that may name it in code; the first is the user's own word."""

    word: str
    stems: tuple[str, ...]
    weight: float = 1.0

    def match(self, pieces: list[str]) -> float:
        """How well the pieces of an identifier match: 1 for the user's word, 0.7 for a synonym, else 0."""
        if "-" in self.stems[0]:
            return float(self.stems[0].replace("-", "") in "".join(pieces))
        if any(has_stem(piece, self.stems[0]) for piece in pieces):
            return 1.0
        if any(has_stem(piece, other) for other in self.stems[1:] for piece in pieces):
            return 0.7
        return 0.0


class OfflineQuestion(Struct, frozen=True):
    text: str
    kind: Kind
    concepts: tuple[Concept, ...] = ()
    symbols: tuple[str, ...] = ()
    """Identifiers as written in code."""
    paths: tuple[str, ...] = ()
    phrases: tuple[str, ...] = ()
    """Quoted text, to be found literally."""
    change: bool = False
    """A change was requested, not information."""
    is_part: bool = False
    """One of several questions in the same text, to be answered more briefly."""

    @property
    def wants_tests(self) -> bool:
        """Whether the question is about tests; otherwise tests rank lower."""
        return any(has_stem(word, "test") or word in ("spec", "fixture") for word in split_pieces(self.text))

    @property
    def wants_value(self) -> bool:
        """Whether a setting or a default is asked for."""
        return bool(cues.VALUE.search(self.text)) and not cues.MANNER.search(self.text)


def parse_question(text: str, previous: "OfflineQuestion | None" = None) -> OfflineQuestion:
    """Parse one question; pronouns such as "it" refer to the previous question."""
    said = cues.ABOUT.search(text)
    if said is not None:
        topic = parse_question(said.group(1))
        return _add_topic(parse_question(text[: said.start()], topic), topic)
    paths = [name for name in cues.FILE_BLOCK.findall(text)]
    text = _select_text(cues.FILE_BLOCK.sub(" ", text))
    phrases, symbols, rest = _take_quoted(text, paths)
    rest = _take_paths(rest, paths)
    symbols += [name for name in _find_identifiers(rest) if name not in symbols]
    change = bool(cues.CHANGE.search(text))
    concepts = _find_concepts(rest, symbols, change=change)
    kind = _classify(text, concepts, symbols, paths, phrases)
    if kind in (Kind.WHERE, Kind.USES) and not symbols and len(concepts) == 1 and not phrases:
        symbols = [concepts[0].word]
    if previous is not None and not (symbols or paths or phrases) and len(concepts) < 2 and cues.PRONOUN.search(text):
        concepts = concepts + [each for each in previous.concepts if each not in concepts]
        symbols, paths, phrases = list(previous.symbols), list(previous.paths), list(previous.phrases)
        if kind is Kind.CHAT or (kind is Kind.OVERVIEW and previous.kind is not Kind.OVERVIEW):
            kind = previous.kind
    return OfflineQuestion(
        text=text,
        kind=kind,
        concepts=tuple(concepts[:6]),
        symbols=tuple(symbols[:4]),
        paths=tuple(dict.fromkeys(paths))[:4],
        phrases=tuple(phrases[:2]),
        change=change,
    )


def parse_questions(text: str, previous: "OfflineQuestion | None" = None) -> list[OfflineQuestion]:
    """The questions in a text, at most five; later ones also refer to the topic of the first."""
    if cues.ABOUT.search(text):
        return [parse_question(text, previous)]
    whole = _select_text(cues.FILE_BLOCK.sub(" ", text))
    parts = [part.strip(" ,;\n") for part in cues.JOINT.split(whole, maxsplit=MAX_PARTS - 1)]
    found: list[OfflineQuestion] = []
    for part in parts:
        found.append(parse_question(part, found[-1] if found else previous))
    if len(found) < 2 or any(each.kind is Kind.CHAT for each in found):
        return [parse_question(text, previous)]
    first = found[0]
    questions = [replace(first, is_part=True)]
    for each in found[1:]:
        known = {concept.stems[0] for concept in each.concepts}
        # The subject of the first question counts double, because it is common where it is the subject.
        context = [replace(concept, weight=2.0) for concept in first.concepts[:1] if concept.stems[0] not in known]
        if each.symbols or each.kind not in (Kind.WHERE, Kind.HOW, Kind.USES) or _names_subject(each):
            context = []
        questions.append(replace(each, is_part=True, concepts=(*each.concepts, *context)))
    return questions


def _names_subject(question: OfflineQuestion) -> bool:
    """Whether it names its own subject in two words ("the event bus"); "the timeout" may be the first question's."""
    if question.kind is Kind.HOW:
        return False
    known = {concept.word.lower() for concept in question.concepts}
    pairs = re.findall(r"\bthe (\w+) (\w+)", question.text.lower())
    return any(one in known and two in known and not two.endswith("ed") for one, two in pairs)


def _add_topic(question: OfflineQuestion, topic: OfflineQuestion) -> OfflineQuestion:
    """Add a stated topic to a question; it counts double, like the subject of a first question."""
    known = {concept.stems[0] for concept in question.concepts}
    added = [replace(concept, weight=2.0) for concept in topic.concepts if concept.stems[0] not in known]
    concepts = (*question.concepts, *added)[:6]
    symbols = question.symbols or topic.symbols
    if question.kind in (Kind.WHERE, Kind.USES) and not symbols and len(concepts) == 1:
        symbols = (concepts[0].word,)
    return replace(
        question,
        concepts=concepts,
        symbols=symbols,
        paths=question.paths or topic.paths,
        phrases=question.phrases or topic.phrases,
    )


def _select_text(text: str) -> str:
    """The relevant part of a long task: its sentences with a question mark, or its beginning."""
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
        if cues.PATH.fullmatch(inner) and (_is_file(inner) or "/" in inner):
            paths.append(inner)
        elif cues.IDENTIFIER.fullmatch(inner):
            symbols.append(_clean(inner))
        elif len(inner) >= 3:
            phrases.append(inner)
        return " "

    return phrases, symbols, cues.QUOTED.sub(take, text)


def _take_paths(text: str, paths: list[str]) -> str:
    def take(found: re.Match[str]) -> str:
        path = found.group(1)
        if "/" in path and not _is_file(path) and not path.endswith("/") and path.count("/") == 1 and "." not in path:
            # "read/write", "client/server": two words, unless one is a usual folder name.
            before, after = path.split("/")
            if not (
                before in ("src", "lib", "tests", "test", "docs", "pkg", "cmd", "app")
                or after in ("src", "lib", "tests")
            ):
                return f"{before} {after}"
        paths.append(path)
        return " "

    text = cues.PATH.sub(take, text)
    for word in re.findall(r"\b[A-Za-z]+\b", text):
        if word.lower() in cues.KNOWN_FILES and (word[0].isupper() or word.lower() in ("makefile", "dockerfile")):
            paths.append(word)
    return text


def _is_file(path: str) -> bool:
    name = path.rsplit("/", 1)[-1]
    return "." in name and name.rsplit(".", 1)[-1].lower() in cues.EXTENSIONS


def _clean(name: str) -> str:
    return name.removesuffix("()")


def _find_identifiers(text: str) -> list[str]:
    found: list[str] = []
    for match in cues.IDENTIFIER.finditer(text):
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
    taken = {piece for name in symbols for piece in (name.lower(), *re.split(r"[^a-z0-9]+", name.lower()))}
    concepts: list[Concept] = []
    roots: set[str] = set()
    is_uses = bool(cues.USES.search(text))
    for index, word in enumerate(re.findall(r"[A-Za-z][A-Za-z0-9+#]*(?:-[A-Za-z0-9]+)*|\b\d{3,}\b", text)):
        if re.fullmatch(r"[A-Za-z]{2,}(?:-[A-Za-z0-9]+)+", word) and len(word) > 4:
            concepts.append(Concept(word, (word.lower(),)))
            continue
        for part in word.split("-"):
            low = part.lower()
            if is_uses and low in CALLS:
                continue
            if (low in STOP and not (low == "write" and index > 0 and not change)) or len(low) < 2 or low in taken:
                continue
            if change and low in cues.CHANGE_VERBS:
                continue
            root = stem(low)
            if root in roots:
                continue
            synonyms = find_synonyms(low)
            if any(other in roots for other in synonyms) and any(root in each.stems for each in concepts):
                continue
            roots.add(root)
            concepts.append(Concept(part, (root, *synonyms), 0.4 if low in LIGHT else (1.0 if len(low) > 2 else 0.6)))
    return concepts


def _classify(text: str, concepts: list[Concept], symbols: list[str], paths: list[str], phrases: list[str]) -> Kind:
    named = bool(symbols or paths or phrases)
    if not text or (not named and (cues.GREETING.match(text) or cues.ELSEWHERE.search(text))):
        return Kind.CHAT
    rules = (
        (Kind.OVERVIEW, not named and cues.OVERVIEW.search(text)),
        (
            Kind.RUN,
            not named
            and cues.RUN.search(text)
            and all(each.word.lower().removesuffix("s") in cues.RUN_WORDS for each in concepts),
        ),
        (Kind.FACT, not symbols and len(concepts) <= 4 and cues.FACT.search(text)),
        (Kind.USES, cues.USES.search(text) and not re.search(r"\bused for\b|\bfiles?\b.{0,12}\bcalled\b", text)),
        (Kind.FILE, paths and not symbols and (cues.EXPLAIN_FILE.search(text) or not concepts)),
        (Kind.WHERE, cues.WHERE.search(text)),
        (Kind.CHAT, not named and not concepts),
    )
    return next((kind for kind, holds in rules if holds), Kind.HOW)
