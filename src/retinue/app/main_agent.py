"""Builds the main agent of one session: definition, model, tools, prompt and features. Starts nothing."""

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING

from retinue.app.session_parts import SessionParts
from retinue.core.definition import Definition
from retinue.core.environment import DEPTH, select
from retinue.core.errors import quote
from retinue.core.messages import ThinkingLevel
from retinue.core.model import Model
from retinue.core.run import Run
from retinue.core.tool import Tool
from retinue.core.tool_table import ASK, BUILTIN_TOOLS, DISPATCH, FINALIZE, LAND, SUBMIT, find_surfaces
from retinue.engine.budget import BudgetedModel, Lease
from retinue.engine.build import RunHost, build_run
from retinue.engine.prompt import build_sections, choose_role
from retinue.engine.request import RunRequest
from retinue.engine.run_config import MAIN, Additions, MainRules, Policy, RunConfig, RunPlan
from retinue.engine.setup import Feature, RunSetup
from retinue.features.deferred import leave_out
from retinue.features.place import survey_place
from retinue.features.skills import find_skill_roots, list_skills, render_catalogue
from retinue.models.pool import restrict_model
from retinue.settings.main_tools import AvailableTools, choose_main_tools, choose_surfaces, list_surfaces
from retinue.settings.providers import choose_start_level, choose_start_model
from retinue.tools.ask_parent import AskParentTool
from retinue.tools.registry import build_extra_tools, build_tools

if TYPE_CHECKING:
    from retinue.app.delegation_tools import DelegationTools
    from retinue.app.open_session import OpenSession
    from retinue.app.subagents import Subagents
    from retinue.core.merge_report import LandRequest, MergeReport
    from retinue.surfaces.base import Caller


class MainTools:
    """Creates the tools of one main agent."""

    def __init__(self, parts: SessionParts, find_session: "Callable[[], OpenSession]") -> None:
        self._parts = parts
        self._find_session = find_session
        self._host = parts.host
        self._config = parts.config

    def choose(self, additions: Additions) -> list[str]:
        """Return the names of its tools, including delegation tools. Raises UsageError for an unknown tool."""
        host, servers = self._host, self._parts.extensions.servers
        available = AvailableTools(
            usual=self._config.loaded.settings.default_tools,
            beside=[*self._beside, *host.own.tools, *additions.tools],
            on_request=list(self._extra),
            surfaces=self._list_allowed(),
            is_served=servers.may_have if servers is not None else lambda name: False,
        )
        names, missing = choose_main_tools(host.request, available, self.list_surfaces(), is_child=host.is_child)
        host.tell_missing(f"there is no tool {quote(name)} here; left out" for name in missing)
        return names

    def build(self, names: list[str], delegation: Mapping[str, Tool], additions: Additions) -> dict[str, Tool]:
        """Create the tools of these names, without denied ones; `delegation` are those of the surfaces."""
        built = build_tools(self._parts.tool_options, [name for name in names if name in BUILTIN_TOOLS])
        made = {name: self._host.own.wrap_tool(tool) for name, tool in built.items()}
        given = {**made, **self._extra, **self._beside, **additions.tools, **self._host.own.tools}
        if FINALIZE in names or SUBMIT in names:
            from retinue.features.finalise import Delivery, FinalizeTool, SubmitTool

            delivery = Delivery.unpack(self._host.request.result)
            given |= {FINALIZE: FinalizeTool(delivery), SUBMIT: SubmitTool(delivery)}
        given.update(delegation)
        return self._rename(self.drop_denied({name: given[name] for name in names}, additions))

    def _rename(self, tools: dict[str, Tool]) -> dict[str, Tool]:
        names = self._host.sent.names
        if not names:
            return tools
        from retinue.tools.registry import rename_tools

        return rename_tools(tools, {shown: name for name in tools for shown, own in names.items() if own == name})

    def drop_denied(self, tools: dict[str, Tool], additions: Additions) -> dict[str, Tool]:
        """Remove the tools that the user denies to all agents."""
        words = self._config.crew.settings.deny_tools
        if not words:
            return tools
        from retinue.tools.selectors import Offer, match_denied

        offers = {name: additions.offers.get(name) or Offer(tool.effect) for name, tool in tools.items()}
        denied = match_denied(words, offers, {})
        asked = [name for name in self._host.request.tools or () if name in denied]
        self._host.tell_missing(f"{name} is denied by the user's settings (denyTools); left out" for name in asked)
        return {name: tool for name, tool in tools.items() if name not in denied}

    def list_surfaces(self) -> list[str]:
        host = self._host
        return choose_surfaces(host.request, self._config.crew.settings, self._list_allowed(), is_child=host.is_child)

    def _list_allowed(self) -> list[str]:
        host, has_dispatch = self._host, self._parts.guards.switches.is_enabled
        crew = self._config.crew.settings
        return list_surfaces(host.request, crew, is_child=host.is_child, has_dispatch=has_dispatch)

    @cached_property
    def _extra(self) -> dict[str, Tool]:
        """Tools that only agent files can ask for: a child gets them by name."""
        if not self._host.is_child:
            return {}
        questions, extra = self._host.parent_desk, build_extra_tools()
        return extra if questions is None else {**extra, ASK: AskParentTool(questions.ask)}

    @cached_property
    def _beside(self) -> dict[str, Tool]:
        """Tools for the web, documents, language servers and the merge queue, if enabled."""
        return {**self._parts.web.build(), **self._parts.languages.build(for_main=True), **self._build_landing()}

    def _build_landing(self) -> dict[str, Tool]:
        settings = self._config.crew.settings.landing
        if not settings.verify or settings.mode == "off" or self._host.is_child:
            return {}
        from retinue.features.merges.tool import LandTool

        async def land(asked: "LandRequest") -> "MergeReport":
            from retinue.app.merges import land_in_session

            return await land_in_session(self._find_session(), asked, is_agent=True)

        return {LAND: LandTool(land)}


class _MainBuilder:
    """Decides what the main agent of one session is."""

    def __init__(self, parts: SessionParts, tools: MainTools, find_subagents: "Callable[[], Subagents]") -> None:
        self._parts = parts
        self._host = parts.host
        self._config = parts.config
        self._tools = tools
        self._find_subagents = find_subagents
        self.delegation: DelegationTools | None = None
        """Set once the main agent has a tool of a surface."""

    def build_config(self) -> RunConfig:
        host, config = self._host, self._config
        request, settings = host.request, config.loaded.settings
        main = MainRules(
            cwd=config.paths.cwd,
            choose_model=self._choose_model,
            choose_tools=self._choose_tools,
            build_sections=self._build_sections,
            charge=self._charge,
            warn=lambda text: host.tell((), text),
            limits=request.limits,
            refusals=host.sent.refusals,
            # Passed explicitly: a process may serve many runs, and its own environment lacks this run's depth.
            environment=select(host.environment, DEPTH),
            redact=host.redactor.redact_data,
            spill_dir=host.spill_dir,
            is_fork=request.is_fork,
            steering_mode=settings.steering_mode,
            follow_up_mode=settings.follow_up_mode,
        )
        return RunConfig(
            find=self._find,
            tools={} if request.agent is None else self._build_tools(),
            list_features=self._list_features,
            compaction=settings.compaction.for_model,
            retry=settings.retry.to_policy(),
            policy=Policy() if request.agent is None else self._build_policy(),
            extend=self._extend,
            main=main,
            fallback_models=config.crew.settings.fallback_models,
            fallback_after_s=config.crew.settings.fallback_after_seconds,
        )

    async def _extend(self, definition: Definition, request: RunRequest) -> Additions:
        extensions = self._parts.extensions
        loaded = await extensions.load_main(definition if definition.name else None)
        self._host.redactor.patterns = self._config.crew.settings.redact_secrets
        return extensions.add_surfaces(loaded, self._open_caller)

    def _open_caller(self) -> "Caller":
        from retinue.surfaces.base import Caller

        roster, models = self._config.roster, self._parts.child_models
        return Caller(
            find_manager=lambda: self._find_subagents().manager,
            run_id=self._parts.run_id,
            definitions=lambda: roster.read().list(),
            resolve_model=models.resolve,
            list_models=models.list,
            clock=self._host.clock,
            find_faults=roster.find_faults,
        )

    def _choose_tools(self, plan: RunPlan, own: Mapping[str, Tool]) -> Mapping[str, Tool]:
        """Return its tools, including those that start subagents; with a definition, the tools of that."""
        if plan.definition.name:
            from retinue.settings.run_config import limit_main_tools

            return limit_main_tools(plan, own, self._host.request)
        names, delegation = self._tools.choose(plan.additions), {}
        if surfaces := find_surfaces(names):
            from retinue.app.delegation_tools import build_delegation_tools

            keeps_sessions = self._host.request.session.kind != "none"
            self.delegation = build_delegation_tools(
                self._parts, surfaces, self._find_subagents, keeps_sessions=keeps_sessions
            )
            delegation = self.delegation.make(self._parts.run_id)
        return self._tools.build(names, delegation, plan.additions)

    def _charge(self, model: Model) -> Model:
        return charge_model(model, self._parts.lease)

    def _find(self, name: str, surface: str) -> Definition:
        if not name:
            return MAIN
        roster = self._config.roster
        definition = roster.find_runnable(name)
        self._host.tell((), *roster.find_faults(definition.name))
        return definition

    def _build_policy(self) -> Policy:
        from retinue.settings.run_config import build_main_policy

        return build_main_policy(self._config.roster)

    def _build_tools(self) -> dict[str, Tool]:
        parts = self._parts
        own = {**build_tools(parts.tool_options), **build_extra_tools(), **parts.web.build()}
        del own[ASK]  # a main agent has no parent
        return {**own, **parts.languages.build(for_main=True), **parts.host.own.tools}

    def _choose_model(self, definition: Definition) -> tuple[Model, ThinkingLevel]:
        own, request, settings = self._host.own.model, self._host.request, self._config.loaded.settings
        if own is not None:
            level = choose_start_level(definition, request, settings, self._parts.session)
            return restrict_model(own, blocks_images=settings.block_images), level
        models = self._parts.models
        choice = choose_start_model(definition, request, settings, self._parts.session, models.registry)
        self._host.tell((), choice.reason)
        return models.open(choice.info), choose_start_level(definition, request, settings, self._parts.session, choice)

    def _build_sections(self, definition: Definition, tools: Mapping[str, Tool]) -> Mapping[str, str]:
        files, request = self._config.files, self._host.request
        if request.sections:
            return request.sections
        system, addendum = files.system or "", list(files.append)
        if definition.name and definition.prompt_mode == "replace" and request.system_prompt is None:
            system = choose_role(definition)
        if definition.name and definition.prompt_mode == "append" and definition.prompt.strip():
            addendum.append(definition.prompt.strip())
        return build_sections(
            cwd=str(self._config.paths.cwd),
            tools=leave_out(tools),
            custom=system,
            addendum="\n\n".join(addendum),
            context_files=[(file.path, file.text) for file in files.context],
            extra=None if definition.name else self._advise(tools),
        )

    def _list_features(self, plan: RunPlan) -> Sequence[Feature]:
        parts, additions = self._parts, plan.additions
        if plan.definition.name:
            from retinue.settings.run_config import find_features

            own = find_features(parts.config.roster)(plan)
            guards = parts.guards.surround_main(plan.definition, additions.points, plan.rights)
        else:
            own = [parts.config.boundaries.surround(readonly=self._host.request.is_readonly)]
            guards = parts.guards.surround_main(None, additions.points, None)
        # Features that add tools later must be entered last, so that all earlier tools are recorded alike.
        late = [feature for feature in additions.features if feature.name == "deferred tools"]
        early = [feature for feature in additions.features if feature not in late]
        verified = []
        if plan.definition.verify:
            from retinue.settings.verification import build_verification

            verified = [build_verification(parts.config, plan, parts.warn, parts.checkpoints)]
        every = [*own, *guards, *parts.languages.surround_main(), *early, *self._host.sent.features, *verified, *late]
        return every if parts.checkpoints is None else parts.checkpoints.surround(every)

    def _advise(self, tools: Mapping[str, Tool]) -> dict[str, str]:
        """Return prompt sections about skills and, if it can delegate, about delegation."""
        return {**self._list_skills(tools), **self._advise_dispatch(tools), **self._advise_subagent(tools)}

    def _list_skills(self, tools: Mapping[str, Tool]) -> dict[str, str]:
        if not self._host.request.skills or ("read" not in tools and "bash" not in tools):
            return {}
        paths = self._config.paths
        roots = find_skill_roots(paths.project, paths.agent_dir, paths.home, configs=self._config.configs)
        skills, problems = list_skills(roots)
        self._host.tell(problems)
        return {"skills": render_catalogue(skills)} if skills else {}

    def _advise_dispatch(self, tools: Mapping[str, Tool]) -> dict[str, str]:
        if DISPATCH not in tools:
            return {}
        from retinue.surfaces.dispatch.words import render_section

        roster, switches = self._config.roster, self._parts.guards.switches
        agents = roster.read().list("dispatch", enabled_only=True)
        left = [each for each in agents if not switches.is_agent_off(each.name)]
        text = render_section((each, roster.decide(each, "dispatch").allowed) for each in left)
        return {"subagents": text} if text else {}

    def _advise_subagent(self, tools: Mapping[str, Tool]) -> dict[str, str]:
        if "subagent" not in tools or not self._config.crew.settings.subagents.inject_delegation_policy:
            return {}
        from retinue.surfaces.subagent.tool import render_policy

        text = render_policy([each.name for each in self._config.roster.read().list("subagent", enabled_only=True)])
        return {"delegation": text} if text else {}


def charge_model(model: Model, lease: Lease) -> Model:
    """Wrap the main agent's model with the budget of a prompt."""
    return BudgetedModel(model, lease) if lease.is_limited else model


async def build_main(
    parts: SessionParts, tools: MainTools, find_subagents: "Callable[[], Subagents]"
) -> "tuple[RunSetup, DelegationTools | None]":
    """Build the main agent's setup and its delegation tools; `find_subagents` is called when it delegates."""
    host, name = parts.host, parts.host.request.agent or ""
    builder = _MainBuilder(parts, tools, find_subagents)
    survey = partial(survey_place, environment=host.environment)
    setup = await build_run(
        RunHost(host.clock, parts.child_models, survey, host.revoked, host.gates),
        builder.build_config(),
        RunRequest(agent=name, task="", description="", surface=""),
        run=Run(id=parts.run_id, parent_id="", depth=0, agent=name, description=""),
    )
    return setup, builder.delegation
