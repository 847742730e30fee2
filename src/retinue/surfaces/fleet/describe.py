"""What a model is told about `Agent`: in full, in short, or in the user's own words, with placeholders filled in."""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from retinue.core.definition import Definition
from retinue.core.errors import RetinueError, quote
from retinue.surfaces.fleet.agents import render_types, render_types_compact
from retinue.surfaces.fleet.ports import FleetSettings

MAX_TEMPLATE_BYTES = 100_000
_PLACEHOLDER = re.compile(r"\{\{(\w+)\}\}")
_HERE = Path(__file__).parent
_END = """\
You are notified when the agent is done: go on with other work meanwhile, do not poll, and do not do the same \
work yourself.
- The notification holds the beginning of the result; get_subagent_result gives all of it, and can wait when you have \
nothing else to do."""
_END_UNTOLD = """\
You are not notified when the agent is done: go on with other work meanwhile, then call get_subagent_result with \
wait: true for its result. Do not do the same work yourself."""
_END_COMPACT = "you are notified at the end: do not poll, do not repeat its work."
_END_COMPACT_UNTOLD = "get_subagent_result with wait: true returns its result; do not repeat its work."


@dataclass(frozen=True, slots=True)
class Description:
    """The text, and what a person should know about it."""

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
    """The description of `Agent` for a run at this depth; `missing` are the agents whose model is not there.

    Never raises: what cannot be read is warned about.
    """
    template, warnings = _choose_template(settings)
    values = {
        "typeList": render_types(definitions, missing),
        "compactTypeList": render_types_compact(definitions),
        "endGuideline": _END if settings.notifies else _END_UNTOLD,
        "compactEndGuideline": _END_COMPACT if settings.notifies else _END_COMPACT_UNTOLD,
        "agentDir": settings.agent_dir,
        # Of the agent to be started, not of the one that reads this.
        "currentDepth": str(depth + 1),
        "maxDepth": str(max_depth),
        "recursiveGuideline": _guide_nesting(depth + 1, max_depth),
        "scheduleGuideline": _guide_schedules() if settings.scheduling else "",
    }
    text, unknown = fill_template(template, values)
    warnings += [f"agent tool description: unknown placeholder {quote(name)} left as it is" for name in unknown]
    return Description(text, tuple(warnings))


def fill_template(template: str, values: Mapping[str, str]) -> tuple[str, list[str]]:
    """The template with each `{{word}}` replaced literally, and the words nobody knows."""
    unknown = list[str]()

    def fill(match: re.Match[str]) -> str:
        if match[1] not in values:
            unknown.append(match[0])
        return values.get(match[1], match[0])

    return _PLACEHOLDER.sub(fill, template), list(dict.fromkeys(unknown))


def load_template(mode: str) -> str:
    """A template of ours: `full` or `compact`."""
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
    warnings.append('toolDescriptionMode is "custom" but there is no agent-tool-description.md; the full one is used')
    return load_template("full"), warnings


def _guide_nesting(depth: int, max_depth: int) -> str:
    if depth >= max_depth:
        return f"\n- Agents you start are at depth {depth} of {max_depth} and cannot start others."
    return f"\n- Agents you start are at depth {depth} of {max_depth}; one whose file lists Agent can start others."


def _guide_schedules() -> str:
    return (
        "\n- schedule starts the agent later instead of now: 6-field cron with seconds, an interval such as 5m, "
        "or once as +10m or an ISO time. Only when the user asks for it."
    )
