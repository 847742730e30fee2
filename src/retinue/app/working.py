"""Builds a worker of a cluster: from flags and files to what takes runs from the database."""

import asyncio
import os
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version

from retinue.app.supervising import name_database
from retinue.settings.paths import find_paths


@dataclass(frozen=True)
class WorkerWish:
    """What a worker is asked to be."""

    database: str = ""
    """An address; empty for that of the environment, or of the user's own file."""
    slots: int = 20
    """Runs at once, at each depth."""
    total: int | None = None
    """Runs at once on all workers together; None for no limit."""
    drain_s: float = 30.0
    """For the runs at work to finish, once it is told to stop."""


async def work(wish: WorkerWish, stop: asyncio.Event, say: Callable[[str], None]) -> None:
    """Be a worker until told to stop. Raises RetinueError."""
    from retinue.app.hosting import Hosting
    from retinue.durable.worker import Worker

    paths = find_paths(".", os.environ)
    url = name_database(wish.database, os.environ)
    folder = paths.own_dir / "worker"
    worker = Worker(
        url,
        Hosting(url, os.environ).open,
        folder,
        slots=wish.slots,
        total=wish.total,
        version=version("retinue"),
        say=say,
    )
    await worker.run(stop, drain_s=wish.drain_s)
