"""Builds the description of the `Agent` tool with the list of agents, and finds agents by name."""

import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from retinue.core.definition import Definition
from retinue.core.errors import RetinueError, UsageError, quote
from retinue.core.pattern import late_pattern
from retinue.core.terminal import escape_line
from retinue.core.tool_table import BUILTIN_TOOLS
from retinue.surfaces.base import Caller
from retinue.surfaces.fleet.ports import FleetSettings

NO_AGENTS = "(none — define one in .pi/agents/*.md)"
_DATE = late_pattern(r"-\d{8}$")
_SHOWN_CHARS = 200
_SENTENCE = late_pattern(r"(?<=[.!?])\s")


def find_agent(name: str, definitions: Sequence[Definition]) -> Definition | None:
    """Return the agent with this name, exact or else case-insensitive; it may be disabled."""
    wanted = name.strip()
    folded = wanted.casefold()
    same = [each for each in definitions if each.name.casefold() == folded]
    return next((each for each in same if each.name == wanted), same[0] if same else None)


def pick_available(definitions: Sequence[Definition], allowed: Sequence[str] | None = None) -> list[Definition]:
    """Return the enabled agents that the caller may start."""
    folded = None if allowed is None else {name.casefold() for name in allowed}
    return [
        definition
        for definition in definitions
        if definition.enabled and (folded is None or "*" in folded or definition.name.casefold() in folded)
    ]


def choose_agent(name: str, caller: Caller, fallback: str | None = None) -> Definition:
    """Return the agent to start, which is `fallback` if the name is unknown. Raises UsageError if it may not start."""
    definitions = caller.definitions()
    found = find_agent(name, definitions)
    if found is not None and pick_available([found], caller.allowed_agents):
        return found
    available = pick_available(definitions, caller.allowed_agents)
    if found is None and fallback and (instead := find_agent(fallback, available)) is not None:
        return instead
    shown = escape_line(name, _SHOWN_CHARS)
    why = f'Unknown agent type "{shown}".'
    if found is not None:
        why = f'Agent type "{shown}" is {"not open to this agent" if found.enabled else "disabled"}.'
    listed = ", ".join(definition.name for definition in available) or NO_AGENTS
    raise UsageError(f"{why} Available types: {listed}.{caller.tell_faults(name)}")


def render_types(definitions: Sequence[Definition], missing: Collection[str] = ()) -> str:
    """Return one line per agent: purpose, model, tools. `missing` are agents whose model is not available."""
    lines = [_render_type(each, has_model=each.name not in missing) for each in definitions]
    return "\n".join(lines) or f"- {NO_AGENTS}"


def render_types_compact(definitions: Sequence[Definition]) -> str:
    texts = [(each.name, " ".join((each.description or each.name).split())) for each in definitions]
    lines = [f"- {name}: {_SENTENCE.split(text, maxsplit=1)[0]}" for name, text in texts]
    return "\n".join(lines) or f"- {NO_AGENTS}"


def label_model(ref: str) -> str:
    """Return the last part of a model's name, without a date at its end."""
    return _DATE.sub("", ref.rpartition("/")[2])


def render_tools(definition: Definition) -> str:
    """Return the tools that an agent asks for; `*` means all builtin ones."""
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
        # An optional model is replaced by the caller's; a required one must be named in the call.
        named = label_model(definition.model or "")
        model = "" if definition.is_model_wish else f" (its model {named} is not available)"
    return f"- {definition.name}: {description}{model} (Tools: {render_tools(definition)})"


MAX_TEMPLATE_BYTES = 100_000
_PLACEHOLDER = late_pattern(r"\{\{(\w+)\}\}")
_HERE = Path(__file__).parent
_END = """\
You are notified when the agent is done: continue with other work meanwhile, do not poll, and do not do the same \
work yourself.
- The notification holds the beginning of the result; get_subagent_result gives all of it, and can wait when you have \
nothing else to do."""
_END_UNTOLD = """\
You are not notified when the agent is done: continue with other work meanwhile, then call get_subagent_result with \
wait: true for its result. Do not do the same work yourself."""
_END_COMPACT = "you are notified at the end: do not poll, do not repeat its work."
_END_COMPACT_UNTOLD = "get_subagent_result with wait: true returns its result; do not repeat its work."


_SCHEDULES = (
    "\n- schedule starts the agent later instead of now: 6-field cron with seconds, an interval such as 5m, "
    "or once as +10m or an ISO time. Only when the user asks for it."
)


class Description(Struct, frozen=True):
    text: str
    warnings: tuple[str, ...] = ()


def describe_agent(
    settings: FleetSettings,
    definitions: Sequence[Definition],
    missing: Collection[str] = (),
    *,
    depth: int,
    max_depth: int,
) -> Description:
    """Return the description of `Agent` for a run at this depth; `missing` are agents whose model is not available.

    Never raises: unreadable files lead to warnings.
    """
    template, warnings = _choose_template(settings)
    values = {
        "typeList": render_types(definitions, missing),
        "compactTypeList": render_types_compact(definitions),
        "endGuideline": _END if settings.notifies else _END_UNTOLD,
        "compactEndGuideline": _END_COMPACT if settings.notifies else _END_COMPACT_UNTOLD,
        "agentDir": settings.agent_dir,
        # The depth of the agent to be started, not of the one that reads this.
        "currentDepth": str(depth + 1),
        "maxDepth": str(max_depth),
        "recursiveGuideline": _guide_nesting(depth + 1, max_depth),
        "scheduleGuideline": _SCHEDULES if settings.scheduling else "",
    }
    text, unknown = fill_template(template, values)
    warnings += [f"agent tool description: unknown placeholder {quote(name)} left as it is" for name in unknown]
    return Description(text, tuple(warnings))


def fill_template(template: str, values: Mapping[str, str]) -> tuple[str, list[str]]:
    """Replace each `{{word}}` literally; return the text and the unknown words."""
    unknown = list[str]()

    def fill(match: re.Match[str]) -> str:
        if match[1] not in values:
            unknown.append(match[0])
        return values.get(match[1], match[0])

    return _PLACEHOLDER.sub(fill, template), list(dict.fromkeys(unknown))


def load_template(mode: str) -> str:
    return (_HERE / f"agent_{mode}.md").read_text(encoding="utf-8").strip()


def _choose_template(settings: FleetSettings) -> tuple[str, list[str]]:
    if settings.description_mode != "custom":
        return load_template(settings.description_mode), []
    warnings = list[str]()
    for path in settings.template_files:
        try:
            text = settings.read_template(path)
        except RetinueError as error:
            warnings.append(f"{error}; skipped")
            continue
        if text is None:
            continue
        if text.strip():
            return text.strip(), warnings
        warnings.append(f"{path}: empty, so it is not used as the agent tool's description")
    warnings.append('toolDescriptionMode is "custom", but there is no agent-tool-description.md; using "full"')
    return load_template("full"), warnings


def _guide_nesting(depth: int, max_depth: int) -> str:
    rest = " and cannot start others" if depth >= max_depth else "; one whose file lists Agent can start others"
    return f"\n- Agents you start are at depth {depth} of {max_depth}{rest}."
