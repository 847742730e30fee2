"""What to look at next: from a question and the findings so far to the next actions.

A plan is a list of steps. Each step proposes actions; what was done already is left out, and the first step with anything
left is taken. This file must not know how answers are phrased.
"""

import re
from collections.abc import Callable, Iterable
from typing import TypeAlias

from retinue.models.offline.evidence import Findings, Hit
from retinue.models.offline.kit import Action, Find, Kit, List, Read, Search
from retinue.models.offline.languages import OUTLINE, define_pattern, find_family, is_test, is_vendored
from retinue.models.offline.question import Concept, Kind, Question
from retinue.models.offline.ranking import Ranking, Spot, last_name

MAX_TURNS = 5
"""Turns with calls; the answer is one more."""
MAX_CALLS = 22

MANIFESTS = (
    "pyproject.toml setup.py setup.cfg package.json Cargo.toml go.mod pom.xml build.gradle build.gradle.kts Gemfile "
    "composer.json CMakeLists.txt meson.build configure.ac mix.exs deno.json"
).split()
_TASK_FILES = "Makefile makefile GNUmakefile justfile Taskfile.yml tox.ini noxfile.py docker-compose.yml".split()
_GUIDES = re.compile(r"^(?:readme|contributing|hacking|develop\w*|install|agents|build\w*)[\w-]*(?:\.\w+)?$", re.IGNORECASE)

Step: TypeAlias = Callable[[Question, Findings, Kit], Iterable[Action]]


def plan_next(question: Question, findings: Findings, kit: Kit, turns: int) -> list[Action]:
    """The next actions; none when it is time to answer."""
    if turns >= MAX_TURNS or len(findings.actions) >= MAX_CALLS or question.kind is Kind.CHAT:
        return []
    for step in _STEPS[question.kind][min(turns, len(_STEPS[question.kind])) :]:
        actions = [
            action
            for action in dict.fromkeys(step(question, findings, kit))
            if kit.can(type(action)) and action not in findings.actions
        ]
        if actions:
            return actions[: MAX_CALLS - len(findings.actions)]
    return []


def fragment(stems: Iterable[str]) -> str:
    """A pattern for identifiers that contain one of the stems."""
    return r"\w*(" + "|".join(re.escape(each) for each in stems) + r")\w*"


def name_pattern(symbol: str) -> str:
    """A pattern for one exact name, whatever its separators."""
    return re.escape(last_name(symbol)).replace(r"\-", "[-_]")


def _survey(question: Question, findings: Findings, kit: Kit) -> Iterable[Action]:
    """Definitions per name and per concept, lines where two concepts meet, and all file names."""
    yield Find("*", 3000)
    if not kit.can(Search):
        yield List(".")
        return
    for phrase in question.phrases:
        yield Search(phrase, ignore_case=True, literal=True, limit=60)
    for symbol in question.symbols[:3]:
        yield Search(define_pattern(name_pattern(symbol), fields=True), ignore_case=True, limit=120)
        yield Search(rf"\b{name_pattern(symbol)}\b", limit=200)
    concepts = question.concepts[: 4 if not question.symbols else 2]
    for concept in concepts:
        yield Search(define_pattern(fragment(concept.stems), fields=question.wants_value), ignore_case=True, limit=300)
    for first, second in _pairs(concepts):
        one, two = "|".join(map(re.escape, first.stems)), "|".join(map(re.escape, second.stems))
        yield Search(rf"({one}).{{0,50}}({two})|({two}).{{0,50}}({one})", ignore_case=True, limit=200)
    if len(concepts) == 1:
        yield Search(re.escape(concepts[0].stems[0]), ignore_case=True, limit=200)


def _pairs(concepts: tuple[Concept, ...]) -> list[tuple[Concept, Concept]]:
    pairs = [(one, two) for index, one in enumerate(concepts) for two in concepts[index + 1 :]]
    return pairs[:3]


def _outline(question: Question, findings: Findings, kit: Kit) -> Iterable[Action]:
    """The definitions of the best files, so that lines can be placed; more names when the list was cut."""
    ranking = Ranking(question, findings)
    if kit.can(Search):
        for path in pick_files(ranking, 4):
            yield Search(OUTLINE, path=path, limit=400)
    if findings.is_partial:
        for concept in question.concepts[:2]:
            yield Find(f"*{concept.stems[0]}*", 200)
    if not findings.hits:
        for concept in question.concepts[:4]:
            for other in concept.stems[:3]:
                yield Search(re.escape(other), ignore_case=True, limit=80)
    if not kit.can(Search):
        for folder in _folders(question, findings):
            yield List(folder)


def _folders(question: Question, findings: Findings) -> list[str]:
    entries = [entry for entry in findings.listings.get(".", []) if entry.endswith("/") and not entry.startswith(".")]
    named = [entry for entry in entries if any(each.match([entry.strip("/").lower()]) for each in question.concepts)]
    usual = [entry for entry in entries if entry in ("src/", "lib/", "app/", "pkg/", "cmd/", "internal/", "docs/")]
    return [entry.rstrip("/") for entry in dict.fromkeys([*named, *usual, *entries])][:5]


def pick_files(ranking: Ranking, count: int) -> list[str]:
    """The files worth an outline: those of the best places first, then those of the best names."""
    paths = [spot.hit.path for spot in ranking.spots()[:6]]
    paths += [path for path, _ in ranking.files()[:4]]
    paths += [spot.hit.path for spot in ranking.mentions()[:6]]
    code = [path for path in dict.fromkeys(paths) if find_family(path) not in ("", "data", "markup")]
    return code[:count]


def _read_best(question: Question, findings: Findings, kit: Kit) -> Iterable[Action]:
    """The best definitions with what is around them, and who uses the first."""
    ranking = Ranking(question, findings)
    spots = pick_spots(ranking)
    for spot in spots[:4]:
        yield to_read(findings, spot.hit)
    if spots and spots[0].hit.about.is_definition and spots[0].hit.about.what != "constant":
        yield Search(rf"\b{name_pattern(spots[0].hit.about.name)}\b", limit=150)
    for spot in ranking.documents()[:1]:
        yield Read(spot.hit.path, max(1, spot.hit.line - 2), 30)
    if not spots:
        for path, _ in ranking.files()[:3]:
            yield Read(path, 1, 80)
    if not kit.can(Search):
        for path in _guess_paths(question, findings, ranking):
            yield Read(path, 1, 400)


def _guess_paths(question: Question, findings: Findings, ranking: Ranking) -> list[str]:
    listed = [
        path if folder == "." else f"{folder}/{path}"
        for folder, entries in findings.listings.items()
        for path in entries
        if not path.endswith("/")
    ]
    scored = sorted(listed, key=lambda path: (-ranking.score_file(path), len(path), path))
    return [path for path in scored if ranking.score_file(path) > 0][:3] or [
        path for path in listed if _GUIDES.match(path.rsplit("/", 1)[-1])
    ][:1]


def to_read(findings: Findings, hit: Hit) -> Read:
    """A read of a definition with the comment above it, bounded."""
    first = max(1, hit.line - 8)
    last = min(findings.end_of(hit), hit.line + 90)
    return Read(hit.path, first, max(24, last - first + 1))


def pick_spots(ranking: Ranking, count: int = 4) -> list[Spot]:
    """The best places without repetition; enclosing functions of lines where concepts meet count as places."""
    findings = ranking.findings
    spots = ranking.spots()
    best = spots[0].score if spots else 0.0
    picked: list[Spot] = []
    seen: set[tuple[str, int]] = set()
    for spot in [*spots[:12], *_lift_mentions(ranking)]:
        hit = spot.hit
        inside = any(
            other.hit.path == hit.path and other.hit.line < hit.line <= findings.end_of(other.hit) and other.is_exact
            for other in picked
        )
        if (hit.path, hit.line) in seen or inside or spot.score < 0.35 * best:
            continue
        seen.add((hit.path, hit.line))
        picked.append(spot)
    picked.sort(key=lambda spot: -spot.score)
    return picked[:count]


def _lift_mentions(ranking: Ranking) -> list[Spot]:
    """Functions that hold many of the lines in which the question's words meet."""
    lifted: dict[tuple[str, int], Spot] = {}
    for spot in ranking.mentions()[:40]:
        if spot.hit.about.role in ("import", "documentation", "key"):
            continue
        home = ranking.findings.enclosing(spot.hit)
        if home is None or home.about.what == "class" or spot.cover < 0.5:
            continue
        key = (home.path, home.line)
        known = lifted.get(key)
        score = spot.score * 0.5 if known is None else min(known.score + spot.score * 0.1, spot.score * 0.9)
        lifted[key] = Spot(home, score, spot.cover)
    return list(lifted.values())


_CALLED = re.compile(r"\b([A-Za-z_]\w{3,})\s*\(")
_COMMON = frozenset(
    "print isinstance len range super open list dict tuple getattr setattr hasattr append extend join split format sorted "
    "enumerate filter return while switch catch function require console string Error ValueError TypeError KeyError "
    "RuntimeError Exception resolve reject push slice replace includes toString assert sizeof malloc free printf fprintf "
    "strlen memcpy strcmp memset defined items keys values update startswith endswith strip lower upper encode decode "
    "error warn info debug isEmpty equals println Some None Box unwrap expect into clone iter collect make append panic "
    "then await typeof Promise Array Object String Number Boolean Math JSON elif with assert_ cast next partial type "
    "field property staticmethod classmethod NULL issubclass callable repr tolower toupper exit abort".split()  # noqa: SIM905
)


def called_names(question: Question, findings: Findings, spots: Iterable[Spot]) -> list[str]:
    """Names that the read definitions call, those that the question is about first."""
    counts: dict[str, int] = {}
    for spot in spots:
        excerpt = findings.excerpt_at(spot.hit.path, spot.hit.line)
        if excerpt is None:
            continue
        last = min(findings.end_of(spot.hit), excerpt.last)
        for number in range(spot.hit.line + 1, last + 1):
            for name in _CALLED.findall(excerpt.line(number)):
                if name not in _COMMON and name != spot.hit.about.name and not name.isupper():
                    counts[name] = counts.get(name, 0) + 1
    from retinue.models.offline.words import split_pieces

    def relevance(name: str) -> float:
        return sum(each.match(split_pieces(name)) for each in question.concepts)

    order = list(counts)
    return sorted(order, key=lambda name: (-relevance(name), order.index(name)))[:8]


def _follow(question: Question, findings: Findings, kit: Kit) -> Iterable[Action]:
    """One step along the calls: where are the called names defined?"""
    names = called_names(question, findings, pick_spots(Ranking(question, findings))[:2])
    if names:
        yield Search(define_pattern("(" + "|".join(map(re.escape, names)) + ")"), limit=60, context=2)


def _place_uses(question: Question, findings: Findings, kit: Kit) -> Iterable[Action]:
    """The definition, and outlines of the files that use the name most, to say in which function a use stands."""
    spots = Ranking(question, findings).spots()
    for spot in spots[:1]:
        yield to_read(findings, spot.hit)
    counts: dict[str, int] = {}
    for hit in uses_of(question, findings):
        if find_family(hit.path) not in ("", "data", "markup"):
            counts[hit.path] = counts.get(hit.path, 0) + 1
    ranked = sorted(counts, key=lambda path: (is_test(path), is_vendored(path), -counts[path], path))
    for path in ranked[:6]:
        yield Search(OUTLINE, path=path, limit=400)


def uses_of(question: Question, findings: Findings) -> list[Hit]:
    """Lines that use a name the question gives, without its definitions and comments."""
    names = [last_name(symbol) for symbol in question.symbols]
    found: list[Hit] = []
    for hit in findings.hits.values():
        for name in names:
            if re.search(rf"\b{re.escape(name)}\b", hit.text) is None:
                continue
            if hit.about.role in ("comment", "heading", "documentation") or hit.about.name == name:
                continue
            found.append(hit)
            break
    return found


def _look_around(question: Question, findings: Findings, kit: Kit) -> Iterable[Action]:
    """The top of the repository and all file names."""
    yield List(".")
    yield Find("*", 3000)


def _read_project(question: Question, findings: Findings, kit: Kit) -> Iterable[Action]:
    """README, manifests and task files at the top."""
    top = top_files(findings)
    guides = sorted(
        (path for path in top if _GUIDES.match(path)), key=lambda path: (not path.lower().startswith("readme"), path)
    )
    wanted = [*guides[: 1 if question.kind is Kind.OVERVIEW else 3], *(path for path in (*MANIFESTS, *_TASK_FILES) if path in top)]
    if question.kind is not Kind.OVERVIEW:
        wanted += [path for path in findings.files if re.match(r"\.github/workflows/.*test.*\.ya?ml$|\.github/workflows/ci.*\.ya?ml$", path)][:1]
        wanted += [path for path in top if path.lower().startswith(("license", "copying"))][:1]
    if not guides and question.kind is Kind.OVERVIEW:
        wanted += [path for path in findings.files if re.search(r"(?:^|/)readme[^/]*$", path, re.I) and not is_vendored(path)][:1]
    wanted += find_entries(findings)[: 2 if question.kind is Kind.OVERVIEW else 0]
    for path in dict.fromkeys(wanted[:9]):
        yield Read(path, 1, 160)


def top_files(findings: Findings) -> list[str]:
    """Files at the top of the repository."""
    listed = [entry for entry in findings.listings.get(".", []) if not entry.endswith("/")]
    return list(dict.fromkeys([*listed, *(path for path in findings.files if "/" not in path)]))


_ENTRY = re.compile(r"(?:^|/)(?:__main__\.py|main\.(?:py|go|rs|c|cc|cpp|js|ts|java)|cli\.(?:py|js|ts|mjs)|index\.(?:js|ts|mjs)|app\.(?:py|js|ts)|manage\.py|server\.(?:js|ts)|__init__\.py|lib\.rs|mod\.ts)$")


def find_entries(findings: Findings) -> list[str]:
    """Files that look like the way in, the shallowest first."""
    found = [path for path in findings.files if _ENTRY.search(path) and not is_test(path) and not is_vendored(path)]
    order = {"__main__": 0, "main": 0, "cli": 1, "app": 2, "manage": 2, "server": 2, "index": 3, "lib": 3, "mod": 3, "__init__": 4}
    side = re.compile(r"(?:^|/)(?:docs?|examples?|bench\w*|scripts|tools|\.\w+)/")
    return sorted(
        found,
        key=lambda path: (bool(side.search(path)), path.count("/") + order[path.rsplit("/", 1)[-1].split(".")[0]], path),
    )


def _read_file(question: Question, findings: Findings, kit: Kit) -> Iterable[Action]:
    """The file asked about: its beginning, its outline and who imports it."""
    for path in resolve_paths(question, findings)[:2]:
        yield Read(path, 1, 120)
        if kit.can(Search):
            yield Search(OUTLINE, path=path, limit=400)
        name = path.rsplit("/", 1)[-1].rsplit(".", 1)[0]
        if name in ("__init__", "index", "mod", "__main__"):
            name = path.split("/")[-2] if "/" in path else name
        if find_family(path) not in ("", "data", "markup", "make"):
            yield Search(
                rf"(import|from|require|include|use|mod)\b.*\b{re.escape(name)}\b", limit=80
            )


def resolve_paths(question: Question, findings: Findings) -> list[str]:
    """The files that the question's path words mean, as listed."""
    found: list[str] = []
    for wanted in question.paths:
        name = wanted.removeprefix("./").lower()
        exact = [path for path in findings.files if path.lower() == name]
        ending = [path for path in findings.files if path.lower().endswith("/" + name)]
        stemmed = [path for path in findings.files if path.rsplit("/", 1)[-1].lower().rsplit(".", 1)[0] == name]
        under = [path for path in findings.files if path.lower().startswith(name.rstrip("/") + "/")]
        candidates = exact or sorted(ending, key=_plain) or sorted(stemmed, key=_plain) or sorted(under, key=_plain)
        found.extend(candidates[:1] if not (under and candidates == under) else candidates[:2])
        if not candidates and not findings.files:
            found.append(wanted)
    return list(dict.fromkeys(found))


def _plain(path: str) -> tuple[bool, bool, int, str]:
    return (is_test(path), is_vendored(path), path.count("/"), path)


def _survey_file(question: Question, findings: Findings, kit: Kit) -> Iterable[Action]:
    yield Find("*", 3000)
    if not kit.can(Find):
        yield List(".")
    for path in question.paths:
        if "/" in path or not kit.can(Find):
            yield Read(path, 1, 120)


def _find_missing(question: Question, findings: Findings, kit: Kit) -> Iterable[Action]:
    """A file that the list does not show, because the list was cut."""
    if findings.is_partial and not resolve_paths(question, findings):
        for path in question.paths:
            yield Find(path.rsplit("/", 1)[-1] + "*", 50)


def _survey_files(question: Question, findings: Findings, kit: Kit) -> Iterable[Action]:
    yield Find("*", 3000)
    if not kit.can(Find):
        yield List(".")
    for extension in question.extensions[:3]:
        yield Find(f"*.{extension}", 1000)
    if not question.extensions and not question.wants_tests:
        yield from _survey(question, findings, kit)


_STEPS: dict[Kind, tuple[Step, ...]] = {
    Kind.OVERVIEW: (_look_around, _read_project),
    Kind.RUN: (_look_around, _read_project),
    Kind.FACT: (_look_around, _read_project),
    Kind.FILES: (_survey_files,),
    Kind.FILE: (_survey_file, _find_missing, _read_file),
    Kind.USES: (_survey, _place_uses),
    Kind.WHERE: (_survey, _outline, _read_best, _follow),
    Kind.HOW: (_survey, _outline, _read_best, _follow),
}
