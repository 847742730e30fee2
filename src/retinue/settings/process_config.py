"""Settings for runs in separate processes."""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from retinue.core.tool_table import KNOWN_TOOLS
from retinue.engine.external.program import ProcessContext
from retinue.models.pool import ChildModels
from retinue.settings.config import Config
from retinue.settings.paths import find_configs, find_project
from retinue.settings.web import export_search_keys


def build_premises(
    config: Config, models: ChildModels, environment: Mapping[str, str], tools: Iterable[str], cwd: Path
) -> ProcessContext:
    """Build what a child process in `cwd` needs; `tools` are the names of all existing tools."""
    settings = config.crew.settings
    return ProcessContext(
        environment=environment,
        workspace=config.paths.project,
        pi_command=settings.pi_command,
        marks={
            "PI_SUBAGENT_ALLOW_LSP": "1" if settings.has_child_lsp else "0",
            "PI_SUBAGENT_LSP_ACTIONS": ",".join(settings.subagents.allowed_lsp_actions),
        },
        export_key=models.registry.export_key,
        export_tools=lambda tools: export_search_keys(settings, environment, tools),
        trusted=decide_child_trust(config, cwd),
        private_tools=frozenset(tools) - frozenset(KNOWN_TOOLS),
    )


def decide_child_trust(config: Config, cwd: Path) -> bool | None:
    """Return whether a child may use the project's configuration; None if the child must decide itself."""
    if config.loaded.trust.is_open:
        return None
    project = config.paths.project
    has_new = not set(find_configs(project)) <= set(config.paths.configs)
    return config.is_trusted and not has_new and is_own_folder(config, cwd)


def is_own_folder(config: Config, cwd: Path) -> bool:
    """Return whether a folder belongs to the project that the user decided about, not to another project.

    A copy of the project is another folder: its content is under the control of its agent.
    """
    return find_project(Path(os.path.realpath(cwd)), config.paths.home) == config.paths.project
