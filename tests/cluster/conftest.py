import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from bench.cluster_world import ClusterWorld
from tests.farm import fork_program
from tests.needs import explain_lack
from tests.postgres import Postgres


@pytest.fixture
def database(postgres: Postgres, prepared: str) -> str:
    return postgres.make_database(prepared)


@pytest.fixture(scope="session")
def can_confine() -> bool:
    """Whether bubblewrap works here, whatever our own use of it comes to."""
    return not explain_lack("bwrap")


@pytest.fixture
def world(
    database: str, yard: str, agent_dir: Path, tmp_path: Path, can_confine: bool, request: pytest.FixtureRequest
) -> Iterator[ClusterWorld]:
    """A project, a model server, and workers that are gone when the test is; commands are confined as at users'."""
    confined = can_confine and request.node.get_closest_marker("unconfined") is None
    with ClusterWorld.open(database, agent_dir, tmp_path, confined=confined) as opened:
        opened.start = partial(fork_program, yard)
        yield opened


@pytest.fixture
def plain(world: ClusterWorld, tmp_path: Path) -> Callable[[], dict[str, str]]:
    """The settings of workers: they know nothing of the user's rules, hooks and agents."""
    home = tmp_path / "theirs"
    agent = home / ".pi" / "agent"

    def make() -> dict[str, str]:
        agent.mkdir(parents=True, exist_ok=True)
        for name in ("models.json", "auth.json"):
            if (world.agent_dir / name).exists():
                (agent / name).write_bytes((world.agent_dir / name).read_bytes())
        (agent / "subagents.json").write_text(json.dumps({"sandbox": world.sandbox}))
        return {"PI_CODING_AGENT_DIR": str(agent), "HOME": str(home)}

    return make
