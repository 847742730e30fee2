"""Waits for a run on behalf of a tool call: until it ends, time is over, or the user says something meanwhile."""

import asyncio
from typing import Literal, TypeAlias

from retinue.surfaces.base import Caller

POLL_S = 1.0

WaitEnd: TypeAlias = Literal["finished", "timeout", "message"]


def limit_wait(caller: Caller, timeout_s: float) -> float:
    """The time a call may wait: less than what its own run may be silent, or spend in one call."""
    live = caller.manager.live(caller.run_id)
    return timeout_s if live is None else live.setup.limits.bound_wait(timeout_s)


async def wait_for_run(caller: Caller, run_id: str, timeout_s: float) -> WaitEnd:
    """Return when the run is finished, queued or working as it may be now. Cancelling leaves the run alone."""
    run = caller.manager.find(run_id)
    if run is None or run.status.is_final:
        return "finished"
    async with asyncio.TaskGroup() as group:
        finish = group.create_task(caller.manager.wait(run_id))
        watch = group.create_task(_watch(caller, timeout_s))
        await asyncio.wait((finish, watch), return_when=asyncio.FIRST_COMPLETED)
        # Whoever ends in the same moment as the time limit has still ended.
        ended: WaitEnd = "finished" if finish.done() or not watch.done() else watch.result()
        finish.cancel()
        watch.cancel()
    return ended


async def _watch(caller: Caller, timeout_s: float) -> Literal["timeout", "message"]:
    """The clock and the caller's inbox; only what the user wants said before the next reply counts."""
    clock, ends_s = caller.clock, caller.clock.steady_s() + timeout_s
    while True:
        live = caller.manager.live(caller.run_id)
        if live is not None and live.inbox.has_words:
            return "message"
        rest_s = ends_s - clock.steady_s()
        if rest_s <= 0:
            return "timeout"
        await clock.sleep(min(POLL_S, rest_s))
