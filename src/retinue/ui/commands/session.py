"""`/new`, `/resume`, `/name`, `/session`, `/compact`: commands for the current session."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from retinue.app import list_sessions
from retinue.core.errors import UsageError, quote
from retinue.core.figures import format_cost, format_tokens
from retinue.ui.formats import clean_line
from retinue.ui.screens.session_picker import SessionPicker

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
    now = app.link.crew.chronicle.file
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

        await app.departure.request("open the other session", open_other)


async def name_session(app: "RetinueApp", words: str) -> None:
    if not words:
        raise UsageError("the name is missing; for example: /name refactoring the parser")
    app.link.crew.chronicle.rename(words)
    app.link.note(f"session renamed to {clean_line(words, 80)}")


async def show_session(app: "RetinueApp", words: str) -> None:
    """Show the session's statistics."""
    stats: Any = app.link.crew.chronicle.count()
    tokens = stats.tokens
    lines = [
        f"session   {app.link.crew.chronicle.file or 'not saved'}",
        f"id        {stats.session_id}",
        f"messages  {stats.user_messages} from you, {stats.assistant_messages} replies, {stats.tool_calls} tool calls",
        f"tokens    {format_tokens(tokens.input)} in, {format_tokens(tokens.output)} out, "
        f"{format_tokens(tokens.cache_read)} from the cache",
        f"cost      {format_cost(stats.cost) or 'unknown'}",
    ]
    app.show_panel("Session", "\n".join(lines))


async def compact_session(app: "RetinueApp", words: str) -> None:
    """Summarise the conversation now; `words` are instructions for the summary."""
    if not await app.link.crew.compact(words):
        app.link.note("nothing to compact: a summary would save nothing")
