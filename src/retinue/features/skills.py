"""Skills: instructions that an agent gets in full, or finds in a list and reads when needed.

Follows no symbolic links and examines a limited number of files. Must not decide which folders are trusted: only
readable roots are passed in.
"""

import asyncio
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

from msgspec import Struct

from retinue.core.definition import Selection
from retinue.core.diagnostics import Diagnostic
from retinue.core.errors import quote
from retinue.core.messages import escape_element
from retinue.core.terminal import escape_line
from retinue.definitions.frontmatter import BlockError, Scalar, parse_block
from retinue.engine.setup import Feature, RunSetup
from retinue.features.nofollow import Folder, decode_text, is_safe_name

SKILL_FILE = "SKILL.md"
MAX_ENTRIES = 10_000
"""Maximum number of entries examined below one root."""
MAX_DEPTH = 12
MAX_SKILL_BYTES = 128 * 1024
MAX_HEAD_BYTES = 16 * 1024
"""Maximum number of bytes read to get a skill's name and description."""
MAX_LISTED = 200
MAX_DESCRIPTION_CHARS = 1024
FRESH_S = 1.0
"""How long a check whether skill folders exist stays valid."""
_SKIPPED = "node_modules"


class Skill(Struct, frozen=True):
    name: str
    description: str
    path: str


@lru_cache(maxsize=16)  # called for each run, always with the same arguments
def find_skill_roots(
    project: Path, agent_dir: Path, home: Path | None, *, configs: tuple[str, ...]
) -> tuple[Path, ...]:
    """Return where skills are searched, in order; `configs` are the project's trusted configuration folders."""
    roots = [project / name / "skills" for name in (".pi", ".agents", ".claude") if name in configs]
    roots.append(agent_dir / "skills")
    if home is not None:
        roots += [home / name / "skills" for name in (".agents", ".pi", ".claude")]
    return tuple(dict.fromkeys(roots))


class SkillCheck:
    """Checks whether any skill folder exists; cached for runs that start together."""

    def __init__(self) -> None:
        self._seen: dict[tuple[Path, ...], tuple[float, bool]] = {}

    def is_any_there(self, roots: Sequence[Path]) -> bool:
        """Return whether one of the folders exists, or existed a moment ago."""
        key, now_s = tuple(roots), time.monotonic()
        at_s, is_there = self._seen.get(key, (-FRESH_S, False))
        if now_s - at_s >= FRESH_S:
            is_there = any(os.path.isdir(root) for root in key)
            self._seen = {key: (now_s, is_there)}
        return is_there


class Skills(Feature):
    """Adds a selection of skills to a run's prompt."""

    name = "skills"

    def __init__(self, selection: Selection, roots: Sequence[Path], skill_check: SkillCheck | None = None) -> None:
        self._selection = selection
        self._roots = roots
        self._skill_check = skill_check or SkillCheck()

    async def enter(self, setup: RunSetup) -> RunSetup:
        """Add the selected skills in full, or the list of all skills for an agent that can read files."""
        if self._selection is False:
            return setup
        if self._selection is True:
            has_any = _can_use(setup) and self._skill_check.is_any_there(self._roots)
            sections = await asyncio.to_thread(self._list) if has_any else {}
        else:
            sections = await asyncio.to_thread(self._preload, self._selection)
        return setup.change(sections={**setup.sections, **sections}) if sections else setup

    def _list(self) -> dict[str, str]:
        skills, _ = list_skills(self._roots)
        return {"skills": f"<skills>\n{render_catalogue(skills)}\n</skills>"} if skills else {}

    def _preload(self, names: Iterable[str]) -> dict[str, str]:
        return {f"skill:{name}": preload_skill(name, self._roots) for name in dict.fromkeys(names)}


def preload_skill(name: str, roots: Sequence[Path]) -> str:
    """Return the text of one skill; if it is missing, the text says so and the agent runs without it."""
    shown = escape_line(name, 80)
    heading = f"# Preloaded Skill: {shown}"
    if not is_safe_name(name):
        reason = "a name has 1 to 128 of the characters a-z, A-Z, 0-9, dot, underscore and hyphen"
        return f'{heading}\n\n(Skill "{shown}" skipped: {reason}, and begins with a letter or digit)'
    searched = []
    for root in roots:
        walk = _Walk(root)
        text = _find_skill(name, walk)
        if text is not None:
            return f"{heading}\n\n{text}"
        searched.append(f"{root} (only the first {MAX_ENTRIES} entries were searched)" if walk.is_cut else str(root))
    return f'{heading}\n\n(Skill "{shown}" not found in {", ".join(searched) or "any folder"})'


def list_skills(roots: Sequence[Path]) -> tuple[tuple[Skill, ...], tuple[Diagnostic, ...]]:
    """Return all skills that a model may use, in search order, and problems with other files."""
    found: dict[str, Skill] = {}
    problems: list[Diagnostic] = []
    for root in roots:
        for path, folder, file in _find_candidates(root, problems):
            skill = _describe(path, folder, file, problems)
            if skill is None:
                continue
            if skill.name in found:
                text = f"{path}: there is already a skill {quote(skill.name)}: {found[skill.name].path}; skipped"
                problems.append(Diagnostic(text, str(path), severity="warning", code="skill-shadowed"))
            elif len(found) < MAX_LISTED:
                found[skill.name] = skill
            else:
                text = f"{path}: skipped: only {MAX_LISTED} skills are listed"
                problems.append(Diagnostic(text, str(path), severity="warning", code="skill-limit"))
    return tuple(found.values()), tuple(problems)


def render_catalogue(skills: Iterable[Skill]) -> str:
    lines = [
        "A skill is a file of instructions for one kind of task. When a task fits a description below, read that file "
        "first and follow it. Paths inside it start at its own directory; write them in full in tool calls.",
        "",
        "<available_skills>",
    ]
    for skill in skills:
        lines += [
            "  <skill>",
            f"    <name>{escape_element(skill.name)}</name>",
            f"    <description>{escape_element(skill.description)}</description>",
            f"    <location>{escape_element(skill.path)}</location>",
            "  </skill>",
        ]
    return "\n".join((*lines, "</available_skills>"))


def _can_use(setup: RunSetup) -> bool:
    """Return whether a list is useful: the run can read files and no other prompt section has the list."""
    can_read = "read" in setup.tools or "bash" in setup.tools
    return can_read and not any("<available_skills>" in text for text in setup.sections.values())


def _find_skill(name: str, walk: "_Walk") -> str | None:
    """Return the text of a skill below one root: a file of that name, else the first directory of that name."""
    with suppress(OSError), Folder.open(walk.root, follow=False) as top:
        return decode_text(top.read(f"{name}.md", MAX_SKILL_BYTES), MAX_SKILL_BYTES)
    for parts, folder in walk.run():
        if parts[-1] == name:
            with suppress(OSError):
                return decode_text(folder.read(SKILL_FILE, MAX_SKILL_BYTES), MAX_SKILL_BYTES)
    return None


def _find_candidates(root: Path, problems: list[Diagnostic]) -> Iterator[tuple[Path, Folder, str]]:
    """Yield every file below a root that may be a skill, flat files first; the folder stays open until the next one."""
    walk = _Walk(root)
    if root.is_symlink():
        walk.links.append(root)
    with suppress(OSError), Folder.open(root, follow=False) as top:
        for entry in top.list(MAX_ENTRIES):
            is_flat = entry.name.endswith(".md") and entry.name != SKILL_FILE
            if is_flat and entry.is_file(follow_symlinks=False):
                yield root / entry.name, top, entry.name
            elif is_flat and entry.is_symlink():
                walk.links.append(root / entry.name)
    for _, folder in walk.run():
        yield folder.path / SKILL_FILE, folder, SKILL_FILE
    for path in walk.links:
        text = f"{path}: is a link, which is not followed; put the skill itself there; skipped"
        problems.append(Diagnostic(text, str(path), severity="warning", code="skill-link"))


class _Walk:
    """Searches for directories with a skill file, nearest first; does not search inside those."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.is_cut = False
        self.links: list[Path] = []
        """Links that were not followed."""

    def run(self) -> Iterator[tuple[tuple[str, ...], Folder]]:
        """Yield each directory with its path components, open until the next one."""
        waiting: list[tuple[str, ...]] = [()]
        left = MAX_ENTRIES
        for parts in waiting:  # grows during the loop
            with suppress(OSError), Folder.open(self.root, follow=False).walk(parts) as folder:
                entries = folder.list(left)
                left -= len(entries)
                if parts and any(entry.name == SKILL_FILE for entry in entries):
                    yield parts, folder
                elif len(parts) < MAX_DEPTH:
                    waiting += [(*parts, entry.name) for entry in entries if _is_searched(entry)]
                    links = (entry.name for entry in entries if entry.is_symlink() and entry.is_dir())
                    self.links += [folder.path / name for name in links]
            if left <= 0:
                self.is_cut = True
                return


def _is_searched(entry: os.DirEntry[str]) -> bool:
    return entry.is_dir(follow_symlinks=False) and not entry.name.startswith(".") and entry.name != _SKIPPED


def _describe(path: Path, folder: Folder, file: str, problems: list[Diagnostic]) -> Skill | None:
    """Return what a file says about itself; None if it is not a skill, which is a problem only for SKILL.md."""
    line = None
    try:
        fields = _read_fields(decode_text(folder.read(file, MAX_HEAD_BYTES), MAX_HEAD_BYTES))
        if fields.get("disable-model-invocation", "").lower() == "true":
            return None
        if description := fields.get("description", "").strip():
            fallback = path.parent.name if file == SKILL_FILE else path.stem
            name = fields.get("name", "").strip() or fallback
            return Skill(escape_line(name, 64), escape_line(description, MAX_DESCRIPTION_CHARS), str(path))
        problem = "has no description in its frontmatter"
    except OSError as error:
        problem = (error.strerror or str(error)).lower()
    except BlockError as error:
        problem, line = str(error), error.line
    if file == SKILL_FILE:
        text = f"{path}: {problem}; expected a text with a name and a description; skipped"
        problems.append(Diagnostic(text, str(path), line, severity="warning", code="skill"))
    return None


def _read_fields(text: str) -> dict[str, str]:
    """Return the scalar fields of the frontmatter; the first of duplicate keys wins. Raises BlockError."""
    block = parse_block(text)
    return {entry.key: entry.value.text for entry in reversed(block.entries) if isinstance(entry.value, Scalar)}
