"""Lets runs of the crew work on other machines: from the settings to what the engine sends them with."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import structs

from retinue.app.processes import build_premises
from retinue.core.clock import Clock
from retinue.core.definition import Definition
from retinue.core.events import Event
from retinue.core.question import Question
from retinue.engine.build import build_judged
from retinue.engine.external.command_line import Post
from retinue.engine.questions import Desk
from retinue.engine.remote_request import Errand
from retinue.engine.revoked_tools import Restrained, Restraint
from retinue.engine.run_config import Additions
from retinue.engine.runner import LiveRun
from retinue.engine.session_path import find_file_below
from retinue.engine.setup import RunSetup
from retinue.settings.subagents import CrewSettings

if TYPE_CHECKING:
    from collections.abc import Iterable

    from retinue.app.config import World
    from retinue.app.extensions import Extending
    from retinue.app.model_access import CrewModels
    from retinue.durable.cluster.approval import Origin
    from retinue.durable.cluster.assignment import Cover
    from retinue.durable.cluster.sender import Cluster

DATABASE = "RETINUE_DATABASE"


def find_database(settings: CrewSettings, environment: Mapping[str, str]) -> str:
    """The address of the shared database; empty where there is none."""
    return environment.get(DATABASE, "").strip() or settings.cluster.database


def open_cluster(settings: CrewSettings, environment: Mapping[str, str], warn: Callable[[str], None]) -> "Cluster":
    """The cluster that the settings name; `warn` hears what it waits for."""
    from retinue.durable.cluster.database import describe_address
    from retinue.durable.cluster.sender import Cluster
    from retinue.durable.trouble import Alarm

    url = find_database(settings, environment)
    alarm = Alarm(warn, subject=f"the cluster's database {describe_address(url)}")
    return Cluster(url, use_remote=settings.cluster.use_remote, alarm=alarm)


class Clustering:
    """Sends the runs of one crew."""

    def __init__(
        self, cluster: "Cluster", world: "World", models: "CrewModels", environment: Mapping[str, str], clock: Clock
    ) -> None:
        self.cluster = cluster
        self.extending: Extending | None = None
        """Whose hooks stand around runs."""
        self.restraint = Restraint()
        """What was taken from runs."""
        self.main: LiveRun | None = None
        """Whose crew it is."""
        self.hear_below: Callable[[str, Event], None] = lambda host_id, event: None
        """Takes what is said of the runs below one."""
        self.find_below: Callable[[str, str], Path | None] = lambda host_id, run_id: None
        """Where the session of a run below one is kept."""
        self._world = world
        self._models = models
        self._environment = environment
        self._clock = clock

    def send(self, setup: RunSetup, errand: Errand, tools: "Iterable[str]", desk: Desk) -> LiveRun:
        """The live side of a run on whichever worker takes it; `tools` are the names of those there are here."""
        from retinue.durable.cluster.remote_run import Journey, RemoteRun

        premises = build_premises(self._world, self._models, self._environment, tools, setup.cwd)
        if errand.request.isolation is not None:
            from retinue.features.worktree.abroad import Abroad

            setup = setup.change(features=(Abroad(), *setup.features))

        async def ask(question: Question) -> str:
            return await desk.ask(question)

        journey = Journey(
            post=Post(errand, setup.model.info.ref, setup.thinking),
            premises=premises,
            cluster=self.cluster,
            attempt=errand.attempt,
            ask=ask if desk.has_face else None,
            is_attended=lambda: desk.has_face,
            open_below=partial(self._open_below, setup),
            guards_below=self._guards_below,
            cover=self._cover(setup, errand),
            hear_below=lambda event: self.hear_below(setup.run_id, event),
            find_below=lambda run_id: self.find_below(setup.run_id, run_id),
        )
        return RemoteRun(setup, journey, clock=self._clock)

    def _cover(self, setup: RunSetup, errand: Errand) -> "Cover":
        """What its session says of where it comes from, as one here would; only the main agent dispatches."""
        from retinue.durable.cluster.assignment import Cover

        cover = Cover(parent=errand.parent_session, name=setup.name, file=errand.session_file)
        if (home := self.cluster.home) is not None:
            # It comes home to where the run belongs that sends it, and is to say what is true there.
            file = find_file_below(home.file, home.run_id, setup.run_id) if home.file else ""
            cwd = home.translate(str(setup.cwd))
            cover = structs.replace(cover, parent=home.file, file=file if errand.session_file else "", cwd=cwd)
        if errand.request.surface != "dispatch" or self.main is None:
            return cover
        from retinue.surfaces.dispatch.tool import META, describe_origin

        labels = {META: describe_origin(self.main.session.id, errand.definition.name)}
        return structs.replace(cover, labels=labels)

    def _guards_below(self) -> bool:
        """Whether anything here may have to say something about a run that is started elsewhere."""
        if self._world.guarding.is_set or (self.extending is not None and self.extending.has_any):
            return True
        return any(definition.hooks for definition in self._world.roster.glance().list())

    async def _open_below(self, above: RunSetup, origin: "Origin") -> RunSetup:
        """What stands around a run that one on another machine has started: as if it had been started here."""
        guarding = self._world.guarding
        definition = self._find_definition(origin)
        additions = Additions() if self.extending is None else await self.extending.load_guards(definition)
        # What is asked about because it was dispatched is asked where that was.
        surface = "fleet" if origin.surface == "dispatch" else origin.surface
        features = guarding.surround_definition(
            definition, additions.points, surface=surface, readonly=origin.readonly, is_confined=origin.confined
        )
        if guarding.judge is not None:
            features.append(guarding.judge.surround(origin))
        self.restraint.place(origin.run_id, above.run_id)
        guard = Restrained(self.restraint, origin.run_id)
        return build_judged(above, origin.run_id, (guard, *additions.hooks), features)

    def _find_definition(self, origin: "Origin") -> Definition:
        """The agent as it is known here; one that only the other machine has is judged as any other."""
        found = self._world.roster.glance().find(origin.agent, origin.surface)
        return found or Definition(name=origin.agent, dialect="pi", source="user", path="")
