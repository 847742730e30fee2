"""Answers about a whole project or a whole file, as markdown: what it is, how to run it, which files there are.

This file must not know how evidence was fetched.
"""

import json
import re
import tomllib
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from retinue.models.offline.answer import render_footer
from retinue.models.offline.evidence import Excerpt, Findings
from retinue.models.offline.languages import find_family, is_test, is_vendored, read_line
from retinue.models.offline.plan import MANIFESTS, find_entries, resolve_paths, top_files
from retinue.models.offline.question import Question
from retinue.models.offline.quoting import first_sentence, place, read_module_doc, shorten
from retinue.models.offline.ranking import Ranking


@dataclass(slots=True)
class Facts:
    """What manifests say; every fact with the place it stands."""

    name: str = ""
    description: str = ""
    source: str = ""
    """Where the description stands, `path:line`."""
    scripts: list[tuple[str, str, str]] = field(default_factory=list)
    """Name, command, place."""
    commands: list[tuple[str, str, str]] = field(default_factory=list)
    """Entry points: name, target, place."""
    dependencies: list[tuple[str, str]] = field(default_factory=list)
    facts: list[tuple[str, str, str]] = field(default_factory=list)
    """Label, value, place: version, required language version, licence."""


def collect_facts(findings: Findings) -> Facts:
    """Read the manifests and task files among the excerpts."""
    facts = Facts()
    for excerpt in findings.excerpts:
        name = excerpt.path.rsplit("/", 1)[-1]
        if name == "package.json":
            _read_package(facts, excerpt)
        elif name in ("pyproject.toml", "Cargo.toml"):
            _read_toml(facts, excerpt)
        elif name in ("setup.cfg", "setup.py", "go.mod", "configure.ac"):
            _read_lines(facts, excerpt)
        elif find_family(excerpt.path) == "make":
            _read_targets(facts, excerpt)
        elif name.lower().startswith(("license", "copying")) and excerpt.lines:
            facts.facts.append(("license text", first_sentence(" ".join(excerpt.lines[:3]), 80), f"{excerpt.path}:1"))
    return facts


def _locate(excerpt: Excerpt, pattern: str) -> str:
    for index, text in enumerate(excerpt.lines):
        if re.search(pattern, text):
            return f"{excerpt.path}:{excerpt.first + index}"
    return f"{excerpt.path}:1"


def _describe(facts: Facts, excerpt: Excerpt, name: object, description: object) -> None:
    facts.name = facts.name or (name if isinstance(name, str) else "")
    if isinstance(description, str) and description and not facts.description:
        facts.description, facts.source = description, _locate(excerpt, r"^\W*description\W")


def _read_package(facts: Facts, excerpt: Excerpt) -> None:
    text = "\n".join(excerpt.lines)
    try:
        data = json.loads(text)
    except ValueError:
        data = {key: value for key, value in re.findall(r'^\s{1,4}"(name|description|version)": "([^"\n]*)"', text, re.MULTILINE)}
    if not isinstance(data, dict):
        return
    _describe(facts, excerpt, data.get("name"), data.get("description"))
    for name, command in _table(data.get("scripts")).items():
        facts.scripts.append((f"npm run {name}", str(command), _locate(excerpt, rf'^\s*"{re.escape(name)}":')))
    binaries = data.get("bin")
    binaries = {data.get("name", "bin"): binaries} if isinstance(binaries, str) else _table(binaries)
    for name, target in binaries.items():
        facts.commands.append((str(name), str(target), _locate(excerpt, r'"bin"')))
    if isinstance(data.get("main"), str):
        facts.commands.append(("main module", data["main"], _locate(excerpt, r'"main"')))
    for group in ("dependencies", "peerDependencies"):
        facts.dependencies += [(f"{name} {version}", _locate(excerpt, rf'"{group}"')) for name, version in _table(data.get(group)).items()]
    for label, value in (("version", data.get("version")), ("license", data.get("license")), ("node", _table(data.get("engines")).get("node"))):
        if isinstance(value, str):
            facts.facts.append((label, value, _locate(excerpt, rf'"{label}"')))


def _read_toml(facts: Facts, excerpt: Excerpt) -> None:
    try:
        data = tomllib.loads("\n".join(excerpt.lines))
    except tomllib.TOMLDecodeError:
        # the excerpt may end in the middle of a table: drop lines until it reads
        data = _load_prefix(list(excerpt.lines))
    project = _table(data.get("project")) or _table(data.get("package")) or _table(_table(data.get("tool")).get("poetry"))
    _describe(facts, excerpt, project.get("name"), project.get("description"))
    for name, target in _table(project.get("scripts")).items():
        facts.commands.append((name, str(target), _locate(excerpt, rf"^\W*{re.escape(name)}\W*=")))
    listed = project.get("dependencies")
    names = listed if isinstance(listed, list) else [f"{name} {_version(value)}" for name, value in _table(listed or data.get("dependencies")).items()]
    facts.dependencies += [(str(name), _locate(excerpt, r"^(?:dependencies\s*=|\[.*dependencies\])")) for name in names]
    for label, key in (("version", "version"), ("Python", "requires-python"), ("license", "license"), ("Rust", "rust-version")):
        value = project.get(key)
        if isinstance(value, str):
            facts.facts.append((label, value, _locate(excerpt, rf"^{key}\s*=")))


def _version(value: object) -> str:
    return value if isinstance(value, str) else str(_table(value).get("version", ""))


def _load_prefix(lines: list[str]) -> dict[str, Any]:
    for _ in range(60):
        if not lines:
            break
        lines.pop()
        try:
            return tomllib.loads("\n".join(lines))
        except tomllib.TOMLDecodeError:
            continue
    return {}


def _table(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


_LINE_FACTS = (
    ("version", re.compile(r"^\s*version\s*=\s*[\"']?([\w.+-]+)[\"']?,?\s*$")),
    ("Python", re.compile(r"^\s*python_requires\s*=\s*[\"']?([^\"']+)")),
    ("license", re.compile(r"^\s*license\s*=\s*[\"']?([^\"']+)")),
    ("Go", re.compile(r"^go\s+([\d.]+)")),
)


def _read_lines(facts: Facts, excerpt: Excerpt) -> None:
    in_requirements = False
    for index, text in enumerate(excerpt.lines):
        where = f"{excerpt.path}:{excerpt.first + index}"
        found = re.match(r"\s*name\s*=\s*[\"']?([\w.-]+)", text) or re.match(r"(?:module\s+|AC_INIT\(\[?)([\w./ -]+)", text)
        if found and not facts.name:
            facts.name = found.group(1)
        found = re.match(r"\s*description\s*=\s*[\"']?([^\"']{8,})", text)
        if found and not facts.description:
            facts.description, facts.source = found.group(1).strip(), where
        for label, pattern in _LINE_FACTS:
            found = pattern.match(text)
            if found:
                facts.facts.append((label, found.group(1).strip(), where))
        if re.match(r"install_requires\s*=|\s*install_requires\s*=\s*\[|require \(", text):
            in_requirements = True
        elif in_requirements and re.match(r"\s+[\"']?[A-Za-z][\w./-]+", text):
            facts.dependencies.append((text.strip().strip("\"',"), where))
        elif in_requirements and text.strip():
            in_requirements = False


def _read_targets(facts: Facts, excerpt: Excerpt) -> None:
    for index, text in enumerate(excerpt.lines):
        about = read_line(excerpt.path, text)
        if about.what == "target" and not about.name.startswith(".") and "%" not in about.name and "/" not in about.name:
            following = excerpt.line(excerpt.first + index + 1)
            recipe = following.strip() if following.startswith("\t") else ""
            comment = re.search(r"##\s*(.+)$", text)
            facts.scripts.append((f"make {about.name}", comment.group(1) if comment else recipe, f"{excerpt.path}:{excerpt.first + index}"))


_BADGE = re.compile(r"^\s*(?:\[?!\[|<|\.\. |:\w+:|\[[^\]]+\]:|[=~^*-]{3,}\s*$|\||```|>|- \[)")


def _read_readme(findings: Findings) -> tuple[str, str, str]:
    """Title, first paragraph and its place."""
    for excerpt in findings.excerpts:
        if not excerpt.path.rsplit("/", 1)[-1].lower().startswith("readme"):
            continue
        heading, paragraph, where = "", [], ""
        for index, text in enumerate(excerpt.lines):
            line = text.strip()
            if not heading and (found := re.match(r"#+\s+(.+?)\s*#*$", line)):
                heading = found.group(1)
            elif paragraph and (not line or line.startswith("#")):
                break
            elif not line or line.startswith("#") or _BADGE.match(line):
                continue
            elif not heading and index + 1 < len(excerpt.lines) and re.match(r"[=~-]{3,}\s*$", excerpt.lines[index + 1]):
                heading = line
            else:
                where = where or f"{excerpt.path}:{excerpt.first + index}"
                paragraph.append(line)
        if heading or paragraph:
            return heading, " ".join(paragraph), where
    return "", "", ""


def render_overview(question: Question, findings: Findings) -> str:
    """What the project is, how it is laid out and where to begin."""
    facts = collect_facts(findings)
    heading, paragraph, where = _read_readme(findings)
    name = facts.name or re.sub(r"[*`]|\s*[-–:].*$", "", heading) or "This project"
    said = facts.description or first_sentence(paragraph)
    source = facts.source or where
    lines = [f"**{name}**: {said.rstrip('.')}. (`{source}`)" if said else f"**{name}** says nowhere what it is for; here is its shape."]
    if paragraph and shorten(paragraph, 60)[:40] not in said:
        lines += ["", f"> {shorten(paragraph, 420)} (`{where}`)"]
    lines += ["", *_render_layout(findings)]
    if facts.commands:
        lines += ["", "**Entry points**", *(f"- `{name}` → `{target}` (`{spot}`)" for name, target, spot in facts.commands[:6])]
    elif find_entries(findings):
        lines += ["", "**Likely entry points**", *_render_entries(findings)]
    if facts.scripts:
        lines += ["", "**Commands**", *_render_scripts(_pick_scripts(facts.scripts, 5))]
    extra = [f"{label} {value} (`{spot}`)" for label, value, spot in facts.facts[:4]]
    if extra:
        lines += ["", "Facts: " + ", ".join(extra) + "."]
    return "\n".join([*lines, "", render_footer(question, findings, None, "strong" if said else "weak")])


def _render_entries(findings: Findings) -> list[str]:
    lines = []
    for path in find_entries(findings)[:3]:
        excerpt = findings.whole(path)
        doc = describe_file(excerpt) if excerpt else ""
        lines.append(f"- `{path}:1`" + (f": {doc}" if doc else ""))
    return lines


def describe_file(excerpt: Excerpt) -> str:
    """What a file says about itself at its top."""
    number = excerpt.first
    while number <= min(excerpt.last, excerpt.first + 30):
        text = excerpt.line(number).strip()
        if re.match(r"[rRuU]?(?:\"\"\"|''')", text):
            return read_module_doc(excerpt, number)
        if text and not re.match(r"#!|#|//|/\*|\*|;|from __future__|['\"]use strict", text):
            break
        number += 1
    comment: list[str] = []
    for text in excerpt.lines[:30]:
        found = re.match(r"\s*(?:#(?!!)|//+!?|/\*+|\*+|;+|\"\")\s?(.*?)(?:\*/)?\s*$", text)
        if not found or (not found.group(1).strip() and comment):
            if comment:
                break
            if text.strip() and not text.startswith("#!"):
                break
            continue
        if found.group(1).strip() and not re.match(r"(?:Copyright|SPDX|Licen[cs]e|@\w+|-\*-|eslint|vim:|coding)", found.group(1).strip(), re.I):
            comment.append(found.group(1))
    return first_sentence(" ".join(comment)) if comment else ""


def _render_layout(findings: Findings) -> list[str]:
    files = [path for path in findings.files if not is_vendored(path)]
    folders = Counter(path.split("/")[0] for path in files if "/" in path)
    if len(folders) == 1:
        only = next(iter(folders))
        folders = Counter("/".join(path.split("/")[:2]) for path in files if path.count("/") > 1) or Counter({only: len(files)})
    else:
        # a src or packages folder says little itself: show what is in it
        for outer in ("src", "packages", "lib", "crates"):
            inner = Counter("/".join(path.split("/")[:3 if outer == "src" and _is_nested(files) else 2]) for path in files if path.startswith(f"{outer}/") and path.count("/") > (2 if outer == "src" and _is_nested(files) else 1))
            if outer in folders and inner:
                del folders[outer]
                folders.update(inner)
    kinds = Counter(path.rsplit(".", 1)[-1] for path in files if "." in path.rsplit("/", 1)[-1])
    number = f"{'at least ' if findings.is_partial else ''}{len(files)}"
    head = f"**Layout** ({number} files; most are {', '.join(f'.{name} ({count})' for name, count in kinds.most_common(3))})"
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
    return [f"- `{name}`" + (f": `{shorten(command, 90)}`" if command else "") + f" (`{where}`)" for name, command, where in scripts]


_USUAL = re.compile(r"\b(?:demo|test|check|build|start|dev|run|lint|install|serve|format|bench|docs|all)\b")


def _pick_scripts(scripts: list[tuple[str, str, str]], count: int) -> list[tuple[str, str, str]]:
    return sorted(scripts, key=lambda script: not _USUAL.search(script[0]))[:count]


_COMMAND = re.compile(
    r"^\s*(?:[$>%]\s+|run:\s*|-\s+run:\s*|-\s+)?((?:uv |poetry |pipx? |pip3 |python3? |py\.test|pytest|tox|nox|hatch |make |npm |npx |yarn |pnpm |bun |deno "
    r"|cargo |go (?:test|build|run|install)|mvn |\./?gradlew?|gradle |bundle |rake |cmake |ctest|meson |ninja|docker|\./configure|\./[\w./-]+|just |mix |composer )[^#`]*)"
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


def render_run(question: Question, findings: Findings) -> str:
    """Commands to run, test or build, each with its place."""
    facts = collect_facts(findings)
    wanted = _find_topics(question)
    rows = list(facts.scripts)
    for excerpt in findings.excerpts:
        if find_family(excerpt.path) in ("markup", "data", "") and excerpt.path.rsplit("/", 1)[-1] not in MANIFESTS:
            rows += _find_commands(excerpt)
    picked: list[tuple[str, str, str]] = []
    for topic in wanted:
        named = [row for row in rows if _TOPICS[topic].search(row[0])]
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


def _find_topics(question: Question) -> list[str]:
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
        spans = re.findall(r"`{1,2}([^`]{3,100})`{1,2}", text) if find_family(excerpt.path) == "markup" and not in_fence else []
        # prose begins with "Make sure" or "Go to": only an indented, prompted or fenced line is a command
        bare = text if in_fence or text.startswith((" ", "\t", "$", ">")) or find_family(excerpt.path) != "markup" else ""
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
    for ending, command in ((".py", "python -m pytest"), ("_test.go", "go test ./..."), (".rs", "cargo test"), (".rb", "rake test")):
        found = [path for path in tests if path.endswith(ending)]
        if found:
            return f"Nothing says how; there are {len(found)} test files such as `{found[0]}`, for which `{command}` is usual (a guess)."
    return ""


def render_fact(question: Question, findings: Findings) -> str:
    """Facts of the manifests: dependencies, versions, licence, entry points, targets."""
    facts = collect_facts(findings)
    low = question.text.lower()
    lines: list[str] = []
    if "depend" in low:
        where = facts.dependencies[0][1] if facts.dependencies else ""
        lines = [f"{len(facts.dependencies)} direct dependencies are declared in `{where}`.", ""] if facts.dependencies else []
        lines += [f"- `{name}`" for name, _ in facts.dependencies[:25]]
    elif "entry" in low or "console" in low:
        lines = [f"{len(facts.commands)} entry points are declared.", "", *(f"- `{name}` → `{target}` (`{where}`)" for name, target, where in facts.commands[:12])] if facts.commands else []
        lines = lines or (["No entry point is declared; these files look like one.", "", *_render_entries(findings)] if find_entries(findings) else [])
    elif "target" in low or "scripts" in low:
        lines = ["These commands are declared.", "", *_render_scripts(facts.scripts[:20])] if facts.scripts else []
    elif re.search(r"\blanguages?\b", low):
        lines = _render_layout(findings)[:1]
    else:
        keys = [key for key in ("license", "licence", "python", "node", "go", "rust", "version") if re.search(rf"\b{key}\b", low)]
        keys = [key for key in keys if key != "version"] or keys
        rows = [row for row in facts.facts if any(key.replace("licence", "license") in row[0].lower() for key in keys)] or facts.facts
        lines = [f"{rows[0][0]}: **{rows[0][1]}** (`{rows[0][2]}`)."] if rows else []
        lines += ["", *(f"- {label}: {value} (`{where}`)" for label, value, where in rows[1:6])] if len(rows) > 1 else []
    if not lines:
        return "\n".join(["The manifests I read do not say.", "", render_footer(question, findings, None, "none")])
    return "\n".join([*lines, "", render_footer(question, findings, None, "strong")])


def render_files(question: Question, findings: Findings) -> str:
    """Which files there are of a kind, or about something."""
    files = [path for path in findings.files if not is_vendored(path)]
    ranking = Ranking(question, findings)
    topics = [each for each in question.concepts if each.word.lower() not in ("test", "tests", "spec", "python", "yaml", "json", "markdown", "config", "shell", "header", *question.extensions)]
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
        order = {path: score for path, score in ranking.files()}
        best = max((order.get(path, 0.0) for path in files), default=0.0)
        files = sorted((path for path in files if order.get(path, 0) > max(0.12, 0.3 * best)), key=lambda path: (-order[path], path))
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
    spots = ranking.spots()
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
        lines.append(f"- `{folder}/` ({len(names)}): {shown}" + (f" and {len(names) - 8} more" if len(names) > 8 else ""))
    if len(groups) > 20:
        lines.append(f"- and {len(groups) - 20} more folders")
    return lines


def render_file(question: Question, findings: Findings) -> str:
    """What one file is: its own words, its outline, what it imports and who imports it."""
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


def _render_one_file(findings: Findings, path: str) -> list[str]:
    excerpt = findings.whole(path)
    if excerpt is None:
        return []
    doc = describe_file(excerpt)
    outline = [hit for hit in findings.outlines.get(path, []) if hit.about.what not in ("field", "declaration")]
    names = [hit for hit in outline if hit.indent == 0 and hit.about.what not in ("constant", "variable")]
    counts = Counter(hit.about.what for hit in outline)
    shape = ", ".join(f"{count} {what}{'s' if count > 1 and not what.endswith('s') else ''}".replace("classs", "classes") for what, count in counts.most_common(4))
    lead = f"`{path}`: {doc}" if doc else f"`{path}` does not say what it is for."
    lines = [lead + (f" It has {shape}." if shape else "")]
    main = names if len(names) > 2 else outline
    shown = [hit for hit in main if not hit.about.name.startswith("__")][:18] or main[:18]
    lines += ["", "**Outline**", *(f"- {place(hit)} {hit.about.what} `{shorten(hit.text.strip(), 100)}`" for hit in shown)] if shown else []
    if len(main) > len(shown):
        lines.append(f"- and {len(main) - len(shown)} more")
    if not shown:
        lines += ["", *(f"> {shorten(text, 140)}" for text in excerpt.lines[:12] if text.strip())]
    imports = [shorten(text.strip(), 80) for text in excerpt.lines if read_line(path, text).role == "import"]
    if imports:
        lines += ["", "**Imports** " + ", ".join(f"`{text}`" for text in imports[:6]) + (f" and {len(imports) - 6} more" if len(imports) > 6 else "")]
    users = sorted({hit.path for hit in findings.hits.values() if hit.about.role == "import" and hit.path != path}, key=lambda each: (is_test(each), each))
    if users:
        lines += ["", f"**Imported by** ({len(users)}) " + ", ".join(f"`{each}`" for each in users[:6]) + (", …" if len(users) > 6 else "")]
    return lines
