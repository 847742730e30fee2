"""Builds a worker of a cluster: from flags and files to what takes runs from the database."""

import asyncio
import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from retinue.app.cluster_check import name_database
from retinue.core.environment import WORKER_DIR
from retinue.settings.paths import find_agent_dir, find_home


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
    approve: bool = False
    """Whether to trust the projects of runs that are trusted where they come from."""


async def work(wish: WorkerWish, stop: asyncio.Event, say: Callable[[str], None]) -> None:
    """Be a worker until told to stop. Raises RetinueError."""
    from retinue.app.worker_host import Hosting
    from retinue.durable.cluster.worker import Worker
    from retinue.durable.trouble import Alarm
    from retinue.models.certificates import import_aiohttp

    url = name_database(wish.database, os.environ)
    folder = find_worker_dir(os.environ)
    alarm = Alarm(say)
    worker = Worker(
        url,
        Hosting(url, os.environ, alarm, approve=wish.approve).open,
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


def find_worker_dir(environment: Mapping[str, str]) -> Path:
    """Where a worker keeps repositories and workspaces.

    Each run sees its own place there, and nothing else. In `~/.cache` they may all write.
    """
    if named := environment.get(WORKER_DIR, ""):
        return Path(named).expanduser()
    return find_agent_dir(environment, find_home(environment)) / "retinue" / "worker"
