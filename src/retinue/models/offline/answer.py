"""Render answers about code as Markdown: where something is, how it works, who uses it.

Evidence comes first, and claims are no stronger than it. This file must not know how evidence was fetched.
"""

import re
from collections import Counter, defaultdict
from itertools import takewhile

from retinue.models.offline.actions import Find, List, Read, SearchAction
from retinue.models.offline.evidence import Findings, Hit
from retinue.models.offline.languages import find_family, is_test, is_vendored
from retinue.models.offline.question import Kind, OfflineQuestion
from retinue.models.offline.quotes import fence, place, shorten, show_home, summarise, telling_lines, title
from retinue.models.offline.scores import CodeLocation, Ranking, last_name
from retinue.models.offline.selection import called_names, phrase_hits, pick_spots, uses_of

NOTE = (
    "*`offline/rules`: search rules, no language model; it quotes, it does not reason. For a real one: "
    "`--model provider/id` with an API key, or a local model server.*"
)


def render_topic(ranking: Ranking) -> str:
    """Answer where something is, or how it works."""
    question, findings = ranking.question, ranking.findings
    if quoted := phrase_hits(question, findings):
        return _render_phrase(ranking, quoted)
    spots = pick_spots(ranking)
    if not spots:
        return _render_nothing(ranking)
    confidence = _judge(question, spots[0])
    lines = [_lead(question, findings, spots, confidence), ""]
    for index, spot in enumerate(spots[: 2 if question.is_part else 3]):
        count = (7 if index == 0 else 3) if question.kind is Kind.HOW else (4 if index == 0 else 2)
        count = min(count, 2) if spot.hit.about.what in ("field", "constant", "setting", "variable") else count
        doc = summarise(findings, spot.hit) if index else ""
        head = f"- {place(spot.hit)} {spot.hit.about.what} {title(findings, spot.hit)}" + (f": {doc}" if doc else "")
        quote = fence(spot.hit.path, telling_lines(question, findings, spot.hit, count))
        lines += [head, *("  " + line for line in quote)]
    lines += _render_links(question, findings, spots)
    return join_answer(ranking, lines, confidence)


def _render_phrase(ranking: Ranking, quoted: list[Hit]) -> str:
    """Show where a quoted text is, with the lines around it."""
    question, findings = ranking.question, ranking.findings
    tests = sum(is_test(hit.path) for hit in quoted)
    more = f"; {len(quoted) - 1} more lines have it" if len(quoted) > 1 else ""
    more += f", {tests} of them in tests" if more and tests else ""
    # A name without a definition: all we can show is the lines that contain it.
    unknown = "" if question.phrases else f"No definition of `{question.symbols[0]}` was found. "
    where = f"{place(quoted[0])}{show_home(findings, quoted[0])}"
    lines = [f"{_refuse_change(question)}{unknown}The text is at {where}{more}.", ""]
    for hit in quoted[:3]:
        excerpt = findings.excerpt_at(hit.path, hit.line)
        around = [(hit.line, hit.text)]
        if excerpt:
            numbers = range(max(excerpt.first, hit.line - 3), min(excerpt.last, hit.line + 1) + 1)
            around = [(number, excerpt.line(number)) for number in numbers]
        lines += [f"- {place(hit)}{show_home(findings, hit)}", *("  " + line for line in fence(hit.path, around))]
    lines += [f"- {place(hit)}: `{shorten(hit.text, 100)}`" for hit in quoted[3:8]]
    return join_answer(ranking, lines, "strong" if question.phrases else "weak")


def _refuse_change(question: OfflineQuestion) -> str:
    return "I cannot write or change code. " if question.change else ""


def _judge(question: OfflineQuestion, spot: CodeLocation) -> str:
    """How strong the evidence is: strong, weak or none."""
    # A symbol that is a plain word was only guessed to be a name.
    is_guess = question.kind is Kind.HOW and all(symbol.islower() and symbol.isalpha() for symbol in question.symbols)
    if (spot.is_exact and not is_guess) or (spot.cover >= 0.62 and spot.score >= 0.4):
        return "strong"
    return "weak" if spot.cover >= 0.25 else "none"


def _lead(question: OfflineQuestion, findings: Findings, spots: list[CodeLocation], confidence: str) -> str:
    hit = spots[0].hit
    name, doc, what = title(findings, hit), summarise(findings, hit), hit.about.what
    said = f" Its own words: “{doc}”" if doc else ""
    if question.change:
        return f"I cannot write or change code; the change most likely goes into {name} ({what}), {place(hit)}.{said}"
    a_what = f"an {what}" if what[:1] in "aeiou" else f"a {what}"
    if spots[0].is_exact:
        exact = [spot for spot in spots if spot.is_exact and spot.hit.about.name == hit.about.name]
        more = f" ({len(exact)} definitions with this name below)" if len(exact) > 1 else ""
        return f"{name} is {a_what} defined in {place(hit)}{more}.{said}"
    begin = {
        "strong": "Most likely",
        "weak": "I am not sure; the closest match is",
        "none": "I did not find it. The nearest thing is",
    }[confidence]
    return f"{begin} {name}, {a_what} in {place(hit)}.{said}"


def _render_links(question: OfflineQuestion, findings: Findings, spots: list[CodeLocation]) -> list[str]:
    """What the best location calls, and who uses it."""
    first = spots[0].hit
    lines: list[str] = []
    if first.about.what in ("function", "method", "macro"):
        defined: dict[str, Hit] = {}
        for hit in findings.hits.values():
            known = defined.get(hit.about.name)
            if hit.about.is_definition and (known is None or _distance(first, hit) < _distance(first, known)):
                defined[hit.about.name] = hit
        callees = [
            defined[name]
            for name in called_names(question, findings, spots[:1])
            if name in defined
            and (defined[name].path, defined[name].line) != (first.path, first.line)
            and not is_test(defined[name].path)
            and not name.startswith("__")
            and find_family(defined[name].path) == find_family(first.path)
        ]
        if callees:
            links = ", ".join(f"{title(findings, hit)} ({place(hit)})" for hit in callees[:4])
            lines.append(f"- {title(findings, first)} calls {links}")
    lines += _render_users(findings, first)
    return ["", "**How the pieces connect**", *lines] if lines else []


def _distance(home: Hit, other: Hit) -> tuple[bool, bool, int]:
    pairs = zip(home.path.split("/"), other.path.split("/"), strict=False)
    shared = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
    return (is_test(other.path) or is_vendored(other.path), find_family(home.path) != find_family(other.path), -shared)


def _render_users(findings: Findings, first: Hit) -> list[str]:
    name = last_name(first.about.name)
    if name in ("constructor", "__init__", "main", "new", "init"):
        return []
    # A name of one plain word may be an ordinary word: only a call or an attribute is certainly a use.
    is_word = name.islower() and name.isalpha()
    word = re.escape(name)
    pattern = re.compile(rf"(?:[.>:]{word}\b|\b{word}\()" if is_word else rf"\b{word}\b")
    uses = [
        hit
        for hit in findings.hits.values()
        if hit.about.role in ("code", "import")
        and find_family(hit.path) == find_family(first.path)
        and pattern.search(hit.text)
        and (hit.path, hit.line) != (first.path, first.line)
    ]

    def weigh(hit: Hit) -> tuple[bool | str | int, ...]:
        is_import, is_same = hit.about.role == "import", hit.path == first.path
        return is_test(hit.path), is_vendored(hit.path), is_import, is_same, hit.path, hit.line

    best: dict[str, Hit] = {}
    for hit in sorted(uses, key=weigh):
        best.setdefault(hit.path, hit)
    lines = [
        f"- {'imported' if hit.about.role == 'import' else 'used'} at {place(hit)}{show_home(findings, hit)}: "
        f"`{shorten(hit.text, 90)}`"
        for hit in list(best.values())[:3]
    ]
    if len(uses) > 3:
        lines[-1] += f" ({len(uses)} uses in {len(best)} {'file' if len(best) == 1 else 'files'} seen)"
    return lines


def render_uses(ranking: Ranking) -> str:
    """Answer who calls, imports or mentions a name."""
    question, findings = ranking.question, ranking.findings
    uses = [hit for hit in uses_of(question, findings) if not is_vendored(hit.path)]
    defined = [spot.hit for spot in ranking.spots if spot.is_exact]
    if not uses and not (question.symbols and defined):
        return render_topic(ranking)
    name = last_name(question.symbols[0])
    called = re.compile(rf"\b{re.escape(name)}\s*(?:<[^>]*>)?\(")
    calls = {(hit.path, hit.line) for hit in uses if hit.about.role != "import" and called.search(hit.text)}
    tests = Counter(hit.path for hit in uses if is_test(hit.path))
    source = [hit for hit in uses if not is_test(hit.path)]
    lead = f"`{name}` is defined, but no use of it was found."
    if uses:
        is_cut = any(pattern.endswith(rf"{re.escape(name)}\b") for pattern in findings.cut)
        in_calls = sum((hit.path, hit.line) in calls for hit in source)
        lead = f"`{name}` is used on {'at least ' if is_cut else ''}{len(source)} lines in "
        lead += f"{len({hit.path for hit in source})} source files ({in_calls} of them calls)"
        lead += f" and on {tests.total()} lines in {len(tests)} test files." if tests else "; no use in tests was seen."
    if defined:
        lead += f" It is defined in {place(defined[0])} ({defined[0].about.what})."
    lines = [lead, "", *_render_use_groups(findings, calls, source or uses)]
    if tests and source:
        more = f" and {len(tests) - 3} more" if len(tests) > 3 else ""
        lines.append(f"- tests: {', '.join(f'`{path}`' for path in sorted(tests)[:3])}{more}")
    return join_answer(ranking, lines, "strong" if uses and defined else "weak")


def _render_use_groups(findings: Findings, calls: set[tuple[str, int]], uses: list[Hit]) -> list[str]:
    """At most ten files, those with calls first."""
    groups: dict[str, list[Hit]] = defaultdict(list)
    for hit in uses:
        groups[hit.path].append(hit)

    def weigh(path: str) -> tuple[int, bool, str]:
        in_calls = sum((hit.path, hit.line) in calls for hit in groups[path])
        return -in_calls, find_family(path) in ("", "data", "markup"), path

    lines: list[str] = []
    ranked = sorted(groups, key=weigh)
    each = 3 if len(ranked) <= 5 else 1
    for path in ranked[:10]:
        hits = [hit for hit in groups[path] if (hit.path, hit.line) in calls] or groups[path]
        hits.sort(key=lambda hit: (hit.about.role == "import", hit.line))
        for hit in hits[:each]:
            role = "import" if hit.about.role == "import" else "call" if (hit.path, hit.line) in calls else "mention"
            lines.append(f"- {place(hit)} {role}{show_home(findings, hit)}: `{shorten(hit.text, 100)}`")
        if left := hits[each:]:
            lines[-1] += f" (also at {', '.join(str(hit.line) for hit in left[:6])}{', …' if len(left) > 6 else ''})"
    if len(ranked) > 10:
        lines.append(f"- and {len(ranked) - 10} more files that use it, such as `{ranked[-1]}`")
    return lines


def _render_nothing(ranking: Ranking) -> str:
    """The answer if no definition was found: what there is, and what to try."""
    question, findings = ranking.question, ranking.findings
    words = [f"`{name}`" for name in (*question.symbols, *question.phrases)]
    words += [f"“{each.word}”" for each in question.concepts if each.word not in question.symbols]
    sought = ", ".join(words) or "the question's words"
    if mentions := [spot.hit for spot in ranking.mentions[:6]]:
        where = f"{place(mentions[0])}{show_home(findings, mentions[0])}"
        lines = [f"{_refuse_change(question)}No definition for {sought}; the nearest line is {where}.", ""]
        lines += [f"- {place(hit)}: `{shorten(hit.text, 110)}`" for hit in mentions]
        return join_answer(ranking, lines, "weak")
    lines = [f"{_refuse_change(question)}I found nothing for {sought}.", ""]
    if files := [path for path, _ in ranking.files[:5]]:
        lines += ["Similar file names: " + ", ".join(f"`{path}`" for path in files), ""]
    lines.append("Try a name from the code (`CamelCase`, `snake_case`), a file name, or a message in quotes.")
    return join_answer(ranking, lines, "none")


def join_answer(ranking: Ranking, lines: list[str], confidence: str) -> str:
    """The answer with its footer: what was searched, what is missing, the confidence, and a note about this model."""
    question, findings = ranking.question, ranking.findings
    counts = {
        ("search", "searches"): findings.count(SearchAction),
        ("read", "reads"): findings.count(Read),
        ("listing", "listings"): findings.count(Find) + findings.count(List),
    }
    looked = f"Confidence: {confidence}. Based on "
    looked += ", ".join(f"{count} {one if count == 1 else many}" for (one, many), count in counts.items() if count)
    if paths := list(dict.fromkeys(excerpt.path for excerpt in findings.excerpts)):
        looked += f" (read {', '.join(f'`{path}`' for path in paths[:4])}{', …' if len(paths) > 4 else ''})"
    looked += "."
    if question.kind in (Kind.WHERE, Kind.HOW, Kind.USES) and (missing := _find_missing(question, findings)):
        looked += f" Not found: {', '.join(missing)}."
    if findings.cut or findings.is_partial:
        looked += " Some results were cut off, so there may be more."
    if findings.errors:
        looked += f" Failed: {shorten('; '.join(findings.errors[:2]), 160)}."
    return "\n".join([*lines, "", f"---\n{looked}\n{NOTE}"])


def _find_missing(question: OfflineQuestion, findings: Findings) -> list[str]:
    texts = [hit.text.lower() for hit in findings.hits.values()]
    texts += [path.lower() for path in findings.files]
    return [f"“{each.word}”" for each in question.concepts if not any(each.stems[0] in text for text in texts)][:4]
