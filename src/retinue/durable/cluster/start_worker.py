"""Starts a worker: takes runs from the database until it is told to stop."""

import asyncio
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from retinue.durable.cluster.worker_host import OpenAgent


@dataclass(frozen=True)
class WorkerWish:
    """What a worker is asked to be."""

    database: str = ""
    """The address; empty for that of the environment, or of the user's own file."""
    slots: int = 20
    """Runs at once, at each depth."""
    total: int | None = None
    """Runs at once on all workers together; None for no limit."""
    drain_s: float = 30.0
    """For the runs at work to finish, once it is told to stop."""
    approve: bool = False
    """Whether to trust the projects of runs that are trusted where they come from."""


async def work(
    wish: WorkerWish, url: str, folder: Path, open_agent: "OpenAgent", stop: asyncio.Event, say: Callable[[str], None]
) -> None:
    """Be a worker of the database at `url` until told to stop; runs work below `folder`. Raises RetinueError."""
    from importlib.metadata import version

    from retinue.durable.cluster.worker import Worker
    from retinue.durable.cluster.worker_host import WorkerHost
    from retinue.durable.trouble import Alarm
    from retinue.models.certificates import import_aiohttp

    alarm = Alarm(say)
    worker = Worker(
        url,
        WorkerHost(url, alarm, open_agent).open,
        folder,
        slots=wish.slots,
        total=wish.total,
        version=version("retinue"),
        alarm=alarm,
    )
    if shutil.which("git") is None:
        say("git is not installed here, or not on PATH: runs that bring a repository along will fail on this worker")
    # Now, and not when the first runs wait for it and everything else waits for them.
    await asyncio.to_thread(import_aiohttp)
    await worker.run(stop, drain_s=wish.drain_s)
