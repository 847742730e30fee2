"""Render answers about one file as Markdown: what it is for and what it contains.

This file must not know how evidence was fetched.
"""

import re
from collections import Counter

from retinue.core.pattern import late_pattern
from retinue.models.offline.answer import join_answer
from retinue.models.offline.evidence import Excerpt, Findings
from retinue.models.offline.languages import is_test, read_line
from retinue.models.offline.quotes import first_sentence, place, read_module_doc, shorten
from retinue.models.offline.scores import Ranking
from retinue.models.offline.selection import resolve_paths

_COMMENT = late_pattern(r"\s*(?:#(?!!|\s*(?:include|define|if|pragma))|//+!?|/\*+|\*+|;+|\"\")\s?(.*?)(?:\*/)?\s*$")
_FORMAL = late_pattern(r"(?:Copyright|SPDX|Licen[cs]e|@\w+|-\*-|eslint|vim:|coding)", re.I)


def describe_file(excerpt: Excerpt) -> str:
    """The file's description of itself at its top: a docstring, or the first comment."""
    comment: list[str] = []
    for number, text in enumerate(excerpt.lines[:30], excerpt.first):
        if re.match(r"[rRuU]?(?:\"\"\"|''')", text.strip()):
            return read_module_doc(excerpt, number)
        found = _COMMENT.match(text)
        words = found[1].strip() if found else ""
        if words and not _FORMAL.match(words):
            comment.append(words)
        elif comment or (text.strip() and found is None and not text.startswith("#!")):
            break
    return first_sentence(" ".join(comment)) if comment else ""


def render_file(ranking: Ranking) -> str:
    """Answer what one file is: its description, its outline, its imports and who imports it."""
    question, findings = ranking.question, ranking.findings
    paths = resolve_paths(question, findings)
    excerpts = [excerpt for path in paths if (excerpt := findings.whole(path))]
    if not excerpts:
        asked = ", ".join(f"`{path}`" for path in question.paths)
        lead = f"I could not read `{paths[0]}`." if paths else f"I found no file {asked}."
        return join_answer(ranking, [lead], "none")
    lines: list[str] = []
    for excerpt in excerpts[:2]:
        lines += ["", *_render_one_file(findings, excerpt)] if lines else _render_one_file(findings, excerpt)
    return join_answer(ranking, lines, "strong")


def _render_one_file(findings: Findings, excerpt: Excerpt) -> list[str]:
    path = excerpt.path
    doc = describe_file(excerpt)
    minor = ("field", "declaration", "export", "")
    outline = [hit for hit in findings.outlines.get(path, []) if hit.about.what not in minor]
    counts = Counter(hit.about.what for hit in outline).most_common(4)
    shape = ", ".join(f"{count} {what}{_PLURALS.get(what, 's') if count > 1 else ''}" for what, count in counts)
    lead = f"`{path}`: {doc}" if doc else f"`{path}` does not say what it is for."
    lines = [lead + (f" It has {shape}." if shape else "")]
    solid = [hit for hit in outline if hit.about.what not in ("constant", "variable") and hit.about.name[:2] != "__"]
    names = [hit for hit in solid if hit.indent == 0]
    main = names if len(names) > 2 else solid or outline
    if main:
        shown = [f"- {place(hit)} {hit.about.what} `{shorten(hit.text.strip(), 100)}`" for hit in main[:18]]
        lines += ["", "**Outline**", *shown, *([f"- and {len(main) - 18} more"] if len(main) > 18 else [])]
    else:
        lines += ["", *(f"> {shorten(text, 140)}" for text in excerpt.lines[:12] if text.strip())]
    imports = [shorten(text.strip(), 80) for text in excerpt.lines if read_line(path, text).role == "import"]
    if imports:
        more = f" and {len(imports) - 6} more" if len(imports) > 6 else ""
        lines += ["", f"**Imports** {', '.join(f'`{text}`' for text in imports[:6])}{more}"]
    users = {hit.path for hit in findings.hits.values() if hit.about.role == "import" and hit.path != path}
    if users:
        first = ", ".join(f"`{each}`" for each in sorted(users, key=lambda each: (is_test(each), each))[:6])
        lines += ["", f"**Imported by** ({len(users)}) {first}{', …' if len(users) > 6 else ''}"]
    return lines


_PLURALS = {"class": "es", "impl": " blocks"}
