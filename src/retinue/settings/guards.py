"""Hooks and approvals for the runs of one Retinue, from files, agents and extensions.

If none are configured, none of their modules are imported.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, get_args

from retinue.core.clock import Clock
from retinue.core.definition import Definition
from retinue.core.diagnostics import Diagnostic
from retinue.core.errors import RetinueError, UsageError, quote
from retinue.core.messages import ToolCall
from retinue.core.tool import Tool, ToolResult
from retinue.engine.calls import Answer, CallHook
from retinue.engine.questions import PendingQuestions
from retinue.engine.run_config import Origin
from retinue.engine.setup import Feature, RunSetup
from retinue.settings.config import Config
from retinue.settings.files import is_there
from retinue.settings.subagents import Approvals

if TYPE_CHECKING:
    from retinue.core.launch import ConfinementFactory
    from retinue.engine.run_config import RunPlan
    from retinue.features.approvals.gate import RunRules
    from retinue.features.hooks.command import HookContext
    from retinue.features.hooks.hook_table import HookTable
    from retinue.features.hooks.points import HookSpec
    from retinue.settings.switches import Switches
    from retinue.tools.policy import Rights


def is_readonly_shell(rights: "Rights") -> bool:
    """Return whether a run's commands can change nothing: a read-only agent has `bash` only in a read-only sandbox."""
    return rights.readonly and "bash" in rights.tools


class RemoteGuards(Protocol):
    """Sends calls of local runs to another machine for approval."""

    @property
    def is_on(self) -> bool:
        """Whether there is anything to ask about at the moment."""
        ...

    def surround(self, origin: Origin) -> Feature:
        """Return the feature that sends a run's calls for approval."""
        ...


class _LaterApprovals(Feature):
    """Approvals of a main agent that starts without them: the user may choose a mode during the session."""

    name = "approvals"
    wants: ClassVar[Mapping[str, bool]] = {}

    def __init__(self, is_on: Callable[[], bool], build: "Callable[[RunSetup], CallHook]") -> None:
        """`build` makes the gate, when `is_on` first says that there is something to decide."""
        self._is_on = is_on
        self._build = build
        self._gate: CallHook | None = None

    async def enter(self, setup: RunSetup) -> RunSetup:
        self._setup = setup
        return setup.change(hooks=(self, *setup.hooks))

    async def before(self, call: ToolCall, tool: Tool) -> Answer:
        if self._gate is None and self._is_on():
            self._gate = self._build(self._setup)
        return None if self._gate is None else await self._gate.before(call, tool)

    async def after(self, call: ToolCall, tool: Tool, result: ToolResult) -> ToolResult:
        return result


class Guards:
    """Builds the hooks and approvals of runs."""

    def __init__(
        self,
        config: Config,
        environment: Mapping[str, str],
        clock: Clock,
        questions: PendingQuestions,
        *,
        tell: Callable[[Sequence[Diagnostic], Sequence[str]], None],
        warn: Callable[[str], None],
        judge: RemoteGuards | None = None,
    ) -> None:
        """`tell` receives problems of the files, once; `warn` those during runs.

        `judge` sends calls to the front end of a main agent that was sent to this machine.
        """
        self._config = config
        self._environment = environment
        self._clock = clock
        self._questions = questions
        self._tell = tell
        self._warn = warn
        self._told: set[str] = set()
        self._main_hook_table: HookTable | None = None
        self._mode = ""
        self.judge = judge

    @property
    def mode(self) -> str:
        """The session's mode, as in `approvals` of the settings."""
        return self._mode or self._config.crew.settings.approvals

    def choose_mode(self, mode: str) -> None:
        """Change the mode of this session, for all runs but those that started without approvals. Raises UsageError."""
        known = get_args(Approvals)
        if mode not in known:
            raise UsageError(f"Unknown approval mode {quote(mode)}. Choose one of: {', '.join(known)}")
        self._mode = mode

    @property
    def hook_table(self) -> "HookTable":
        if self._main_hook_table is None:
            self._main_hook_table = self._build_hook_table(None, ())
        return self._main_hook_table

    @cached_property
    def switches(self) -> "Switches":
        """CodingCode's switches as they were at the start."""
        from retinue.settings.switches import load_switches

        switches, problems = load_switches(self._config.paths, trusted=self._config.is_trusted)
        self._tell(problems, ())
        return switches

    def read_switches(self) -> "Switches":
        """Read the current switches: what is switched off during runs is off for the next one."""
        from retinue.settings.switches import load_switches

        return load_switches(self._config.paths, trusted=self._config.is_trusted)[0]

    @cached_property
    def rules(self) -> tuple[str, ...]:
        """The user's rules, for agents that get them in their prompt."""
        from retinue.settings.switches import load_rules

        rules, problems = load_rules(self._config.paths, self._config.crew.settings.sandbox.hidden)
        self._tell(problems, ())
        return rules

    def surround_main(
        self, definition: Definition | None, points: Sequence[Any], rights: "Rights | None"
    ) -> list[Feature]:
        """Return the main agent's guards; `definition` is what it runs as, `points` are hooks of its extensions."""
        is_confined = rights is not None and is_readonly_shell(rights)
        is_closed = rights is not None and rights.readonly and not is_confined
        name = "" if definition is None else definition.name

        def build(setup: RunSetup) -> CallHook:
            from retinue.features.approvals.gate import ApprovalGate, GatePorts

            ports = GatePorts(self._questions, name, is_confined, self.hook_table.decide, self.hook_table.tell)
            return ApprovalGate(self._fork_main(readonly=is_closed), ports, setup)

        later = _LaterApprovals(lambda: self._asks, build)
        if not (self._has_files or self._asks or points or (definition is not None and definition.hooks)):
            return [later]
        self._main_hook_table = self._build_hook_table(definition, points)
        run_rules = self._fork_main(readonly=is_closed and self._asks)
        found = self._surround(self._main_hook_table, run_rules, definition, is_confined=is_confined, is_forced=False)
        return found if any(each.name == later.name for each in found) else [*found, later]

    def _fork_main(self, *, readonly: bool) -> "RunRules":
        return self._run_rules.fork(readonly=True, shares_session=True) if readonly else self._run_rules

    def surround(self, plan: "RunPlan") -> list[Feature]:
        """Return the guards of a subagent's run. Raises RetinueError if its runner cannot be guarded."""
        definition, is_confined = plan.definition, is_readonly_shell(plan.rights)
        surface, readonly = plan.request.surface, plan.rights.readonly
        found = self.surround_definition(
            definition, plan.additions.points, surface=surface, readonly=readonly, is_confined=is_confined
        )
        if (found or self._is_judged) and surface != "dispatch":
            self._check_runner(definition)
        if self.judge is None:
            return found
        origin = Origin(run_id="", agent=definition.name, surface=surface, readonly=readonly, confined=is_confined)
        # Last: a call that is refused here need not be sent for approval.
        return [*found, self.judge.surround(origin)]

    def surround_definition(
        self, definition: Definition, points: Sequence[Any], *, surface: str, readonly: bool, is_confined: bool
    ) -> list[Feature]:
        is_dispatched = surface == "dispatch"
        if not (self._has_files or self._asks or points or definition.hooks or is_dispatched):
            return []
        from retinue.settings.approvals import fork_dispatched

        is_closed = readonly and not is_confined
        if is_dispatched:
            run_rules = fork_dispatched(self._run_rules, readonly=is_closed)
        else:
            run_rules = self._run_rules.fork(readonly=is_closed, shares_session=True)
        hook_table = self._build_hook_table(definition, points)
        return self._surround(hook_table, run_rules, definition, is_confined=is_confined, is_forced=is_dispatched)

    def may_ask(self) -> bool:
        """Return whether calls may need approval, which runs in separate processes could not request."""
        return self._is_judged or (self._asks and self._questions.has_frontend)

    @property
    def is_set(self) -> bool:
        """Whether calls of all runs are subject to approvals, rules or hooks."""
        return self._is_judged or self._asks or self._has_files

    @property
    def _is_judged(self) -> bool:
        return self.judge is not None and self.judge.is_on

    def _check_runner(self, definition: Definition) -> None:
        """Raise RetinueError if the runner's process would not be guarded.

        A retinue process reads the same files but not the hooks of its agent. Calls on other machines are approved
        here.
        """
        runner = definition.runner or self._config.crew.settings.runner
        if runner == "pi" or (runner == "process" and definition.hooks):
            why = "approvals, approvalRules or hooks are set" if runner == "pi" else "its file has hooks"
            raise RetinueError(
                f"agent {quote(definition.name)} cannot use runner {runner}, which cannot ask for approval "
                f"({why}); use inprocess"
            )

    def _surround(
        self,
        hook_table: "HookTable",
        run_rules: "RunRules",
        definition: Definition | None,
        *,
        is_confined: bool,
        is_forced: bool,
    ) -> list[Feature]:
        from retinue.features.approvals.gate import ApprovalFeature, GatePorts
        from retinue.features.hooks.feature import HooksFeature

        most = self.switches.max_continuations
        found: list[Feature] = [HooksFeature(hook_table, self._clock, max_continuations=most)] if hook_table else []
        is_watched = hook_table.has("tool.approval.pre", "tool.approval.post", "tool.execute.denied")
        if is_forced or is_watched or run_rules.rules or run_rules.mode != "open":
            name = "" if definition is None else definition.name
            ports = GatePorts(self._questions, name, is_confined, hook_table.decide, hook_table.tell)
            found.append(ApprovalFeature(run_rules, ports))
        return found

    @property
    def _asks(self) -> bool:
        return self.mode != "never" or bool(self._config.crew.settings.approval_rules)

    @cached_property
    def _has_files(self) -> bool:
        paths = self._config.paths
        folders = [paths.home, *([paths.project] if self._config.is_trusted and ".codingcode" in paths.configs else ())]
        found = [folder / ".codingcode" / name for folder in folders if folder for name in ("hooks.yaml", "hooks.yml")]
        return any(map(is_there, found))

    @cached_property
    def _run_rules(self) -> "RunRules":
        from retinue.settings.approvals import open_book
        from retinue.settings.subagents import find_user_file

        where = str(find_user_file(self._config.paths))
        run_rules, problems = open_book(self._config.crew.settings, where, find_mode=lambda: self.mode)
        self._tell(problems, ())
        return run_rules

    @cached_property
    def _specs(self) -> "tuple[HookSpec, ...]":
        if not self._has_files:
            return ()
        from retinue.settings.hooks import load_hooks

        own, project = self.switches.disabled_hooks
        loaded = load_hooks(self._config.paths, trusted=self._config.is_trusted, disabled=own, muted=project)
        self._tell(loaded.diagnostics, loaded.notices)
        return loaded.ready

    @cached_property
    def _place(self) -> "HookContext":
        from retinue.features.hooks.command import HookContext

        paths = self._config.paths
        return HookContext(paths.cwd, paths.project, self._environment)

    @cached_property
    def _outside(self) -> "ConfinementFactory":
        return self._config.boundaries.surround_place(self._config.paths.cwd, readonly=True)

    def _build_hook_table(self, definition: Definition | None, points: Sequence[Any]) -> "HookTable":
        from retinue.features.hooks.hook_table import HookTable, to_hook

        specs = [*self._specs, *(self._load_profile(definition) if definition is not None else ())]
        # Before and after a run has a sandbox, a project's program must not write.
        place = replace(self._place, find_boundary=lambda: hook_table.boundary or self._outside)
        hook_table = HookTable([*points, *(to_hook(spec, place) for spec in specs)], self._warn)
        name = "" if definition is None else definition.name
        hook_table.facts.update(projectPath=str(self._config.paths.project), sessionId="", agent=name)
        return hook_table

    def _load_profile(self, definition: Definition) -> "Sequence[HookSpec]":
        if not definition.hooks:
            return ()
        from retinue.settings.hooks import load_profile

        loaded = load_profile(self._config.paths, definition, trusted=self._config.is_trusted)
        texts = [text for text in loaded.notices if text not in self._told]
        problems = [item for item in loaded.diagnostics if item.message not in self._told]
        self._told.update(texts, (item.message for item in problems))
        self._tell(problems, texts)
        return loaded.ready
