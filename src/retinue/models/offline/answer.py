"""Render answers about code as Markdown: where something is, how it works, who uses it.

Evidence comes first, and claims are no stronger than it. This file must not know how evidence was fetched.
"""

import re
from collections import defaultdict

from retinue.models.offline.actions import Find, List, Read, SearchAction
from retinue.models.offline.evidence import Findings, Hit
from retinue.models.offline.languages import find_family, is_test, is_vendored
from retinue.models.offline.question import Kind, OfflineQuestion
from retinue.models.offline.quotes import fence, place, shorten, summarise, telling_lines, title
from retinue.models.offline.scores import CodeLocation, Ranking, last_name
from retinue.models.offline.selection import called_names, phrase_hits, pick_spots, uses_of

NOTE = (
    "*`offline/rules`: search rules, no language model; it quotes, it does not reason. For a real one: "
    "`--model provider/id` with an API key, or a local model server.*"
)


def render_topic(ranking: Ranking) -> str:
    """Answer where something is, or how it works."""
    question, findings = ranking.question, ranking.findings
    quoted = phrase_hits(question, findings)
    if quoted:
        return _render_phrase(question, findings, ranking, quoted)
    spots = pick_spots(ranking)
    if not spots:
        return render_nothing(question, findings, ranking)
    confidence = judge(question, spots[0])
    lines = [_lead(question, findings, spots, confidence), ""]
    shown = spots[: 2 if question.is_part else 3]
    for index, spot in enumerate(shown):
        count = (7 if index == 0 else 3) if question.kind is Kind.HOW else (4 if index == 0 else 2)
        count = min(count, 2) if spot.hit.about.what in ("field", "constant", "setting", "variable") else count
        lines += _show_spot(question, findings, spot, count, is_first=index == 0)
    lines += _render_links(question, findings, spots)
    if not question.is_part:
        lines += _render_more(question, ranking, spots, shown)
    return "\n".join([*lines, "", render_footer(question, findings, ranking, confidence)])


def _render_phrase(question: OfflineQuestion, findings: Findings, ranking: Ranking, quoted: list[Hit]) -> str:
    """Show where a quoted text is, with the lines around it."""
    first = quoted[0]
    home = findings.enclosing(first)
    inside = f" in {title(findings, home)}" if home is not None and home.line != first.line else ""
    tests = sum(is_test(hit.path) for hit in quoted)
    more = (
        f"; {len(quoted) - 1} more lines have it" + (f", {tests} of them in tests" if tests else "")
        if len(quoted) > 1
        else ""
    )
    can_not = "I cannot write or change code. " if question.change else ""
    # A name without a definition: all we can show is the lines that contain it.
    unknown = "" if question.phrases else f"No definition of `{question.symbols[0]}` was found. "
    lines = [f"{can_not}{unknown}The text is at {place(first)}{inside}{more}.", ""]
    for hit in quoted[:3]:
        home = findings.enclosing(hit)
        excerpt = findings.excerpt_at(hit.path, hit.line)
        around = (
            [
                (number, excerpt.line(number))
                for number in range(max(excerpt.first, hit.line - 3), min(excerpt.last, hit.line + 1) + 1)
            ]
            if excerpt
            else [(hit.line, hit.text)]
        )
        lines += [
            f"- {place(hit)}" + (f" in {title(findings, home)}" if home is not None else ""),
            *("  " + line for line in fence(hit.path, around)),
        ]
    lines += [f"- {place(hit)}: `{shorten(hit.text, 100)}`" for hit in quoted[3:8]]
    return "\n".join([*lines, "", render_footer(question, findings, ranking, "strong" if question.phrases else "weak")])


def judge(question: OfflineQuestion, spot: CodeLocation) -> str:
    """How strong the evidence is: strong, weak or none."""
    if spot.is_exact and not _is_guess(question):
        return "strong"
    if spot.cover >= 0.62 and spot.score >= 0.4:
        return "strong"
    return "weak" if spot.cover >= 0.25 else "none"


def _is_guess(question: OfflineQuestion) -> bool:
    """Whether the symbol is a plain word that was only guessed to be a name."""
    return question.kind is Kind.HOW and all(symbol.islower() and symbol.isalpha() for symbol in question.symbols)


def _lead(question: OfflineQuestion, findings: Findings, spots: list[CodeLocation], confidence: str) -> str:
    hit = spots[0].hit
    name, doc = title(findings, hit), summarise(findings, hit)
    what = {"setting": "setting", "section": "section"}.get(hit.about.what, hit.about.what)
    said = f" Its own words: “{doc}”" if doc else ""
    if question.change:
        return f"I cannot write or change code; the change most likely goes into {name} ({what}), {place(hit)}.{said}"
    if spots[0].is_exact:
        exact = [spot for spot in spots if spot.is_exact and spot.hit.about.name == hit.about.name]
        more = f" ({len(exact)} definitions with this name below)" if len(exact) > 1 else ""
        return f"{name} is {_a(what)} defined in {place(hit)}{more}.{said}"
    if confidence == "strong":
        return f"Most likely {name}, {_a(what)} in {place(hit)}.{said}"
    if confidence == "none":
        return f"I did not find it. The nearest thing is {name}, {_a(what)} in {place(hit)}.{said}"
    return f"I am not sure; the closest match is {name}, {_a(what)} in {place(hit)}.{said}"


def _a(what: str) -> str:
    return f"an {what}" if what[:1] in "aeiou" else f"a {what}"


def _show_spot(
    question: OfflineQuestion, findings: Findings, spot: CodeLocation, count: int, *, is_first: bool
) -> list[str]:
    hit = spot.hit
    doc = "" if is_first else summarise(findings, hit)
    head = f"- {place(hit)} {hit.about.what} {title(findings, hit)}" + (f": {doc}" if doc else "")
    return [head, *("  " + line for line in fence(hit.path, telling_lines(question, findings, hit, count)))]


def _render_links(question: OfflineQuestion, findings: Findings, spots: list[CodeLocation]) -> list[str]:
    first = spots[0].hit
    lines: list[str] = []
    defined: dict[str, Hit] = {}
    for hit in findings.hits.values():
        if hit.about.is_definition:
            known = defined.get(hit.about.name)
            if known is None or _distance(first, hit) < _distance(first, known):
                defined[hit.about.name] = hit
    callees = [defined[name] for name in called_names(question, findings, spots[:1]) if name in defined]
    callees = [hit for hit in callees if (hit.path, hit.line) != (first.path, first.line) and not is_test(hit.path)]
    callees = [
        hit
        for hit in callees
        if not hit.about.name.startswith("__") and find_family(hit.path) == find_family(first.path)
    ]
    if first.about.what not in ("function", "method", "macro"):
        callees = []
    if callees:
        links = ", ".join(f"{title(findings, hit)} ({place(hit)})" for hit in callees[:4])
        lines.append(f"- {title(findings, first)} calls {links}")
    for hit in callees[:2]:
        doc = summarise(findings, hit)
        if doc:
            lines.append(f"  - {title(findings, hit)}: {doc}")
    lines += _render_users(findings, first)
    return ["", "**How the pieces connect**", *lines] if lines else []


def _distance(home: Hit, other: Hit) -> tuple[bool, bool, int]:
    shared = 0
    for one, two in zip(home.path.split("/"), other.path.split("/"), strict=False):
        if one != two:
            break
        shared += 1
    return (is_test(other.path) or is_vendored(other.path), find_family(home.path) != find_family(other.path), -shared)


def _render_users(findings: Findings, first: Hit) -> list[str]:
    name = last_name(first.about.name)
    if name in ("constructor", "__init__", "main", "new", "init"):
        return []
    # A name of one plain word may be an ordinary word: only a call or an attribute is certainly a use.
    is_word = name.islower() and name.isalpha()
    pattern = re.compile(
        rf"(?:[.>:]{re.escape(name)}\b|\b{re.escape(name)}\()" if is_word else rf"\b{re.escape(name)}\b"
    )
    uses = [
        hit
        for hit in findings.hits.values()
        if hit.about.role in ("code", "import")
        and find_family(hit.path) == find_family(first.path)
        and pattern.search(hit.text)
        and (hit.path, hit.line) != (first.path, first.line)
    ]
    uses.sort(
        key=lambda hit: (
            is_test(hit.path),
            is_vendored(hit.path),
            hit.about.role == "import",
            hit.path == first.path,
            hit.path,
            hit.line,
        )
    )
    lines: list[str] = []
    seen: set[str] = set()
    for hit in uses:
        if hit.path in seen or len(lines) == 3:
            continue
        seen.add(hit.path)
        home = findings.enclosing(hit)
        inside = f" in {title(findings, home)}" if home is not None and home.line != hit.line else ""
        verb = "imported" if hit.about.role == "import" else "used"
        lines.append(f"- {verb} at {place(hit)}{inside}: `{shorten(hit.text, 90)}`")
    if len(uses) > 3 and lines:
        files = len({hit.path for hit in uses})
        lines[-1] += f" ({len(uses)} uses in {files} {'file' if files == 1 else 'files'} seen)"
    return lines


def _render_more(
    question: OfflineQuestion, ranking: Ranking, spots: list[CodeLocation], shown_spots: list[CodeLocation]
) -> list[str]:
    shown = {(spot.hit.path, spot.hit.line) for spot in shown_spots}
    lines: list[str] = []
    for spot in [spot for spot in ranking.documents if spot.score >= 0.35][:2]:
        lines.append(f"- documentation {place(spot.hit)}: {shorten(spot.hit.text.lstrip('# '), 110)}")
    for spot in ranking.spots[:10]:
        key = (spot.hit.path, spot.hit.line)
        if key in shown or spot.score < 0.5 * spots[0].score or len(lines) >= 4:
            continue
        lines.append(f"- {place(spot.hit)} {spot.hit.about.what} {title(ranking.findings, spot.hit)}")
    tests = [path for path, _ in ranking.files if is_test(path)][:1] if not question.wants_tests else []
    lines += [f"- tests: `{path}`" for path in tests if ranking.score_file(path) > 0.12]
    return ["", "**Also look at**", *lines] if lines else []


def render_uses(ranking: Ranking) -> str:
    """Answer who calls, imports or mentions a name."""
    question, findings = ranking.question, ranking.findings
    uses = [hit for hit in uses_of(question, findings) if not is_vendored(hit.path)]
    defined = [spot for spot in ranking.spots if spot.is_exact]
    if not uses and not (question.symbols and defined):
        return render_topic(ranking)
    name = last_name(question.symbols[0])
    called = re.compile(rf"\b{re.escape(name)}\s*(?:<[^>]*>)?\(")
    calls = [hit for hit in uses if hit.about.role != "import" and called.search(hit.text)]
    tests = [hit for hit in uses if is_test(hit.path)]
    source = [hit for hit in uses if not is_test(hit.path)]
    files = {hit.path for hit in source}
    cut = any(pattern.endswith(rf"{re.escape(name)}\b") for pattern in findings.cut)
    number = f"{'at least ' if cut else ''}{len(source)}"
    in_calls = sum(1 for hit in calls if not is_test(hit.path))
    lead = (
        f"`{name}` is used on {number} lines in {len(files)} source files ({in_calls} of them calls)"
        + (
            f" and on {len(tests)} lines in {len({hit.path for hit in tests})} test files."
            if tests
            else "; no use in tests was seen."
        )
        if uses
        else f"`{name}` is defined, but no use of it was found."
    )
    if defined:
        lead += f" It is defined in {place(defined[0].hit)} ({defined[0].hit.about.what})."
    lines = [lead, "", *_render_use_groups(findings, calls, source or tests)]
    if tests and source:
        names = sorted({hit.path for hit in tests})
        lines.append(
            f"- tests: {', '.join(f'`{path}`' for path in names[:3])}"
            + (f" and {len(names) - 3} more" if len(names) > 3 else "")
        )
    return "\n".join([*lines, "", render_footer(question, findings, ranking, "strong" if uses and defined else "weak")])


def _render_use_groups(findings: Findings, calls: list[Hit], uses: list[Hit]) -> list[str]:
    in_calls = {(hit.path, hit.line) for hit in calls}
    groups: dict[str, list[Hit]] = defaultdict(list)
    for hit in uses:
        groups[hit.path].append(hit)
    ranked = sorted(
        groups,
        key=lambda path: (
            -sum((hit.path, hit.line) in in_calls for hit in groups[path]),
            find_family(path) in ("", "data", "markup"),
            path,
        ),
    )
    lines: list[str] = []
    rest = max(0, len(ranked) - 10)
    each = 3 if len(ranked) <= 5 else 1
    for path in ranked[:10]:
        if lines and len(lines) > 8 and not any((hit.path, hit.line) in in_calls for hit in groups[path]) and calls:
            rest += 1
            continue
        hits = [hit for hit in groups[path] if (hit.path, hit.line) in in_calls] or groups[path]
        hits = sorted(
            hits, key=lambda hit: ((hit.path, hit.line) not in in_calls, hit.about.role == "import", hit.line)
        )
        for hit in hits[:each]:
            home = findings.enclosing(hit)
            inside = f" in {title(findings, home)}" if home is not None and home.line != hit.line else ""
            role = (
                "call" if (hit.path, hit.line) in in_calls else ("import" if hit.about.role == "import" else "mention")
            )
            lines.append(f"- {place(hit)} {role}{inside}: `{shorten(hit.text, 100)}`")
        left = hits[each:]
        if left:
            lines[-1] += f" (also at {', '.join(str(hit.line) for hit in left[:6])}{', …' if len(left) > 6 else ''})"
    if rest:
        lines.append(f"- and {rest} more files that import or mention it, such as `{ranked[-1]}`")
    return lines


def render_nothing(question: OfflineQuestion, findings: Findings, ranking: Ranking) -> str:
    """The answer if no definition was found: what there is, and what to try."""
    words = [f"`{name}`" for name in (*question.symbols, *question.phrases)]
    words += [f"“{each.word}”" for each in question.concepts if each.word not in question.symbols]
    sought = ", ".join(words) or "the question's words"
    mentions = ranking.mentions[:6]
    can_not = "I cannot write or change code. " if question.change else ""
    if mentions:
        exact = any(phrase in mentions[0].hit.text for phrase in question.phrases)
        best = mentions[0].hit
        home = findings.enclosing(best)
        inside = f" (in {title(findings, home)})" if home is not None else ""
        lead = (
            f"The text is at {place(best)}{inside}."
            if exact
            else f"No definition for {sought}; the nearest line is {place(best)}{inside}."
        )
        lines = [can_not + lead, ""]
        lines += [f"- {place(spot.hit)}: `{shorten(spot.hit.text, 110)}`" for spot in mentions]
        return "\n".join([*lines, "", render_footer(question, findings, ranking, "strong" if exact else "weak")])
    files = [path for path, _ in ranking.files[:5]]
    lines = [f"{can_not}I found nothing for {sought}."]
    lines += ["", "File names that come near: " + ", ".join(f"`{path}`" for path in files)] if files else []
    lines += [
        "",
        "Try a name as it stands in the code (`CamelCase`, `snake_case`), a file name, or a message in quotes.",
    ]
    return "\n".join([*lines, "", render_footer(question, findings, ranking, "none")])


def render_footer(question: OfflineQuestion, findings: Findings, ranking: Ranking | None, confidence: str) -> str:
    """What was searched, what is missing, the confidence, and a note about this model."""
    parts = [
        f"{count} {word}"
        for count, word in (
            (findings.count(SearchAction), "searches"),
            (findings.count(Read), "reads"),
            (findings.count(Find) + findings.count(List), "listings"),
        )
        if count
    ]
    looked = f"Confidence: {confidence}. Looked at: {', '.join(parts)}" if parts else f"Confidence: {confidence}"
    paths = list(dict.fromkeys(excerpt.path for excerpt in findings.excerpts))
    looked += (
        f" (read {', '.join(f'`{path}`' for path in paths[:4])}{', …' if len(paths) > 4 else ''})." if paths else "."
    )
    if parts and not findings.count(SearchAction) and question.kind in (Kind.WHERE, Kind.HOW, Kind.USES):
        looked += " Without a search tool (`grep` or `bash`) I went by file names only."
    missing = _find_missing(question, findings)
    if missing:
        looked += f" Not found: {', '.join(missing)}."
    if findings.cut or findings.is_partial:
        looked += " Some results were cut off, so there may be more."
    if findings.errors:
        looked += f" Failed: {shorten('; '.join(findings.errors[:2]), 160)}."
    return f"---\n{looked}\n{NOTE}"


def _find_missing(question: OfflineQuestion, findings: Findings) -> list[str]:
    if not findings.count(SearchAction) or question.kind not in (Kind.WHERE, Kind.HOW, Kind.USES):
        return []
    texts = [hit.text.lower() for hit in findings.hits.values()]
    texts += [path.lower() for path in findings.files]
    return [f"“{each.word}”" for each in question.concepts if not any(each.stems[0] in text for text in texts)][:4]
