"""Commands that name a session, leave it for another one, or export it."""

import asyncio
import os
from collections.abc import Awaitable
from pathlib import Path
from typing import Any, TypeVar

from msgspec import UNSET

from retinue.core.errors import UsageError
from retinue.serve.rpc.command import Command
from retinue.serve.rpc.link import Link

T = TypeVar("T")


async def new_session(link: Link, command: Command) -> Any:
    """Go over to a new session."""
    await _go_over(link, link.crew.sessions.begin(command.find_text("parentSession") or None))
    return {"cancelled": False}


async def switch_session(link: Link, command: Command) -> Any:
    """Go over to the session of a file."""
    await _go_over(link, link.crew.sessions.open(command.take_text("sessionPath")))
    return {"cancelled": False}


async def fork(link: Link, command: Command) -> Any:
    """Go over to a copy that ends before something the user has said."""
    text = await _go_over(link, link.crew.sessions.fork(command.take_text("entryId")))
    return {"text": text, "cancelled": False}


async def clone(link: Link, command: Command) -> Any:
    """Go over to a copy of the session."""
    await _go_over(link, link.crew.sessions.clone())
    return {"cancelled": False}


async def _go_over(link: Link, going: Awaitable[T]) -> T:
    """Change the session; what the agent does in the present one is stopped by that."""
    if link.compacting is not None:
        await link.abort()
    result = await going
    await link.leave_prompt()
    return result


async def set_session_name(link: Link, command: Command) -> Any:
    """Give the session a name."""
    name = command.take_text("name").strip()
    if not name:
        raise UsageError("Session name cannot be empty")
    link.crew.chronicle.rename(name)
    return UNSET


async def export_html(link: Link, command: Command) -> Any:
    """Write the session as one HTML file; without a path, beside the work."""
    from retinue.views.export.file import export_session

    file = link.crew.chronicle.file
    if file is None:
        raise UsageError("this session is not kept, so there is nothing to export")
    asked = command.find_text("outputPath")
    target = Path(os.getcwd(), asked or f"{Path(file).stem}.html")
    await asyncio.to_thread(export_session, file, target, is_asked=bool(asked))
    return {"path": str(target)}
