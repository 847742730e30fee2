"""A tool call in a few words: what it is about, and for one that starts an agent, which and how. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from retinue.core.figures import format_cost, format_tokens
from retinue.core.tool_table import SURFACE_TOOLS
from retinue.ui.formats import clean_line

_TELLING = ("path", "file_path", "command", "pattern", "query", "url", "description", "agent", "agent_id", "name")
"""Arguments that say what a call is about, the most telling first."""
DELEGATION = tuple(names[0] for names in SURFACE_TOOLS.values())
"""Tools that start an agent."""
DEFAULT_AGENT = "general-purpose"


@dataclass(frozen=True, slots=True)
class AgentHeading:
    """A call that starts an agent: `▸ name  badges  about`."""

    name: str
    badges: tuple[str, ...] = ()
    about: str = ""


def describe_call(name: str, arguments: Mapping[str, Any]) -> str:
    """The telling argument of a call."""
    if name == "bash":
        return f"$ {arguments.get('command', '')}"
    if name in ("grep", "find") and arguments.get("path"):
        return f"{arguments.get('pattern', '')} in {arguments['path']}"
    told = [str(arguments[key]) for key in _TELLING if isinstance(arguments.get(key), str | int)]
    if name == "read" and told and (arguments.get("offset") or arguments.get("limit")):
        first = arguments.get("offset") or 1
        return f"{told[0]}:{first}"
    return told[0] if told else ""


def describe_agent(name: str, arguments: Mapping[str, Any], details: object) -> AgentHeading | None:
    """Which agent a call starts, and how; None for a call that starts none."""
    if name not in DELEGATION:
        return None
    known = details if isinstance(details, Mapping) else {}
    if name != "Agent":
        about = arguments.get("task") or arguments.get("prompt") or ""
        session = arguments.get("sessionId")
        return AgentHeading(str(arguments.get("agent", "")), (f"session {session}",) if session else (), str(about))
    agent = known.get("displayName") or arguments.get("subagent_type") or ""
    about = known.get("description") or arguments.get("description") or arguments.get("prompt") or ""
    fallback = "Agent" if arguments.get("resume") or arguments.get("retry") else DEFAULT_AGENT
    return AgentHeading(str(agent or fallback), _list_badges(arguments, known), str(about))


def _list_badges(arguments: Mapping[str, Any], known: Mapping[str, Any]) -> tuple[str, ...]:
    """What is special about the call; what became of it is truer than what was asked for."""
    badges = []
    if model := known.get("modelName") or arguments.get("model"):
        badges.append(str(model))
    tags = known.get("tags")
    if isinstance(tags, list):
        badges += [str(tag) for tag in tags]
    else:
        badges += [f"thinking: {arguments['thinking']}"] if arguments.get("thinking") else []
        badges += ["isolated"] if arguments.get("isolated") is True else []
        badges += ["worktree"] if arguments.get("isolation") == "worktree" else []
    badges += ["resume"] if arguments.get("resume") else []
    badges += [f"schedule: {arguments['schedule']}"] if arguments.get("schedule") else []
    return tuple(clean_line(badge, 40) for badge in badges)


def describe_end(details: object) -> str:
    """What became of a call that started an agent, in a line; empty when its text says more."""
    if not isinstance(details, Mapping):
        return ""
    if details.get("status") == "background" and details.get("agentId"):
        state = "Queued" if details.get("isQueued") else "Running"
        return f"{state} in background (ID: {clean_line(str(details['agentId']), 40)})"
    if details.get("status") == "scheduled":
        ident, due = (clean_line(str(details.get(key)), 40) for key in ("jobId", "nextRun"))
        return f"Scheduled (ID: {ident}), next {due}; /agents takes it back"
    if isinstance(streaming := details.get("streaming"), Mapping):
        return _describe_progress(streaming)
    return ""


def _describe_progress(streaming: Mapping[str, Any]) -> str:
    items = streaming.get("displayItems")
    calls = [item for item in items if isinstance(item, Mapping) and item.get("type") == "toolCall"] if items else []
    facts = [f"↻{streaming['turnCount']}"] if isinstance(streaming.get("turnCount"), int) else []
    if calls:
        facts.append(f"{len(calls)} tool{'s' if len(calls) > 1 else ''}")
        name, words = str(calls[-1].get("name", "")), calls[-1].get("args")
        about = describe_call(name, words) if isinstance(words, Mapping) else ""
        facts.append(clean_line(f"{name} {about}", 120))
    return " · ".join(facts)


def describe_cost(details: object) -> str:
    """What a finished foreground agent has used: `↻3 · 12.3k token · $0.010`."""
    results = details.get("results") if isinstance(details, Mapping) else None
    last = results[-1] if isinstance(results, list) and results else details
    usage = last.get("usage") if isinstance(last, Mapping) else None
    if not isinstance(usage, Mapping):
        turns = details.get("turns") if isinstance(details, Mapping) else None
        return f"↻{turns}" if isinstance(turns, int) and turns else ""
    numbers = {key: value for key, value in usage.items() if isinstance(value, int | float)}
    tokens = int(sum(numbers.get(key, 0) for key in ("input", "output", "cacheRead", "cacheWrite")))
    facts = [f"↻{numbers['turns']}"] if numbers.get("turns") else []
    facts += [f"{format_tokens(tokens)} token"] if tokens else []
    facts += [cost] if (cost := format_cost(float(numbers.get("cost", 0)))) else []
    return " · ".join(facts)
