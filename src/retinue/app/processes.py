"""Lets runs of the crew work in processes of their own: from the settings to what the engine starts them with."""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from retinue.app.config import World
from retinue.app.model_access import CrewModels
from retinue.core.clock import Clock
from retinue.definitions.toolnames import KNOWN_TOOLS
from retinue.engine.external.program import Premises
from retinue.engine.external.run import ProcessStarter
from retinue.settings.paths import find_configs, find_project
from retinue.settings.web import export_search_keys


def build_outpost(
    world: World, models: CrewModels, environment: Mapping[str, str], clock: Clock, tools: Iterable[str], cwd: Path
) -> ProcessStarter:
    """How this user's children are started; `tools` are the names of those there are, wherever they come from."""
    return ProcessStarter(build_premises(world, models, environment, tools, cwd), clock)


def build_premises(
    world: World, models: CrewModels, environment: Mapping[str, str], tools: Iterable[str], cwd: Path
) -> Premises:
    """What a child that works in `cwd` is told of this user's world."""
    settings = world.crew.settings
    return Premises(
        environment=environment,
        workspace=world.paths.project,
        pi_command=settings.pi_command,
        marks={
            "PI_SUBAGENT_ALLOW_LSP": "1" if settings.has_child_lsp else "0",
            "PI_SUBAGENT_LSP_ACTIONS": ",".join(settings.subagents.allowed_lsp_actions),
        },
        export_key=models.registry.export_key,
        export_tools=lambda tools: export_search_keys(settings, environment, tools),
        trusted=decide_child_trust(world, cwd),
        private_tools=frozenset(tools) - frozenset(KNOWN_TOOLS),
    )


def decide_child_trust(world: World, cwd: Path) -> bool | None:
    """Whether a child may use the project's configuration: only what was decided about; None: it decides itself."""
    if world.loaded.trust.is_open:
        return None
    project = world.paths.project
    has_new = not set(find_configs(project)) <= set(world.paths.configs)
    return world.is_trusted and not has_new and is_own_folder(world, cwd)


def is_own_folder(world: World, cwd: Path) -> bool:
    """Whether a folder is of the project that was decided about: nobody has said anything about another one's files.

    A copy of the project is another folder: what lies in it is its agent's.
    """
    return find_project(Path(os.path.realpath(cwd)), world.paths.home) == world.paths.project
