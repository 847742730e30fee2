import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.cluster_world import ClusterWorld
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


@pytest.fixture
def database(postgres: Postgres) -> str:
    return postgres.make_database()


@pytest.fixture
def world(database: str, agent_dir: Path, tmp_path: Path) -> Iterator[ClusterWorld]:
    """A project, a model server, and workers that are gone when the test is."""
    with ClusterWorld.open(database, agent_dir, tmp_path) as opened:
        yield opened
