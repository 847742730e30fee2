"""Every command of the guide to clusters, in its order: with a server of our own in the place of the system's."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
GUIDE = ROOT / "docs" / "guides" / "cluster.md"
SH = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)
JSON = re.compile(r"^```json\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# What the guide asks the system to do is done to our server, or not at all.
SUDO = """#!/bin/bash
case "$1" in
  -u) shift 2; exec "$@" ;;
  tee) exec "$@" ;;
  apt-get|systemctl) exit 0 ;;
  *) echo "sudo: unexpected: $*" >&2; exit 1 ;;
esac
"""
PIP = """#!/bin/bash
[ "$*" = "install retinue[cluster]" ]
"""


@pytest.fixture
def guide(postgres, home, tmp_path):
    """Runs a block of commands as the guide has them, but for the address."""
    programs = tmp_path / "programs"
    programs.mkdir()
    for name, text in (("sudo", SUDO), ("pip", PIP)):
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{programs}:{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PGHOST": "127.0.0.1",
        "PGPORT": str(postgres.port),
        "PGUSER": "retinue",
        "PGDATABASE": "postgres",
        "PI_OFFLINE": "1",
    }

    subprocess.run(["dropdb", "--if-exists", "retinue"], env=environment, check=True, capture_output=True)

    def adapt(text):
        # The role is there already: it is the one that made the server.
        text = text.replace("CREATE ROLE retinue ", "ALTER ROLE retinue ").replace(
            "10.0.0.5:5432", f"127.0.0.1:{postgres.port}"
        )
        return text.replace("10.0.0.5", f"127.0.0.1:{postgres.port}")

    def start(text):
        return subprocess.Popen(
            ["bash", "-ec", adapt(text)], cwd=ROOT, env=environment, text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip

    def run(text):
        with start(text) as process:
            said, _ = process.communicate(timeout=60)
        assert process.returncode == 0, f"{text}\n{said}"
        return said

    start.adapt, start.run = adapt, run
    return start


@pytest.mark.timeout(120)
def test_guide_works_as_written(guide, agent_dir, home):
    text = GUIDE.read_text()
    blocks = SH.findall(text)
    places = [index for index, block in enumerate(blocks) if block.endswith("retinue worker\n")]
    (place,) = places
    for block in blocks[:place]:
        guide.run(block)
    worker = guide(blocks[place].replace("retinue worker", "exec retinue worker"))
    try:
        assert re.match(r"retinue: worker \S+ takes up to 20 runs from ", worker.stdout.readline())
        (agent_dir / "subagents.json").write_text(guide.adapt(JSON.findall(text)[0]))
        said = [guide.run(block) for block in blocks[place + 1 :]]
    finally:
        worker.terminate()
        rest, _ = worker.communicate(timeout=60)
    assert (worker.returncode, rest) == (143, "")
    assert "1 worker running" in said[0]
    assert "1 worker, 0 of 20 slots busy" in said[0]
    assert "sessions/" in said[1]
    assert (home / ".pgpass").stat().st_mode & 0o777 == 0o600
    assert "nothing finished more than 7 days ago" in said[-1]
