"""Commands about what the agent does unasked, and how much it is told at once."""

import asyncio
from typing import Any, Literal

from msgspec import UNSET

from retinue.core.errors import UsageError
from retinue.core.events import Compacted, Event
from retinue.serve.rpc.command import Command
from retinue.serve.rpc.link import Link

_MODES: tuple[Literal["all", "one-at-a-time"], ...] = ("all", "one-at-a-time")


async def set_steering_mode(link: Link, command: Command) -> Any:
    """How many steering messages are said at once."""
    link.crew.tuning.steering_mode = command.take_choice("mode", _MODES)
    return UNSET


async def set_follow_up_mode(link: Link, command: Command) -> Any:
    """How many follow-ups are said at once."""
    link.crew.tuning.follow_up_mode = command.take_choice("mode", _MODES)
    return UNSET


async def set_auto_compaction(link: Link, command: Command) -> Any:
    """Whether the context is summarised when it gets long."""
    link.crew.tuning.compacts = command.take_flag("enabled")
    return UNSET


async def set_auto_retry(link: Link, command: Command) -> Any:
    """Whether a reply that failed for a passing reason is asked for again."""
    link.crew.tuning.retries = command.take_flag("enabled")
    return UNSET


async def abort_retry(link: Link, command: Command) -> Any:
    """Give up a reply that is to be asked for again."""
    link.crew.abort_retry()
    return UNSET


async def compact(link: Link, command: Command) -> Any:
    """Summarise the context now; what the main agent does at the moment is stopped."""
    instructions = command.find_text("customInstructions") or ""
    if link.compacting is not None:
        raise UsageError("the context is being compacted already")
    await link.abort(spares_runs=True)
    results: list[Compacted] = []
    stop_listening = link.crew.listen(lambda event: _collect(event, results), pieces=False)
    link.compacting = asyncio.current_task()
    try:
        done = await link.crew.compact(instructions)
    except asyncio.CancelledError:
        if not link.is_open:
            raise
        # `abort` cancels this command alone.
        if link.compacting is not None:
            link.compacting.uncancel()
        raise UsageError("Compaction cancelled") from None
    finally:
        link.compacting = None
        stop_listening()
    if done and results:
        return results[-1].result
    raise UsageError(results[-1].error if results else "Nothing to compact (session too small)")


def _collect(event: Event, results: list[Compacted]) -> None:
    if isinstance(event, Compacted) and event.reason == "manual":
        results.append(event)
