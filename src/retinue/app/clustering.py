"""Lets runs of the crew work on other machines: from the settings to what the engine sends them with."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from retinue.app.outsourcing import build_premises
from retinue.core.clock import Clock
from retinue.core.question import Question
from retinue.engine.external.post import Post
from retinue.engine.outfit import Errand
from retinue.engine.questions import Desk
from retinue.engine.runner import LiveRun
from retinue.engine.setup import RunSetup
from retinue.settings.subagents import CrewSettings

if TYPE_CHECKING:
    from collections.abc import Iterable

    from retinue.app.modelling import Models
    from retinue.app.world import World
    from retinue.durable.cluster import Cluster

DATABASE = "RETINUE_DATABASE"


def find_database(settings: CrewSettings, environment: Mapping[str, str]) -> str:
    """The address of the shared database; empty where there is none."""
    return environment.get(DATABASE, "").strip() or settings.cluster.database


class Clustering:
    """Sends the runs of one crew."""

    def __init__(
        self, cluster: "Cluster", world: "World", models: "Models", environment: Mapping[str, str], clock: Clock
    ) -> None:
        self.cluster = cluster
        self._world = world
        self._models = models
        self._environment = environment
        self._clock = clock

    def send(self, setup: RunSetup, errand: Errand, tools: "Iterable[str]", desk: Desk) -> LiveRun:
        """The live side of a run on whichever worker takes it; `tools` are the names of those there are here."""
        from retinue.durable.remote import Journey, RemoteRun

        premises = build_premises(self._world, self._models, self._environment, tools)

        async def ask(question: Question) -> str:
            return await desk.ask(question)

        journey = Journey(
            post=Post(errand, setup.model.info.ref, setup.thinking),
            premises=premises,
            cluster=self.cluster,
            attempt=errand.attempt,
            ask=ask if desk.has_face else None,
        )
        return RemoteRun(setup, journey, clock=self._clock)
