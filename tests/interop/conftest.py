"""The programs that the interop tests compare."""

import pytest

from tests.interop.model_world import FOLDERS
from tests.interop.programs import Program, find_pi, find_retinue

# Looked for at once: the tests' own environment no longer says where it is.
PI = find_pi()
FOREIGN = {"pi", "llama", "litellm"}


@pytest.fixture
def pi() -> Program:
    """The real pi."""
    if PI is None:
        pytest.skip("no pi: `make interop` installs it; RETINUE_PI or RETINUE_PI_DIR may name one")
    return PI


@pytest.fixture(scope="session")
def llama() -> None:
    """llama.cpp and a small model."""
    if not FOLDERS["llama"]:
        pytest.skip("no llama.cpp: `make interop` installs it")


@pytest.fixture(scope="session")
def litellm() -> None:
    """LiteLLM's proxy."""
    if not FOLDERS["litellm"]:
        pytest.skip("no LiteLLM: `make interop` installs it")


@pytest.fixture
def retinue() -> Program:
    return find_retinue()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What needs such a program is run by `make interop` only, and has the time that a cold start of it takes."""
    for item in items:
        if "/tests/interop/" not in item.path.as_posix():
            continue
        if FOREIGN & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.interop)
        if item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(150))
