"""The conformance suite's authorization scenarios against `retinue login`; `mcp_login.toml` has the results."""

import shutil
import sys
import tomllib
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from tests.interop.test_mcp_conformance import SUITES, list_scenarios, read_results, run_suite

EXPECTED = tomllib.loads(Path(__file__).with_name("mcp_login.toml").read_text())
COMMAND = f"{sys.executable} -m tests.interop.mcp_login"


def is_left_out(name: str) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in EXPECTED["left_out"])


@pytest.mark.interop
@pytest.mark.timeout(900)
@pytest.mark.parametrize("part", EXPECTED["client"], ids=lambda part: f"{part['suite']}-{part['revision']}")
def test_sign_in_passes_the_suite(tmp_path, part):
    if not SUITES:
        pytest.skip("no conformance suite: `make interop` installs it")
    suite, revision = part["suite"], part["revision"]
    passed, failed = {}, {}
    for name in list_scenarios(suite, "client", revision, tmp_path):
        if not name.startswith("auth/") or is_left_out(name):
            continue
        out = tmp_path / "out"
        arguments = ("client", "--command", COMMAND, "--scenario", name, "-o", str(out))
        run_suite(suite, *arguments, "--spec-version", revision, cwd=tmp_path)
        [checks] = read_results(out).values()
        shutil.rmtree(out)
        # Some checks are repeated with each request; their number depends on the library.
        passed[name] = len({each["id"] for each in checks if each["status"] == "SUCCESS"})
        if bad := [each["id"] for each in checks if each["status"] == "FAILURE"]:
            failed[name] = bad
    assert (failed, passed) == ({}, part["passed"])
