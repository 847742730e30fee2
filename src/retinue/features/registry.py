"""The list of features that a run may get, in the order in which they are entered."""

from pathlib import Path

from msgspec import Struct, field

from retinue.engine.run_config import RunPlan
from retinue.engine.setup import Feature
from retinue.features.sandbox import Boundaries
from retinue.features.skills import SkillCheck, Skills, find_skill_roots
from retinue.features.worktree.worktrees import Leftovers, WorktreeFactory


class ConfigFolders(Struct, frozen=True):
    """Where configuration is, also for a run that works elsewhere."""

    project: Path
    agent_dir: Path
    home: Path | None
    configs: tuple[str, ...]
    """The project's trusted configuration folders."""
    has_notes: bool
    """Whether agent notes in the project are used."""
    worktree_factory: WorktreeFactory | None = None
    """Creates worktrees for runs; None for a main agent, which works in place."""
    boundaries: Boundaries | None = None
    """Confines the commands of runs; None means no sandbox."""
    skill_check: SkillCheck = field(default_factory=SkillCheck)


def build_features(plan: RunPlan, grounds: ConfigFolders) -> list[Feature]:
    """Build the features of a run; the worktree comes first, and memory comes before skills in the prompt."""
    definition, features = plan.definition, list[Feature]()
    if grounds.worktree_factory is not None:
        features.append(Leftovers(grounds.worktree_factory))
    if plan.request.isolation == "worktree" and grounds.worktree_factory is not None:
        features.append(grounds.worktree_factory.isolate(plan))
    if definition.memory is not None:
        from retinue.features.memory import Memory, plan_memory

        can_write, extra = plan_memory(definition, plan.rights, plan.terms)
        features.append(
            Memory(
                definition.memory,
                definition.name,
                project=grounds.project,
                home=grounds.home,
                can_write=can_write,
                trusted=grounds.has_notes,
                tools={name: plan.tools[name] for name in extra},
            )
        )
    if grounds.boundaries is not None:  # must come after the worktree and the notes
        features.append(grounds.boundaries.surround(readonly=plan.rights.readonly))
    if plan.request.isolation == "worktree" and grounds.worktree_factory is not None:
        prepared = grounds.worktree_factory.prepare(plan)
        features += [] if prepared is None else [prepared]
    is_isolated = bool(definition.isolated) or plan.request.isolated
    if definition.skills is not False and not is_isolated:
        roots = find_skill_roots(grounds.project, grounds.agent_dir, grounds.home, configs=grounds.configs)
        features.append(Skills(definition.skills, roots, grounds.skill_check))
    schema = definition.output_schema or plan.request.output_schema
    if definition.completion == "finalize" or schema is not None:
        from retinue.features.finalise import FinalizeFeature

        finalises = definition.completion == "finalize"
        features.append(FinalizeFeature(schema, finalises=finalises, has_tool=plan.runner != "pi"))
    return features
