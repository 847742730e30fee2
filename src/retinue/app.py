"""The composition root: reads what the user has configured, builds the parts and hands them to each other.

It decides nothing: what a file means is in `settings`, which model a name means is in `models`, how a run goes is in
`engine`. Everything a face does goes through `Retinue`.
"""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

from retinue.core.clock import Clock
from retinue.core.diagnostics import Diagnostic
from retinue.core.errors import RetinueError, UsageError, quote
from retinue.core.messages import ThinkingLevel, UserContent
from retinue.core.model import Model, ModelInfo
from retinue.core.run import Outcome, Reason, Run
from retinue.core.tool import Tool
from retinue.engine.bus import Listener, Subscription
from retinue.engine.clock import SystemClock
from retinue.engine.ids import make_run_id, make_uuid
from retinue.engine.limits import Limits
from retinue.engine.prompt import build_sections
from retinue.engine.runner import LiveRun
from retinue.engine.setup import RunSetup
from retinue.features.skills import find_skill_roots, list_skills, render_catalogue
from retinue.models.governor import Governor
from retinue.models.registry import Registry
from retinue.models.resolve import Choice, Wishes
from retinue.models.retry import RetryPolicy
from retinue.models.thinking import clamp_level
from retinue.models.transport import Timing, Transport
from retinue.sessions.compaction import CompactionConfig
from retinue.sessions.entry import Stamp, check_session_id
from retinue.sessions.listing import find_recent, find_session, list_directories
from retinue.sessions.listing import list_sessions as find_sessions
from retinue.sessions.log import Session
from retinue.settings.context import PromptFiles, load_prompt_files
from retinue.settings.layers import Loaded, load_settings
from retinue.settings.paths import Paths, find_paths, find_session_dir
from retinue.settings.providers import load_registry
from retinue.settings.schema import Settings
from retinue.settings.subagents import LoadedCrew, load_crew
from retinue.tools.registry import BUILTIN_TOOLS, ToolOptions, build_tools

if TYPE_CHECKING:  # only commands and prompts that have to do with agents pay for these
    from retinue.engine.manager import Manager
    from retinue.engine.outfit import Kit
    from retinue.settings.checkup import Report
    from retinue.settings.decisions import Folder
    from retinue.settings.kit import Role
    from retinue.settings.roster import Portrait as Portrait
    from retinue.settings.roster import Roster as Roster


@dataclass(frozen=True, slots=True)
class SessionWish:
    """Which session to work in."""

    kind: Literal["new", "none", "newest", "named", "exact"] = "new"
    """`named`: a path, an id or the start of one; `exact`: this id, made if there is none."""
    reference: str = ""
    directory: str = ""
    name: str = ""


@dataclass(frozen=True, slots=True)
class Request:
    """What a caller may ask for; everything else comes from the user's files."""

    model: str | None = None
    provider: str | None = None
    api_key: str | None = field(default=None, repr=False)
    thinking: ThinkingLevel | None = None
    session: SessionWish = field(default_factory=SessionWish)
    agent: str | None = None
    """The definition the main agent runs as."""
    tools: Sequence[str] | None = None
    """Exactly these; None for the settings' choice."""
    exclude_tools: Sequence[str] = ()
    system_prompt: str | None = None
    append_system_prompt: Sequence[str] = ()
    context_files: bool = True
    approve: bool | None = None
    offline: bool = False
    limits: Limits = field(default_factory=Limits)


def ignore_message(text: str) -> None:
    """For callers that do not want to be told."""


class Retinue:
    """A main agent and, later, its crew. Use it as an async context manager."""

    def __init__(
        self,
        cwd: str | Path = ".",
        *,
        model: str | Model | None = None,
        request: Request | None = None,
        tools: Sequence[Tool] = (),
        environment: Mapping[str, str] | None = None,
        clock: Clock | None = None,
        say: Callable[[str], None] = ignore_message,
    ) -> None:
        """`model` is a name or your own; `tools` are added to the built-in ones; `say` gets one-line notes."""
        asked = request or Request()
        self._own_model = None if model is None or isinstance(model, str) else model
        self._request = asked if not isinstance(model, str) else _with_model(asked, model)
        self._cwd = cwd
        self._tools = tools
        self._environment = os.environ if environment is None else environment
        self._clock = clock or SystemClock()
        self._say = say
        self._transport = Transport()
        self._governor: Governor | None = None  # one back-off per provider, shared by all runs
        self._run: LiveRun | None = None
        self._world: World | None = None
        self._manager: Manager | None = None

    async def __aenter__(self) -> Self:
        paths = find_paths(self._cwd, self._environment)
        loaded = self._load_settings(paths)
        session = self._open_session(paths, loaded.settings)
        try:
            if session.cwd and session.cwd != str(paths.cwd):
                # A session goes on where it was begun, with what is configured there.
                paths = _find_folder(session, self._environment)
                loaded = self._load_settings(paths)
            self._tell(loaded.diagnostics, loaded.trust.notice)
            self._run = LiveRun(self._set_up(paths, loaded, session), session, clock=self._clock)
        except BaseException:
            session.close()
            raise
        if session.damage:
            self._say(str(session.damage))
        if self._request.session.name:
            session.append_session_info(self._request.session.name)
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    async def close(self) -> None:
        """End everything; what was said is on disk."""
        run, self._run = self._run, None
        if run is not None:
            run.abort(Reason.USER)
            run.journal.flush()
            run.session.close()
        await self._transport.close()

    async def prompt(self, content: str | Sequence[UserContent]) -> Outcome:
        """Say something to the main agent and wait until it is done."""
        return await self._main.prompt(content)

    def steer(self, content: str) -> None:
        """Say something to the main agent before its next reply."""
        self._main.steer(content)

    def follow_up(self, content: str) -> None:
        """Say something to the main agent when it would stop."""
        self._main.follow_up(content)

    def abort(self) -> bool:
        """Stop the main agent and all it started at once; False when they are at rest."""
        stopped = self._manager.stop_all() if self._manager is not None else 0
        return self._main.abort() or stopped > 0

    async def run_agent(self, agent: str, task: str, *, write: bool = False, session_id: str = "") -> "AgentResult":
        """One run of an agent in the foreground; the main agent says nothing. Raises UnknownAgent or DisabledAgent."""
        from retinue.engine.backend import LocalBackend
        from retinue.engine.manager import Bounds, Manager
        from retinue.engine.outfit import Outfitter
        from retinue.settings.kit import prepare_run
        from retinue.tools.policy import Rights

        main, world = self._main, self._get_world()
        roster = world.open_roster()
        request, session_id = prepare_run(
            roster, agent, task, write=write, model=self._request.model, session_id=session_id, new_id=make_uuid
        )
        kit = self._build_kit(world, roster)
        rights = Rights(allowed=tuple(main.setup.tools))
        async with LocalBackend() as backend:
            bounds = Bounds(max_depth=1, max_spawns=world.crew.settings.max_spawns_per_tree)
            outfitter = Outfitter(kit, root=rights, clock=self._clock)
            self._manager = Manager(main, outfitter, backend, clock=self._clock, new_id=make_run_id, bounds=bounds)
            run = self._manager.spawn(request)
            await self._manager.wait(run.id)
            self._manager = None
        return AgentResult(run, session_id)

    async def compact(self, instructions: str = "") -> bool:
        """Summarise the main agent's context now."""
        return await self._main.compact(instructions)

    def listen(self, listener: Listener, *, pieces: bool = True) -> Callable[[], None]:
        """Call the listener with each event, at once; it must not block. Returns what ends it."""
        return self._main.bus.listen(listener, pieces=pieces)

    def events(self) -> Subscription:
        """The events from now on, for `async for`."""
        return self._main.bus.subscribe()

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

    @property
    def _main(self) -> LiveRun:
        if self._run is None:
            raise RetinueError("this Retinue is not open; use `async with Retinue(…) as crew`")
        return self._run

    def describe_subagents(self) -> dict[str, Any]:
        """What the `subagent` surface checks before a call."""
        from retinue.settings.kit import find_own_depth

        own = self._get_world().crew.settings
        depth, is_enabled = find_own_depth(self._environment), own.enabled and own.subagents.enabled
        return {"depth": depth, "max_depth": own.subagents.max_depth, "is_enabled": is_enabled}

    def _get_world(self) -> "World":
        if self._world is None:
            raise RetinueError("this Retinue is not open; use `async with Retinue(…) as crew`")
        return self._world

    def _build_kit(self, world: "World", roster: "Roster") -> "Kit":
        from retinue.settings.kit import build_kit

        settings = world.loaded.settings
        registry = world.registry or self._load_registry(world.paths)
        return build_kit(
            roster,
            settings,
            self._environment,
            models=_Models(registry, lambda info: self._open_model(registry, Choice(info), settings)),
            tools={**build_tools(ToolOptions()), **{tool.spec.name: tool for tool in self._tools}},
            files=world.files,
            retry=_to_retry(settings),
        )

    def _load_settings(self, paths: Paths) -> Loaded:
        return load_settings(paths, self._environment, approve=self._request.approve)

    def _tell(self, problems: Iterable[Diagnostic], *notes: str) -> None:
        for text in (*(problem.message for problem in problems), *filter(None, notes)):
            self._say(text)

    def _set_up(self, paths: Paths, loaded: Loaded, session: Session) -> RunSetup:
        request, settings = self._request, loaded.settings
        crew = load_crew(paths, self._environment, trusted=loaded.trust.trusted)
        self._tell(crew.diagnostics)
        files = load_prompt_files(
            paths,
            trusted=loaded.trust.trusted,
            system=request.system_prompt,
            append=request.append_system_prompt,
            use_context=request.context_files,
        )
        self._tell(files.diagnostics)
        self._world = world = World(paths, loaded, crew, files)
        role = self._choose_role(world)
        model, thinking = self._choose_model(world, session, role)
        tools = self._choose_tools(settings, role)
        reserve, keep = settings.compaction.for_model(model.info.ref)
        system, addendum = files.system or "", "\n\n".join(files.append)
        if role is not None:
            system = role.choose_system(system, is_asked=request.system_prompt is not None)
            addendum = role.extend(addendum)
        return RunSetup(
            run_id=make_run_id(),
            cwd=paths.cwd,
            model=model,
            thinking=thinking,
            tools=tools,
            sections=build_sections(
                cwd=str(paths.cwd),
                tools=list(tools.values()),
                custom=system,
                addendum=addendum,
                context_files=[(file.path, file.text) for file in files.context],
                extra=self._list_skills(paths, tools, trusted=loaded.trust.trusted) if role is None else None,
            ),
            limits=request.limits if role is None else role.limit(request.limits),
            retry=_to_retry(settings),
            compaction=CompactionConfig(settings.compaction.enabled, reserve, keep),
            steering_mode=settings.steering_mode,
            follow_up_mode=settings.follow_up_mode,
            features=() if role is None else role.features,
        )

    def _choose_role(self, world: "World") -> "Role | None":
        """The definition the main agent runs as, with its rights."""
        if self._request.agent is None:
            return None
        from retinue.settings.kit import build_role

        own = {tool.spec.name: tool for tool in self._tools}
        return build_role(world.open_roster(), self._request.agent, {**build_tools(ToolOptions()), **own})

    def _list_skills(self, paths: Paths, tools: Mapping[str, Tool], *, trusted: bool) -> dict[str, str]:
        if "read" not in tools and "bash" not in tools:
            return {}
        skills, problems = list_skills(find_skill_roots(paths.project, paths.agent_dir, paths.home, trusted=trusted))
        self._tell(problems)
        return {"skills": render_catalogue(skills)} if skills else {}

    def _choose_model(self, world: "World", session: Session, role: "Role | None") -> tuple[Model, ThinkingLevel]:
        request, settings = self._request, world.loaded.settings
        named: ThinkingLevel | None = request.thinking or (role.thinking if role is not None else None)
        if self._own_model is not None:
            return self._own_model, clamp_level(self._own_model.info, named or settings.default_thinking_level)
        registry = world.registry = self._load_registry(world.paths)
        choice = role.choose_model(registry) if role is not None and not (request.model or request.provider) else None
        choice = choice or registry.choose(_to_wishes(request, settings, session, registry))
        self._tell((), choice.reason)
        level = named or choice.thinking or settings.default_thinking_level
        return self._open_model(registry, choice, settings), clamp_level(choice.info, level)

    def _load_registry(self, paths: Paths) -> Registry:
        request = self._request
        registry, problems = load_registry(paths, self._environment, api_key=request.api_key, offline=request.offline)
        self._tell(problems)
        return registry

    def _open_model(self, registry: Registry, choice: Choice, settings: Settings) -> Model:
        if choice.info.api == "offline":
            from retinue.models.offline import OfflineModel

            return OfflineModel()
        if choice.info.api == "scripted":
            from retinue.models.scripted import ScriptedModel, load_script

            return ScriptedModel(load_script(choice.info.id), choice.info)
        from retinue.models.wire import build_model

        info, key = registry.unlock(choice.info)
        timing = Timing(idle_s=settings.http_idle_timeout_ms / 1000)
        if self._governor is None:
            self._governor = Governor(self._clock, _to_retry(settings))
        return build_model(info, transport=self._transport, key=key, governor=self._governor, timing=timing)

    def _choose_tools(self, settings: Settings, role: "Role | None") -> dict[str, Tool]:
        if role is not None:
            return role.choose_tools(self._request.tools, self._request.exclude_tools)
        own = {tool.spec.name: tool for tool in self._tools}
        names = list(settings.default_tools) + list(own) if self._request.tools is None else list(self._request.tools)
        left = [name for name in names if name not in self._request.exclude_tools]
        for name in [*left, *self._request.exclude_tools]:
            if name not in BUILTIN_TOOLS and name not in own:
                raise UsageError(f"there is no tool {quote(name)}; available: {', '.join([*BUILTIN_TOOLS, *own])}")
        made = build_tools(ToolOptions(), [name for name in left if name not in own])
        return {name: own.get(name) or made[name] for name in dict.fromkeys(left)}

    def _open_session(self, paths: Paths, settings: Settings) -> Session:
        wish, clock = self._request.session, self._clock
        directory = find_session_dir(
            paths, self._environment, flag=wish.directory or None, setting=settings.session_dir
        )
        found: Path | None = None
        if wish.kind == "newest":
            found = find_recent(directory, str(paths.cwd))
            if found is None:
                self._say("there is no session of this folder to continue; starting a new one")
        elif wish.kind == "named":
            found = self._find_named(wish.reference, directory, paths)
        elif wish.kind == "exact":
            check_session_id(wish.reference)
            found = next(directory.glob(f"*_{wish.reference}.jsonl"), None)
        if found is not None and found.exists():
            return Session.open(found, clock=clock, new_id=make_uuid, cwd=str(paths.cwd))
        return Session.create(
            cwd=paths.cwd,
            directory=None if wish.kind == "none" else directory,
            path=found,
            session_id=wish.reference if wish.kind == "exact" else None,
            clock=clock,
            new_id=make_uuid,
        )

    def _find_named(self, reference: str, directory: Path, paths: Paths) -> Path:
        # A path that does not exist yet is where the session is made, as pi does for its children.
        looks_like_path = os.sep in reference or reference.endswith(".jsonl")
        path = Path(reference).expanduser()
        if looks_like_path and not path.exists():
            return path.absolute()
        return find_session(reference, directory=directory, agent_dir=paths.agent_dir, cwd=paths.cwd)


@dataclass(slots=True)
class World:
    """What was read for one Retinue."""

    paths: Paths
    loaded: Loaded
    crew: LoadedCrew
    files: PromptFiles
    registry: Registry | None = None

    def open_roster(self) -> "Roster":
        """The agents of this folder."""
        from retinue.settings.roster import Roster

        return Roster(self.paths, self.loaded, self.crew.settings)


@dataclass(frozen=True, slots=True)
class AgentResult:
    """A run of `run_agent`."""

    run: Run
    session_id: str
    """By which it can be continued; empty when it cannot."""


class _Models:
    """How outfitting gets at models."""

    def __init__(self, registry: Registry, open_model: Callable[[ModelInfo], Model]) -> None:
        self._registry = registry
        self._open = open_model

    def resolve(self, query: str) -> Choice:
        return self._registry.resolve(query, anywhere=True)

    def open(self, info: ModelInfo) -> Model:
        return self._open(info)


def open_roster(request: Request, say: Callable[[str], None]) -> "Roster":
    """The agents of this folder, and what can be done to their files."""
    from retinue.settings.roster import Roster

    paths = find_paths(".", os.environ)
    loaded = load_settings(paths, os.environ, approve=request.approve)
    crew = load_crew(paths, os.environ, trusted=loaded.trust.trusted)
    for text in (*(item.message for item in (*loaded.diagnostics, *crew.diagnostics)), loaded.trust.notice):
        if text:
            say(text)
    return Roster(paths, loaded, crew.settings)


async def run_subagent(crew: Retinue, agent: str, task: str, *, write: bool, session_id: str) -> dict[str, Any]:
    """One call of the `subagent` surface: its result as the tool gives it, whatever goes wrong."""
    from retinue.surfaces.subagent.call import check_call, make_call

    async def start() -> tuple[Run, str]:
        result = await crew.run_agent(agent, task, write=write, session_id=session_id)
        return result.run, result.session_id

    return check_call(agent, task, **crew.describe_subagents()) or await make_call(task, start)


def open_folder(name: str | None) -> "Folder":
    """A folder whose trust is shown or decided; None: the project of the working directory."""
    from retinue.settings.decisions import Folder

    return Folder(name, os.environ)


def run_checkup(request: Request) -> "Report":
    """Look at everything that is configured here and say what is wrong with it. Starts no agent and asks no model."""
    from retinue.settings.checkup import examine

    return examine(os.environ, approve=request.approve, offline=request.offline)


def list_models(request: Request, say: Callable[[str], None]) -> dict[str, Any]:
    """All models, usable ones first, and the default one: what `retinue models --json` prints."""
    paths = find_paths(".", os.environ)
    loaded = load_settings(paths, os.environ, approve=request.approve)
    registry, problems = load_registry(paths, os.environ, offline=request.offline)
    for problem in (*loaded.diagnostics, *problems):
        say(problem.message)
    choice = registry.choose(_to_wishes(request, loaded.settings, None, registry))
    return registry.list_models(choice.info.ref)


def list_sessions(request: Request, *, everything: bool) -> list[dict[str, Any]]:
    """The sessions of this folder, newest first; with `everything` those of all folders and of subagents too."""
    paths = find_paths(".", os.environ)
    settings = load_settings(paths, os.environ, approve=request.approve).settings
    flag = request.session.directory or None
    directory = find_session_dir(paths, os.environ, flag=flag, setting=settings.session_dir)
    folders = [directory, *(list_directories(paths.agent_dir) if everything and flag is None else ())]
    found = find_sessions(
        dict.fromkeys(folders),
        children=everything,
        cache=paths.own_dir / "sessions.json",
        cwd=None if everything else str(paths.cwd),
    )
    stamp = Stamp()
    return [
        {
            "id": info.id,
            "path": info.path,
            "cwd": info.cwd,
            "created": info.created,
            "modified": stamp.render(info.modified_ms),
            "messages": info.messages,
            "name": info.name or None,
            "parentSession": info.parent_session,
            "firstMessage": info.first_message,
        }
        for info in found
    ]


def _with_model(request: Request, model: str) -> Request:
    return replace(request, model=model)


def _to_retry(settings: Settings) -> RetryPolicy:
    given = settings.retry
    return RetryPolicy(given.enabled, given.max_retries, given.base_delay_ms, given.max_agent_delay_ms)


def _to_wishes(request: Request, settings: Settings, session: Session | None, registry: Registry) -> Wishes:
    """A continued session goes on with its own model, when that can still be reached and nobody asks for another."""
    wishes = Wishes(
        request.model, request.provider, settings.default_model, settings.default_provider, settings.enabled_models
    )
    used = session.context().model if session else None
    if request.model is None and request.provider is None and used is not None:
        ref = "/".join(used)
        if any(info.ref == ref for info in registry.candidates):
            return Wishes(model=ref)
    return wishes


def _find_folder(session: Session, environment: Mapping[str, str]) -> Paths:
    try:
        return find_paths(session.cwd, environment)
    except UsageError as error:
        folder = quote(session.cwd, 200)
        raise UsageError(f"session {session.id} works in {folder}, which cannot be entered: {error}") from error
