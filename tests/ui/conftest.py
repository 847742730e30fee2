import pytest

from retinue.testing import MockServer
from tests.ui.terminal_world import World


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
