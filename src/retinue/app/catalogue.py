"""What a user can call: by a slash the commands of extensions, and skills; by an at sign agents and images.

Knows no face: it says what there is, and puts a skill in place of its name.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from retinue.app.config import World
from retinue.app.mentions import compose_prompt
from retinue.core.messages import UserContent
from retinue.features.skills import find_skill_roots, list_skills, preload_skill

if TYPE_CHECKING:
    from retinue.features.extensions.contained import Command

_SKILL = "/skill:"


class SourceInfo(Struct, rename="camel"):
    """Where a command comes from."""

    path: str
    source: str
    scope: Literal["user", "project", "temporary"]
    origin: str = "top-level"


class Offer(Struct, rename="camel"):
    """Something a user can call."""

    name: str
    description: str
    source: Literal["extension", "skill"]
    source_info: SourceInfo


class Catalogue:
    """What can be called in one session."""

    def __init__(self, world: World, commands: "Mapping[str, Command]") -> None:
        self._world = world
        self._commands = commands
        paths = world.paths
        self._roots = find_skill_roots(paths.project, paths.agent_dir, paths.home, configs=world.configs)

    def list(self) -> list[Offer]:
        """All of them, commands first."""
        called = [
            Offer(command.name, command.help, "extension", self._locate(command.path or command.extension))
            for command in self._commands.values()
        ]
        skills, _ = list_skills(self._roots)
        called += [
            Offer(f"skill:{skill.name}", skill.description, "skill", self._locate(skill.path)) for skill in skills
        ]
        return called

    def list_agents(self) -> Sequence[tuple[str, str]]:
        """The agents that can be delegated to, each with what it is for."""
        found = self._world.roster.read().list(enabled_only=True)
        return [(each.name, each.description) for each in found]

    @property
    def folder(self) -> Path:
        """Where the names of files start."""
        return self._world.paths.cwd

    def compose(self, text: str) -> tuple[Sequence[UserContent], Sequence[str]]:
        """A prompt with what it names by an at sign, and what could not go along. Reads files."""
        return compose_prompt(text, [name for name, _ in self.list_agents()], self.folder)

    def expand(self, text: str) -> str:
        """The text with the skill it names in place of the name; anything else stays as it is."""
        if not text.startswith(_SKILL):
            return text
        name, _, rest = text[len(_SKILL) :].partition(" ")
        skills = {skill.name: skill for skill in list_skills(self._roots)[0]}
        if (skill := skills.get(name)) is None:
            return text
        folder = os.path.dirname(skill.path)
        body = f"Paths in it start at {folder}.\n\n{self._world.redact(preload_skill(name, self._roots))}"
        block = f'<skill name="{name}" location="{skill.path}">\n{body}\n</skill>'
        return f"{block}\n\n{rest.strip()}" if rest.strip() else block

    def _locate(self, path: str) -> SourceInfo:
        project = Path(path).is_relative_to(self._world.paths.project) if os.path.isabs(path) else False
        user = Path(path).is_relative_to(self._world.paths.agent_dir) if os.path.isabs(path) else True
        return SourceInfo(path, "auto", "project" if project and not user else "user")
