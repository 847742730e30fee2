"""Lets runs of the crew work in processes of their own: from the settings to what the engine starts them with."""

from collections.abc import Iterable, Mapping

from retinue.app.modelling import Models
from retinue.app.world import World
from retinue.core.clock import Clock
from retinue.definitions.toolnames import KNOWN_TOOLS
from retinue.engine.external.premises import Premises
from retinue.engine.external.run import Outpost
from retinue.settings.outside import export_search_keys


def build_outpost(
    world: World, models: Models, environment: Mapping[str, str], clock: Clock, tools: Iterable[str]
) -> Outpost:
    """How this user's children are started; `tools` are the names of those there are, wherever they come from."""
    return Outpost(build_premises(world, models, environment, tools), models.resolve, clock)


def build_premises(world: World, models: Models, environment: Mapping[str, str], tools: Iterable[str]) -> Premises:
    """What a child is told of this user's world."""
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
        trusted=world.is_trusted,
        private_tools=frozenset(tools) - frozenset(KNOWN_TOOLS),
    )
