"""The oldest MCP library that pyproject.toml accepts, in place of the one of the environment."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# Looked for at once: the tests' own environment no longer says where it is.
OLDEST = os.environ.get("RETINUE_MCP_DIR", "")
TESTS = (
    "tests/flows/test_mcp_calls.py",
    "tests/flows/test_mcp_rounds.py",
    "tests/frontends/test_mcp_http.py::test_both_kinds_of_clients_are_served",
    "tests/frontends/test_mcp_http.py::test_question_of_a_call_goes_to_the_user",
    "tests/frontends/test_mcp_http.py::test_question_of_a_task_is_answered_once",
    "tests/frontends/test_mcp_http.py::test_garbage_gets_an_error",
)


@pytest.mark.interop
@pytest.mark.timeout(300)
def test_oldest_library_serves_and_calls() -> None:
    if not OLDEST:
        pytest.skip("no other MCP library: `make interop` installs it")
    [place] = Path(OLDEST).glob("lib/python3*/site-packages")
    env = {**os.environ, "PYTHONPATH": str(place)}
    asked = [sys.executable, "-c", "from importlib.metadata import version; print(version('mcp'))"]
    version = subprocess.run(asked, env=env, capture_output=True, text=True, check=True).stdout.strip()
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    oldest = extras["mcp"][0].removeprefix("mcp>=").partition(",")[0]
    assert version == f"{oldest}.0"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *TESTS], cwd=ROOT, env=env, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout[-4000:]
