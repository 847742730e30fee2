"""A definition that the main agent runs as: its rights, its tools, its words and its limits."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from msgspec import Struct, structs

from retinue.core.definition import Definition
from retinue.core.errors import ModelError, UsageError, quote
from retinue.core.messages import THINKING_LEVELS, ThinkingLevel
from retinue.core.tool import Tool
from retinue.engine.child_prompt import choose_role as choose_text
from retinue.engine.limits import Limits, choose_limits
from retinue.engine.model_choice import NamedModel
from retinue.engine.request import RunRequest
from retinue.engine.run_config import Additions, RunPlan
from retinue.engine.setup import Feature
from retinue.models.reach import OutOfReach, follow_choice
from retinue.models.registry import Registry
from retinue.models.resolve import Choice
from retinue.settings.roster import Roster
from retinue.settings.run_config import find_features
from retinue.tools.policy import Rights, Terms, decide_tools
from retinue.tools.renamed import rename_tools
from retinue.tools.selectors import Offer


class Role(Struct, frozen=True):
    """A definition that the main agent runs as."""

    definition: Definition
    rights: Rights
    tools: Mapping[str, Tool]
    """By the names its model sees."""
    features: tuple[Feature, ...]

    @property
    def thinking(self) -> ThinkingLevel | None:
        return next((level for level in THINKING_LEVELS if level == self.definition.thinking), None)

    def choose_model(
        self, registry: Registry, choose_other: Callable[[], Choice], listed: Sequence[str]
    ) -> Choice | None:
        """Its model; None when it has none, or wishes for one that is not there. Raises ModelError for a pinned one.

        `choose_other` tells what is asked without it: only a file that names a provider leads away from that one.
        """
        definition = self.definition
        if definition.model in (None, "inherit"):
            return None
        is_choice = definition.source != "builtin"
        try:
            if is_choice and (choice := follow_choice(definition.model, registry.names)) is not None:
                return choice
            return registry.reach(choose_other().info, listed).resolve(definition.model)
        except OutOfReach as error:
            if definition.is_model_wish:
                return None
            other = choose_other()
            return structs.replace(other, reason=f"agent {quote(definition.name)}: {error.explain(other.info)}")
        except ModelError as error:
            if definition.is_model_wish:
                return None
            raise ModelError(f"agent {quote(definition.name)}: {error}") from error

    def choose_tools(self, wanted: Sequence[str] | None, excluded: Sequence[str]) -> dict[str, Tool]:
        """Its tools, or those of them that are wanted. Raises UsageError for one that it may not have."""
        reasons = {item.name: item.sentence for item in self.rights.refused}
        for name in wanted or ():
            if name not in self.tools:
                reason = reasons.get(name, f"its tools are {', '.join(self.tools) or 'none'}")
                raise UsageError(f"agent {quote(self.definition.name)} has no tool {quote(name)}: {reason}")
        names = self.tools if wanted is None else dict.fromkeys(wanted)
        return {name: self.tools[name] for name in names if name not in excluded}

    def choose_system(self, text: str, *, is_asked: bool) -> str:
        """What stands instead of the built-in prompt: what a flag says, else its own prompt, else what a file says."""
        is_own = self.definition.prompt_mode == "replace" and not is_asked
        return choose_text(self.definition) if is_own else text

    def extend(self, addendum: str) -> str:
        """What is put behind the prompt, with its own when that is its way."""
        own = self.definition.prompt.strip() if self.definition.prompt_mode == "append" else ""
        return "\n\n".join(filter(None, (addendum, own)))

    def limit(self, limits: Limits) -> Limits:
        """The limits with its own where nothing else is said."""
        own = choose_limits(self.definition, _describe_main(self.definition), Limits())
        return replace(
            limits,
            max_turns=limits.max_turns or own.max_turns,
            tokens=limits.tokens or own.tokens,
            cost_usd=limits.cost_usd or own.cost_usd,
        )


def build_role(roster: Roster, name: str, tools: Mapping[str, Tool], extras: Additions) -> Role:
    """The definition as a main agent: no parent limits it. Raises UnknownAgent or DisabledAgent."""
    definition = roster.find_runnable(name)
    crew, paths = roster.crew, roster.paths
    tools = {**tools, **extras.tools}
    is_confined, confinement = roster.boundaries.judge()
    terms = Terms(
        is_confined=is_confined,
        confinement=confinement,
        available={name: extras.offers.get(name) or Offer(tool.effect) for name, tool in tools.items()},
        has_lsp=crew.has_child_lsp,
        always_exposed=crew.always_exposed_extensions,
        user_denied=crew.deny_tools,
        extensions=extras.found,
        failed=extras.failed,
    )
    rights = decide_tools(definition, terms)
    request, named = _describe_main(definition), NamedModel()
    plan = RunPlan(definition, request, "inprocess", named, rights, terms, Limits(), paths.cwd, tools)
    given = rename_tools(tools, {name: rights.targets.get(name, name) for name in rights.allowed})
    return Role(definition, rights, given, tuple(find_features(roster)(plan)))


def _describe_main(definition: Definition) -> RunRequest:
    return RunRequest(agent=definition.name, task="", description="", surface="")
