"""One open session: its main agent, the crew of that one, and what both work with. All of it ends with the session.

Which session it is, and when another one takes its place, is the Retinue's business.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from retinue.app.config import World, read_world
from retinue.app.extensions import Extending
from retinue.app.host import Stock
from retinue.app.main_agent import MainAgent
from retinue.app.main_tools import MainTools
from retinue.app.model_access import CrewModels
from retinue.app.session_switch import find_folder
from retinue.app.web import Outside
from retinue.core.definition import Definition
from retinue.core.errors import RetinueError, UsageError, quote
from retinue.core.events import Event, RunFinished, Warned
from retinue.core.messages import UserContent
from retinue.core.model import Model, ModelInfo
from retinue.core.run import Outcome, Reason, Run
from retinue.core.tool import Tool
from retinue.engine.budget import BudgetedModel, Lease
from retinue.engine.build import RunHost, build_run
from retinue.engine.clock import make_run_id
from retinue.engine.request import RunRequest
from retinue.engine.run_config import Additions, RunPlan
from retinue.engine.runner import LiveRun
from retinue.engine.setup import RunSetup
from retinue.features.place import survey_place
from retinue.sessions.log import Session
from retinue.settings.guards import Guards
from retinue.settings.inheritance import inherit_extensions
from retinue.settings.layers import Loaded, load_settings
from retinue.settings.paths import Paths, find_session_dir
from retinue.settings.subagents import LoadedCrew
from retinue.surfaces.names import find_surfaces
from retinue.tools.registry import build_extra_tools, build_tools

if TYPE_CHECKING:  # only a session in which somebody delegates pays for these
    from retinue.app.extensions import Exchange
    from retinue.app.mcp import Connecting
    from retinue.app.model_access import Models
    from retinue.app.subagents import Crew
    from retinue.engine.manager import Manager
    from retinue.features.extensions.channels import Channels
    from retinue.sessions.trust import Vouchers
    from retinue.surfaces.base import Caller
    from retinue.surfaces.fleet.ports import FleetPorts

CLOSE_S = 2.0


class Berth:
    """What belongs to one open session."""

    def __init__(self, stock: Stock, session: Session, world: World) -> None:
        self.stock = stock
        self.session = session
        self.world = world
        self.run_id = make_run_id()
        """The main agent's."""
        self.crew: Crew | None = None
        """There once somebody may delegate."""
        budget = world.crew.settings.budget
        self.lease = Lease(budget.tokens, budget.cost_usd, source=stock.source)
        """What one prompt may cost with all it starts."""
        self._run: LiveRun | None = None
        world.outside = Outside(world.crew.settings, stock.environment, stock.tool_options.trees, lambda: self.main)
        world.guarding = Guards(
            world,
            stock.environment,
            stock.clock,
            stock.desk,
            tell=lambda problems, notes: stock.tell(problems, *notes),
            warn=self._warn,
            judge=stock.own.judge,
        )
        self.extending = Extending(
            world,
            stock.own.extensions,
            lambda item: stock.tell((item,)),
            _find_servers(stock, world),
            inherit_extensions(stock.environment),
        )
        self.tools = MainTools(stock, world, self.extending.servers)
        """Which tools there are for the main agent."""
        self.child_models = self._open_child_models()
        """The models that its runs may be given."""
        self._exchange: Exchange | None = None

    @property
    def main(self) -> LiveRun:
        """The main agent. Raises RetinueError when the session is closed."""
        if self._run is None:
            raise RetinueError("this Retinue is not open; use `async with Retinue(…) as crew`")
        return self._run

    @property
    def models(self) -> "Models":
        """All that can be asked."""
        return self.stock.need_models(self.world, self.extending)

    def open_model(self, info: ModelInfo) -> Model:
        """A model whose use counts for the budget. Raises ModelError or ConfigError."""
        return self._charge(self.models.open(info))

    async def open(self) -> None:
        """Make the main agent, and a crew where it may delegate."""
        self.stock.revoked.succeed(self.run_id)
        self._run = LiveRun(await self._build(), self.session, clock=self.stock.clock)
        if self.world.recorder is not None:
            self.world.recorder.listen(self._run, self.stock.request.agent or "")
        self.extending.listen(self._run)
        self.extending.connect(self._connect)
        if self.crew is not None:
            await self._open_crew(self.crew, self._run)
        elif self.extending.collect("surfaces"):
            await self.need_crew()

    async def close(self) -> None:
        """End everything; what was said is on disk, and what had not finished can be resumed."""
        run, crew = self._run, self.crew
        self._run = self.crew = None
        if run is not None:
            run.abort(Reason.USER)
            if crew is not None:
                await crew.close()
            await self.extending.close()
            await self.world.languages.close()
            # A prompt of another task ends by itself now; one that cannot is not waited for.
            with suppress(TimeoutError):
                async with asyncio.timeout(CLOSE_S):
                    await wait_until_idle(run)
            run.journal.flush()
            run.session.close()
        if self.world.recorder is not None:
            self.world.recorder.flush()

    async def give_up(self) -> None:
        """End what an opening that failed has begun."""
        if self.crew is not None:
            await self.crew.close()
        await self.extending.close()

    async def prompt(self, content: str | Sequence[UserContent] | None, *, settle: bool) -> Outcome:
        """Say something to the main agent and wait until it is done; with `settle` also for what it started.

        None lets it go on from where its session ends.
        """
        main, crew = self.main, self.crew
        stay = None
        if crew is None:
            self.lease.renew()
        else:
            await crew.reactions.open()
            self.renew()
            if settle:
                stay = partial(crew.manager.stay, self.run_id, main)
        return await (main.go_on(stay=stay) if content is None else main.prompt(content, stay=stay))

    def renew(self) -> None:
        """Begin to count anew what one prompt may cost and start."""
        self.lease.renew()
        if self.crew is not None:
            self.crew.manager.admission.begin_prompt()

    async def need_crew(self) -> "Crew":
        """The crew, made now if the main agent has no use for one of its own."""
        if self.crew is None:
            main = self.main
            self.world.surfaces = self.tools.list_surfaces()
            self.crew = self._make_crew()
            await self._open_crew(self.crew, main)
        return self.crew

    async def _build(self) -> RunSetup:
        """The main agent, and its crew where it may delegate."""
        stock, world = self.stock, self.world
        agent = MainAgent(stock, world, self.session, lambda: self.models)
        host = RunHost(
            stock.clock, self.child_models, partial(survey_place, environment=stock.environment), stock.revoked
        )
        name = stock.request.agent or ""
        return await build_run(
            host,
            agent.build_config(self._extend, self._choose_tools, self._charge),
            RunRequest(agent=name, task="", description="", surface=""),
            run=Run(id=self.run_id, parent_id="", depth=0, agent=name, description=""),
        )

    async def _extend(self, definition: Definition, request: RunRequest) -> Additions:
        """What the extensions of the main agent bring."""
        loaded = await self.extending.load_main(definition if definition.name else None)
        self.stock.redactor.patterns = self.world.crew.settings.redact_secrets
        return self.extending.add_surfaces(loaded, self._open_seat)

    def _choose_tools(self, plan: RunPlan) -> dict[str, Tool]:
        """The tools of a main agent that runs as no definition, with those of its crew."""
        names = self.tools.choose(plan.additions)
        if surfaces := find_surfaces(names):
            self.world.keeps_children = self.stock.request.session.kind != "none"
            self.world.surfaces = surfaces
            self.crew = self._make_crew()
        return self.tools.build(names, {} if self.crew is None else self.crew.main_tools, plan.additions)

    def _charge(self, model: Model) -> Model:
        if not self.lease.is_limited:
            return model
        return BudgetedModel(model if self.crew is None else self.crew.share(model), self.lease)

    def _make_crew(self) -> "Crew":
        from retinue.app.remote import open_remote
        from retinue.app.subagents import Crew, CrewParts

        stock, world = self.stock, self.world
        parts = CrewParts(
            world,
            self.child_models,
            stock.environment,
            stock.clock,
            run_id=self.run_id,
            tools={
                **build_tools(stock.tool_options),
                **build_extra_tools(),
                **world.outside.build(),
                **world.languages.build_children(),
                **stock.own.tools,
            },
            lease=self.lease,
            extending=self.extending,
            revoked=stock.revoked,
            desk=stock.desk,
            is_own_session=self._judge_session(),
        )
        return Crew(parts, (stock.own.open_remote or open_remote)(parts))

    def _judge_session(self) -> bool:
        """Whether what the session says of earlier runs can be believed."""
        from retinue.engine.journal import CREW

        session, world = self.session, self.world
        if session.path is None or self.stock.request.session.is_alone:
            return True
        vouchers = _open_vouchers(self.stock, world.paths, world.loaded)
        is_fresh = not any(True for _ in session.customs(CREW))
        return vouchers.judge(session.path, session.id, world.paths.cwd, is_fresh=is_fresh)

    async def _open_crew(self, crew: "Crew", main: LiveRun) -> None:
        from retinue.tools.policy import Rights

        is_readonly = self.stock.request.is_readonly or main.setup.find_plan().rights.readonly
        own = {**main.setup.tools, **crew.main_tools, **build_extra_tools()}
        names = self.stock.own.names
        targets = {name: names[name] for name in own if names.get(name, name) != name}
        await crew.open(main, Rights(allowed=tuple(own), readonly=is_readonly, targets=targets))
        if crew.dismissed:
            self.stock.say(
                f"session {quote(self.session.id)} lies where others may write, so its {crew.dismissed} earlier runs "
                "are not taken over; only those of sessions in your own session folder are"
            )

    def _open_child_models(self) -> CrewModels:
        scope, settings = self.stock.scope, self.world.loaded.settings
        # Whoever brings a model along means it to be used.
        own = tuple(model.info.ref for model in self.stock.own.models)
        return CrewModels(
            lambda: self.models,
            lambda: self.main.setup.model.info,
            lambda: (*own, *(settings.enabled_models if scope.names is None else scope.names)),
        )

    def _open_seat(self) -> "Caller":
        """The main agent's place in its crew, for surfaces of extensions."""
        from retinue.surfaces.base import Caller

        def find_manager() -> "Manager":
            if self.crew is None:
                raise RetinueError("there is no crew yet")
            return self.crew.manager

        return Caller(
            crew=find_manager,
            run_id=self.run_id,
            definitions=lambda: self.world.roster.read().list(),
            resolve_model=self.child_models.resolve,
            list_models=self.child_models.list,
            clock=self.stock.clock,
            find_faults=lambda name: self.world.roster.find_faults(name),
        )

    def _connect(self, channels: "Channels") -> None:
        """Let extensions hear of the crew, and ask it for runs."""
        from retinue.app.extensions import Exchange

        self._exchange = Exchange(channels, open_ports=self._open_ports, find=self._find_run)
        self._exchange.open(self.main.bus, self.world.crew.settings)

    def retune(self, crew: LoadedCrew, *, persisted: bool) -> None:
        """Go by settings that the user has just changed, as far as that is possible while a session goes on."""
        self.world.crew = crew
        if self.crew is not None:
            self.crew.retune()
        if self._exchange is not None:
            self._exchange.tell_change(crew.settings, persisted=persisted)

    async def _open_ports(self) -> "FleetPorts":
        if self._run is None:
            raise UsageError("No active session")
        return (await self.need_crew()).ports

    def _find_run(self, run_id: str) -> Run | None:
        return None if self.crew is None else self.crew.find(run_id)

    def _warn(self, text: str) -> None:
        if self._run is not None:
            self._run.bus.publish(Warned(run_id=self.run_id, text=text))


async def open_berth(stock: Stock, session: Session, paths: Paths, loaded: Loaded) -> Berth:
    """Work in a session from now on; when that fails it is closed again.

    `paths` and `loaded` are those of the folder this was started in, or of the session before.
    """
    berth: Berth | None = None
    note = ""
    try:
        if _leads_away(stock, session, paths, loaded):
            # A session goes on where it was begun, with what is configured there.
            if stock.request.approve:
                began = quote(str(paths.cwd), 200)
                note = f"--approve is for {began} alone; to approve the folder of the session, start retinue there"
            paths = find_folder(session, stock.environment)
            # What was approved is the folder this began in, not one that a session leads to; what was refused is all.
            approve = False if stock.request.approve is False else None
            loaded = load_settings(paths, stock.environment, flags=stock.settings.main, approve=approve)
        stock.tell(loaded.diagnostics, loaded.trust.notice, note if loaded.trust.notice else "")
        berth = Berth(stock, session, read_world(stock, paths, loaded))
        await berth.open()
    except BaseException:
        if berth is not None:
            await berth.give_up()
        session.close()
        raise
    if session.damage:
        stock.say(str(session.damage))
    return berth


def _leads_away(stock: Stock, session: Session, paths: Paths, loaded: Loaded) -> bool:
    """Whether a session goes on in another folder; one that anybody could have written stays, and this is told."""
    if not session.cwd or Path(session.cwd) == paths.cwd or stock.request.session.is_alone:
        return False
    if session.path is None or _open_vouchers(stock, paths, loaded).believes_folder(
        session.path, session.id, session.cwd
    ):
        return True
    stock.say(
        f"session {quote(session.id)} says that it belongs to {quote(session.cwd, 200)}, but it is not from your own "
        f"session folder: staying in {quote(str(paths.cwd), 200)} (to go on there, start retinue in that folder)"
    )
    return False


def _open_vouchers(stock: Stock, paths: Paths, loaded: Loaded) -> "Vouchers":
    from retinue.sessions.trust import Vouchers

    flag, setting = stock.request.session.directory or None, loaded.settings.session_dir
    directory = find_session_dir(paths, stock.environment, flag=flag, setting=setting)
    return Vouchers(paths.own_dir, paths.agent_dir, paths.project, directory)


async def wait_until_idle(run: LiveRun) -> None:
    """Return when a run is at rest."""
    while run.is_busy:
        ended = asyncio.Event()

        def hear(event: Event, ended: asyncio.Event = ended) -> None:
            if isinstance(event, RunFinished) and event.run_id == run.setup.run_id:
                ended.set()

        stop = run.bus.listen(hear, pieces=False)
        try:
            await ended.wait()
        finally:
            stop()


def _find_servers(stock: Stock, world: World) -> "Connecting | None":
    """The MCP servers; None where no file names any, which costs nothing more than looking."""
    from retinue.settings.mcp_files import has_files

    if not has_files(world.paths, trusted=world.is_trusted):
        return None
    from retinue.app.mcp import Connecting

    trees = stock.tool_options.trees
    learn = stock.redactor.learn
    return Connecting(world, stock.request, stock.environment, stock.clock, trees=trees, tell=stock.say, learn=learn)
