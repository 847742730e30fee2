"""Lists what a prompt can refer to: extension commands and skills (`/name`), agents and files (`@name`)."""

import asyncio
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from retinue.core.definition import Definition
from retinue.core.messages import UserContent
from retinue.definitions.registry import find_family
from retinue.features.skills import find_skill_roots, list_skills, preload_skill
from retinue.features.templates import find_template_roots, list_templates
from retinue.settings.paths import Paths
from retinue.views.prompt_files import compose_prompt

if TYPE_CHECKING:
    from retinue.features.extensions.contained import ExtensionCommand


_SKILL = "/skill:"


class SourceInfo(Struct, rename="camel"):
    """Where a command was loaded from."""

    path: str
    source: str
    scope: Literal["user", "project", "temporary"]
    origin: str = "top-level"


class CommandOffer(Struct, rename="camel"):
    """A slash command or skill that the user can call."""

    name: str
    description: str
    source: Literal["extension", "prompt", "skill"]
    source_info: SourceInfo


class Catalogue:
    """The commands, skills, agents and files that prompts of one session can refer to."""

    def __init__(
        self,
        paths: Paths,
        configs: Sequence[str],
        find_agents: Callable[[], Iterable[Definition]],
        commands: "Mapping[str, ExtensionCommand]",
        redact: Callable[[str], str],
    ) -> None:
        """`configs` are the project's active configuration folders; `redact` removes secrets from skill texts."""
        self._paths = paths
        self._find_agents = find_agents
        self._commands = commands
        self._redact = redact
        places = paths.project, paths.agent_dir, paths.home
        self._roots = find_skill_roots(*places, configs=tuple(configs))
        self._templates = find_template_roots(*places, configs=configs)

    def list(self) -> list[CommandOffer]:
        """List extension commands first, then prompt templates, then skills."""
        called = [
            CommandOffer(command.name, command.help, "extension", self._locate(command.path or command.extension))
            for command in self._commands.values()
        ]
        called += [
            CommandOffer(each.name, each.description, "prompt", self._locate(each.path))
            for each in list_templates(self._templates).values()
        ]
        skills, _ = list_skills(self._roots)
        called += [
            CommandOffer(f"skill:{skill.name}", skill.description, "skill", self._locate(skill.path))
            for skill in skills
        ]
        return called

    def list_agents(self) -> Sequence[tuple[str, str]]:
        """List the agents that can be delegated to, as (name, description)."""
        return [(each.name, each.description) for each in self._find_agents()]

    def find_families(self) -> Mapping[str, str]:
        """Return for each agent a key that those have in common which are listed as one."""
        return {each.name: find_family(each) for each in self._find_agents()}

    @property
    def folder(self) -> Path:
        """The directory that file names are relative to."""
        return self._paths.cwd

    def compose(self, text: str) -> tuple[Sequence[UserContent], Sequence[str]]:
        """Return the prompt's content blocks with mentioned images, and a list of problems. Reads files."""
        return compose_prompt(text, [name for name, _ in self.list_agents()], self.folder)

    def expand(self, text: str) -> str:
        """Replace a leading `/skill:name` or `/name` with that skill or template; return any other text unchanged."""
        if not text.startswith(_SKILL):
            return self._fill_template(text)
        name, _, rest = text[len(_SKILL) :].partition(" ")
        skills = {skill.name: skill for skill in list_skills(self._roots)[0]}
        if (skill := skills.get(name)) is None:
            return text
        folder = os.path.dirname(skill.path)
        body = f"Paths in it start at {folder}.\n\n{self._redact(preload_skill(name, self._roots))}"
        block = f'<skill name="{name}" location="{skill.path}">\n{body}\n</skill>'
        return f"{block}\n\n{rest.strip()}" if rest.strip() else block

    def _fill_template(self, text: str) -> str:
        if not text.startswith("/"):
            return text
        name, words, *_ = *text[1:].split(None, 1), "", ""
        template = list_templates(self._templates).get(name)
        return text if template is None else self._redact(template.fill(words.strip()))

    def _locate(self, path: str) -> SourceInfo:
        project = Path(path).is_relative_to(self._paths.project) if os.path.isabs(path) else False
        user = Path(path).is_relative_to(self._paths.agent_dir) if os.path.isabs(path) else True
        return SourceInfo(path, "auto", "project" if project and not user else "user")


MOST_FILES = 50_000
WALK_S = 5.0
_SKIPPED = frozenset({".git", ".hg", ".svn", ".venv", "__pycache__", "node_modules", ".mypy_cache", ".tox"})


async def list_files(folder: Path, *, most: int = MOST_FILES) -> list[str]:
    """List paths relative to `folder`, shallowest first; directories end with a slash. Skips what git ignores."""
    from retinue.tools.git import run_git

    listed = await run_git(["ls-files", "-z", "--cached", "--others", "--exclude-standard"], folder)
    return await asyncio.to_thread(_sort_listed, folder, listed.fields, most) if listed.ok else await walk(folder, most)


async def walk(folder: Path, most: int) -> list[str]:
    """List all files below a folder except those in directories such as `.git` and `node_modules`."""
    return await asyncio.to_thread(lambda: _arrange(_walk(folder, most)))


def _sort_listed(folder: Path, names: list[str], most: int) -> list[str]:
    # Git's index may still list deleted files, and lists a file with a merge conflict several times.
    names = list(dict.fromkeys(names))[:most]
    return _arrange(name for name in names if os.path.lexists(folder / name))


def _walk(folder: Path, most: int) -> list[str]:
    found: list[str] = []
    end_s = time.monotonic() + WALK_S
    for place, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if name not in _SKIPPED)
        base = os.path.relpath(place, folder)
        found += [name if base == "." else f"{base}/{name}" for name in sorted(files)]
        if len(found) >= most or time.monotonic() > end_s:
            break
    return found[:most]


def _arrange(names: Iterable[str]) -> list[str]:
    files = list(names)
    folders: dict[str, None] = {}
    for name in files:
        at = name.find("/")
        while at >= 0:
            folders[name[: at + 1]] = None
            at = name.find("/", at + 1)
    return sorted(dict.fromkeys([*files, *folders]), key=lambda name: (name.rstrip("/").count("/"), name))
