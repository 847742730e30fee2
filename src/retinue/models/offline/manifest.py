"""Read facts from manifests and task files: name, description, commands, dependencies, versions.

This file must not know questions or answers.
"""

import json
import re
import tomllib
from dataclasses import dataclass, field
from typing import Any

from retinue.models.offline.evidence import Excerpt, Findings
from retinue.models.offline.languages import find_family, read_line
from retinue.models.offline.quotes import first_sentence


@dataclass(slots=True)
class ManifestFacts:
    """Facts from manifests, each with its location (`path:line`)."""

    name: str = ""
    description: str = ""
    source: str = ""
    """Location of the description."""
    scripts: list[tuple[str, str, str]] = field(default_factory=list)
    """Name, command, location."""
    commands: list[tuple[str, str, str]] = field(default_factory=list)
    """Entry points: name, target, location."""
    dependencies: list[tuple[str, str]] = field(default_factory=list)
    facts: list[tuple[str, str, str]] = field(default_factory=list)
    """Label, value, location: version, required language version, licence."""


def collect_facts(findings: Findings) -> ManifestFacts:
    facts = ManifestFacts()
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


def _describe(facts: ManifestFacts, excerpt: Excerpt, name: object, description: object) -> None:
    facts.name = facts.name or (name if isinstance(name, str) else "")
    if isinstance(description, str) and description and not facts.description:
        facts.description, facts.source = description, _locate(excerpt, r"^\W*description\W")


def _read_package(facts: ManifestFacts, excerpt: Excerpt) -> None:
    text = "\n".join(excerpt.lines)
    try:
        data = json.loads(text)
    except ValueError:
        data = {
            key: value
            for key, value in re.findall(r'^\s{1,4}"(name|description|version)": "([^"\n]*)"', text, re.MULTILINE)
        }
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
        facts.dependencies += [
            (f"{name} {version}", _locate(excerpt, rf'"{group}"')) for name, version in _table(data.get(group)).items()
        ]
    for label, value in (
        ("version", data.get("version")),
        ("license", data.get("license")),
        ("node", _table(data.get("engines")).get("node")),
    ):
        if isinstance(value, str):
            facts.facts.append((label, value, _locate(excerpt, rf'"{label}"')))


def _read_toml(facts: ManifestFacts, excerpt: Excerpt) -> None:
    try:
        data = tomllib.loads("\n".join(excerpt.lines))
    except tomllib.TOMLDecodeError:
        # The excerpt may end inside a table: drop lines until it can be parsed.
        data = _load_prefix(list(excerpt.lines))
    project = (
        _table(data.get("project")) or _table(data.get("package")) or _table(_table(data.get("tool")).get("poetry"))
    )
    _describe(facts, excerpt, project.get("name"), project.get("description"))
    for name, target in _table(project.get("scripts")).items():
        facts.commands.append((name, str(target), _locate(excerpt, rf"^\W*{re.escape(name)}\W*=")))
    listed = project.get("dependencies")
    names = (
        listed
        if isinstance(listed, list)
        else [f"{name} {_version(value)}" for name, value in _table(listed or data.get("dependencies")).items()]
    )
    facts.dependencies += [(str(name), _locate(excerpt, r"^(?:dependencies\s*=|\[.*dependencies\])")) for name in names]
    for label, key in (
        ("version", "version"),
        ("Python", "requires-python"),
        ("license", "license"),
        ("Rust", "rust-version"),
    ):
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
    ("version", re.compile(r"^\s*version\s*=\s*[\"']?(\d[\w.+-]*)[\"']?,?\s*$")),
    ("Python", re.compile(r"^\s*python_requires\s*=\s*[\"']?([^\"']+)")),
    ("license", re.compile(r"^\s*license\s*=\s*[\"']?([^\"']+)")),
    ("Go", re.compile(r"^go\s+([\d.]+)")),
)


def _read_lines(facts: ManifestFacts, excerpt: Excerpt) -> None:
    in_requirements = False
    for index, text in enumerate(excerpt.lines):
        where = f"{excerpt.path}:{excerpt.first + index}"
        found = re.match(r"\s*name\s*=\s*[\"']?([\w.-]+)", text) or re.match(
            r"(?:module\s+|AC_INIT\(\[?)([\w./ -]+)", text
        )
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


def _read_targets(facts: ManifestFacts, excerpt: Excerpt) -> None:
    for index, text in enumerate(excerpt.lines):
        about = read_line(excerpt.path, text)
        if (
            about.what == "target"
            and not about.name.startswith(".")
            and "%" not in about.name
            and "/" not in about.name
        ):
            following = excerpt.line(excerpt.first + index + 1)
            recipe = following.strip() if following.startswith("\t") else ""
            comment = re.search(r"##\s*(.+)$", text)
            facts.scripts.append(
                (
                    f"make {about.name}",
                    comment.group(1) if comment else recipe,
                    f"{excerpt.path}:{excerpt.first + index}",
                )
            )
