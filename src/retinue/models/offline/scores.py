"""Score findings for a question: weights of its concepts, scores of definitions and files.

This file must not know how facts are fetched or shown.
"""

import math
import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import MutableMapping
from functools import cached_property
from typing import Any

from msgspec import Struct

from retinue.core.pattern import late_pattern
from retinue.models.offline.evidence import Findings, Hit
from retinue.models.offline.languages import is_test, weigh_path
from retinue.models.offline.question import Concept, Kind, OfflineQuestion
from retinue.models.offline.words import split_pieces

_WHAT = {
    "method": 0.95,
    "constant": 0.75,
    "variable": 0.6,
    "target": 0.8,
    "field": 0.6,
    "declaration": 0.4,
    "impl": 0.2,
    "export": 0.3,
    "property": 0.6,
    "setting": 0.5,
    "section": 0.5,
}
_VALUES = ("field", "constant", "setting", "variable", "macro")
_RECEIVER = late_pattern(r"func\s+\(\s*\w*\s*\*?(\w+)")


class CodeLocation(Struct, frozen=True):
    """A relevant location: a definition, or a line that contains the question's words."""

    hit: Hit
    score: float
    cover: float
    """Share of the question that the location matches, 0 to 1."""
    is_exact: bool = False
    """It defines a name that the user gave."""


def last_name(symbol: str) -> str:
    """The last part of a dotted name."""
    return re.split(r"\.|::|->", symbol)[-1]


def fold(name: str) -> str:
    """A name without case and separators, to compare spellings."""
    return name.replace("_", "").replace("-", "").lower()


class Ranking:
    """Scores for one question and one set of findings."""

    def __init__(self, question: OfflineQuestion, findings: Findings, memo: MutableMapping[Any, Any]) -> None:
        self.question = question
        self.findings = findings
        self._pieces: dict[str, list[str]] = {}
        self._by_file: dict[str, list[Hit]] = defaultdict(list)
        for hit in findings.hits.values():
            self._by_file[hit.path].append(hit)
        for hits in self._by_file.values():
            hits.sort(key=lambda hit: hit.line)
        # The same lines are scored in each turn: the memo caches their matches.
        self._matches: dict[str, dict[str, float]] = memo.setdefault(
            ("offline-ranking", question), {concept.word: {} for concept in question.concepts}
        )
        self._probes = {
            concept.word: re.compile("|".join(each.partition("-")[0] for each in concept.stems), re.IGNORECASE)
            for concept in question.concepts
        }
        self._strengths = {
            place: tuple(self.match(concept, hit.text) for concept in question.concepts)
            for place, hit in findings.hits.items()
        }
        self._names = {fold(last_name(symbol)) for symbol in question.symbols}
        self._wants_value = question.wants_value
        self._wants_tests = question.wants_tests
        self.weights = self._weigh_concepts()

    @cached_property
    def spots(self) -> list[CodeLocation]:
        """Definitions and settings, best first."""
        found = [
            self._score(hit)
            for hit in self.findings.hits.values()
            if hit.about.role in ("definition", "key")
            and (fold(last_name(hit.about.name)) in self._names or any(self._strengths[hit.path, hit.line]))
        ]
        return sorted((spot for spot in found if spot.score > 0.05), key=_order)

    @cached_property
    def mentions(self) -> list[CodeLocation]:
        """Lines that are not definitions, sorted by the concepts they contain."""
        found: list[CodeLocation] = []
        total = sum(self.weights.values()) or 1.0
        for hit in self.findings.hits.values():
            if hit.about.role in ("definition", "heading"):
                continue
            cover = self._weigh(hit) / total
            if any(last_name(name) in hit.text for name in self.question.symbols):
                cover = max(cover, 0.7)
            if any(phrase in hit.text for phrase in self.question.phrases):
                cover = 1.0
            if cover > 0:
                score = cover * self.path_weight(hit.path) * (0.7 if hit.about.role == "import" else 1)
                found.append(CodeLocation(hit, score, cover))
        return sorted(found, key=_order)

    @cached_property
    def files(self) -> list[tuple[str, float]]:
        """Files with their scores, best first."""
        paths = dict.fromkeys([*self._by_file, *self.findings.files])
        scored = [(path, score) for path in paths if (score := self._score_file(path)) > 0.05]
        return sorted(scored, key=lambda pair: (-pair[1], len(pair[0]), pair[0]))

    def _score_file(self, path: str) -> float:
        """How well the name of a file and of its folder match the question."""
        name, _, folder = path.rpartition("/")[::-1]
        score = 0.0
        for concept in self.question.concepts:
            named = max(self.match(concept, name.rsplit(".", 1)[0]), 0.5 * self.match(concept, folder))
            score += self.weights[concept.word] * named
        return score / (sum(self.weights.values()) or 1.0) * self.path_weight(path)

    def path_weight(self, path: str) -> float:
        """The weight of a path; tests count in full if the question is about tests."""
        weight = weigh_path(path)
        return min(1.0, weight / 0.4) if self._wants_tests and is_test(path) else weight

    def match(self, concept: Concept, text: str) -> float:
        """How well a text matches a concept; cached, since the same lines are checked often."""
        known = self._matches[concept.word]
        found = known.get(text)
        if found is None:
            found = 0.0
            if self._probes[concept.word].search(text):
                pieces = self._pieces.get(text)
                if pieces is None:
                    pieces = self._pieces[text] = split_pieces(text[:300])
                found = concept.match(pieces)
            known[text] = found
        return found

    def _weigh_concepts(self) -> dict[str, float]:
        """Rare words get more weight: a word in every file does not help to locate anything."""
        total = max(len(self.findings.files), len(self._by_file), 8)
        weights: dict[str, float] = {}
        for index, concept in enumerate(self.question.concepts):
            holding = len({path for (path, _), strength in self._strengths.items() if strength[index] == 1.0})
            rarity = math.log((total + 1) / (holding + 0.5)) / math.log(total + 1) if holding else 0.5
            weights[concept.word] = concept.weight * min(1.0, max(0.2, rarity + 0.15))
        return weights

    def _weigh(self, hit: Hit) -> float:
        strengths = self._strengths[hit.path, hit.line]
        return sum(
            self.weights[each.word] * strength for each, strength in zip(self.question.concepts, strengths, strict=True)
        )

    def _score(self, hit: Hit) -> CodeLocation:
        path_weight = self.path_weight(hit.path)
        what = _WHAT.get(hit.about.what, 1.0)
        if not self._wants_value and self.question.kind is Kind.HOW and hit.about.what in _VALUES[:3]:
            what *= 0.75
        if self._wants_value and hit.about.what in _VALUES:
            what = 1.1 if "=" in hit.text or hit.about.what in ("setting", "macro") else 0.6
        exact = self._score_symbol(hit)
        cover = self._cover(hit)
        pieces = split_pieces(hit.about.name)
        named = sum(
            any(each.match([piece]) or piece in each.stems[0].split("-") for each in self.question.concepts)
            for piece in pieces
        )
        precision = named / len(pieces) if pieces else 0.0
        private = 0.97 if hit.about.name.startswith("_") else 1.0
        home = self.findings.enclosing(hit) if hit.about.what == "field" else None
        if home is not None and home.about.what in ("function", "method"):
            # A variable of a function, not a field of a class.
            what *= 0.4
        score = (exact * 2 + cover * (0.6 + 0.4 * precision)) * path_weight * what * private
        return CodeLocation(hit, score, max(cover, min(1.0, exact)), exact >= 1.0)

    def _cover(self, hit: Hit) -> float:
        total = sum(self.weights.values())
        if not total:
            return 0.0
        name, _, folder = hit.path.rpartition("/")[::-1]
        container = self.findings.container(hit) if hit.indent else None
        receiver = _RECEIVER.match(hit.text)
        owner = receiver.group(1) if receiver else (container.about.name if container else "")
        last = self.findings.end_of(hit)
        hits = self._by_file[hit.path]
        inside = hits[bisect_right(hits, hit.line, key=_line) : bisect_right(hits, last, key=_line)][:40]
        cover = 0.0
        strengths = self._strengths[hit.path, hit.line]
        for index, concept in enumerate(self.question.concepts):
            best = max(
                self.match(concept, hit.about.name),
                0.75 * self.match(concept, owner),
                0.55 * self.match(concept, name),
                0.5 * strengths[index],
                0.45 * self.match(concept, folder.rpartition("/")[2]),
                0.25 * self.match(concept, folder),
            )
            if best < 0.5:
                density = sum(self._strengths[each.path, each.line][index] for each in inside)
                # A class contains many words; a function that contains them is about them.
                best = max(best, (0.3 if hit.about.what in ("class", "impl") else 0.5) * min(1.0, density / 3))
            cover += self.weights[concept.word] * best
        return cover / total

    def _score_symbol(self, hit: Hit) -> float:
        best = 0.0
        for symbol in self.question.symbols:
            wanted = last_name(symbol)
            name = last_name(hit.about.name)
            if name == wanted:
                score = 1.3
            elif fold(name) == fold(wanted):
                score = 1.0
            else:
                continue
            owner = symbol[: -len(wanted)].rstrip(".:->")
            if owner:
                container = self.findings.container(hit)
                held = container is not None and container.about.name == last_name(owner)
                in_path = fold(last_name(owner)) in [fold(part) for part in re.split(r"[/.]", hit.path)]
                in_line = last_name(owner) in hit.text
                score += 0.5 if held or in_path or in_line else -0.4
            best = max(best, score)
        return best


def _line(hit: Hit) -> int:
    return hit.line


def _order(spot: CodeLocation) -> tuple[float, float, int, str, int]:
    return (-round(spot.score, 6), -spot.cover, len(spot.hit.path), spot.hit.path, spot.hit.line)
