"""From the user's files to what runs are made of: the Kit of one main agent's crew."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from retinue.core.tool import Tool
from retinue.engine.child_prompt import Place
from retinue.engine.fitting import Fitting
from retinue.engine.kit import Kit, Models, Policy
from retinue.engine.setup import Feature
from retinue.features.place import survey_place
from retinue.features.registry import Grounds, build_features
from retinue.features.worktree.workshop import Workshop
from retinue.sessions.compaction import CompactionConfig
from retinue.settings.context import PromptFiles
from retinue.settings.paths import find_session_dir
from retinue.settings.roster import Roster, find_runnable
from retinue.settings.schema import Settings
from retinue.settings.subagents import CrewSettings

FLEET_DEPTH = 4
"""How deep background agents may start others."""
_DEEPEST = 1_000_000


def build_kit(
    roster: Roster,
    settings: Settings,
    environment: Mapping[str, str],
    *,
    models: Models,
    tools: Mapping[str, Tool],
    files: PromptFiles,
    list_features: Callable[[Fitting], Sequence[Feature]],
) -> Kit:
    """What the user's files say about the runs of one main agent; the rest is put in by whoever has it."""
    paths, crew = roster.paths, roster.crew

    async def survey(cwd: Path) -> Place:
        return await survey_place(cwd, environment)

    def find_compaction(ref: str) -> CompactionConfig:
        return CompactionConfig(settings.compaction.enabled, *settings.compaction.for_model(ref))

    return Kit(
        find=lambda name, surface: find_runnable(roster.glance(), name, surface, fallback=crew.fallback_subagent),
        find_faults=roster.find_faults,
        models=models,
        tools=tools,
        survey=survey,
        list_features=list_features,
        compaction=find_compaction,
        policy=replace(build_policy(crew, environment), judge=roster.boundaries.judge),
        context_files=[(file.path, file.text) for file in files.context],
        orphan_dir=find_session_dir(paths, environment, setting=settings.session_dir) / "runs",
    )


def find_features(roster: Roster, workshop: Workshop | None = None) -> Callable[[Fitting], list[Feature]]:
    """What knows the features that definitions ask for; without a workshop nobody works in a copy."""
    paths = roster.paths
    trust, boundaries = roster.trust, roster.boundaries
    has_notes = trust.trusted or trust.is_open
    grounds = Grounds(paths.project, paths.agent_dir, paths.home, roster.configs, has_notes, workshop, boundaries)
    return partial(build_features, grounds=grounds)


def build_policy(crew: CrewSettings, environment: Mapping[str, str]) -> Policy:
    """What the settings decide about all agents."""
    return Policy(
        readonly_bash=crew.subagents.readonly_bash,
        has_lsp=crew.has_child_lsp,
        always_exposed=crew.always_exposed_extensions,
        denied=crew.deny_tools,
        max_depth={
            "fleet": find_own_depth(environment) + find_depth_left(environment),
            "subagent": crew.subagents.max_depth,
            "dispatch": 1,
        },
        base_depth=find_own_depth(environment),
        default_max_turns=crew.default_max_turns or None,
        allow_pi=crew.budget.allow_pi,
        grace_turns=crew.grace_turns,
    )


def find_own_depth(environment: Mapping[str, str]) -> int:
    """How many agents this process is inside of; what is no number counts as none."""
    text = environment.get("PI_SUBAGENT_DEPTH", "").strip()
    # A number of any length is one: reading a long one as none would be a way to the top.
    return min(int(text[:1000]), _DEEPEST) if text.isascii() and text.isdigit() else 0


def find_depth_left(environment: Mapping[str, str]) -> int:
    """How many levels of background agents there may be below this process; whoever started it may say less."""
    text = environment.get("PI_SUBAGENT_MAX_DEPTH", "").strip()
    is_bound = environment.get("PI_SUBAGENT_CHILD") == "1" and text.isascii() and text.isdigit()
    most = min(FLEET_DEPTH, int(text[:9])) if is_bound else FLEET_DEPTH
    return max(0, most - find_own_depth(environment))
