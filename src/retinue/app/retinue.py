"""Retinue: a main agent and its crew. Everything a face does goes through this object."""

import asyncio
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from retinue.app.extending import Extending
from retinue.app.guarding import Guarding
from retinue.app.inheriting import inherit
from retinue.app.languages import Languages
from retinue.app.modelling import Models, add_models, to_retry
from retinue.app.opening import find_folder, open_session
from retinue.app.outside import Outside
from retinue.app.reports import read_level, to_wishes
from retinue.app.request import Request
from retinue.app.switching import Audience, Berth, Sessions, wait_until_idle
from retinue.app.world import World
from retinue.core.clock import Clock
from retinue.core.diagnostics import Diagnostic, suggest
from retinue.core.errors import RetinueError, UsageError, quote
from retinue.core.events import Event, Warned
from retinue.core.messages import ThinkingLevel, UserContent
from retinue.core.model import Model, ModelInfo
from retinue.core.redaction import Redactor, collect_secrets
from retinue.core.run import Outcome, Run
from retinue.core.tool import Tool
from retinue.engine.budget import BudgetedModel, Lease
from retinue.engine.bus import Listener, Subscription
from retinue.engine.clock import SystemClock
from retinue.engine.extras import Extras
from retinue.engine.ids import make_run_id
from retinue.engine.prompt import build_sections
from retinue.engine.questions import Desk
from retinue.engine.restraint import Restrained, Restraint
from retinue.engine.runner import LiveRun
from retinue.engine.setup import Feature, RunSetup
from retinue.features.skills import find_skill_roots, list_skills, render_catalogue
from retinue.models.thinking import clamp_level
from retinue.sessions.compaction import CompactionConfig
from retinue.sessions.log import Session
from retinue.settings.context import load_prompt_files
from retinue.settings.layers import Loaded, load_settings
from retinue.settings.paths import Paths, find_paths, find_session_dir
from retinue.settings.providers import load_registry
from retinue.settings.schema import Settings
from retinue.settings.subagents import load_crew
from retinue.surfaces.names import DISPATCH, FINALIZE, SURFACE_TOOLS, find_surfaces, list_tools
from retinue.tools.registry import BUILTIN_TOOLS, ToolOptions, build_extra_tools, build_tools

if TYPE_CHECKING:  # only a Retinue that delegates, or plays a role, pays for these
    from contextlib import AbstractContextManager

    from retinue.app.catalogue import Catalogue
    from retinue.app.chronicle import Chronicle
    from retinue.app.connecting import Connecting
    from retinue.app.crew import Crew
    from retinue.app.delegation import Delegation
    from retinue.app.handle import Handle
    from retinue.app.lookout import Lookout
    from retinue.app.selecting import Selection
    from retinue.app.shell import Shell
    from retinue.app.tuning import Tuning
    from retinue.core.question import Question
    from retinue.engine.manager import Manager
    from retinue.features.extensions.channels import Channels
    from retinue.features.extensions.contained import Renderer
    from retinue.sandbox.probe import Machine
    from retinue.settings.kit import Role
    from retinue.settings.subagents import CrewSettings
    from retinue.surfaces.base import Seat
    from retinue.surfaces.fleet.ports import FleetPorts


def ignore_message(text: str) -> None:
    """For callers that do not want to be told."""


class Retinue:
    """A main agent and its crew. Use it as an async context manager."""

    def __init__(  # noqa: PLR0913 - what a caller may bring along, each by its name
        self,
        cwd: str | Path = ".",
        *,
        model: str | Model | None = None,
        request: Request | None = None,
        models: Sequence[Model] = (),
        tools: Sequence[Tool] = (),
        extensions: Sequence[str | Path] = (),
        environment: Mapping[str, str] | None = None,
        clock: Clock | None = None,
        say: Callable[[str], None] = ignore_message,
    ) -> None:
        """`model` is a name or your own; `models` are known by name beside those of the user's providers, `tools`
        are added to the built-in ones, `extensions` to those found.

        `say` gets one-line notes.
        """
        asked = inherit(request or Request(), os.environ if environment is None else environment)
        self._own_model = None if model is None or isinstance(model, str) else model
        self._request = replace(asked, model=model) if isinstance(model, str) else asked
        self._cwd = cwd
        self._tools = {tool.spec.name: tool for tool in tools}
        self._tool_options = ToolOptions()
        self._environment = os.environ if environment is None else environment
        self._clock = clock or SystemClock()
        self._say = say
        self._lease = Lease()
        self._is_readonly = asked.is_readonly
        self._restraint = Restraint()
        self._redactor = Redactor(collect_secrets(self._environment))
        self._desk = Desk(lambda event: self._main.bus.publish(event))
        self._audience = Audience()
        self._shell: Shell | None = None
        self._run: LiveRun | None = None
        self._world: World | None = None
        self._models: Models | None = None
        self._crew: Crew | None = None
        self._extension_paths = extensions
        self._extending: Extending | None = None
        self._extras = Extras()
        self._own_models = models
        self._run_id = make_run_id()
        self._machine: Machine | None = None

    async def __aenter__(self) -> Self:
        paths = find_paths(self._cwd, self._environment)
        loaded = load_settings(paths, self._environment, approve=self._request.approve)
        session = open_session(self._request.session, paths, loaded.settings, self._environment, self._clock, self._say)
        await self._begin(session, paths, loaded)
        if self._request.session.name:
            session.append_session_info(self._request.session.name)
        return self

    async def _begin(self, session: Session, paths: Paths, loaded: Loaded) -> None:
        """Work in a session from now on; when that fails it is closed again."""
        try:
            if session.cwd and session.cwd != str(paths.cwd) and not self._request.session.is_alone:
                # A session goes on where it was begun, with what is configured there.
                paths = find_folder(session, self._environment)
                # What was approved is the folder this began in, not whichever a later session leads to.
                approve = self._request.approve if self._run is None else None
                loaded = load_settings(paths, self._environment, approve=approve)
            self._tell(loaded.diagnostics, loaded.trust.notice)
            self._world = self._read_world(paths, loaded)
            self._extras = await self._extend(self._world)
            self._run = LiveRun(self._set_up(self._world, session), session, clock=self._clock)
            if self._world.recorder is not None:
                self._world.recorder.listen(self._run, self._request.agent or "")
            self._need_extending(self._world).listen(self._run)
            self._need_extending(self._world).connect(self._connect)
            if self._crew is not None:
                await self._open_crew(self._crew)
            elif self._need_extending(self._world).collect("surfaces"):
                await self._need_crew()
        except BaseException:
            if self._extending is not None:
                await self._extending.close()
            session.close()
            raise
        if session.damage:
            self._say(str(session.damage))

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    async def close(self) -> None:
        """End everything; what was said is on disk, and what had not finished can be resumed."""
        berth = Berth(self._run, self._crew, self._extending, self._find_languages())
        self._run = self._crew = None
        await berth.close()
        if self._world is not None and self._world.recorder is not None:
            self._world.recorder.flush()
        if self._models is not None:
            await self._models.close()
        if self._machine is not None:
            self._machine.close()

    async def prompt(self, content: str | Sequence[UserContent], *, settle: bool = False) -> Outcome:
        """Say something to the main agent and wait until it is done.

        With `settle` it also waits for the runs it started and lets the agent react to their reports.
        """
        main, crew = self._main, self._crew
        if crew is None:
            self._lease.renew()
            return await main.prompt(content)
        await crew.reactions.open()
        self._lease.renew()
        crew.manager.begin_prompt()
        if not settle:
            return await main.prompt(content)
        return await main.prompt(content, stay=lambda outcome: crew.manager.stay(main.setup.run_id, main, outcome))

    async def spawn(
        self, agent: str, task: str, *, description: str = "", model: str | None = None, **options: Any
    ) -> "Handle":
        """Start a run in the background and return at once. Further options are those of `RunRequest`.

        Raises RetinueError when the agent is unknown or disabled, or no further run may be started.
        """
        from retinue.app.handle import Handle
        from retinue.engine.request import RunRequest

        crew = await self._need_crew()
        definition = self._need_world().roster.find_runnable(agent, "fleet")
        options.setdefault("isolation", "worktree" if definition.isolation == "worktree" else None)
        options = {**crew.find_keeping(definition), **options}
        request = RunRequest(
            agent=definition.name,
            task=task,
            description=description or " ".join(task.split())[:60],
            surface=options.pop("surface", "fleet"),
            model=model,
            **options,
        )
        run = crew.manager.spawn(request)
        crew.reactions.spare(run.id)
        return Handle(crew.manager, run)

    async def resume(self, run_id: str, task: str) -> "Handle":
        """Let a finished run go on with a new task, with all it knows. Raises RetinueError."""
        from retinue.app.handle import Handle

        crew = await self._need_crew()
        return Handle(crew.manager, crew.manager.resume(run_id, task))

    async def runs(self) -> "list[Handle]":
        """All runs of the crew, newest first, those of earlier processes included."""
        from retinue.app.handle import Handle

        crew = await self._need_crew()
        return [Handle(crew.manager, run) for run in crew.manager.list_runs()]

    def steer(self, content: str | Sequence[UserContent]) -> None:
        """Say something to the main agent before its next reply."""
        self._main.steer(content)
        if self._crew is not None:
            self._crew.manager.wake(self._main.setup.run_id)

    def follow_up(self, content: str | Sequence[UserContent]) -> None:
        """Say something to the main agent when it would stop."""
        self._main.follow_up(content)

    def restrict(self, *tools: str, readonly: bool = False, run_id: str = "") -> None:
        """Take tools, or all that changes something, from the main agent or a run, and from all below it.

        It counts from their next call on and is never given back. Runs in processes of their own are stopped.
        """
        self._restraint.lower(run_id or self._main.setup.run_id, tools, readonly=readonly)
        if self._crew is not None:
            self._crew.stop_elsewhere(run_id or self._main.setup.run_id)

    def abort(self) -> bool:
        """Stop the main agent and all it started at once; False when they are at rest."""
        stopped = 0
        if self._crew is not None:
            self._crew.reactions.close()
            stopped = self._crew.manager.stop_all()
        return self._main.abort() or stopped > 0

    @property
    def questions(self) -> "list[Question]":
        """What runs want a person to decide, oldest first."""
        return self._desk.waiting

    def answer(self, question_id: str, answer: str) -> bool:
        """Decide a question; False when it waits no longer. Raises UsageError for an answer it does not have."""
        return self._desk.answer(question_id, answer)

    def attend(self) -> "AbstractContextManager[None]":
        """Say that somebody is there to answer; without, the default of each question counts at once."""
        return self._desk.attend()

    def warm_up(self) -> None:
        """Begin what the first prompt would wait for, such as connecting MCP servers; for faces that prompt later."""
        if self._extending is not None and self._extending.servers is not None:
            self._extending.servers.warm()

    @property
    def crew_settings(self) -> "CrewSettings":
        """What subagents.json says."""
        return self._need_world().crew.settings

    def retune(self) -> None:
        """Read subagents.json again; what can change while a session goes on does, the rest with the next one."""
        world = self._need_world()
        world.crew = load_crew(world.paths, self._environment, trusted=world.is_trusted)
        if self._crew is not None:
            self._crew.manager.resize(world.crew.settings.max_concurrent)

    async def compact(self, instructions: str = "") -> bool:
        """Summarise the main agent's context now."""
        return await self._main.compact(instructions)

    def listen(self, listener: Listener, *, pieces: bool = True) -> Callable[[], None]:
        """Call the listener with each event, at once, in whatever session; it must not block. Returns what ends it."""
        return self._audience.listen(self._main, listener, pieces=pieces)

    async def rest(self) -> None:
        """Wait until the main agent is at rest."""
        await wait_until_idle(self._main)

    @property
    def is_busy(self) -> bool:
        """Whether the main agent works."""
        return self._main.is_busy

    def abort_retry(self) -> bool:
        """Give up a reply that is to be asked for again; False when none is."""
        return self._main.is_retrying and self._main.abort()

    def take_back(self) -> tuple[list[str], list[str]]:
        """Take back what waits to be said to the main agent and return it: steering and follow-ups."""
        return self._main.inbox.take_back()

    @property
    def waiting(self) -> tuple[list[str], list[str]]:
        """What waits to be said to the main agent: steering and follow-ups."""
        return self._main.inbox.words

    @property
    def selection(self) -> "Selection":
        """The main agent's model and thinking level, and what else there is."""
        from retinue.app.selecting import Selection

        world = self._need_world()
        return Selection(self._main, self._need_models(world).registry, world.loaded.settings, self._open_model)

    @property
    def tuning(self) -> "Tuning":
        """How the main agent goes about it."""
        from retinue.app.tuning import Tuning

        return Tuning(self._main)

    @property
    def chronicle(self) -> "Chronicle":
        """What the main session holds."""
        from retinue.app.chronicle import Chronicle

        return Chronicle(self._main)

    @property
    def lookout(self) -> "Lookout":
        """The runs of the crew, for whoever watches them."""
        from retinue.app.lookout import Lookout

        return Lookout(None if self._crew is None else self._crew.manager)

    @property
    def catalogue(self) -> "Catalogue":
        """What the user can call by a slash."""
        from retinue.app.catalogue import Catalogue

        world = self._need_world()
        return Catalogue(world, self._need_extending(world).commands)

    @property
    def shell(self) -> "Shell":
        """Runs commands of the user's, of which the model learns with the next prompt."""
        if self._shell is None:
            from retinue.app.shell import Shell

            self._shell = Shell(lambda: self._main, self._tool_options.trees, self._environment, self._clock)
        return self._shell

    @property
    def sessions(self) -> Sessions:
        """The sessions that the main agent can go over to."""
        world, wish = self._need_world(), self._request.session
        setting = world.loaded.settings.session_dir
        directory = find_session_dir(world.paths, self._environment, flag=wish.directory or None, setting=setting)
        return Sessions(self._main, directory, self._clock, self._switch)

    async def _switch(self, session: Session) -> None:
        """The new session is open before the present one is closed, so that a failure changes nothing."""
        world, kept = self._need_world(), (self._world, self._extras, self._lease, self._run_id)
        main, models = self._main, self._models
        berth = Berth(main, self._crew, self._extending, world.languages)
        self._crew, self._extending, self._run_id = None, None, make_run_id()
        try:
            await self._begin(session, world.paths, world.loaded)
        except BaseException:
            if self._crew is not None:
                await self._crew.close()
            self._run, self._crew, self._extending = berth.run, berth.crew, berth.extending
            (self._world, self._extras, self._lease, self._run_id), self._models = kept, models
            raise
        self.selection.restore()
        self.tuning.take_over(main.setup)
        self.shell.abort()
        try:
            await berth.close()
        finally:
            self._audience.move(self._main)

    def events(self) -> Subscription:
        """The events from now on, in whatever session, for `async for`."""
        subscription = Subscription(10_000)
        subscription.stop = self.listen(subscription.put)
        return subscription

    @property
    def run_id(self) -> str:
        """The main agent's run."""
        return self._main.setup.run_id

    @property
    def model(self) -> ModelInfo:
        """The main agent's model."""
        return self._main.setup.model.info

    @property
    def header(self) -> dict[str, Any]:
        """The header of the main session."""
        return self._main.session.header

    @property
    def session_file(self) -> Path | None:
        """Where the main session is kept."""
        return self._main.session.path

    @property
    def is_saved(self) -> bool:
        """Whether all that was said is on disk."""
        return self._main.journal.is_saved

    def has_command(self, name: str) -> bool:
        """Whether there is a command of this name: an extension's, or `toolkit`."""
        if name in self._need_extending(self._need_world()).commands:
            return True
        own = self.crew_settings
        return name == "toolkit" and own.enabled and own.commands.enabled

    async def run_command(self, name: str, args: str = "") -> str:
        """Give a command the text behind its name; returns what to show. Raises RetinueError."""
        commands = self._need_extending(self._need_world()).commands
        if name == "toolkit" and name not in commands and self.has_command(name):
            from retinue.app.toolkit import Toolkit

            return (await asyncio.to_thread(Toolkit(self._request).answer, args)).text
        if name not in commands:
            raise UsageError(f"there is no command /{quote(name)[1:-1]}{suggest(name, commands)}")
        return await commands[name].run(args)

    @property
    def renderers(self) -> "Mapping[str, Renderer]":
        """How extensions show kinds of data as text, by kind; `render` returns None where they cannot."""
        return self._need_extending(self._need_world()).renderers

    def describe_life(self) -> "Callable[[Event], dict[str, Any] | None] | None":
        """What makes records of the crew's life for other programs; None when there is no crew."""
        if self._crew is None:
            return None
        from retinue.surfaces.fleet.records import LifeRecords

        return LifeRecords(self._crew.manager.find)

    async def call_subagent(
        self, agent: str, task: str, *, write: bool = False, session_id: str | None = None
    ) -> dict[str, Any]:
        """One call of the `subagent` surface: its result as the tool gives it, whatever goes wrong."""
        from retinue.app.delegating import open_subagent
        from retinue.surfaces.subagent.call import make_call
        from retinue.surfaces.subagent.ports import SubagentCall

        ports = open_subagent(await self._need_crew(), self.run_id, self._request.model)
        return await make_call(SubagentCall(agent, task, session_id, write), ports)

    async def open_delegation(self) -> "Delegation":
        """The delegation tools for a caller that is no agent of ours."""
        from retinue.app.delegation import Delegation

        crew = await self._need_crew()

        def renew() -> None:
            self._lease.renew()
            crew.manager.begin_prompt()

        tools = self._drop_denied(self._need_world(), dict(crew.main_tools))
        return Delegation(tools, self._main, crew.manager, self._clock, renew)

    @property
    def _main(self) -> LiveRun:
        if self._run is None:
            raise RetinueError("this Retinue is not open; use `async with Retinue(…) as crew`")
        return self._run

    def _find_languages(self) -> Languages | None:
        return None if self._world is None else self._world.languages

    def _need_world(self) -> World:
        if self._world is None:
            raise RetinueError("this Retinue is not open; use `async with Retinue(…) as crew`")
        return self._world

    async def _need_crew(self) -> "Crew":
        """The crew, made now if the main agent has no use for one of its own."""
        if self._crew is None:
            world = self._need_world()
            world.surfaces = self._list_surfaces(world)
            self._crew = self._make_crew(world, self._main.setup.run_id)
            await self._open_crew(self._crew)
        return self._crew

    async def _open_crew(self, crew: "Crew") -> None:
        from retinue.tools.policy import Rights

        own = {**self._main.setup.tools, **crew.main_tools, **build_extra_tools()}
        await crew.open(self._main, Rights(allowed=tuple(own), readonly=self._is_readonly))

    def _make_crew(self, world: World, run_id: str) -> "Crew":
        from retinue.app.crew import Crew

        crew = Crew(
            world,
            self._need_models(world),
            self._environment,
            self._clock,
            run_id=run_id,
            tools={
                **build_tools(self._tool_options),
                **build_extra_tools(),
                **world.outside.build(),
                **world.languages.build_children(),
                **self._tools,
            },
            lease=self._lease,
            extending=self._need_extending(world),
        )
        crew.restraint = self._restraint
        return crew

    async def _extend(self, world: World) -> Extras:
        """What extensions bring for the main agent."""
        name, extending = self._request.agent, self._need_extending(world)
        definition = None if name is None else world.roster.find_runnable(name)
        return extending.add_surfaces(await extending.load_main(definition), lambda: self._open_seat(world))

    def _open_seat(self, world: World) -> "Seat":
        """The main agent's place in its crew, for surfaces of extensions."""
        from retinue.surfaces.base import Seat

        def find_manager() -> "Manager":
            if self._crew is None:
                raise RetinueError("there is no crew yet")
            return self._crew.manager

        return Seat(
            crew=find_manager,
            run_id=self._run_id,
            definitions=lambda: world.roster.read().list(),
            resolve_model=lambda query: self._need_models(world).resolve(query),
            list_models=lambda: self._need_models(world).list(),
            clock=self._clock,
        )

    def _connect(self, channels: "Channels") -> None:
        """Let extensions hear of the crew, and ask it for runs."""
        from retinue.app.exchange import Exchange

        exchange = Exchange(channels, open_ports=self._open_ports, find=self._find_run)
        exchange.open(self._main.bus, self._need_world().crew.settings)

    async def _open_ports(self) -> "FleetPorts":
        if self._run is None:
            raise UsageError("No active session")
        return (await self._need_crew()).ports

    def _find_run(self, run_id: str) -> Run | None:
        return None if self._crew is None else self._crew.find(run_id)

    def _need_extending(self, world: World) -> Extending:
        if self._extending is None:
            servers = self._find_servers(world)
            self._extending = Extending(world, self._extension_paths, lambda item: self._tell((item,)), servers)
        return self._extending

    def _find_servers(self, world: World) -> "Connecting | None":
        """The MCP servers; None where no file names any, which costs nothing more than looking."""
        from retinue.settings.mcp_files import has_files

        if not has_files(world.paths, trusted=world.is_trusted):
            return None
        from retinue.app.connecting import Connecting

        trees = self._tool_options.trees
        return Connecting(world, self._request, self._environment, self._clock, trees=trees, tell=self._say)

    def _need_models(self, world: World) -> Models:
        if self._models is None:
            request = self._request
            registry, problems = load_registry(
                world.paths, self._environment, api_key=request.api_key, offline=request.offline
            )
            extending = self._need_extending(world)
            own: list[Model] = [*self._own_models, *extending.collect("models")]
            self._tell(problems, *add_models(registry, own, extending.collect("providers")))
            self._models = Models(registry, world.loaded.settings, self._clock, own)
            self._redactor.learn(*registry.keys.list_secrets(registry.providers.values()))
            self._models.learn = self._redactor.learn
        return self._models

    def _tell(self, problems: Iterable[Diagnostic], *notes: str) -> None:
        for text in (*(problem.message for problem in problems), *filter(None, notes)):
            self._say(text)

    def _read_world(self, paths: Paths, loaded: Any) -> World:
        request = self._request
        crew = load_crew(paths, self._environment, trusted=loaded.trust.trusted)
        files = load_prompt_files(
            paths,
            trusted=loaded.trust.trusted,
            system=request.system_prompt,
            append=request.append_system_prompt,
            use_context=request.context_files,
        )
        self._tell((*crew.diagnostics, *files.diagnostics))
        has_session = request.session.kind not in ("none", "children")
        world = World(paths, loaded, crew, files, has_session=has_session, find_machine=self._find_machine)
        if not self._is_child and request.session.kind != "none":
            from retinue.features.activity import Recorder, find_log

            log = find_log(paths.own_dir, paths.project)
            world.recorder = Recorder(log, self._clock)
        world.languages = Languages(
            crew.settings,
            world.boundaries,
            self._environment,
            self._clock,
            trees=self._tool_options.trees,
            trusted=loaded.trust.trusted,
            is_child=self._is_child,
        )
        world.outside = Outside(crew.settings, self._environment, self._tool_options.trees, lambda: self._main)
        world.guarding = Guarding(
            world,
            self._environment,
            self._clock,
            self._desk,
            tell=lambda problems, notes: self._tell(problems, *notes),
            warn=self._warn,
        )
        return world

    def _warn(self, text: str) -> None:
        if self._run is not None:
            self._run.bus.publish(Warned(run_id=self._run.setup.run_id, text=text))

    def _set_up(self, world: World, session: Session) -> RunSetup:
        request, settings, paths, files = self._request, world.loaded.settings, world.paths, world.files
        budget = world.crew.settings.budget
        self._lease = Lease(budget.tokens, budget.cost_usd)
        run_id = self._run_id
        self._redactor.patterns = world.crew.settings.redact_secrets
        role = self._choose_role(world)
        self._is_readonly = request.is_readonly or (role is not None and role.rights.readonly)
        model, thinking = self._choose_model(world, session, role)
        tools = self._choose_tools(world, role, run_id)
        reserve, keep = settings.compaction.for_model(model.info.ref)
        system, addendum = files.system or "", "\n\n".join(files.append)
        if role is not None:
            system = role.choose_system(system, is_asked=request.system_prompt is not None)
            addendum = role.extend(addendum)
        return RunSetup(
            run_id=run_id,
            cwd=paths.cwd,
            model=self._charge(model),
            thinking=thinking,
            tools=tools,
            sections=build_sections(
                cwd=str(paths.cwd),
                tools={name: tool for name, tool in tools.items() if not getattr(tool, "deferred", False)},
                custom=system,
                addendum=addendum,
                context_files=[(file.path, file.text) for file in files.context],
                extra={**self._list_skills(world, tools), **self._advise(world, tools)} if role is None else None,
            ),
            limits=request.limits if role is None else role.limit(request.limits),
            retry=to_retry(settings),
            compaction=CompactionConfig(settings.compaction.enabled, reserve, keep),
            steering_mode=settings.steering_mode,
            follow_up_mode=settings.follow_up_mode,
            redact=self._redactor.redact_data,
            hooks=(Restrained(self._restraint, run_id), *self._extras.hooks),
            features=self._surround(world, role),
        )

    def _find_machine(self) -> "Machine":
        if self._machine is None:
            from retinue.features.confined import open_machine

            self._machine = open_machine()
        return self._machine

    def _surround(self, world: World, role: "Role | None") -> list[Feature]:
        definition = None if role is None else role.definition
        rights = None if role is None else role.rights
        guards = world.guarding.surround_main(definition, self._extras.points, rights)
        own = [world.boundaries.surround(readonly=self._request.is_readonly)] if role is None else role.features
        return [*own, *guards, *world.languages.surround_main(), *self._extras.features]

    def _charge(self, model: Model) -> Model:
        return BudgetedModel(model, self._lease) if self._lease.is_limited else model

    def _open_model(self, info: ModelInfo) -> Model:
        return self._charge(self._need_models(self._need_world()).open(info))

    def _choose_role(self, world: World) -> "Role | None":
        """The definition the main agent runs as, with its rights."""
        if self._request.agent is None:
            return None
        from retinue.settings.kit import build_role

        own = {**build_tools(self._tool_options), **build_extra_tools(), **world.outside.build()}
        own |= {**world.languages.build_main(), **self._tools}
        return build_role(world.roster, self._request.agent, own, self._extras)

    def _list_skills(self, world: World, tools: Mapping[str, Tool]) -> dict[str, str]:
        if not self._request.skills or ("read" not in tools and "bash" not in tools):
            return {}
        paths = world.paths
        roots = find_skill_roots(paths.project, paths.agent_dir, paths.home, trusted=world.is_trusted)
        skills, problems = list_skills(roots)
        self._tell(problems)
        return {"skills": render_catalogue(skills)} if skills else {}

    def _advise(self, world: World, tools: Mapping[str, Tool]) -> dict[str, str]:
        """When to delegate, for an agent that can."""
        return {**self._advise_dispatch(world, tools), **self._advise_subagent(world, tools)}

    def _advise_dispatch(self, world: World, tools: Mapping[str, Tool]) -> dict[str, str]:
        if DISPATCH not in tools:
            return {}
        from retinue.surfaces.dispatch.words import render_section

        roster, switches = world.roster, world.guarding.switches
        agents = roster.read().list("dispatch", enabled_only=True)
        left = [each for each in agents if not switches.is_agent_off(each.name)]
        text = render_section((each, roster.decide(each).allowed) for each in left)
        return {"subagents": text} if text else {}

    def _advise_subagent(self, world: World, tools: Mapping[str, Tool]) -> dict[str, str]:
        if "subagent" not in tools or not world.crew.settings.subagents.inject_delegation_policy:
            return {}
        from retinue.surfaces.subagent.policy import render_policy

        text = render_policy([each.name for each in world.roster.read().list("subagent", enabled_only=True)])
        return {"delegation": text} if text else {}

    def _choose_model(self, world: World, session: Session, role: "Role | None") -> tuple[Model, ThinkingLevel]:
        request, settings = self._request, world.loaded.settings
        named: ThinkingLevel | None = request.thinking or (role.thinking if role is not None else None)
        if self._own_model is not None:
            level = named or read_level(session) or settings.default_thinking_level
            return self._own_model, clamp_level(self._own_model.info, level)
        models = self._need_models(world)
        is_free = not (request.model or request.provider)
        choice = role.choose_model(models.registry) if role is not None and is_free else None
        choice = choice or models.registry.choose(to_wishes(request, settings, session, models.registry))
        self._tell((), choice.reason)
        kept = read_level(session) or request.inherited_thinking or settings.default_thinking_level
        level = named or choice.thinking or kept
        return models.open(choice.info), clamp_level(choice.info, level)

    def _choose_tools(self, world: World, role: "Role | None", run_id: str) -> dict[str, Tool]:
        request = self._request
        if role is not None:
            return role.choose_tools(request.tools, request.exclude_tools)
        names = self._name_tools(world) if request.tools is None else list(request.tools)
        left = [name for name in names if name not in request.exclude_tools]
        possible = [name for name in SURFACE_TOOLS if self._may_offer(world, name)]
        beside = {**world.outside.build(), **world.languages.build_main()}
        known = [*BUILTIN_TOOLS, *beside, *self._tools, *self._extras.tools, *list_tools(possible)]
        known += [FINALIZE] if self._is_child else []
        servers = self._need_extending(world).servers
        served = [] if servers is None else [name for name in [*left, *request.exclude_tools] if servers.may_have(name)]
        left = [name for name in left if name not in served]
        if request.is_child:
            # Whoever starts children names tools of its own world, and expects those that are here.
            self._tell((), *(f"there is no tool {quote(name)} here; left out" for name in left if name not in known))
            left = [name for name in left if name in known]
        for name in [*left, *request.exclude_tools]:
            if name not in known and name not in served:
                raise UsageError(f"there is no tool {quote(name)}; available: {', '.join(known)}")
        made = build_tools(self._tool_options, [name for name in left if name in BUILTIN_TOOLS])
        given = {**made, **beside, **self._extras.tools, **self._tools}
        if FINALIZE in left:
            from retinue.features.finalise import FinalizeTool

            given[FINALIZE] = FinalizeTool()
        if surfaces := find_surfaces(left):
            world.keeps_children = request.session.kind != "none"
            world.surfaces = surfaces
            self._crew = self._make_crew(world, run_id)
            given.update(self._crew.main_tools)
        return self._drop_denied(world, {name: given[name] for name in dict.fromkeys(left)})

    def _drop_denied(self, world: World, tools: dict[str, Tool]) -> dict[str, Tool]:
        """The tools without those that the user lets no agent have."""
        words = world.crew.settings.deny_tools
        if not words:
            return tools
        from retinue.tools.selectors import Offer, match_denied

        offers = {name: self._extras.offers.get(name) or Offer(tool.effect) for name, tool in tools.items()}
        denied = match_denied(words, offers, {})
        asked = [name for name in self._request.tools or () if name in denied]
        self._tell((), *(f"{name} is denied by the user's settings (denyTools); left out" for name in asked))
        return {name: tool for name, tool in tools.items() if name not in denied}

    def _name_tools(self, world: World) -> list[str]:
        settings: Settings = world.loaded.settings
        delegation = list_tools(self._list_surfaces(world))
        beside = [*world.outside.build(), *(["lsp"] if world.languages.is_offered else [])]
        return [*settings.default_tools, *beside, *self._tools, *self._extras.tools, *delegation]

    def _list_surfaces(self, world: World) -> list[str]:
        """What the settings offer the main agent; inside another program's agent it does not delegate by itself."""
        asked = self._request.surfaces
        wanted = asked if asked is not None else () if self._is_child else world.crew.settings.surfaces
        chosen = [name for name in SURFACE_TOOLS if name in wanted or "*" in wanted]
        return [name for name in chosen if self._may_offer(world, name)]

    def _may_offer(self, world: World, surface: str) -> bool:
        is_off = surface == "dispatch" and not world.guarding.switches.is_enabled
        return not is_off and world.crew.settings.allows_surface(surface, is_child=self._is_child)

    @property
    def _is_child(self) -> bool:
        return self._environment.get("PI_SUBAGENT_CHILD", "") == "1"
