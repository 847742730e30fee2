"""Starts a worker, which executes runs from the database until it is stopped."""

import asyncio
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from retinue.durable.cluster.worker_host import OpenAgent


@dataclass(frozen=True)
class WorkerOptions:
    database: str = ""
    """The address; empty for that of the environment or the user's settings."""
    slots: int = 20
    """Maximum number of simultaneous runs, for each depth."""
    total: int | None = None
    """Maximum number of simultaneous runs on all workers; None for no limit."""
    drain_s: float = 30.0
    """Time for runs to finish after a stop."""
    approve: bool = False
    """Whether to trust projects that are trusted by the sender."""


async def work(
    wish: WorkerOptions,
    url: str,
    folder: Path,
    open_agent: "OpenAgent",
    stop: asyncio.Event,
    say: Callable[[str], None],
) -> None:
    """Run a worker for the database at `url` until `stop` is set; runs work below `folder`. Raises RetinueError."""
    from importlib.metadata import version

    from retinue.durable.cluster.worker import Worker
    from retinue.durable.cluster.worker_host import WorkerHost
    from retinue.durable.trouble import TroubleNotifier
    from retinue.models.certificates import import_aiohttp

    alarm = TroubleNotifier(say)
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
    # Imported now, not when the first runs need it and block everything else.
    await asyncio.to_thread(import_aiohttp)
    await worker.run(stop, drain_s=wish.drain_s)
