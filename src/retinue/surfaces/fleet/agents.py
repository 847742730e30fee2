"""Which agent a name means, and how the agents are listed for a model. Pure."""

import re
from collections.abc import Collection, Sequence

from retinue.core.definition import Definition
from retinue.core.tool_table import BUILTIN_TOOLS

NO_AGENTS = "(none — define one in .pi/agents/*.md)"
_DATE = re.compile(r"-\d{8}$")
_SENTENCE = re.compile(r"(?<=[.!?])\s")


def find_agent(name: str, definitions: Sequence[Definition]) -> Definition | None:
    """The agent of this name, exactly written or else in any case; a disabled one too."""
    wanted = name.strip()
    for definition in definitions:
        if definition.name == wanted:
            return definition
    folded = wanted.casefold()
    return next((definition for definition in definitions if definition.name.casefold() == folded), None)


def pick_available(definitions: Sequence[Definition], allowed: Sequence[str] | None = None) -> list[Definition]:
    """The agents that can be started: enabled ones, and only those the caller may start."""
    folded = None if allowed is None else {name.casefold() for name in allowed}
    return [
        definition
        for definition in definitions
        if definition.enabled and (folded is None or "*" in folded or definition.name.casefold() in folded)
    ]


def list_names(definitions: Sequence[Definition]) -> str:
    """The names, for a sentence."""
    return ", ".join(definition.name for definition in definitions) or NO_AGENTS


def render_types(definitions: Sequence[Definition], missing: Collection[str] = ()) -> str:
    """One line for each agent: what it is for, its model, its tools; `missing` are those whose model is not there."""
    lines = [_render_type(each, has_model=each.name not in missing) for each in definitions]
    return "\n".join(lines) or f"- {NO_AGENTS}"


def render_types_compact(definitions: Sequence[Definition]) -> str:
    """One short line for each agent."""
    lines = [f"- {each.name}: {_first_sentence(each.description or each.name)}" for each in definitions]
    return "\n".join(lines) or f"- {NO_AGENTS}"


def label_model(ref: str) -> str:
    """The last part of a model's name, without a date behind it."""
    return _DATE.sub("", ref.rpartition("/")[2])


def render_tools(definition: Definition) -> str:
    """The tools an agent asks for, `*` for all builtin ones."""
    declared = definition.tools
    if declared.inherits:
        return "the caller's"
    names = declared.names
    if declared.all_builtins or names is None or set(BUILTIN_TOOLS) <= set(names):
        extra = [name for name in names or () if name not in BUILTIN_TOOLS]
        listed = ["*", *extra]
    else:
        listed = list(names)
    listed = [name for name in listed if name not in declared.denied] + list(declared.selectors)
    return ", ".join(listed) or "none"


def _render_type(definition: Definition, *, has_model: bool) -> str:
    description = " ".join((definition.description or definition.name).split())
    model = f" ({label_model(definition.model)})" if definition.model else ""
    if not has_model:
        # A model that was only wished for is replaced by the caller's; any other has to be named in the call.
        named = label_model(definition.model or "")
        model = "" if definition.is_model_wish else f" (its model {named} is not available)"
    return f"- {definition.name}: {description}{model} (Tools: {render_tools(definition)})"


def _first_sentence(text: str) -> str:
    return _SENTENCE.split(" ".join(text.split()), maxsplit=1)[0]
