"""Plan the next tool calls from a question and the findings so far.

A plan is a list of steps. Each step proposes actions; actions already done are left out, and the first step with an
action left is used. This file must not know how answers are phrased.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from itertools import zip_longest
from typing import TypeAlias

from retinue.core.pattern import late_pattern
from retinue.models.offline.actions import Action, Find, List, Read, SearchAction, ToolNames
from retinue.models.offline.chat import NAMED, asks_self
from retinue.models.offline.languages import OUTLINE, define_pattern, find_family, is_test, is_vendored
from retinue.models.offline.question import Concept, Kind
from retinue.models.offline.scores import Ranking, last_name
from retinue.models.offline.selection import (
    MANIFESTS,
    called_names,
    phrase_hits,
    pick_files,
    pick_spots,
    resolve_paths,
    to_read,
    top_files,
    uses_of,
)
from retinue.models.offline.words import split_words

MAX_TURNS = 5
"""Turns with calls; the answer is one more."""
MAX_CALLS = 22
MORE_CALLS = 8
"""For each further question in the same text."""

_TASK_FILES = split_words("Makefile makefile GNUmakefile justfile Taskfile.yml tox.ini noxfile.py")
_GUIDES = late_pattern(
    r"^(?:readme|contributing|hacking|develop\w*|install|agents|build\w*)[\w-]*(?:\.\w+)?$", re.IGNORECASE
)

Step: TypeAlias = Callable[[Ranking], Iterable[Action]]


def plan_turn(rankings: Sequence[Ranking], tool_names: ToolNames, turns: int) -> list[Action]:
    """The next actions for all questions, interleaved; empty when it is time to answer."""
    if turns >= MAX_TURNS or SearchAction not in tool_names:
        return []
    proposals = [_plan_next(ranking, tool_names, turns) for ranking in rankings]
    merged = dict.fromkeys(action for row in zip_longest(*proposals) for action in row if action is not None)
    left = MAX_CALLS + MORE_CALLS * (len(rankings) - 1) - len(rankings[0].findings.actions)
    return list(merged)[: max(0, left)]


def _plan_next(ranking: Ranking, tool_names: ToolNames, turns: int) -> list[Action]:
    for step in _STEPS.get(ranking.question.kind, ())[turns:]:
        actions = [
            action
            for action in dict.fromkeys(step(ranking))
            if type(action) in tool_names and action not in ranking.findings.actions
        ]
        if actions:
            return actions
    return []


def fragment(stems: Iterable[str]) -> str:
    """A pattern for identifiers that contain one of the stems."""
    return r"\w*(" + _join(stems) + r")\w*"


def _join(stems: Iterable[str]) -> str:
    return "|".join(re.escape(each).replace(r"\-", "[-_ ]?") for each in stems)


def name_pattern(symbol: str) -> str:
    """A pattern for one exact name, with any separators."""
    return re.escape(last_name(symbol)).replace(r"\-", "[-_]")


def _survey(ranking: Ranking) -> Iterable[Action]:
    """Definitions for each name and concept, lines that contain two concepts, and all file names."""
    question = ranking.question
    yield Find("*", 3000)
    yield List(".")
    for phrase in question.phrases:
        yield SearchAction(phrase, ignore_case=True, literal=True, limit=60)
    for symbol in question.symbols[:3]:
        yield SearchAction(define_pattern(name_pattern(symbol), fields=True), ignore_case=True, limit=120)
        yield SearchAction(rf"\b{name_pattern(symbol)}\b", limit=500)
    if question.phrases and not question.symbols:
        return
    concepts = question.concepts[: 2 if question.symbols else (3 if question.is_part else 4)]
    for concept in concepts:
        pattern = define_pattern(fragment(concept.stems), fields=question.wants_value)
        yield SearchAction(pattern, ignore_case=True, limit=300)
    for first, second in _pairs(concepts):
        one, two = _join(first.stems), _join(second.stems)
        yield SearchAction(rf"({one}).{{0,50}}({two})|({two}).{{0,50}}({one})", ignore_case=True, limit=200)
    if len(concepts) == 1:
        yield SearchAction(_join(concepts[0].stems[:1]), ignore_case=True, limit=200)


def _pairs(concepts: tuple[Concept, ...]) -> list[tuple[Concept, Concept]]:
    pairs = [(one, two) for index, one in enumerate(concepts) for two in concepts[index + 1 :]]
    return pairs[:3]


def _outline(ranking: Ranking) -> Iterable[Action]:
    """Outline the best files, to find the function of a line; search for more file names if the list was cut off."""
    question, findings = ranking.question, ranking.findings
    quoted = phrase_hits(question, findings)
    if quoted:
        for path in list(dict.fromkeys(hit.path for hit in quoted))[:4]:
            yield SearchAction(OUTLINE, path=path, limit=400)
        return
    for path in pick_files(ranking, 3 if question.is_part else 4):
        yield SearchAction(OUTLINE, path=path, limit=400)
    if findings.is_partial:
        for concept in question.concepts[:2]:
            yield Find(f"*{concept.stems[0]}*", 200)
    if not findings.hits:
        for concept in question.concepts[:4]:
            for other in concept.stems[:3]:
                yield SearchAction(_join([other]), ignore_case=True, limit=80)


def _read_best(ranking: Ranking) -> Iterable[Action]:
    """Read the best definitions with their surroundings, and search for uses of the first."""
    question, findings = ranking.question, ranking.findings
    quoted = phrase_hits(question, findings)
    if quoted:
        for hit in quoted[:3]:
            yield Read(hit.path, max(1, hit.line - 8), 14)
        return
    spots = pick_spots(ranking)
    for spot in spots[: 2 if question.is_part else 4]:
        yield to_read(findings, spot.hit)
    if spots and spots[0].hit.about.is_definition and spots[0].hit.about.what != "constant":
        yield SearchAction(rf"\b{name_pattern(spots[0].hit.about.name)}\b", limit=150)
    if not spots:
        for path, _ in ranking.files[:3]:
            yield Read(path, 1, 80)


def _follow(ranking: Ranking) -> Iterable[Action]:
    """Search for the definitions of the names that the best definitions call."""
    question, findings = ranking.question, ranking.findings
    if phrase_hits(question, findings):
        return
    names = called_names(question, findings, pick_spots(ranking)[:2])
    if names:
        yield SearchAction(define_pattern("(" + "|".join(map(re.escape, names)) + ")"), limit=60)


def _place_uses(ranking: Ranking) -> Iterable[Action]:
    """Read the definition, and outline the files with the most uses, to find the function of each use."""
    question, findings = ranking.question, ranking.findings
    spots = ranking.spots
    for spot in spots[:1]:
        yield to_read(findings, spot.hit)
    counts: dict[str, int] = {}
    for hit in uses_of(question, findings):
        if find_family(hit.path) not in ("", "data", "markup"):
            counts[hit.path] = counts.get(hit.path, 0) + 1
    ranked = sorted(counts, key=lambda path: (is_test(path), is_vendored(path), -counts[path], path))
    for path in ranked[:6]:
        yield SearchAction(OUTLINE, path=path, limit=400)


def _look_around(ranking: Ranking) -> Iterable[Action]:
    """List the top of the repository and all file names."""
    yield List(".")
    yield Find("*", 3000)


def _find_examples(ranking: Ranking) -> Iterable[Action]:
    """List the files, and some definitions that an example can name."""
    if asks_self(ranking.question):
        yield from _look_around(ranking)
        yield SearchAction(NAMED, limit=100)


def _read_project(ranking: Ranking) -> Iterable[Action]:
    """Read README, manifests and task files at the top."""
    question, findings = ranking.question, ranking.findings
    top = top_files(findings)
    guides = sorted(
        (path for path in top if _GUIDES.match(path)), key=lambda path: (not path.lower().startswith("readme"), path)
    )
    wanted = [
        *guides[: 1 if question.kind is Kind.OVERVIEW else 3],
        *(path for path in (*MANIFESTS, *_TASK_FILES) if path in top),
    ]
    if question.kind is not Kind.OVERVIEW:
        wanted += [path for path in top if path.lower().startswith(("license", "copying"))][:1]
    for path in dict.fromkeys(wanted[:9]):
        yield Read(path, 1, 160)


def _read_file(ranking: Ranking) -> Iterable[Action]:
    """Read the file in question: its beginning, its outline and who imports it."""
    question, findings = ranking.question, ranking.findings
    for path in resolve_paths(question, findings)[:2]:
        yield Read(path, 1, 120)
        yield SearchAction(OUTLINE, path=path, limit=400)
        name = path.rsplit("/", 1)[-1].rsplit(".", 1)[0]
        if name in ("__init__", "index", "mod", "__main__"):
            name = path.split("/")[-2] if "/" in path else name
        if find_family(path) not in ("", "data", "markup", "make"):
            yield SearchAction(rf"(import|from|require|include|use|mod)\b.*\b{re.escape(name)}\b", limit=80)


def _survey_file(ranking: Ranking) -> Iterable[Action]:
    for path in ranking.question.paths:
        yield Find(path.rstrip("/").rsplit("/", 1)[-1] + "*", 50)
    yield Find("*", 3000)


# One step per turn. Two are repeated because an outline may show that other files are better.
_STEPS: dict[Kind, tuple[Step, ...]] = {
    Kind.CHAT: (_find_examples,),
    Kind.OVERVIEW: (_look_around, _read_project),
    Kind.RUN: (_look_around, _read_project),
    Kind.FACT: (_look_around, _read_project),
    Kind.FILE: (_survey_file, _read_file),
    Kind.USES: (_survey, _place_uses, _place_uses),
    Kind.WHERE: (_survey, _outline, _outline, _read_best, _follow),
    Kind.HOW: (_survey, _outline, _outline, _read_best, _follow),
}
