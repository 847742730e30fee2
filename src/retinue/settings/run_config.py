"""Builds the RunConfig for the runs of one main agent, and the context of runs in separate processes."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import structs

from retinue.core.environment import AGENT_ID, find_own_depth
from retinue.core.errors import UsageError, quote
from retinue.core.tool import Tool
from retinue.core.tool_table import KNOWN_TOOLS
from retinue.engine.limits import Limits
from retinue.engine.run_config import Policy, RunConfig, RunPlan, SurfaceRules
from retinue.engine.setup import Feature
from retinue.features.registry import ConfigFolders, build_features
from retinue.features.worktree.worktrees import WorktreeFactory
from retinue.settings.context import PromptFiles
from retinue.settings.paths import find_configs, find_project, find_session_dir
from retinue.settings.request import Request
from retinue.settings.roster import Roster, find_runnable
from retinue.settings.schema import Settings
from retinue.settings.subagents import SubagentsConfig
from retinue.tools.policy import SUBAGENT_READONLY

if TYPE_CHECKING:
    from retinue.engine.external.program import ProcessContext
    from retinue.models.pool import ChildModels
    from retinue.settings.config import Config

FLEET_DEPTH = 4
"""Maximum nesting depth of background agents."""
_ANY_DEPTH = 2**31


def build_run_config(
    roster: Roster,
    settings: Settings,
    environment: Mapping[str, str],
    *,
    tools: Mapping[str, Tool],
    files: PromptFiles,
    list_features: Callable[[RunPlan], Sequence[Feature]],
) -> RunConfig:
    """Build the configuration of runs from the user's files; the caller passes what is not in files."""
    paths, crew = roster.paths, roster.crew

    return RunConfig(
        find=lambda name, surface: find_runnable(roster.glance(), name, surface, fallback=crew.fallback_subagent),
        find_faults=roster.find_faults,
        tools=tools,
        list_features=list_features,
        compaction=settings.compaction.for_model,
        retry=settings.retry.to_policy(),
        policy=structs.replace(build_policy(crew, environment), judge=roster.boundaries.judge),
        context_files=[(file.path, file.text) for file in files.context],
        orphan_dir=find_session_dir(paths, environment, setting=settings.session_dir) / "runs",
        fallback_models=crew.fallback_models,
        fallback_after_s=crew.fallback_after_seconds,
    )


def find_features(
    roster: Roster, worktree_factory: WorktreeFactory | None = None
) -> Callable[[RunPlan], list[Feature]]:
    """Return the function that builds a run's features; without a factory no run gets a copy of the repository."""
    paths = roster.paths
    trust, boundaries = roster.trust, roster.boundaries
    has_notes = trust.trusted or trust.is_open
    grounds = ConfigFolders(
        paths.project, paths.agent_dir, paths.home, roster.configs, has_notes, worktree_factory, boundaries
    )
    return partial(build_features, grounds=grounds)


def build_policy(crew: SubagentsConfig, environment: Mapping[str, str]) -> Policy:
    return Policy(
        readonly_bash=crew.subagents.readonly_bash,
        has_lsp=crew.has_child_lsp,
        always_exposed=crew.always_exposed_extensions,
        denied=crew.deny_tools,
        surfaces=build_surfaces(crew, environment),
        base_depth=find_own_depth(environment),
        base_id=environment.get(AGENT_ID, ""),
        limits=Limits(max_turns=crew.default_max_turns or None, grace_turns=crew.grace_turns),
        allow_pi=crew.budget.allow_pi,
    )


def build_main_policy(roster: Roster) -> Policy:
    """Return the rights policy for a main agent that runs as a definition."""
    crew = roster.crew
    return Policy(
        judge=roster.boundaries.judge,
        has_lsp=crew.has_child_lsp,
        always_exposed=crew.always_exposed_extensions,
        denied=crew.deny_tools,
        surfaces={"": SurfaceRules(_ANY_DEPTH)},
    )


def limit_main_tools(plan: RunPlan, own: Mapping[str, Tool], request: Request) -> Mapping[str, Tool]:
    """Return the definition's tools that the request wants. Raises UsageError for a tool that the definition lacks."""
    reasons = {item.name: item.sentence for item in plan.rights.refused}
    for name in request.tools or ():
        if name not in own:
            reason = reasons.get(name, f"its tools are {', '.join(own) or 'none'}")
            raise UsageError(f"agent {quote(plan.definition.name)} has no tool {quote(name)}: {reason}")
    names = own if request.tools is None else dict.fromkeys(request.tools)
    return {name: own[name] for name in names if name not in request.exclude_tools}


def build_surfaces(crew: SubagentsConfig, environment: Mapping[str, str]) -> dict[str, SurfaceRules]:
    return {
        "fleet": SurfaceRules(find_own_depth(environment) + find_depth_left(environment), is_lenient=True),
        "subagent": SurfaceRules(
            crew.subagents.max_depth, "task", is_exact=True, readonly_set=SUBAGENT_READONLY, is_bare=True
        ),
        "dispatch": SurfaceRules(prompt="profile", asks_each_call=True),
    }


def find_depth_left(environment: Mapping[str, str]) -> int:
    """Return how many levels of background agents are allowed below this process; its parent may lower the limit."""
    text = environment.get("PI_SUBAGENT_MAX_DEPTH", "").strip()
    is_bound = environment.get("PI_SUBAGENT_CHILD") == "1" and text.isascii() and text.isdigit()
    most = min(FLEET_DEPTH, int(text[:9])) if is_bound else FLEET_DEPTH
    return max(0, most - find_own_depth(environment))


def build_process_context(
    config: "Config", models: "ChildModels", environment: Mapping[str, str], tools: Iterable[str], cwd: Path
) -> "ProcessContext":
    """Build what a child process in `cwd` needs; `tools` are the names of all existing tools."""
    from retinue.engine.external.program import ProcessContext
    from retinue.settings.web import export_search_keys

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


def decide_child_trust(config: "Config", cwd: Path) -> bool | None:
    """Return whether a child may use the project's configuration; None if the child must decide itself."""
    if config.loaded.trust.is_open:
        return None
    project = config.paths.project
    has_new = not set(find_configs(project)) <= set(config.paths.configs)
    return config.is_trusted and not has_new and is_own_folder(config, cwd)


def is_own_folder(config: "Config", cwd: Path) -> bool:
    """Return whether a folder belongs to the project that the user decided about, not to another project.

    A copy of the project is another folder: its content is under the control of its agent.
    """
    return find_project(Path(os.path.realpath(cwd)), config.paths.home) == config.paths.project
