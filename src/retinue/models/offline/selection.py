"""Select findings for both the plan and the answer: best locations, uses, called names, important files.

This file must not know tools or phrasing.
"""

import builtins
import keyword
import re
from collections.abc import Iterable

from retinue.core.pattern import late_pattern
from retinue.models.offline.actions import Read
from retinue.models.offline.evidence import Findings, Hit
from retinue.models.offline.languages import find_family, is_test, is_vendored, weigh_path
from retinue.models.offline.question import OfflineQuestion
from retinue.models.offline.scores import CodeLocation, Ranking, fold, last_name
from retinue.models.offline.words import split_pieces, split_words

MANIFESTS = split_words(
    """
    pyproject.toml setup.py setup.cfg package.json Cargo.toml go.mod pom.xml build.gradle build.gradle.kts
    Gemfile composer.json CMakeLists.txt meson.build configure.ac mix.exs deno.json
    """
)


def phrase_hits(question: OfflineQuestion, findings: Findings) -> list[Hit]:
    """Lines with the quoted text, code first."""
    low = [phrase.lower() for phrase in question.phrases]
    # A name without a definition, such as an error code, is searched like a text.
    defined = {
        fold(last_name(hit.about.name)) for hit in findings.hits.values() if hit.about.role in ("definition", "key")
    }
    low += [
        last_name(name).lower()
        for name in question.symbols
        if not (name.islower() and name.isalpha()) and fold(last_name(name)) not in defined
    ]
    found = [hit for hit in findings.hits.values() if any(phrase in hit.text.lower() for phrase in low)]
    return sorted(found, key=lambda hit: (is_test(hit.path), -weigh_path(hit.path), hit.path, hit.line))


def pick_files(ranking: Ranking, count: int) -> list[str]:
    """The files worth an outline: those of the best locations, then those with the best names."""
    paths = [spot.hit.path for spot in ranking.spots[:6]]
    paths += [path for path, _ in ranking.files[:4]]
    paths += [spot.hit.path for spot in ranking.mentions[:6]]
    code = [path for path in dict.fromkeys(paths) if find_family(path) not in ("", "data", "markup")]
    return code[:count]


def to_read(findings: Findings, hit: Hit) -> Read:
    """Read a definition with the comment above it, up to a limit."""
    first = max(1, hit.line - 12)
    last = min(findings.end_of(hit), hit.line + 90)
    return Read(hit.path, first, max(24, last - first + 1))


def pick_spots(ranking: Ranking, count: int = 4) -> list[CodeLocation]:
    """The best locations, without those that are much worse than the first."""
    spots = ranking.spots[:count]
    return [spot for spot in spots if spot.score >= 0.35 * spots[0].score]


_CALLED = late_pattern(r"(?:([\w$)\]]+)\s*(?:\.|->|::)\s*)?\b([A-Za-z_]\w{3,})\s*\(")


_SELF = frozenset(("", "self", "this", "cls", "super", "Self"))


_COMMON = frozenset(
    (*dir(builtins), *keyword.kwlist, *split_words("switch catch function require sizeof typeof println"))
)


def called_names(question: OfflineQuestion, findings: Findings, spots: Iterable[CodeLocation]) -> list[str]:
    """Names that the read definitions call; those that match the question first."""
    counts: dict[str, int] = {}
    for spot in spots:
        excerpt = findings.excerpt_at(spot.hit.path, spot.hit.line)
        if excerpt is None:
            continue
        last = min(findings.end_of(spot.hit), excerpt.last)
        for number in range(spot.hit.line + 1, last + 1):
            for receiver, name in _CALLED.findall(excerpt.line(number)):
                # `text.match(` is probably not our `match`.
                if receiver not in _SELF and len(split_pieces(name)) < 2:
                    continue
                if name not in _COMMON and name != spot.hit.about.name and not name.isupper():
                    counts[name] = counts.get(name, 0) + 1

    def relevance(name: str) -> float:
        return sum(each.match(split_pieces(name)) for each in question.concepts)

    order = list(counts)
    return sorted(order, key=lambda name: (-relevance(name), order.index(name)))[:8]


def uses_of(question: OfflineQuestion, findings: Findings) -> list[Hit]:
    """Lines that use a name from the question, without definitions and comments."""
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


def top_files(findings: Findings) -> list[str]:
    listed = [entry for entry in findings.top if not entry.endswith("/")]
    return list(dict.fromkeys([*listed, *(path for path in findings.files if "/" not in path)]))


def resolve_paths(question: OfflineQuestion, findings: Findings) -> list[str]:
    """The listed files that the paths in the question mean."""
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
