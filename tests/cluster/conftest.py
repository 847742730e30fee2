from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.cluster_world import ClusterWorld
from retinue.testing.postgres import Postgres


@pytest.fixture
def database(postgres: Postgres, prepared: str) -> str:
    return postgres.make_database(prepared)


@pytest.fixture
def world(database: str, agent_dir: Path, tmp_path: Path) -> Iterator[ClusterWorld]:
    """A project, a model server, and workers that are gone when the test is."""
    with ClusterWorld.open(database, agent_dir, tmp_path) as opened:
        yield opened
