"""Render answers about a whole project as Markdown: what it is, its layout, how to run it, its facts.

This file must not know how evidence was fetched.
"""

import re
from collections import Counter

from retinue.models.offline.answer import render_footer
from retinue.models.offline.evidence import Excerpt, Findings
from retinue.models.offline.file_answers import describe_file
from retinue.models.offline.languages import find_family, is_test, is_vendored
from retinue.models.offline.manifest import collect_facts
from retinue.models.offline.plan import COMMANDS
from retinue.models.offline.question import OfflineQuestion
from retinue.models.offline.quotes import first_sentence, shorten
from retinue.models.offline.scores import Ranking
from retinue.models.offline.selection import MANIFESTS, find_entries, top_files

_BADGE = re.compile(r"^\s*(?:\[?!\[|<|\.\. |:\w+:|\[[^\]]+\]:|[=~^*-]{3,}\s*$|\||```|>|- \[)")


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
            elif not line or line.startswith("#") or _BADGE.match(line):
                continue
            elif index + 1 < len(excerpt.lines) and re.match(r"[=~^-]{3,}\s*$", excerpt.lines[index + 1]):
                if paragraph:
                    break
                heading = heading or line
            else:
                where = where or f"{excerpt.path}:{excerpt.first + index}"
                paragraph.append(line)
        if heading or paragraph:
            return heading, " ".join(paragraph), where
    return "", "", ""


def render_overview(ranking: Ranking) -> str:
    """Answer what the project is, how it is laid out and where to begin."""
    question, findings = ranking.question, ranking.findings
    facts = collect_facts(findings)
    heading, paragraph, where = _read_readme(findings)
    name = facts.name or re.sub(r"[*`]|\s*[-–:].*$", "", heading) or "This project"
    said = facts.description or first_sentence(paragraph)
    source = facts.source or where
    if not said:
        said, source = _describe_entry(findings)
    lines = [
        f"**{name}**: {said.rstrip('.')}. (`{source}`)"
        if said
        else f"**{name}** says nowhere what it is for; here is its shape."
    ]
    if paragraph and shorten(paragraph, 60)[:40] not in said:
        lines += ["", f"> {shorten(paragraph, 420)} (`{where}`)"]
    lines += ["", *_render_layout(findings)]
    if facts.commands:
        lines += [
            "",
            "**Entry points**",
            *(f"- `{name}` → `{target}` (`{spot}`)" for name, target, spot in facts.commands[:6]),
        ]
    elif find_entries(findings):
        lines += ["", "**Likely entry points**", *_render_entries(findings)]
    if facts.scripts:
        lines += ["", "**Commands**", *_render_scripts(_pick_scripts(facts.scripts, 5))]
    extra = [f"{label} {value} (`{spot}`)" for label, value, spot in facts.facts[:4]]
    if extra:
        lines += ["", "Facts: " + ", ".join(extra) + "."]
    return "\n".join([*lines, "", render_footer(question, findings, None, "strong" if said else "weak")])


def _describe_entry(findings: Findings) -> tuple[str, str]:
    """The description in the first file of the package, if there is no other."""
    for path in sorted(find_entries(findings), key=lambda path: "__init__" not in path):
        excerpt = findings.whole(path)
        doc = describe_file(excerpt) if excerpt else ""
        if len(doc) > 20:
            return doc, f"{path}:1"
    return "", ""


def _render_entries(findings: Findings) -> list[str]:
    lines = []
    for path in find_entries(findings)[:3]:
        excerpt = findings.whole(path)
        doc = describe_file(excerpt) if excerpt else ""
        lines.append(f"- `{path}:1`" + (f": {doc}" if len(doc) > 8 else ""))
    return lines


def _render_layout(findings: Findings) -> list[str]:
    files = [path for path in findings.files if not is_vendored(path)]
    folders = Counter(path.split("/")[0] for path in files if "/" in path)
    if len(folders) == 1:
        only = next(iter(folders))
        folders = Counter("/".join(path.split("/")[:2]) for path in files if path.count("/") > 1) or Counter(
            {only: len(files)}
        )
    else:
        # A src or packages folder says little: show its content.
        for outer in ("src", "packages", "lib", "crates"):
            inner = Counter(
                "/".join(path.split("/")[: 3 if outer == "src" and _is_nested(files) else 2])
                for path in files
                if path.startswith(f"{outer}/") and path.count("/") > (2 if outer == "src" and _is_nested(files) else 1)
            )
            if outer in folders and inner:
                del folders[outer]
                folders.update(inner)
    kinds = Counter(path.rsplit(".", 1)[-1] for path in files if "." in path.rsplit("/", 1)[-1])
    number = f"{'at least ' if findings.is_partial else ''}{len(files)}"
    most = ", ".join(f".{name} ({count})" for name, count in kinds.most_common(3))
    head = f"**Layout** ({number} files; most are {most})"
    if not files:
        entries = findings.listings.get(".", [])
        return ["**Layout**", "- " + ", ".join(f"`{entry}`" for entry in entries[:30])] if entries else []
    lines = [head]
    for folder, count in sorted(folders.items(), key=lambda pair: (pair[0].startswith("."), -pair[1]))[:10]:
        label = " (tests)" if is_test(folder + "/") else (" (documentation)" if folder.startswith("doc") else "")
        lines.append(f"- `{folder}/` {count} {'file' if count == 1 else 'files'}{label}")
    top = [path for path in top_files(findings) if not path.startswith(".")]
    if top:
        lines.append("- at the top: " + ", ".join(f"`{path}`" for path in top[:12]) + (", …" if len(top) > 12 else ""))
    return lines


def _is_nested(files: list[str]) -> bool:
    return len({path.split("/")[1] for path in files if path.startswith("src/") and path.count("/") > 1}) == 1


def _render_scripts(scripts: list[tuple[str, str, str]]) -> list[str]:
    return [
        f"- `{name}`" + (f": `{shorten(command, 90)}`" if command else "") + f" (`{where}`)"
        for name, command, where in scripts
    ]


_USUAL = re.compile(r"\b(?:demo|test|check|build|start|dev|run|lint|install|serve|format|bench|docs|all)\b")


def _pick_scripts(scripts: list[tuple[str, str, str]], count: int) -> list[tuple[str, str, str]]:
    return sorted(
        scripts, key=lambda script: (not _USUAL.search(script[0]), re.search(r"[:-]", script[0]) is not None)
    )[:count]


def _rank_command(topic: str, command: str) -> tuple[int, int]:
    """Sort key: `make test` before `make test-slow` before other commands with the word."""
    words = command.split()
    if words[-1] == topic or words[-1] in ("pytest", "tox", "nox"):
        return (0, len(words))
    return (1 if re.search(rf"(?<![-:\w]){topic}(?![-:\w])", command) else 2, 0)


_COMMAND = re.compile(
    r"^\s*(?:[$>%]\s+|run:\s*|-\s+run:\s*|-\s+)?((?:uv |poetry |pipx? |pip3 |python3? |py\.test|pytest|tox"
    r"|nox|hatch |maturin |make |npm |npx |yarn |pnpm |bun |deno "
    r"|cargo |go (?:test|build|run|install)|mvn |\./?gradlew?|gradle |bundle |rake |cmake |ctest|meson |ninja"
    r"|docker|\./configure|\./[\w./-]+|just |mix |composer )[^#`]*)"
)
_TOPICS = {
    "test": re.compile(r"\b(?:test|tests|pytest|tox|nox|ctest|check|jest|vitest|mocha)\b|py\.test"),
    "install": re.compile(r"\b(?:install|sync|develop|venv|ci|add|get|fetch)\b"),
    "build": re.compile(r"\b(?:build|compile|configure|cmake|dist|bundle|tsc)\b|^make$"),
    "lint": re.compile(r"\b(?:lint|ruff|flake8|mypy|eslint|fmt|format|clippy|vet|pre-commit|check|prettier)\b"),
    "start": re.compile(r"\b(?:run|start|serve|dev|demo|exec|up)\b|python -m"),
    "bench": re.compile(r"\bbench\w*"),
    "docs": re.compile(r"\bdocs?\b|sphinx|mkdocs"),
}


def render_run(ranking: Ranking) -> str:
    """Answer with the commands to run, test or build, each with its location."""
    question, findings = ranking.question, ranking.findings
    facts = collect_facts(findings)
    wanted = _find_topics(question)
    rows = list(facts.scripts)
    for excerpt in findings.excerpts:
        if find_family(excerpt.path) in ("markup", "data", "") and excerpt.path.rsplit("/", 1)[-1] not in MANIFESTS:
            rows += _find_commands(excerpt)
    for hit in findings.found_by.get(COMMANDS, []):
        command = re.sub(r"^[$>]\s*", "", hit.text.strip())
        if _COMMAND.match(command) and not any(row[2] == f"{hit.path}:{hit.line}" for row in rows):
            rows.append((command, "", f"{hit.path}:{hit.line}"))
    picked: list[tuple[str, str, str]] = []
    for topic in wanted:
        named = sorted(
            (row for row in rows if _TOPICS[topic].search(row[0])), key=lambda row: _rank_command(topic, row[0])
        )
        inside = [row for row in rows if _TOPICS[topic].search(row[1]) and row not in named]
        picked += [row for row in [*named, *inside] if row not in picked][:6]
    if "start" in wanted:
        picked += [(name, target, where) for name, target, where in facts.commands[:4]]
    guess = "" if picked else _guess_tests(findings, wanted)
    if picked:
        lead = f"`{shorten(picked[0][0], 100)}` is the first thing to try (`{picked[0][2]}`)."
        lines = [lead, "", *_render_scripts(picked[:9])]
        confidence = "strong"
    else:
        lines = [guess or f"No command to {' or '.join(wanted)} this project is written down in what I read."]
        confidence = "weak" if guess else "none"
    return "\n".join([*lines, "", render_footer(question, findings, None, confidence)])


def _find_topics(question: OfflineQuestion) -> list[str]:
    low = question.text.lower()
    found = [topic for topic in ("test", "lint", "bench", "docs", "build", "install") if re.search(rf"\b{topic}", low)]
    if re.search(r"set ?up|\binstall", low) and "install" not in found:
        found.append("install")
    if re.search(r"compil", low):
        found.append("build")
    if re.search(r"type-?check|format", low):
        found.append("lint")
    return found or ["start", "install"]


def _find_commands(excerpt: Excerpt) -> list[tuple[str, str, str]]:
    rows = []
    in_fence = False
    for index, text in enumerate(excerpt.lines):
        if text.strip().startswith(("```", "~~~")):
            in_fence = not in_fence
        spans = (
            re.findall(r"`{1,2}([^`]{3,100})`{1,2}", text)
            if find_family(excerpt.path) == "markup" and not in_fence
            else []
        )
        # Prose may begin with "Make sure" or "Go to": only an indented, prompted or fenced line is a command.
        bare = (
            text if in_fence or text.startswith((" ", "\t", "$", ">")) or find_family(excerpt.path) != "markup" else ""
        )
        for candidate in [bare, *spans]:
            found = _COMMAND.match(candidate)
            if found and len(found.group(1).strip()) > 3:
                rows.append((found.group(1).strip(), "", f"{excerpt.path}:{excerpt.first + index}"))
                break
    return rows


def _guess_tests(findings: Findings, wanted: list[str]) -> str:
    if "test" not in wanted:
        return ""
    tests = [path for path in findings.files if is_test(path)]
    for ending, command in (
        (".py", "python -m pytest"),
        ("_test.go", "go test ./..."),
        (".rs", "cargo test"),
        (".rb", "rake test"),
    ):
        found = [path for path in tests if path.endswith(ending)]
        if found:
            there = f"{len(found)} test files such as `{found[0]}`"
            return f"Nothing says how; there are {there}, for which `{command}` is usual (a guess)."
    return ""


def render_fact(ranking: Ranking) -> str:
    """Answer with facts from the manifests: dependencies, versions, licence, entry points, targets."""
    question, findings = ranking.question, ranking.findings
    facts = collect_facts(findings)
    low = question.text.lower()
    lines: list[str] = []
    if "depend" in low:
        where = facts.dependencies[0][1] if facts.dependencies else ""
        lines = (
            [f"{len(facts.dependencies)} direct dependencies are declared in `{where}`.", ""]
            if facts.dependencies
            else []
        )
        lines += [f"- `{name}`" for name, _ in facts.dependencies[:25]]
    elif "entry" in low or "console" in low:
        lines = (
            [
                f"{len(facts.commands)} entry points are declared.",
                "",
                *(f"- `{name}` → `{target}` (`{where}`)" for name, target, where in facts.commands[:12]),
            ]
            if facts.commands
            else []
        )
        lines = lines or (
            ["No entry point is declared; these files look like one.", "", *_render_entries(findings)]
            if find_entries(findings)
            else []
        )
    elif "target" in low or "scripts" in low:
        lines = ["These commands are declared.", "", *_render_scripts(facts.scripts[:20])] if facts.scripts else []
    elif re.search(r"\blanguages?\b", low):
        lines = _render_layout(findings)[:1]
    else:
        keys = [
            key
            for key in ("license", "licence", "python", "node", "go", "rust", "version")
            if re.search(rf"\b{key}\b", low)
        ]
        keys = [key for key in keys if key != "version"] or keys
        rows = [
            row for row in facts.facts if any(key.replace("licence", "license") in row[0].lower() for key in keys)
        ] or facts.facts
        lines = [f"{rows[0][0]}: **{rows[0][1]}** (`{rows[0][2]}`)."] if rows else []
        lines += (
            ["", *(f"- {label}: {value} (`{where}`)" for label, value, where in rows[1:6])] if len(rows) > 1 else []
        )
    if not lines:
        return "\n".join(["The manifests I read do not say.", "", render_footer(question, findings, None, "none")])
    return "\n".join([*lines, "", render_footer(question, findings, None, "strong")])
