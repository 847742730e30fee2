"""The features that may surround a run, listed by hand in the order they are entered."""

from dataclasses import dataclass, field
from pathlib import Path

from retinue.engine.run_config import RunPlan
from retinue.engine.setup import Feature
from retinue.features.finalise import Finalising
from retinue.features.memory import Memory, plan_memory
from retinue.features.sandbox import Boundaries
from retinue.features.skills import Glance, Skills, find_skill_roots
from retinue.features.worktree.workshop import Leftovers, Workshop


@dataclass(frozen=True, slots=True)
class ConfigFolders:
    """Where configuration lies, also for a run that works elsewhere."""

    project: Path
    agent_dir: Path
    home: Path | None
    configs: tuple[str, ...]
    """The project's configuration folders that are trusted."""
    has_notes: bool
    """Whether notes of agents in the project are used."""
    workshop: Workshop | None = None
    """Where runs get copies of the repository from; None for a main agent, which works where it is."""
    boundaries: Boundaries | None = None
    """What commands of runs are confined by; None: by nothing."""
    glance: Glance = field(default_factory=Glance)


def build_features(plan: RunPlan, grounds: ConfigFolders) -> list[Feature]:
    """What a run is surrounded with; its copy is there first, memory stands before skills in its prompt."""
    definition, features = plan.definition, list[Feature]()
    if grounds.workshop is not None:
        features.append(Leftovers(grounds.workshop))
    if plan.request.isolation == "worktree" and grounds.workshop is not None:
        features.append(grounds.workshop.isolate(plan))
    if definition.memory is not None:
        noted = plan_memory(definition, plan.rights, plan.terms)
        features.append(
            Memory(
                definition.memory,
                definition.name,
                project=grounds.project,
                home=grounds.home,
                can_write=noted.can_write,
                trusted=grounds.has_notes,
                tools={name: plan.tools[name] for name in noted.extra},
            )
        )
    if grounds.boundaries is not None:  # knows where the copy and the notes are
        features.append(grounds.boundaries.surround(readonly=plan.rights.readonly))
    is_isolated = bool(definition.isolated) or plan.request.isolated
    if definition.skills is not False and not is_isolated:
        roots = find_skill_roots(grounds.project, grounds.agent_dir, grounds.home, configs=grounds.configs)
        features.append(Skills(definition.skills, roots, grounds.glance))
    if definition.completion == "finalize":
        features.append(Finalising())
    return features
