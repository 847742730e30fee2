"""Counts the tokens and the cost of a session, its messages, and how full the context window is, in pi's format.

Also what each agent of the session has used: the sum is the cost that every front end shows.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from msgspec import UNSET, Struct, UnsetType

from retinue.core.messages import AssistantMessage, ToolResultMessage, Usage, UserMessage
from retinue.core.model import ModelInfo
from retinue.core.run import Run
from retinue.sessions.compaction import count_context_tokens
from retinue.sessions.entry import Entry
from retinue.sessions.log import Session
from retinue.sessions.view import Context


class ContextUsage(Struct, rename="camel"):
    """How full the model's context window is; None between a compaction and the next reply."""

    tokens: int | None
    context_window: int
    percent: float | None


class Tokens(Struct, frozen=True, rename="camel"):
    """Tokens used in the whole session, on all branches."""

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    total: int = 0


class Stats(Struct, rename="camel"):
    """Statistics of a session, encoded as in pi."""

    session_file: str | UnsetType
    session_id: str
    user_messages: int = 0
    assistant_messages: int = 0
    tool_calls: int = 0
    tool_results: int = 0
    total_messages: int = 0
    tokens: Tokens = Tokens()
    cost: float = 0
    context_usage: ContextUsage | UnsetType = UNSET


def count_stats(session: Session, context: Context, window: int) -> Stats:
    """Count all branches of a session; `context` is its present one, `window` that of the model, 0 if unknown."""
    file = UNSET if session.path is None else str(session.path)
    stats = Stats(file, session.id, context_usage=_measure(context, window))
    used = Usage()
    for entry in session.drop_inherited(session.all_entries()):
        used += _count_entry(entry, stats)
    total = used.input + used.output + used.cache_read + used.cache_write
    stats.tokens = Tokens(used.input, used.output, used.cache_read, used.cache_write, total)
    stats.cost = used.cost.total
    return stats


class AgentCost(Struct, frozen=True):
    """What one agent has used with one model."""

    agent: str
    description: str
    model: str
    usage: Usage


def list_costs(session: Session, runs: Iterable[Run], find_model: Callable[[str], str]) -> list[AgentCost]:
    """What each agent has used: the main agent on all branches, with summaries, then its runs."""
    own = [AgentCost("main", "", model, used) for model, used in sum_by_model(session).items()]
    return [*own, *(AgentCost(run.agent, run.description, find_model(run.id), run.usage) for run in runs)]


def measure_savings(rows: Sequence[tuple[str, Usage]], models: Iterable[ModelInfo]) -> list[float]:
    """Return the dollars that the prompt cache saved in each row, a model and what it has used.

    Without the cache every input token would have had the price of an uncached one. For unknown models that follows
    from all rows of the model. Negative if writing to the cache cost more.
    """
    sums = dict[str, Usage]()
    for model, usage in rows:
        sums[model] = sums.get(model, Usage()) + usage
    rates = {model: used.cost.input / used.input if used.input else 0.0 for model, used in sums.items()}
    rates |= {info.ref: info.cost.input / 1e6 for info in models if info.ref in rates}
    return [
        (used.cache_read + used.cache_write) * rates[model] - used.cost.cache_read - used.cost.cache_write
        if rates[model]
        else 0.0
        for model, used in rows
    ]


def sum_by_model(session: Session) -> dict[str, Usage]:
    """The usage of one session on all branches; a summary counts for the model of the last reply."""
    used, model, stats = dict[str, Usage](), "", Stats(UNSET, "")
    for entry in session.drop_inherited(session.all_entries()):
        if isinstance(message := entry.message, AssistantMessage):
            model = f"{message.provider}/{message.model}"
        if (usage := _count_entry(entry, stats)) != Usage():
            used[model] = used.get(model, Usage()) + usage
    return used


def _measure(context: Context, window: int) -> ContextUsage | UnsetType:
    if window <= 0:
        return UNSET
    fresh = context.messages[context.trusted_from :]
    if context.compaction is not None and not any(isinstance(message, AssistantMessage) for message in fresh):
        return ContextUsage(None, window, None)
    tokens = count_context_tokens(context)
    return ContextUsage(tokens, window, tokens / window * 100)


def _count_entry(entry: Entry, stats: Stats) -> Usage:
    message = entry.message
    if entry.type != "message" or message is UNSET:
        return _read_usage(entry.usage)
    stats.total_messages += 1
    match message:
        case UserMessage():
            stats.user_messages += 1
        case AssistantMessage():
            stats.assistant_messages += 1
            stats.tool_calls += len(message.calls)
            return message.usage
        case ToolResultMessage():
            stats.tool_results += 1
            return message.usage or Usage()
    return Usage()


def _read_usage(value: Any) -> Usage:
    """Usage of an entry that is not a message; another program may have written anything there."""
    from msgspec import MsgspecError, convert

    if not isinstance(value, dict):
        return Usage()
    try:
        return convert(value, Usage)
    except MsgspecError:
        return Usage()
