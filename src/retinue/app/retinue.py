"""Retinue: a main agent and its subagents. Front ends use only this object.

The OpenSession holds what belongs to the open session, the Host what all sessions share.
"""

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from msgspec import structs
from msgspec.structs import replace

from retinue.app.host import CallerObjects, Host, SentRun
from retinue.app.open_session import OpenSession, open_session, wait_until_idle
from retinue.app.session_switch import Listeners, Sessions, resolve_session
from retinue.core.amounts import check_task, check_texts
from retinue.core.clock import Clock
from retinue.core.errors import ModelError, RetinueError, UsageError
from retinue.core.events import Event
from retinue.core.messages import UserContent
from retinue.core.model import Model, ModelInfo
from retinue.core.output_schema import INVALID
from retinue.core.receipt import to_commands
from retinue.core.run import Outcome, Question, Reason, Status, TypedOutcome
from retinue.core.tool import Tool
from retinue.engine.bus import Listener, Subscription
from retinue.engine.clock import SystemClock
from retinue.engine.questions import PendingQuestions
from retinue.engine.runner import LiveRun
from retinue.sessions.log import Session
from retinue.settings.inheritance import inherit
from retinue.settings.layers import load_settings
from retinue.settings.overrides import read_overrides
from retinue.settings.paths import find_paths, find_session_dir
from retinue.settings.request import Request

if TYPE_CHECKING:  # loaded on first use
    from retinue.app.delegation_tools import Delegation
    from retinue.app.extensions import Commands
    from retinue.app.session_switch import ModeChanges, SessionBranches, SettingChange
    from retinue.core.merge_report import BranchState, MergeReport
    from retinue.engine.user_commands import Shell
    from retinue.features.extensions.contained import Renderer
    from retinue.settings.preferences import Preferences
    from retinue.settings.subagents import SubagentsConfig
    from retinue.settings.user_state import Defaults
    from retinue.views.catalogue import Catalogue
    from retinue.views.history import SessionHistory
    from retinue.views.models import Selection
    from retinue.views.rewind import SessionRewinds
    from retinue.views.runs import Handle, SessionRuns
    from retinue.views.working_tree import WorkingTree


def ignore_message(text: str) -> None: ...


class Retinue:
    """A main agent and its subagents. Use it as an async context manager."""

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
        sent: SentRun | None = None,
        wrap_tool: Callable[[Tool], Tool] = lambda tool: tool,
        **settings: Any,
    ) -> None:
        """`model` is a name or a Model; `models`, `tools` and `extensions` are added to the configured ones.

        `say` receives one-line notes; `sent` is what comes with a run from another machine; `wrap_tool` wraps each
        built-in tool and keeps its name and effect. `settings` win over all files, such as `max_concurrent=8` or
        `limits={"wall_seconds": 60}`. Raises UsageError for an unknown or invalid setting.
        """
        where = os.environ if environment is None else environment
        asked = inherit(request or Request(), where)
        own = None if model is None or isinstance(model, str) else model
        scope = {"enabled_models": list(asked.models)} if asked.models else {}
        self._cwd = cwd
        self._host = Host(
            replace(asked, model=model) if isinstance(model, str) else asked,
            where,
            clock or SystemClock(),
            PendingQuestions(lambda event: self._here.main.bus.publish(event)),
            say,
            own=CallerObjects(own, models, {tool.spec.name: tool for tool in tools}, extensions, wrap_tool),
            sent=sent or SentRun(),
            settings=read_overrides({**settings, **scope}),
        )
        self._session: OpenSession | None = None
        self._audience = Listeners()
        self._shell: Shell | None = None

    async def __aenter__(self) -> Self:
        host, wish = self._host, self._host.request.session
        paths = find_paths(self._cwd, host.environment)
        loaded = load_settings(paths, host.environment, flags=host.settings.main, approve=host.request.approve)
        session = resolve_session(wish, paths, loaded.settings, host.environment, host.clock, host.say)
        self._session = await open_session(host, session, paths, loaded)
        if wish.name:
            session.append_session_info(wish.name)
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    async def close(self) -> None:
        """End everything; the session is on disk, and unfinished runs can be resumed."""
        if self._session is not None:
            await self._session.close()
        await self._host.close()

    async def prompt(self, content: str | Sequence[UserContent], *, settle: bool = False, wait: bool = True) -> Outcome:
        """Prompt the main agent and wait until it is done.

        With `settle`, also wait for the runs it started and let it react to their reports. If a usage limit of a
        provider is reached, it waits; without `wait` it ends with the reason `limit` as soon as nothing can work, and
        `go_on` continues, in this process or in one that opens the session again.
        """
        check_task(content)
        return await self._here.prompt(content, settle=settle, waits=wait)

    async def go_on(self, *, wait: bool = True) -> Outcome:
        """Continue the main agent from the end of its session without a new message; wait for all runs it starts."""
        return await self._here.prompt(None, settle=True, waits=wait)

    @property
    def limits(self) -> list[tuple[str, int, int]]:
        """The usage limits that runs wait for: provider, until when in milliseconds, number of waiting agents."""
        return self._here.limits

    def use_fallbacks(self) -> int:
        """Let the runs that wait for a usage limit ask their fallback models now; returns how many can."""
        if self._here.subagents is not None:
            return self._here.subagents.manager.fall_back()
        if not self._main.limit_wait.can_fall_back:
            return 0
        self._main.limit_wait.fall_back()
        return 1

    def watch_stall(self, tell: Callable[[bool], None]) -> AbstractContextManager[None]:
        """Call `tell` when a usage limit begins to keep everything from working, and when that ends."""
        return self._here.watch_stall(tell)

    @property
    def is_paused(self) -> bool:
        """Whether the main agent or a run waits for a usage limit, or did when the session was last open."""
        return self._here.is_paused

    @property
    def is_interrupted(self) -> bool:
        """Whether there is work that an earlier process left unfinished; `go_on` continues it."""
        return self._here.is_interrupted

    async def spawn(
        self, agent: str, task: str, *, description: str = "", model: str | None = None, **options: Any
    ) -> "Handle":
        """Start a run in the background and return at once. Further options are those of `RunRequest`.

        Raises RetinueError if the agent is unknown or disabled, or no further run may be started.
        """
        from retinue.engine.admission import to_request
        from retinue.views.runs import Handle

        check_task(task)
        check_texts(agent=agent or "", description=description, model=model, thinking=options.get("thinking"))
        if options.get("output_schema") is not None:
            from retinue.core.output_schema import check_schema

            check_schema(options["output_schema"])
        if "verify" in options:
            options["verify"] = to_commands(options["verify"])
        subagents = await self._here.need_subagents()
        definition = self._here.config.roster.find_runnable(agent or "", "fleet")
        fields = {
            "surface": "fleet",
            **subagents.find_defaults(definition),
            **options,
            "agent": definition.name,
            "task": task,
            "description": description or " ".join(task.split())[:60],
            "model": model or None,
            "is_model_chosen": bool(model),
        }
        limits = self._here.config.crew.settings.limits.to_limits()
        run = subagents.manager.spawn(to_request(fields, limits))
        subagents.reactions.spare(run.id)
        return Handle(subagents.manager, run)

    async def run(
        self, agent: str, task: str, *, output: Any = None, description: str = "", **options: Any
    ) -> TypedOutcome:
        """Start a run, wait for it and return its outcome. Options are those of `spawn`.

        `output` is the type of the result: a dataclass, msgspec Struct or pydantic model, or a JSON Schema. A valid
        result is `structured` of the outcome as data, and `output` as an object of that type.
        """
        from retinue.core.output_schema import convert_result, derive_schema

        if output is not None:
            options["output_schema"] = derive_schema(output)
        handle = await self.spawn(agent, task, description=description, **options)
        try:
            outcome = await handle.wait()
        except asyncio.CancelledError:
            await handle.stop()
            raise
        known = structs.asdict(outcome)
        if output is not None and outcome.status is Status.COMPLETED:
            try:
                known["output"] = convert_result(outcome.structured, output)
            except UsageError as error:
                # The agent's file has a schema of its own, which the type contradicts.
                known |= {"status": Status.FAILED, "reason": Reason.INVALID_RESULT, "error": f"[{INVALID}] {error}"}
        return TypedOutcome(**known)

    async def resume(self, run_id: str, task: str) -> "Handle":
        """Continue a finished run with a new task and its earlier context. Raises RetinueError."""
        from retinue.views.runs import Handle

        check_task(task)
        subagents = await self._here.need_subagents()
        return Handle(subagents.manager, subagents.manager.resume(run_id, task))

    async def land(
        self, *branches: str, takes_all: bool = False, onto: str = "", dry_run: bool = False, verify: bool = True
    ) -> "MergeReport":
        """Merge branches into `onto` (default: the branch that is checked out), each merge verified.

        Raises RetinueError.
        """
        from retinue.app.merges import land_in_session
        from retinue.core.merge_report import LandRequest

        return await land_in_session(self._here, LandRequest(branches, takes_all, onto, dry_run, verify))

    async def list_branches(self) -> "list[BranchState]":
        """Return the branches of agents that have not landed, and all of the last merge queue. Raises RetinueError."""
        from retinue.app.merges import list_branches

        return await list_branches(self._here.config)

    async def ask_author(self, run_id: str, task: str) -> str:
        """Resume a run, wait for it, and return what went wrong; the main agent is not told. Raises RetinueError."""
        subagents = await self._here.need_subagents()
        return await subagents.ask_author(run_id, task)

    async def runs(self) -> "list[Handle]":
        """Return all runs, newest first, including those of earlier processes."""
        from retinue.views.runs import Handle

        subagents = await self._here.need_subagents()
        return [Handle(subagents.manager, run) for run in subagents.manager.list_runs()]

    def steer(self, content: str | Sequence[UserContent]) -> None:
        """Queue a message for the main agent's next reply."""
        self._main.steer(content)
        if self._here.subagents is not None:
            self._here.subagents.manager.wake(self._main.setup.run_id)

    def follow_up(self, content: str | Sequence[UserContent]) -> None:
        """Queue a message for when the main agent would stop."""
        self._main.follow_up(content)

    def restrict(self, *tools: str, readonly: bool = False, run_id: str = "") -> None:
        """Revoke tools, or everything that can change something, from the main agent or a run, and from all runs below
        it.

        Applies from their next call on and is never undone, not even in other sessions. Runs in processes of their own
        are stopped.
        """
        self._host.revoked.lower(run_id or self._main.setup.run_id, tools, readonly=readonly)
        if self._here.subagents is not None:
            self._here.subagents.restrain_elsewhere(run_id or self._main.setup.run_id, tools, readonly=readonly)

    def demand_judgement(self) -> None:
        """Have all remote runs judged by this process from now on, because this run itself is judged elsewhere."""
        if self._here.subagents is not None:
            self._here.subagents.judge_elsewhere()

    def abort(self, *, spares_runs: bool = False) -> bool:
        """Stop the main agent and all runs it started; False if everything is idle.

        With `spares_runs` background runs continue.
        """
        stopped = 0
        if self._here.subagents is not None:
            self._here.subagents.reactions.close()
            stopped = 0 if spares_runs else self._here.subagents.manager.stop_all()
            self._here.subagents.manager.dismiss()
        return self._main.abort() or stopped > 0

    @property
    def questions(self) -> PendingQuestions:
        """Questions of runs to the user. A front end registers with `attend`, receives events and calls `answer`."""
        return self._host.questions

    def answer(self, question_id: str, text: str) -> bool:
        """Answer a question for the user, of a call that needs approval or of a subagent; False if it is not open.

        An empty answer lets a subagent decide itself. Raises RetinueError for an unknown option.
        """
        if self._host.questions.answer(question_id, text):
            return True
        subagents = self._here.subagents
        if subagents is None or not any(each.id == question_id for each in self.list_questions()):
            return False
        subagents.manager.questions.answer(question_id, text, "user")
        return True

    def list_questions(self) -> list[Question]:
        """Return the open questions of subagents."""
        runs = [] if self._here.subagents is None else self._here.subagents.manager.list_runs()
        return [question for run in runs for question in run.questions]

    @property
    def approvals(self) -> str:
        """The session's approval mode. Setting another one raises UsageError if it is unknown."""
        return self._here.parts.guards.mode

    @approvals.setter
    def approvals(self, mode: str) -> None:
        self._here.parts.guards.choose_mode(mode)

    @property
    def crew_settings(self) -> "SubagentsConfig":
        return self._here.config.crew.settings

    @property
    def preferences(self) -> "Preferences":
        """The settings of subagents.json, one by one."""
        from retinue.settings.preferences import Preferences

        config, host = self._here.config, self._host
        return Preferences(config.paths, host.environment, config.loaded.trust, host.settings.crew)

    async def change_setting(
        self, key: str, text: str | None, *, accepts_file: bool = False, for_user: bool = False
    ) -> "SettingChange":
        """Change a setting of subagents.json; None removes it. Some apply at once, all in the next session.

        It is written to the project's file if possible, with `for_user` to the user's.
        If the file cannot be written, the change applies to this process only. Raises UsageError for an invalid value.
        """
        from retinue.app.session_switch import change_setting

        return await change_setting(self._here, self._host, key, text, accepts_file=accepts_file, for_user=for_user)

    def has_model(self, name: str) -> bool:
        try:
            self._here.parts.child_models.resolve(name)
        except ModelError:
            return False
        return True

    def list_jobs(self) -> tuple[list[dict[str, Any]], list[str]]:
        """Return the scheduled jobs of this session, as stored, and the problems of their file."""
        from retinue.views.overview import list_schedules

        return list_schedules(self._here.config.paths.project, self._main.session.id)

    def cancel_job(self, job_id: str) -> bool:
        """Delete a scheduled job of this session; False if there is none. Raises RetinueError."""
        from retinue.views.overview import cancel_schedule

        return cancel_schedule(job_id, self._here.config.paths.project, self._main.session.id)

    async def compact(self, instructions: str = "") -> bool:
        return await self._main.compact(instructions)

    def listen(self, listener: Listener, *, pieces: bool = True) -> Callable[[], None]:
        """Call the listener with each event of any session; it must not block. Returns a stop function."""
        return self._audience.listen(self._main, listener, pieces=pieces)

    async def rest(self) -> None:
        """Wait until the main agent is idle."""
        await wait_until_idle(self._main)

    @property
    def is_busy(self) -> bool:
        return self._main.is_busy

    def abort_retry(self) -> bool:
        """Cancel a scheduled retry; False if there is none."""
        return self._main.is_retrying and self._main.abort()

    def take_back(self) -> tuple[list[str], list[str]]:
        """Remove and return the queued messages of the user: steering and follow-ups."""
        return self._main.inbox.take_back()

    @property
    def waiting(self) -> tuple[list[str], list[str]]:
        """Queued messages of the user: steering and follow-ups."""
        return self._main.inbox.words

    @property
    def selection(self) -> "Selection":
        """The main agent's model and thinking level, and the alternatives."""
        from retinue.views.models import Selection

        here = self._here
        return Selection(
            here.main, here.parts.models.registry, here.config.loaded.settings, here.open_model, self._host.scope
        )

    def renew_keys(self, provider: str) -> None:
        """Use the keys that auth.json has now; `provider` is the one whose key has changed."""
        from retinue.settings.providers import load_credentials

        here, main = self._here, self._main
        pool = here.parts.models
        registry, info = pool.registry, main.setup.model.info
        pool.renew(load_credentials(here.config.paths.auth_file)[0], provider)
        self._host.redactor.learn(*registry.keys.list_secrets(registry.providers.values()))
        if info.provider == provider and registry.keys.has_key(registry.providers[provider]):
            main.change(model=here.open_model(info))

    @property
    def defaults(self) -> "Defaults":
        """The user's choice of models that is saved for other sessions."""
        from retinue.settings.user_state import Defaults

        return Defaults(self._here.config.paths, self._here.config.loaded)

    @property
    def tuning(self) -> "ModeChanges":
        """Delivery, compaction and retry modes of the main agent."""
        from retinue.app.session_switch import ModeChanges

        return ModeChanges(self._main)

    @property
    def history(self) -> "SessionHistory":
        """The content of the main session."""
        from retinue.views.history import SessionHistory

        return SessionHistory(self._main)

    @property
    def working_tree(self) -> "WorkingTree":
        """The working tree, to be compared with the start of the session."""
        from retinue.views.working_tree import WorkingTree

        checkpoints = self._here.parts.checkpoints
        return WorkingTree(None if checkpoints is None else checkpoints.store, self._main.session.id)

    @property
    def rewinds(self) -> "SessionRewinds":
        """The rewinds of files and conversation. Raises RetinueError if no checkpoints are taken."""
        from retinue.views.rewind import SessionRewinds

        checkpoints = self._here.parts.checkpoints
        if checkpoints is None:
            why = "the session is not saved, the folder is not trusted, or the setting checkpoints is off"
            raise RetinueError(f"no checkpoints are taken: {why}")
        return SessionRewinds(self._main, checkpoints.store)

    @property
    def branch(self) -> str:
        """The branch of the working directory; empty without git."""
        from retinue.views.working_tree import read_branch

        paths = self._here.config.paths
        return read_branch(paths.cwd, paths.home)

    @property
    def session_runs(self) -> "SessionRuns":
        """The runs of the session, for views."""
        from retinue.views.runs import SessionRuns

        return SessionRuns(None if self._here.subagents is None else self._here.subagents.manager)

    @property
    def catalogue(self) -> "Catalogue":
        """The slash commands."""
        from retinue.views.catalogue import Catalogue

        config, commands = self._here.config, self._here.parts.extensions.commands
        return Catalogue(
            config.paths,
            config.configs,
            lambda: config.roster.read().list(enabled_only=True),
            commands,
            self._host.redactor.redact,
        )

    @property
    def shell(self) -> "Shell":
        """Runs commands of the user; the model sees them with the next prompt."""
        if self._shell is None:
            from retinue.engine.user_commands import Shell

            host = self._host
            self._shell = Shell(lambda: self._main, lambda: self._here.parts.tool_options, host.environment, host.clock)
        return self._shell

    @property
    def branching(self) -> "SessionBranches":
        """The other points of the session from which the main agent can continue."""
        from retinue.app.session_switch import SessionBranches

        here = self._here
        reactions = None if here.subagents is None else here.subagents.reactions
        return SessionBranches(here.main, reactions, self._host.clock, here.config.loaded.settings.branch_summary)

    @property
    def sessions(self) -> Sessions:
        """The sessions to which the main agent can switch."""
        config, wish = self._here.config, self._host.request.session
        setting = config.loaded.settings.session_dir
        directory = find_session_dir(config.paths, self._host.environment, flag=wish.directory or None, setting=setting)
        return Sessions(self._main, directory, self._host.clock, self._switch)

    async def _switch(self, session: Session) -> None:
        """Open the new session before the current one is closed, so that a failure changes nothing."""
        former, host, models = self._here, self._host, self._host.models
        main, config = former.main, former.config
        try:
            self._session = await open_session(host, session, config.paths, config.loaded)
        except BaseException:
            host.models = models
            raise
        self.selection.restore()
        self.tuning.take_over(main.setup)
        self.shell.abort()
        try:
            await former.close()
        finally:
            self._audience.move(self._main)

    def events(self) -> Subscription:
        """Return the events of any session from now on, for `async for`."""
        subscription = Subscription()
        subscription.stop = self.listen(subscription.put)
        return subscription

    @property
    def run_id(self) -> str:
        return self._main.setup.run_id

    @property
    def model(self) -> ModelInfo:
        return self._main.setup.model.info

    @property
    def header(self) -> dict[str, Any]:
        return self._main.session.header

    @property
    def session_file(self) -> Path | None:
        """None if the session is not saved."""
        return self._main.session.path

    @property
    def session_id(self) -> str:
        return self._main.session.id

    @property
    def is_saved(self) -> bool:
        """Whether the whole session is on disk."""
        return self._main.journal.is_saved

    @property
    def commands(self) -> "Commands":
        """Commands that the user calls by name, without the model."""
        from retinue.app.extensions import Commands

        return Commands(self._here.parts.extensions.commands, self.crew_settings, self._host.request)

    @property
    def renderers(self) -> "Mapping[str, Renderer]":
        """How extensions show kinds of data as text, by kind; `render` returns None if they cannot."""
        return self._here.parts.extensions.renderers

    def describe_life(self) -> "Callable[[Event], dict[str, Any] | None] | None":
        """Return a function that converts events about subagents into records; None if there are no subagents."""
        if self._here.subagents is None:
            return None
        from retinue.surfaces.fleet.records import LifecycleRecords

        return LifecycleRecords(self._here.subagents.manager.find)

    async def call_subagent(
        self,
        agent: str,
        task: str,
        *,
        write: bool = False,
        session_id: str | None = None,
        output_schema: dict[str, Any] | str | None = None,
        verify: str | Sequence[str] = (),
    ) -> dict[str, Any]:
        """Call the `subagent` surface once and return its result, even if it fails.

        Raises UsageError for an argument that is not a string.
        """
        from retinue.surfaces.subagent.call import make_call
        from retinue.surfaces.subagent.result import SubagentCall

        check_texts(agent=agent, task=task or "", session_id=session_id)
        subagents = await self._here.need_subagents()
        model = self._main.setup.model.info.ref if self._host.request.model else None
        ports = subagents.tools.open_subagent(self.run_id, model)
        commands = to_commands(verify)
        call = SubagentCall(agent or "", task or "", session_id, write, output_schema=output_schema, verify=commands)
        return await make_call(call, ports)

    async def open_delegation(self) -> "Delegation":
        """Return the delegation tools for a caller that is not our agent."""
        from retinue.app.delegation_tools import Delegation
        from retinue.surfaces.fleet.ports import map_fleet_tools

        here = self._here
        subagents = await here.need_subagents()
        tools = subagents.tools.make(self.run_id)
        if "fleet" in subagents.tools.surfaces:
            ports = subagents.ports
            tools |= map_fleet_tools(
                structs.replace(ports, read_settings=lambda: structs.replace(ports.settings, notifies=False))
            )
        tools = here.tools.drop_denied(tools, here.main.setup.find_plan().additions)
        return Delegation(tools, here.main, subagents.manager, self._host.clock, here.renew)

    @property
    def _here(self) -> OpenSession:
        if self._session is None:
            raise RetinueError("this Retinue is not open; use `async with Retinue(…) as crew`")
        return self._session

    @property
    def _main(self) -> LiveRun:
        return self._here.main
