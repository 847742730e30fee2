import pytest
from terminal_world import World

from retinue.testing import MockServer


@pytest.fixture
def world(tmp_path):
    return World(tmp_path)


@pytest.fixture
def mocked(tmp_path):
    """A world whose model plays a script: `with mocked(reply, …) as world`."""
    from contextlib import contextmanager

    @contextmanager
    def open_world(*replies):
        with MockServer.in_thread(list(replies)) as server:
            yield World(tmp_path, server)

    return open_world


def pytest_collection_modifyitems(items):
    # Keys, timers and a real terminal against the clock of a busy machine: one that fails is tried once more, and told.
    for item in items:
        if "/tests/ui/" in item.path.as_posix():
            item.add_marker(pytest.mark.flaky(reruns=1))
