"""`/new`, `/resume`, `/name`, `/session`, `/cost`, `/compact`: commands for the current session."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from retinue.app import list_sessions
from retinue.core.errors import UsageError, quote
from retinue.core.figures import count_tokens, describe_input, format_cost, format_tokens
from retinue.core.messages import Usage
from retinue.ui.formats import clean_line
from retinue.ui.screens.session_picker import SessionPicker
from retinue.views.session_cost import AgentCost, measure_savings

if TYPE_CHECKING:
    from retinue.ui.app import RetinueApp


async def begin_session(app: "RetinueApp", words: str) -> None:
    """Start a new, empty session; the current one is kept."""

    async def begin() -> None:
        await app.link.crew.sessions.begin()
        app.link.reload()

    await app.departure.request("start a new session", begin)


def match_sessions(found: Sequence[Mapping[str, Any]], words: str) -> list[Mapping[str, Any]]:
    """Sessions that match by id or path, else by name, else by id prefix, else by part of name or first message."""
    low = words.lower()
    tests: tuple[Callable[[Mapping[str, Any]], bool], ...] = (
        lambda each: low in (each["id"].lower(), each["path"].lower()),
        lambda each: low == (each["name"] or "").lower(),
        lambda each: each["id"].lower().startswith(low),
        lambda each: low in f"{each['name'] or ''} {each['firstMessage'] or ''}".lower(),
    )
    return next((matching for test in tests if (matching := [each for each in found if test(each)])), [])


async def resume_session(app: "RetinueApp", words: str) -> None:
    """Resume a session of this folder, by name or from a list."""
    everything = words == "all"
    found = await asyncio.to_thread(list_sessions, app.request, everything=everything)
    now = app.link.crew.history.file
    meant: Sequence[Mapping[str, Any]] = found
    if words and not everything:
        meant = match_sessions(found, words)
        if not meant:
            raise UsageError(f"no session of this folder matches {quote(words)}; /resume lists them")
    if not meant:
        raise UsageError("this folder has no sessions yet; /resume all lists those of all folders")
    is_sure = len(meant) == 1 and words and not everything
    chosen = meant[0]["path"] if is_sure else await app.ask(SessionPicker(meant, now, with_folder=everything))
    if is_sure and chosen == now:
        raise UsageError("this session is already open")
    if chosen and chosen != now:
        path: str = chosen

        async def open_other() -> None:
            await app.link.crew.sessions.open(path)
            app.link.reload()
            app.take_up()

        await app.departure.request("open the other session", open_other)


async def name_session(app: "RetinueApp", words: str) -> None:
    if not words:
        raise UsageError("the name is missing; for example: /name refactoring the parser")
    app.link.crew.history.rename(words)
    app.link.note(f"session renamed to {clean_line(words, 80)}")


async def show_session(app: "RetinueApp", words: str) -> None:
    """Show the session's statistics."""
    stats: Any = app.link.crew.history.count()
    used = _sum_costs(app.link.crew.history.list_costs(app.link.crew.session_runs))
    lines = [
        f"session   {app.link.crew.history.file or 'not saved'}",
        f"id        {stats.session_id}",
        f"messages  {stats.user_messages} from you, {stats.assistant_messages} replies, {stats.tool_calls} tool calls",
        f"tokens    {describe_usage(used)}",
        f"cost      {format_cost(used.cost.total) or 'unknown'}; /cost shows it for each agent",
    ]
    app.show_panel("Session", "\n".join(lines))


def _sum_costs(costs: Iterable[AgentCost]) -> Usage:
    return sum((cost.usage for cost in costs), Usage())


def describe_usage(usage: Usage) -> str:
    """`12.4k: 11.0k in, 830 out, 570 into the cache; 8.0k read from the cache`."""
    written = f", {format_tokens(usage.cache_write)} into the cache" if usage.cache_write else ""
    parts = f"{format_tokens(usage.input)} in, {format_tokens(usage.output)} out{written}"
    return f"{format_tokens(count_tokens(usage))}: {parts}; {format_tokens(usage.cache_read)} read from the cache"


async def show_costs(app: "RetinueApp", words: str) -> None:
    """Show what each agent has used with each model, and the sum."""
    costs = app.link.crew.history.list_costs(app.link.crew.session_runs)
    models = sorted({cost.model for cost in costs if cost.usage != Usage()})
    priced = app.link.crew.selection.list_models()
    savings = measure_savings([(cost.model, cost.usage) for cost in costs], priced)
    lines = _draw_cost("total", _sum_costs(costs), sum(savings))
    for model in models if len(models) > 1 else ():
        own = [(cost, saved) for cost, saved in zip(costs, savings, strict=True) if cost.model == model]
        used, saved = _sum_costs(cost for cost, _ in own), sum(saved for _, saved in own)
        lines += _draw_cost(model or "unknown model", used, saved)
    lines.append("")
    for cost, saved in zip(costs, savings, strict=True):
        parts = (cost.description or cost.agent, cost.agent if cost.description else "", cost.model)
        lines += _draw_cost(" · ".join(clean_line(part, 80) for part in parts if part), cost.usage, saved)
    app.show_panel("Cost", "\n".join(lines))


def _draw_cost(name: str, usage: Usage, saved: float) -> list[str]:
    title = f"{name}  {format_cost(usage.cost.total) or 'price unknown'}"
    return [title, f"  {describe_usage(usage)}", f"  {describe_input(usage, saved)}"]


async def compact_session(app: "RetinueApp", words: str) -> None:
    """Summarise the conversation now; `words` are instructions for the summary."""
    if not await app.link.crew.compact(words):
        app.link.note("nothing to compact: a summary would not be shorter")
