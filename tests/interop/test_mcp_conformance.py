"""The conformance suite against retinue's MCP server and client; `mcp_conformance.toml` has the results."""

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections import Counter
from contextlib import asynccontextmanager
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from retinue.testing.process import _command, _environment, fresh_home
from tests.interop.header_proxy import open_proxy

# Looked for at once: the tests' own environment no longer says where it is.
SUITES = os.environ.get("RETINUE_CONFORMANCE_DIR", "")
"""Both versions, and the Node that runs them."""
EXPECTED = tomllib.loads(Path(__file__).with_name("mcp_conformance.toml").read_text())
SERVERS = {
    "program": [*_command(), "mcp", "--http", "--model", "offline/rules"],
    "fixture": [sys.executable, "-m", "tests.interop.mcp_fixture"],
}
ROOT = Path(__file__).parents[2]
pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]


def start_suite(version, *arguments, cwd):
    """Start the suite under the Node that was installed with it."""
    folder = Path(SUITES, "node_modules")
    entry = folder / f"suite-{version}/dist/index.js"
    path = f"{folder / '.bin'}{os.pathsep}{os.environ['PATH']}"
    env = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen([folder / ".bin/node", entry, *arguments], cwd=cwd, env=env, stdout=subprocess.PIPE)


def run_suite(version, *arguments, cwd):
    with start_suite(version, *arguments, cwd=cwd) as process:
        return process.communicate(timeout=240)[0].decode()


def read_results(folder):
    """The checks of each scenario."""
    results = {}
    for path in folder.rglob("checks.json"):
        name = re.sub(r"-\d{4}-\d\d-\d\dT.*", "", str(path.parent.relative_to(folder))).removeprefix("server-")
        results[name] = json.loads(path.read_text())
    return results


def list_scenarios(version, side, revision, cwd):
    """The scenarios of one side for a revision, extensions included."""
    found, listed = [], ""
    for line in run_suite(version, "list", cwd=cwd).splitlines():
        if line.endswith(":"):
            listed = line.split()[0].lower()
        elif listed == side and line.startswith("  - "):
            name, _, revisions = line[4:].partition(" ")
            if not revision or revision in revisions or "extension" in revisions:
                found.append(name)
    return found


def judge(part, results):
    """Compare with what is expected; everything must be accounted for."""
    left_out = {**EXPECTED["left_out"]["all"], **EXPECTED["left_out"].get(part["subject"], {})}
    passed, unexplained = {}, {}
    for name, checks in results.items():
        failed = [each["id"] for each in checks if each["status"] == "FAILURE"]
        if any(fnmatchcase(name, pattern) for pattern in left_out):
            continue
        failed = [each for each in failed if f"{name}:{each}" not in left_out]
        if failed:
            unexplained[name] = failed
        passed[name] = Counter(each["status"] for each in checks)["SUCCESS"]
    assert unexplained == {}
    assert passed == part["passed"]


@pytest.fixture
def suites():
    if not SUITES:
        pytest.skip("no conformance suite: `make interop` installs it")


@asynccontextmanager
async def open_server(subject, tmp_path):
    home, work = fresh_home(tmp_path), tmp_path / "work"
    work.mkdir()
    env = {**_environment(home), "PYTHONPATH": str(ROOT)}
    process = await asyncio.create_subprocess_exec(*SERVERS[subject], cwd=work, env=env, stderr=subprocess.PIPE)
    try:
        url, header = [(await process.stderr.readline()).decode().strip() for _ in range(2)]
        name, _, value = header.partition(": ")
        async with open_proxy(url, {name: value}) as address:
            yield address
        assert process.returncode is None
    finally:
        process.terminate()
        await process.communicate()


@pytest.mark.parametrize(
    "part", EXPECTED["server"], ids=lambda part: f"{part['suite']}-{part['revision']}-{part['subject']}"
)
async def test_server_passes_the_suite(suites, tmp_path, part):
    revision = ["--spec-version", part["revision"]] if part["revision"] else []
    out = tmp_path / "out"
    async with open_server(part["subject"], tmp_path) as url:
        arguments = ("server", "--url", url, "--suite", "all", "-o", str(out), *revision)
        await asyncio.to_thread(run_suite, part["suite"], *arguments, cwd=tmp_path)
    judge(part, read_results(out))


def run_client(part, folder):
    """Run the client scenarios one by one: started all at once they starve each other."""
    command = f"{sys.executable} -m tests.interop.mcp_client"
    results = {}
    for name in list_scenarios(part["suite"], "client", part["revision"], folder):
        if any(fnmatchcase(name, pattern) for pattern in EXPECTED["left_out"]["client"]):
            continue
        out = folder / "out"
        arguments = ("client", "--command", command, "--scenario", name, "-o", str(out))
        run_suite(part["suite"], *arguments, "--spec-version", part["revision"], cwd=folder)
        results |= read_results(out)
        shutil.rmtree(out)
    return results


@pytest.mark.parametrize("part", EXPECTED["client"], ids=lambda part: f"{part['suite']}-{part['revision']}")
def test_client_passes_the_suite(suites, tmp_path, part):
    judge({**part, "subject": "client"}, run_client(part, tmp_path))
