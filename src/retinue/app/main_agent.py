"""How the main agent of one session begins: as whom, with which model, rights and words.

Which tools it has is decided in `offering`, or by the definition it runs as.
"""

from collections.abc import Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING

from retinue.app.config import World
from retinue.app.host import Stock
from retinue.app.model_access import Models, restrict_model, to_retry
from retinue.app.reports import read_level, to_wishes
from retinue.core.environment import DEPTH, select
from retinue.core.errors import quote
from retinue.core.messages import ThinkingLevel
from retinue.core.model import Model
from retinue.core.tool import Tool
from retinue.engine.prompt import build_sections
from retinue.engine.revoked_tools import Restrained
from retinue.engine.run_config import Additions
from retinue.engine.setup import Feature, RunSetup
from retinue.features.skills import find_skill_roots, list_skills, render_catalogue
from retinue.models.thinking_levels import clamp_level
from retinue.sessions.compaction import CompactionConfig
from retinue.sessions.log import Session
from retinue.surfaces.names import DISPATCH
from retinue.tools.registry import build_extra_tools, build_tools

if TYPE_CHECKING:
    from retinue.settings.role import Role


class Casting:
    """Decides what one main agent is."""

    def __init__(self, stock: Stock, world: World, extras: Additions) -> None:
        """`extras` are what its extensions bring. Raises RetinueError for an agent that cannot be run."""
        self._stock = stock
        self._world = world
        self._extras = extras
        self.role = self._choose_role()
        """The definition it runs as, with its rights."""

    @property
    def is_readonly(self) -> bool:
        """Whether it may change nothing."""
        return self._stock.request.is_readonly or (self.role is not None and self.role.rights.readonly)

    def choose_model(self, session: Session, need_models: Callable[[], Models]) -> tuple[Model, ThinkingLevel]:
        """What it asks, and how hard that thinks. Raises ModelError."""
        role, own = self.role, self._stock.own.model
        request, settings = self._stock.request, self._world.loaded.settings
        named: ThinkingLevel | None = request.thinking or (role.thinking if role is not None else None)
        if own is not None:
            level = named or read_level(session) or settings.default_thinking_level
            return restrict_model(own, settings), clamp_level(own.info, level)
        models = need_models()
        is_free = not (request.model or request.provider)
        registry = models.registry
        choose = cache(lambda: registry.choose(to_wishes(request, settings, session, registry)))
        listed = request.models or settings.enabled_models
        choice = role.choose_model(registry, choose, listed) if role is not None and is_free else None
        choice = choice or choose()
        self._stock.tell((), choice.reason)
        kept = read_level(session) or request.inherited_thinking or settings.default_thinking_level
        level = named or choice.thinking or kept
        return models.open(choice.info), clamp_level(choice.info, level)

    def set_up(self, run_id: str, model: Model, thinking: ThinkingLevel, tools: Mapping[str, Tool]) -> RunSetup:
        """All that its run begins with."""
        world, request, role = self._world, self._stock.request, self.role
        settings, paths, files = world.loaded.settings, world.paths, world.files
        reserve, keep = settings.compaction.for_model(model.info.ref)
        system, addendum = files.system or "", "\n\n".join(files.append)
        if role is not None:
            system = role.choose_system(system, is_asked=request.system_prompt is not None)
            addendum = role.extend(addendum)
        return RunSetup(
            run_id=run_id,
            cwd=paths.cwd,
            model=model,
            thinking=thinking,
            tools=tools,
            refusals=self._stock.own.refusals if role is None else role.rights.refusals,
            sections=request.sections
            or build_sections(
                cwd=str(paths.cwd),
                tools={name: tool for name, tool in tools.items() if not getattr(tool, "deferred", False)},
                custom=system,
                addendum=addendum,
                context_files=[(file.path, file.text) for file in files.context],
                extra=self._advise(tools) if role is None else None,
            ),
            limits=request.limits if role is None else role.limit(request.limits),
            retry=to_retry(settings),
            compaction=CompactionConfig(settings.compaction.enabled, reserve, keep),
            steering_mode=settings.steering_mode,
            follow_up_mode=settings.follow_up_mode,
            redact=self._stock.redactor.redact_data,
            spill_dir=self._stock.spill_dir,
            # Of its own process, in which a worker has many runs, commands would learn nothing of them.
            environment=select(self._stock.environment, DEPTH),
            hooks=(Restrained(self._stock.restraint, run_id), *self._extras.hooks),
            features=self._surround(),
        )

    def _choose_role(self) -> "Role | None":
        stock, world = self._stock, self._world
        if stock.request.agent is None:
            return None
        from retinue.engine.rights import list_doubts
        from retinue.settings.role import build_role

        own = {**build_tools(stock.tool_options), **build_extra_tools(), **world.outside.build()}
        own |= {**world.languages.build_main(), **stock.own.tools}
        role = build_role(world.roster, stock.request.agent, own, self._extras)
        stock.tell((), *(f"agent {quote(role.definition.name)}: {text}" for text in list_doubts(role.rights)))
        return role

    def _surround(self) -> list[Feature]:
        world, role = self._world, self.role
        definition = None if role is None else role.definition
        rights = None if role is None else role.rights
        guards = world.guarding.surround_main(definition, self._extras.points, rights)
        is_readonly = self._stock.request.is_readonly
        own = [world.boundaries.surround(readonly=is_readonly)] if role is None else role.features
        extras = self._extras.features
        # What adds tools while the run works must be the last to have them in hand; until then all are recorded alike.
        late = [feature for feature in extras if feature.name == "deferred tools"]
        early = [feature for feature in extras if feature not in late]
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
        from retinue.surfaces.subagent.policy import render_policy

        text = render_policy([each.name for each in self._world.roster.read().list("subagent", enabled_only=True)])
        return {"delegation": text} if text else {}
