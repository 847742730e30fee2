"""retinue's side of the load: many live runs in one process, each with its session on disk. Prints one JSON object.

The runs are children of one main agent and share its model, tools and session lock, as a crew's do.
"""

import argparse
import asyncio
import gc
import json
import time
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from bench.bare import read_cpu_s, read_memory_mb
from retinue.app import Request, Retinue, SessionWish
from retinue.core.events import Event
from retinue.core.run import Outcome, Status
from retinue.engine.clock import SystemClock, make_run_id, make_uuid
from retinue.engine.runner import LiveRun
from retinue.sessions.log import Session

CONTINUED_PROMPTS = 20


def ignore_event(event: Event) -> None:
    """A face that looks at every piece and does nothing with it."""


class Crew:
    """Live runs beside a main agent."""

    def __init__(self, main: LiveRun, *, watched: bool) -> None:
        self._main = main
        self._watched = watched

    async def converse(self, task: str) -> Outcome:
        """One run from its start to its end, session and all."""
        run = self._start()
        try:
            outcome = await run.prompt(task)
        finally:
            run.session.close()
        if outcome.status is not Status.COMPLETED:
            raise RuntimeError(f"{outcome.status}: {outcome.error}")
        return outcome

    def _start(self) -> LiveRun:
        main, clock, run_id = self._main, SystemClock(), make_run_id()
        assert main.session.path is not None
        path = main.session.path.with_suffix("") / run_id / "session.jsonl"
        tree = main.session.tree
        session = Session.create(
            cwd=main.setup.cwd, directory=None, path=path, clock=clock, new_id=make_uuid, tree=tree
        )
        run = LiveRun(replace(main.setup, run_id=run_id), session, clock=clock)
        if self._watched:
            run.bus.listen(ignore_event)
        return run


async def play(options: argparse.Namespace) -> dict[str, Any]:
    """All conversations at once."""
    async with Retinue(model="mock/bench") as main:
        crew = Crew(main._here.main, watched=options.watched)
        for _ in range(options.warm):
            await crew.converse("warm up")
        gc.collect()
        peak = [read_memory_mb()]
        async with asyncio.TaskGroup() as group:
            if options.sample_memory:
                watch = group.create_task(sample_memory(peak))
            cpu_s, begun_s = read_cpu_s(), time.monotonic()
            tasks = [f"task {number}" for number in range(options.conversations)]
            outcomes = await asyncio.gather(*(crew.converse(task) for task in tasks))
            cost = {"cpu_s": read_cpu_s() - cpu_s, "span_s": time.monotonic() - begun_s}
            if options.sample_memory:
                watch.cancel()
        return {**cost, "turns": sum(outcome.turns for outcome in outcomes), "memory_mb": max(*peak, read_memory_mb())}


async def sample_memory(peak: list[float]) -> None:
    """Note the largest size while runs are live."""
    while True:
        peak[0] = max(peak[0], read_memory_mb())
        await asyncio.sleep(0.02)


async def continue_session(path: Path) -> dict[str, Any]:
    """One prompt after another in a session that has a history."""
    request = Request(session=SessionWish("named", str(path)))
    async with Retinue(model="mock/bench", request=request) as main:
        await main.prompt("warm up")
        gc.collect()
        cpu_s = read_cpu_s()
        for number in range(CONTINUED_PROMPTS):
            await main.prompt(f"prompt {number}")
        return {"turn_ms": (read_cpu_s() - cpu_s) / CONTINUED_PROMPTS * 1000}


def main() -> None:
    """Parse the command line, play, print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--conversations", type=int, default=1)
    parser.add_argument("--warm", type=int, default=0)
    parser.add_argument("--watched", action="store_true")
    parser.add_argument("--sample-memory", action="store_true")
    parser.add_argument("--continue-session", type=Path)
    options = parser.parse_args()
    work = continue_session(options.continue_session) if options.continue_session else play(options)
    print(json.dumps(asyncio.run(work)))


if __name__ == "__main__":
    main()
