"""Parts of an answer about one location: its name, its documentation and its relevant lines.

This file must not know kinds of questions.
"""

import re

from retinue.core.pattern import late_pattern
from retinue.models.offline.evidence import Excerpt, Findings, Hit
from retinue.models.offline.languages import FENCES, find_family
from retinue.models.offline.question import OfflineQuestion
from retinue.models.offline.words import split_pieces

_MARKS = late_pattern(r"^\s*(?:///?!?|#+!?|/\*+|\*+/?|--|;;|\"\"\"|''')\s?|\s*(?:\*/|\"\"\"|''')\s*$")
_COMMENT = late_pattern(r"\s*(?:///?|#(?!\s*(?:include|define|if|else|end))|/\*|\*|--\s)")
_RECEIVER = late_pattern(r"^func\s+\(\s*\w*\s*\*?(\w+)")
_TAG = late_pattern(
    r"^\s*(?:@\w+|:\w+[ \w]*:|Args?:|Returns?:|Parameters?\b|eslint|type:|noqa|TODO|-{3,}|={3,}|Copyright"
    r"|SPDX|Licen[cs]e|\[clinic)"
)


def place(hit: Hit) -> str:
    return f"`{hit.path}:{hit.line}`"


def title(findings: Findings, hit: Hit) -> str:
    """The name of a definition with its class, as code."""
    name = hit.about.name
    receiver = _RECEIVER.match(hit.text)
    container = findings.container(hit) if hit.indent or hit.about.what == "method" else None
    if receiver:
        name = f"{receiver.group(1)}.{name}"
    elif container is not None and container.about.what != "module" and container.about.name != name:
        name = f"{container.about.name}.{name}"
    return f"`{name}`"


def show_home(findings: Findings, hit: Hit) -> str:
    """` in` and the definition that contains a line; empty if there is none."""
    home = findings.enclosing(hit)
    return f" in {title(findings, home)}" if home is not None and home.line != hit.line else ""


def shorten(text: str, limit: int = 160) -> str:
    """One line of at most `limit` characters."""
    text = " ".join(text.split())
    return text if len(text) <= limit else text[: limit - 1].rstrip() + "…"


def first_sentence(text: str, limit: int = 220) -> str:
    text = " ".join(text.split())
    found = re.match(r".{12,}?[.!?](?=\s+[A-Z`*(\[]|$)", text)
    return shorten(found.group() if found else text, limit)


def summarise(findings: Findings, hit: Hit) -> str:
    """The docstring of a definition, or the comment above it; empty if there is neither."""
    excerpt = findings.excerpt_at(hit.path, hit.line)
    if excerpt is None:
        return ""
    doc = ""
    if find_family(hit.path) == "python":
        is_line = hit.about.what in ("field", "constant")
        doc = read_module_doc(excerpt, hit.line + 1) if is_line else _read_docstring(excerpt, hit.line)
    return doc or _read_comment(excerpt, hit.line)


def _read_docstring(excerpt: Excerpt, line: int) -> str:
    number = line
    depth = 0
    while number <= min(line + 25, excerpt.last):
        text = excerpt.line(number)
        code = re.sub(r"#.*$|\"[^\"]*\"|'[^']*'", "", text)
        depth += sum(code.count(each) for each in "([{") - sum(code.count(each) for each in ")]}")
        number += 1
        if depth <= 0 and code.rstrip().endswith(":"):
            break
    return read_module_doc(excerpt, number)


def read_module_doc(excerpt: Excerpt, number: int) -> str:
    """The first sentence of the docstring that begins at a line; empty if there is none."""
    text = excerpt.line(number).strip()
    found = re.match(r"[rRuU]?(\"\"\"|''')(.*)$", text)
    if not found:
        return ""
    parts = [found.group(2)]
    while found.group(1) not in parts[-1] and number < excerpt.last and len(parts) < 12:
        number += 1
        following = excerpt.line(number).strip()
        if not following and any(parts):
            break
        parts.append(following)
    return first_sentence(" ".join(parts).replace(found.group(1), " "))


def _read_comment(excerpt: Excerpt, line: int) -> str:
    parts: list[str] = []
    number = line - 1
    while number >= excerpt.first and re.match(r"\s*(?:@[\w.]+|#\[)", excerpt.line(number)):
        number -= 1
    while True:
        if number < max(1, excerpt.first):
            # The comment begins above the excerpt: its first sentence is unknown.
            return "" if number >= 1 else _join_comment(parts)
        text = excerpt.line(number)
        if not _COMMENT.match(text) and not text.rstrip().endswith("*/"):
            break
        parts.insert(0, _MARKS.sub("", _MARKS.sub("", text)))
        number -= 1
        if re.match(r"\s*/\*", text):
            break
    return _join_comment(parts)


def _join_comment(parts: list[str]) -> str:
    kept: list[str] = []
    for part in parts:
        if _TAG.match(part) or (not part.strip() and kept):
            if kept:
                break
            continue
        kept.append(part)
    sentence = first_sentence(" ".join(kept))
    is_text = len(sentence) > 8 and re.search(r"[a-z]{3}", sentence) and not re.match(r"<?https?://\S+$", sentence)
    return sentence if is_text else ""


def telling_lines(question: OfflineQuestion, findings: Findings, hit: Hit, count: int) -> list[tuple[int, str]]:
    """The first line of a definition, and the lines in it that match the question best."""
    excerpt = findings.excerpt_at(hit.path, hit.line)
    is_class = hit.about.what in ("class", "interface", "impl")
    members = _pick_members(question, findings, hit, count - 1) if is_class else []
    if members or excerpt is None:
        return [(hit.line, hit.text), *((each.line, each.text) for each in members)]
    last = min(findings.end_of(hit), excerpt.last)
    in_doc = False
    scored: list[tuple[float, int]] = []
    for number in range(hit.line + 1, last + 1):
        text = excerpt.line(number)
        quotes = text.count('"""') + text.count("'''")
        skipped = in_doc or quotes > 0 or re.match(r"\s*(?:#|//|\*|/\*|@)", text) or len(text.strip()) < 4
        in_doc ^= quotes % 2 == 1
        if skipped:
            continue
        pieces = split_pieces(text[:300])
        score = sum(each.match(pieces) for each in question.concepts)
        score += 0.4 * bool(re.match(r"\s*(?:return|raise|throw|yield|await)\b", text))
        score += 0.3 * ("(" in text) + 0.1 * ("=" in text)
        scored.append((score - 0.004 * (number - hit.line), number))
    best = sorted(scored, key=lambda pair: (-pair[0], pair[1]))[: count - 1]
    numbers = sorted(number for _, number in best)
    return [(hit.line, excerpt.line(hit.line)), *((number, excerpt.line(number)) for number in numbers)]


def _pick_members(question: OfflineQuestion, findings: Findings, hit: Hit, count: int) -> list[Hit]:
    """The methods of a class that match the question best, in file order."""
    last = findings.end_of(hit)
    inside = [
        each
        for each in findings.outlines.get(hit.path, [])
        if hit.line < each.line <= last and each.about.what in ("method", "function") and each.indent <= hit.indent + 4
    ]

    def weigh(member: Hit) -> tuple[float, bool, int]:
        pieces = split_pieces(member.about.name)
        is_inner = member.about.name.startswith("_") and member.about.name != "__init__"
        return (-sum(each.match(pieces) for each in question.concepts), is_inner, member.line)

    return sorted(sorted(inside, key=weigh)[:count], key=lambda each: each.line)


def fence(path: str, lines: list[tuple[int, str]]) -> list[str]:
    """Numbered lines as a code block, without their common indent."""
    shown = [(number, text.expandtabs(4).rstrip()) for number, text in lines if text.strip()]
    common = min((len(text) - len(text.lstrip()) for _, text in shown), default=0)
    width = max((len(str(number)) for number, _ in shown), default=1)
    family = find_family(path)
    out = [f"```{FENCES.get(family, family)}"]
    previous = 0
    for number, text in shown:
        if previous and number > previous + 1:
            out.append(f"{'…':>{width}}")
        cut = text[common:]
        out.append(f"{number:>{width}}  {cut if len(cut) <= 130 else cut[:129] + '…'}")
        previous = number
    return [*out, "```"]
