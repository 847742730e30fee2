"""Render answers about a whole project as Markdown: what it is, its layout, how to run it, its facts.

Manifests are quoted, not interpreted. This file must not know how evidence was fetched.
"""

import re
from collections import Counter
from collections.abc import Iterator

from retinue.core.pattern import late_pattern
from retinue.models.offline.answer import join_answer
from retinue.models.offline.evidence import Excerpt, Findings
from retinue.models.offline.languages import find_family, is_test, is_vendored, read_line
from retinue.models.offline.quotes import fence, first_sentence, shorten
from retinue.models.offline.scores import Ranking
from retinue.models.offline.selection import MANIFESTS, top_files

_BADGE = late_pattern(r"^\s*(?:\[?!\[|<|\.\. |:\w+:|\[[^\]]+\]:|[=~^*-]{3,}\s*$|\||```|>|- \[)")
_NAME = re.compile(r"^\s*\"?name\"?\s*[:=]\s*[\"']?([\w@./ -]+)|^module\s+(\S+)")
_DESCRIPTION = re.compile(r"^\s*\"?description\"?\s*[:=]\s*[\"']([^\"']{8,})")
# What a question may ask for, and the line of a manifest that answers it.
_FACTS = {
    r"depend": r"^\s*(?:\[.*dependencies\]|\"?(?:peerD|d)ependencies\"?\s*[:=]|install_requires|require \()",
    r"entry|console": r"^\s*(?:\[.*scripts\]|\[\[bin\]\]|\"(?:bin|main)\"\s*:)",
    r"script|target": r"^\s*\"scripts\"",
    r"licen[cs]e": r"^\s*\"?license\"?\s*[:=]",
    r"version|python|node|rust|go\b": (
        r"^\s*(?:\"?(?:version|requires-python|python_requires|rust-version|node)\"?\s*[:=]|go \d)"
    ),
}
_MOST_QUOTED = 25


def render_overview(ranking: Ranking) -> str:
    """Answer what the project is, how it is laid out and where to begin."""
    findings = ranking.findings
    heading, paragraph, where = _read_readme(findings)
    found = next(_find_lines(findings, _NAME), None)
    name = (found[2][1] or found[2][2]) if found else re.sub(r"[*`]|\s*[-–:].*$", "", heading) or "This project"
    if told := next(_find_lines(findings, _DESCRIPTION), None):
        said, source = told[2][1], f"{told[0].path}:{told[1]}"
    else:
        said, source = first_sentence(paragraph), where
    lead = f"**{name}**: {said.rstrip('.')}. (`{source}`)" if said else f"**{name}** does not say what it is for."
    lines = [lead]
    if paragraph and shorten(paragraph, 60)[:40] not in said:
        lines += ["", f"> {shorten(paragraph, 420)} (`{where}`)"]
    lines += ["", *_render_layout(findings)]
    if entries := _quote_fact(findings, "entry points"):
        lines += ["", "**Entry points**", *entries]
    if commands := _list_scripts(findings):
        commands.sort(key=lambda row: (not _USUAL.search(row[0]), re.search(r"[:-]", row[0]) is not None))
        lines += ["", "**Commands**", *_render_commands(commands[:5])]
    return join_answer(ranking, lines, "strong" if said else "weak")


def _read_readme(findings: Findings) -> tuple[str, str, str]:
    """Title, first paragraph and its location."""
    for excerpt in findings.excerpts:
        if not excerpt.path.rsplit("/", 1)[-1].lower().startswith("readme"):
            continue
        heading = where = ""
        paragraph: list[str] = []
        for index, text in enumerate(excerpt.lines):
            line = text.strip()
            if not heading and (found := re.match(r"#+\s+(.+?)\s*#*$", line)):
                heading = found.group(1)
            elif paragraph and (not line or line.startswith("#")):
                break
            elif index + 1 < len(excerpt.lines) and re.match(r"[=~^-]{3,}\s*$", excerpt.lines[index + 1]):
                heading = heading or line
            elif line and not line.startswith("#") and not _BADGE.match(line):
                where = where or f"{excerpt.path}:{excerpt.first + index}"
                paragraph.append(line)
        return heading, " ".join(paragraph), where
    return "", "", ""


def _find_lines(findings: Findings, pattern: re.Pattern[str]) -> Iterator[tuple[Excerpt, int, re.Match[str]]]:
    """The lines of manifests that match, with their numbers."""
    for excerpt in findings.excerpts:
        if excerpt.path in MANIFESTS:
            for number, text in enumerate(excerpt.lines, excerpt.first):
                if found := pattern.match(text):
                    yield excerpt, number, found


def _render_layout(findings: Findings) -> list[str]:
    files = [path for path in findings.files if not is_vendored(path)]
    # A src or packages folder says little: show its content.
    depths = {"src": 2, "packages": 2, "lib": 2, "crates": 2}
    if len({path.split("/")[1] for path in files if path.startswith("src/") and path.count("/") > 1}) == 1:
        depths["src"] = 3
    folders = Counter[str]()
    for path in files:
        first, *rest = path.split("/")[:-1] or [""]
        folders["/".join([first, *rest][: depths.get(first, 1)])] += bool(first)
    kinds = Counter(path.rsplit(".", 1)[-1] for path in files if "." in path.rsplit("/", 1)[-1])
    number = f"{'at least ' if findings.is_partial else ''}{len(files)}"
    most = ", ".join(f".{name} ({count})" for name, count in kinds.most_common(3))
    lines = [f"**Layout** ({number} files; most are {most})" if kinds else "**Layout**"]
    for folder, count in sorted(folders.items(), key=lambda pair: (pair[0].startswith("."), -pair[1]))[:10]:
        if count:
            label = " (tests)" if is_test(folder + "/") else (" (documentation)" if folder.startswith("doc") else "")
            lines.append(f"- `{folder}/` {count} {'file' if count == 1 else 'files'}{label}")
    top = [path for path in top_files(findings) if not path.startswith(".")]
    if top:
        lines.append("- at the top: " + ", ".join(f"`{path}`" for path in top[:12]) + (", …" if len(top) > 12 else ""))
    return lines


def _quote_fact(findings: Findings, asked: str) -> list[str]:
    """The lines of the manifests that answer a question, as quotes."""
    wanted = [pattern for words, pattern in _FACTS.items() if re.search(words, asked)]
    pattern = re.compile("|".join(f"(?:{each})" for each in wanted)) if wanted else None
    lines: list[str] = []
    quoted: set[tuple[str, int]] = set()
    for excerpt, number, _ in _find_lines(findings, pattern) if pattern else ():
        if (excerpt.path, number) not in quoted and len(lines) < 60:
            block = _take_block(excerpt, number)
            quoted |= {(excerpt.path, line) for line, _ in block}
            lines += [f"- `{excerpt.path}:{number}`", *("  " + line for line in fence(excerpt.path, block))]
    return lines


def _take_block(excerpt: Excerpt, number: int) -> list[tuple[int, str]]:
    """A line of a manifest with what belongs to it: the rest of a list, an object or a section."""
    first = excerpt.line(number)
    indent = len(first) - len(first.lstrip())
    is_section = first.lstrip().startswith("[") and first.rstrip().endswith("]")
    block = [(number, first)]
    if not is_section and not first.rstrip().endswith(("[", "{", "(")):
        return block
    for line in range(number + 1, min(excerpt.last, number + _MOST_QUOTED) + 1):
        text = excerpt.line(line)
        if is_section and (not text.strip() or text.startswith("[")):
            break
        block.append((line, text))
        if not is_section and text.strip()[:1] in ("]", "}", ")") and len(text) - len(text.lstrip()) <= indent:
            break
    return block


def render_fact(ranking: Ranking) -> str:
    """Answer with lines of the manifests: dependencies, versions, licence, entry points, scripts."""
    findings, low = ranking.findings, ranking.question.text.lower()
    if quotes := _quote_fact(findings, low):
        return join_answer(ranking, ["This is what the manifests say.", "", *quotes], "strong")
    if "language" in low:
        return join_answer(ranking, _render_layout(findings)[:1], "strong")
    return join_answer(ranking, ["The manifests I read do not say."], "none")


_USUAL = late_pattern(r"\b(?:demo|test|check|build|start|dev|run|lint|install|serve|format|bench|docs|all)\b")
_COMMAND = late_pattern(
    r"^\s*(?:[$>%]\s+|run:\s*|-\s+run:\s*|-\s+)?((?:uv |poetry |pipx? |pip3 |python3? |py\.test|pytest|tox"
    r"|nox|hatch |maturin |make |npm |npx |yarn |pnpm |bun |deno "
    r"|cargo |go (?:test|build|run|install)|mvn |\./?gradlew?|gradle |bundle |rake |cmake |ctest|meson |ninja"
    r"|docker|\./configure|\./[\w./-]+|just |mix |composer )[^#`]*)"
)
# What a question may ask for, and the commands that do it.
_TOPICS = {
    r"\btest": r"\b(?:test|tests|pytest|tox|nox|ctest|check|jest|vitest|mocha)\b|py\.test",
    r"\b(?:lint|format|type-?check)": r"\b(?:lint|ruff|flake8|mypy|eslint|fmt|format|clippy|vet|check|prettier)\b",
    r"\bbench": r"\bbench\w*",
    r"\bdocs": r"\bdocs?\b|sphinx|mkdocs",
    r"\b(?:build|compil)": r"\b(?:build|compile|configure|cmake|dist|bundle|tsc)\b|^make$",
    r"\binstall|\bset ?up": r"\b(?:install|sync|develop|venv|ci|add|get|fetch)\b",
}
_START = r"\b(?:run|start|serve|dev|demo|exec|up|install|sync)\b|python -m"

Row = tuple[str, str, str]
"""A command, what it does, and its location."""


def render_run(ranking: Ranking) -> str:
    """Answer with the commands to run, test or build, each with its location."""
    findings, low = ranking.findings, ranking.question.text.lower()
    rows = _list_scripts(findings)
    for excerpt in findings.excerpts:
        rows += _find_commands(excerpt) if find_family(excerpt.path) == "markup" else []
    picked: list[Row] = []
    for pattern in [does for asked, does in _TOPICS.items() if re.search(asked, low)] or [_START]:
        named = [row for row in rows if re.search(pattern, row[0])]
        # `make test` comes before `make test-slow`, and a declared command before one in a document.
        named.sort(key=lambda row: re.fullmatch(rf"(?:{pattern})", row[0].split()[-1]) is None)
        inside = [row for row in rows if re.search(pattern, row[1]) and row not in named]
        picked += [row for row in [*named, *inside] if row not in picked][:6]
    if not picked:
        return join_answer(ranking, ["The files I read do not mention a command for this."], "none")
    lead = f"Try `{shorten(picked[0][0], 100)}` first (`{picked[0][2]}`)."
    return join_answer(ranking, [lead, "", *_render_commands(picked[:9])], "strong")


def _render_commands(rows: list[Row]) -> list[str]:
    return [
        f"- `{command}`" + (f": `{shorten(does, 90)}`" if does else "") + f" (`{where}`)"
        for command, does, where in rows
    ]


def _list_scripts(findings: Findings) -> list[Row]:
    """The targets of Makefiles and the scripts of package.json."""
    rows: list[Row] = []
    for excerpt in findings.excerpts:
        if excerpt.path.endswith("package.json"):
            start = next((at for at, text in enumerate(excerpt.lines) if '"scripts"' in text), len(excerpt.lines))
            for number, text in _take_block(excerpt, excerpt.first + start):
                if found := re.match(r"\s*\"([\w:.-]+)\":\s*\"(.*)\",?\s*$", text):
                    rows.append((f"npm run {found[1]}", found[2], f"{excerpt.path}:{number}"))
        for number, text in enumerate(excerpt.lines if find_family(excerpt.path) == "make" else (), excerpt.first):
            about = read_line(excerpt.path, text)
            if about.what == "target" and re.fullmatch(r"[\w-][\w.-]*", about.name):
                following = excerpt.line(number + 1)
                comment = re.search(r"##\s*(.+)$", text)
                does = comment[1] if comment else following.strip() if following.startswith("\t") else ""
                rows.append((f"make {about.name}", does, f"{excerpt.path}:{number}"))
    return rows


def _find_commands(excerpt: Excerpt) -> list[Row]:
    rows: list[Row] = []
    in_fence = False
    for number, text in enumerate(excerpt.lines, excerpt.first):
        if text.strip().startswith(("```", "~~~")):
            in_fence = not in_fence
        # Prose may begin with "Make sure" or "Go to": only an indented, prompted or fenced line is a command.
        is_bare = in_fence or text.startswith((" ", "\t", "$", ">"))
        spans = [] if in_fence else re.findall(r"`{1,2}([^`]{3,100})`{1,2}", text)
        for candidate in [text if is_bare else "", *spans]:
            found = _COMMAND.match(candidate)
            if found and len(found[1].strip()) > 3:
                rows.append((found[1].strip(), "", f"{excerpt.path}:{number}"))
                break
    return rows
