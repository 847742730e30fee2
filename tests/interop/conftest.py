"""The programs that the interop tests compare."""

import os

import pytest
from programs import Program, find_pi, find_retinue

# Looked for at once: the tests' own environment no longer says where it is.
PI = find_pi()


@pytest.fixture
def pi() -> Program:
    """The real pi; on a developer's machine it may be missing, in CI it may not."""
    if PI is None:
        missing = "no pi: set RETINUE_PI to it, or RETINUE_PI_DIR to an npm project that has it"
        if os.environ.get("CI") == "true":
            pytest.fail(missing)
        pytest.skip(missing)
    return PI


@pytest.fixture
def retinue() -> Program:
    return find_retinue()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Several starts of Node in one test: a cold or busy machine takes its time over them."""
    for item in items:
        if "/tests/interop/" in item.path.as_posix() and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(150))
