"""Render answers about files as Markdown: which files exist, and what one file contains.

This file must not know how evidence was fetched.
"""

import re
from collections import Counter

from retinue.models.offline.answer import render_footer
from retinue.models.offline.evidence import Excerpt, Findings
from retinue.models.offline.languages import find_family, is_test, is_vendored, read_line
from retinue.models.offline.quotes import first_sentence, place, read_module_doc, shorten
from retinue.models.offline.scores import Ranking
from retinue.models.offline.selection import resolve_paths
from retinue.models.offline.words import split_words


def describe_file(excerpt: Excerpt) -> str:
    """The file's description of itself at its top."""
    number = excerpt.first
    while number <= min(excerpt.last, excerpt.first + 30):
        text = excerpt.line(number).strip()
        if re.match(r"[rRuU]?(?:\"\"\"|''')", text):
            return read_module_doc(excerpt, number)
        if text and not re.match(r"#!|#(?!\s*include)|//|/\*|\*|;|from __future__|['\"]use strict", text):
            break
        number += 1
    comment: list[str] = []
    for text in excerpt.lines[:30]:
        found = re.match(
            r"\s*(?:#(?!!|\s*(?:include|define|if|pragma))|//+!?|/\*+|\*+|;+|\"\")\s?(.*?)(?:\*/)?\s*$", text
        )
        if not found or (not found.group(1).strip() and comment):
            if comment:
                break
            if text.strip() and not text.startswith("#!"):
                break
            continue
        if found.group(1).strip() and not re.match(
            r"(?:Copyright|SPDX|Licen[cs]e|@\w+|-\*-|eslint|vim:|coding)", found.group(1).strip(), re.I
        ):
            comment.append(found.group(1))
    return first_sentence(" ".join(comment)) if comment else ""


_KIND_WORDS = split_words("test spec python javascript typescript yaml json toml markdown config shell header c source")


def render_files(ranking: Ranking) -> str:
    """Answer which files there are of a kind, or about a topic."""
    question, findings = ranking.question, ranking.findings
    files = [path for path in findings.files if not is_vendored(path)]
    kinds = {*_KIND_WORDS, *question.extensions}
    topics = [each for each in question.concepts if each.word.lower().removesuffix("s") not in kinds]
    label = "files"
    if question.extensions:
        files = [path for path in files if path.rsplit(".", 1)[-1].lower() in question.extensions]
        label = "/".join(f".{name}" for name in question.extensions) + " files"
    if question.wants_tests:
        files = [path for path in files if is_test(path)]
        label = "test " + label
    elif re.search(r"\bconfig", question.text, re.I) and not topics:
        files = [path for path in files if find_family(path) == "data"]
        label = "configuration files"
    elif re.search(r"\bdocs?\b|\bdocument", question.text, re.I):
        files = [path for path in files if find_family(path) == "markup"]
        label, topics = "documents", [each for each in topics if not each.word.lower().startswith("doc")]
    if topics and not question.wants_tests:
        order = {path: score for path, score in ranking.files}
        best = max((order.get(path, 0.0) for path in files), default=0.0)
        files = sorted(
            (path for path in files if order.get(path, 0) > max(0.12, 0.3 * best)),
            key=lambda path: (-order[path], path),
        )
        label += " about " + ", ".join(f"“{each.word}”" for each in topics)
    elif topics:
        named = [path for path in files if any(ranking.match(each, path) for each in topics)]
        files = named or files
    if not files:
        return "\n".join([f"I found no {label}.", "", render_footer(question, findings, ranking, "none")])
    lines = [f"{'At least ' if findings.is_partial else ''}{len(files)} {label}.", ""]
    lines += _render_ranked(ranking, files) if topics and not question.wants_tests else _render_grouped(files)
    return "\n".join([*lines, "", render_footer(question, findings, ranking, "strong" if not topics else "weak")])


def _render_ranked(ranking: Ranking, files: list[str]) -> list[str]:
    spots = ranking.spots
    lines = []
    for path in files[:15]:
        best = next((spot.hit for spot in spots if spot.hit.path == path), None)
        lines.append(f"- `{path}:{best.line}` {best.about.what} `{best.about.name}`" if best else f"- `{path}`")
    return lines


def _render_grouped(files: list[str]) -> list[str]:
    groups: dict[str, list[str]] = {}
    for path in files:
        folder, _, name = path.rpartition("/")
        groups.setdefault(folder or ".", []).append(name)
    lines = []
    for folder, names in sorted(groups.items(), key=lambda pair: (-len(pair[1]), pair[0]))[:20]:
        shown = ", ".join(f"`{name}`" for name in names[:8])
        lines.append(
            f"- `{folder}/` ({len(names)}): {shown}" + (f" and {len(names) - 8} more" if len(names) > 8 else "")
        )
    if len(groups) > 20:
        lines.append(f"- and {len(groups) - 20} more folders")
    return lines


def render_file(ranking: Ranking) -> str:
    """Answer what one file is: its description, its outline, its imports and who imports it."""
    question, findings = ranking.question, ranking.findings
    paths = [path for path in resolve_paths(question, findings) if findings.whole(path)]
    paths = paths or [excerpt.path for excerpt in findings.excerpts]
    if not paths:
        near = resolve_paths(question, findings)
        asked = ", ".join(f"`{path}`" for path in question.paths)
        lead = f"I found no file {asked}." if not near else f"I could not read `{near[0]}`."
        return "\n".join([lead, "", render_footer(question, findings, None, "none")])
    lines: list[str] = []
    for path in paths[:2]:
        lines += [*_render_one_file(findings, path), ""]
    return "\n".join([*lines, render_footer(question, findings, None, "strong")])


def _plural(what: str) -> str:
    return {"class": "classes", "impl": "impl blocks"}.get(what, what + "s")


def _render_one_file(findings: Findings, path: str) -> list[str]:
    excerpt = findings.whole(path)
    if excerpt is None:
        return []
    doc = describe_file(excerpt)
    outline = [
        hit for hit in findings.outlines.get(path, []) if hit.about.what not in ("field", "declaration", "export", "")
    ]
    names = [hit for hit in outline if hit.indent == 0 and hit.about.what not in ("constant", "variable")]
    counts = Counter(hit.about.what for hit in outline)
    shape = ", ".join(f"{count} {_plural(what) if count > 1 else what}" for what, count in counts.most_common(4))
    lead = f"`{path}`: {doc}" if doc else f"`{path}` does not say what it is for."
    lines = [lead + (f" It has {shape}." if shape else "")]
    solid = [hit for hit in outline if hit.about.what not in ("constant", "variable")]
    main = names if len(names) > 2 else (solid or outline)
    shown = [hit for hit in main if not hit.about.name.startswith("__")][:18] or main[:18]
    lines += (
        ["", "**Outline**", *(f"- {place(hit)} {hit.about.what} `{shorten(hit.text.strip(), 100)}`" for hit in shown)]
        if shown
        else []
    )
    if len(main) > len(shown):
        lines.append(f"- and {len(main) - len(shown)} more")
    if not shown:
        lines += ["", *(f"> {shorten(text, 140)}" for text in excerpt.lines[:12] if text.strip())]
    imports = [shorten(text.strip(), 80) for text in excerpt.lines if read_line(path, text).role == "import"]
    if imports:
        lines += [
            "",
            "**Imports** "
            + ", ".join(f"`{text}`" for text in imports[:6])
            + (f" and {len(imports) - 6} more" if len(imports) > 6 else ""),
        ]
    users = sorted(
        {hit.path for hit in findings.hits.values() if hit.about.role == "import" and hit.path != path},
        key=lambda each: (is_test(each), each),
    )
    if users:
        lines += [
            "",
            f"**Imported by** ({len(users)}) "
            + ", ".join(f"`{each}`" for each in users[:6])
            + (", …" if len(users) > 6 else ""),
        ]
    return lines
