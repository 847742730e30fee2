import asyncio
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.cluster_world import ClusterWorld
from retinue.durable.database import Database
from retinue.durable.engine import prepare_engine
from retinue.testing.postgres import Postgres, find_postgres, open_postgres


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """A server for all tests of this process; each has its own database."""
    programs = find_postgres()
    if programs is None:
        missing = "no Postgres: install Debian's postgresql"
        if os.environ.get("CI") == "true":
            pytest.fail(missing)
        pytest.skip(missing)
    # Not below pytest's own folder: the server is another user, who may not enter it.
    root = Path(tempfile.mkdtemp(prefix="retinue-postgres-"))
    try:
        with open_postgres(programs, root) as server:
            yield server
    finally:
        shutil.rmtree(root, ignore_errors=True)


@pytest.fixture(scope="session")
def prepared(postgres: Postgres) -> str:
    """A database with all tables, to be copied: making them takes longer than most tests."""

    async def prepare(url: str) -> None:
        async with Database(url):
            await prepare_engine(url)

    url = postgres.make_database()
    asyncio.run(prepare(url))
    return url


@pytest.fixture
def database(postgres: Postgres, prepared: str) -> str:
    return postgres.make_database(prepared)


@pytest.fixture
def world(database: str, agent_dir: Path, tmp_path: Path) -> Iterator[ClusterWorld]:
    """A project, a model server, and workers that are gone when the test is."""
    with ClusterWorld.open(database, agent_dir, tmp_path) as opened:
        yield opened
