"""What the main agent of one session is built from: as whom, with which model, tools, words and features."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING

from retinue.app.config import World
from retinue.app.host import Stock
from retinue.app.model_access import Models, restrict_model
from retinue.core.definition import Definition
from retinue.core.environment import DEPTH, select
from retinue.core.errors import UsageError, quote
from retinue.core.messages import ThinkingLevel
from retinue.core.model import Model
from retinue.core.tool import Tool
from retinue.engine.child_prompt import choose_role
from retinue.engine.model_choice import choose_level, choose_main_model
from retinue.engine.prompt import build_sections
from retinue.engine.request import RunRequest
from retinue.engine.run_config import MAIN, Additions, MainRules, Policy, RunConfig, RunPlan, SurfaceRules
from retinue.engine.setup import Feature
from retinue.features.skills import find_skill_roots, list_skills, render_catalogue
from retinue.sessions.log import Session
from retinue.settings.providers import read_level, to_wishes
from retinue.surfaces.names import DISPATCH
from retinue.tools.registry import build_extra_tools, build_tools

if TYPE_CHECKING:
    from retinue.settings.roster import Roster

_ANY_DEPTH = 2**31


class MainAgent:
    """Decides what the main agent of one session is."""

    def __init__(self, stock: Stock, world: World, session: Session, need_models: Callable[[], Models]) -> None:
        self._stock = stock
        self._world = world
        self._session = session
        self._need_models = need_models

    def build_config(
        self,
        extend: Callable[[Definition, RunRequest], Awaitable[Additions]],
        choose_tools: Callable[[RunPlan], Mapping[str, Tool]],
        charge: Callable[[Model], Model],
    ) -> RunConfig:
        """All that its run is built from; `choose_tools` are those of an agent that runs as no definition."""
        stock, world = self._stock, self._world
        request, settings = stock.request, world.loaded.settings
        main = MainRules(
            cwd=world.paths.cwd,
            choose_model=self._choose_model,
            choose_tools=lambda plan, own: self._limit_tools(plan, own) if plan.definition.name else choose_tools(plan),
            build_sections=self._build_sections,
            charge=charge,
            warn=lambda text: stock.tell((), text),
            limits=request.limits,
            refusals=stock.own.refusals,
            # Of its own process, in which others may have many runs, commands would learn nothing of them.
            environment=select(stock.environment, DEPTH),
            redact=stock.redactor.redact_data,
            spill_dir=stock.spill_dir,
            steering_mode=settings.steering_mode,
            follow_up_mode=settings.follow_up_mode,
        )
        return RunConfig(
            find=self._find,
            tools={} if request.agent is None else self._build_tools(),
            list_features=self._list_features,
            compaction=settings.compaction.for_model,
            retry=settings.retry.to_policy(),
            policy=Policy() if request.agent is None else build_main_policy(world.roster),
            extend=extend,
            main=main,
        )

    def _find(self, name: str, surface: str) -> Definition:
        if not name:
            return MAIN
        roster = self._world.roster
        definition = roster.find_runnable(name)
        self._stock.tell((), *roster.find_faults(definition.name))
        return definition

    def _build_tools(self) -> dict[str, Tool]:
        world, stock = self._world, self._stock
        own = {**build_tools(stock.tool_options), **build_extra_tools(), **world.outside.build()}
        return {**own, **world.languages.build_main(), **stock.own.tools}

    def _choose_model(self, definition: Definition) -> tuple[Model, ThinkingLevel]:
        own, request, settings = self._stock.own.model, self._stock.request, self._world.loaded.settings
        named: ThinkingLevel | None = request.thinking or choose_level(definition.thinking)
        kept = read_level(self._session)
        if own is not None:
            return restrict_model(own, settings), named or kept or settings.default_thinking_level
        models = self._need_models()
        registry = models.registry
        choose = cache(lambda: registry.choose(to_wishes(request, settings, self._session, registry)))
        listed = request.models or settings.enabled_models
        is_free = not (request.model or request.provider)
        choice = (choose_main_model(definition, registry, choose, listed) if is_free else None) or choose()
        self._stock.tell((), choice.reason)
        kept = kept or request.inherited_thinking or settings.default_thinking_level
        return models.open(choice.info), named or choice.thinking or kept

    def _limit_tools(self, plan: RunPlan, own: Mapping[str, Tool]) -> Mapping[str, Tool]:
        """The tools of its definition, or those of them that are wanted. Raises UsageError for one that is not."""
        wanted, excluded = self._stock.request.tools, self._stock.request.exclude_tools
        reasons = {item.name: item.sentence for item in plan.rights.refused}
        for name in wanted or ():
            if name not in own:
                reason = reasons.get(name, f"its tools are {', '.join(own) or 'none'}")
                raise UsageError(f"agent {quote(plan.definition.name)} has no tool {quote(name)}: {reason}")
        names = own if wanted is None else dict.fromkeys(wanted)
        return {name: own[name] for name in names if name not in excluded}

    def _build_sections(self, definition: Definition, tools: Mapping[str, Tool]) -> Mapping[str, str]:
        files, request = self._world.files, self._stock.request
        if request.sections:
            return request.sections
        system, addendum = files.system or "", list(files.append)
        if definition.name and definition.prompt_mode == "replace" and request.system_prompt is None:
            system = choose_role(definition)
        if definition.name and definition.prompt_mode == "append" and definition.prompt.strip():
            addendum.append(definition.prompt.strip())
        return build_sections(
            cwd=str(self._world.paths.cwd),
            tools={name: tool for name, tool in tools.items() if not getattr(tool, "deferred", False)},
            custom=system,
            addendum="\n\n".join(addendum),
            context_files=[(file.path, file.text) for file in files.context],
            extra=None if definition.name else self._advise(tools),
        )

    def _list_features(self, plan: RunPlan) -> Sequence[Feature]:
        world, additions = self._world, plan.additions
        if plan.definition.name:
            from retinue.settings.run_config import find_features

            own = find_features(world.roster)(plan)
            guards = world.guarding.surround_main(plan.definition, additions.points, plan.rights)
        else:
            own = [world.boundaries.surround(readonly=self._stock.request.is_readonly)]
            guards = world.guarding.surround_main(None, additions.points, None)
        # What adds tools while the run works must be the last to have them in hand; until then all are recorded alike.
        late = [feature for feature in additions.features if feature.name == "deferred tools"]
        early = [feature for feature in additions.features if feature not in late]
        return [*own, *guards, *world.languages.surround_main(), *early, *self._stock.own.features, *late]

    def _advise(self, tools: Mapping[str, Tool]) -> dict[str, str]:
        """The skills there are, and when to delegate, for an agent that can."""
        return {**self._list_skills(tools), **self._advise_dispatch(tools), **self._advise_subagent(tools)}

    def _list_skills(self, tools: Mapping[str, Tool]) -> dict[str, str]:
        if not self._stock.request.skills or ("read" not in tools and "bash" not in tools):
            return {}
        paths = self._world.paths
        roots = find_skill_roots(paths.project, paths.agent_dir, paths.home, configs=self._world.configs)
        skills, problems = list_skills(roots)
        self._stock.tell(problems)
        return {"skills": render_catalogue(skills)} if skills else {}

    def _advise_dispatch(self, tools: Mapping[str, Tool]) -> dict[str, str]:
        if DISPATCH not in tools:
            return {}
        from retinue.surfaces.dispatch.words import render_section

        roster, switches = self._world.roster, self._world.guarding.switches
        agents = roster.read().list("dispatch", enabled_only=True)
        left = [each for each in agents if not switches.is_agent_off(each.name)]
        text = render_section((each, roster.decide(each, "dispatch").allowed) for each in left)
        return {"subagents": text} if text else {}

    def _advise_subagent(self, tools: Mapping[str, Tool]) -> dict[str, str]:
        if "subagent" not in tools or not self._world.crew.settings.subagents.inject_delegation_policy:
            return {}
        from retinue.surfaces.subagent.tool import render_policy

        text = render_policy([each.name for each in self._world.roster.read().list("subagent", enabled_only=True)])
        return {"delegation": text} if text else {}


def build_main_policy(roster: "Roster") -> Policy:
    """What the settings decide about a main agent that runs as a definition."""
    crew = roster.crew
    return Policy(
        judge=roster.boundaries.judge,
        has_lsp=crew.has_child_lsp,
        always_exposed=crew.always_exposed_extensions,
        denied=crew.deny_tools,
        surfaces={"": SurfaceRules(_ANY_DEPTH)},
    )
