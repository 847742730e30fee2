"""What listens: nothing does that was not asked to, so nobody but the user can talk to a run."""

import json
import os
import subprocess
import sys

import pytest

from tests.needs import need_strace

START = {"subagent_type": "Explore", "prompt": "leaf", "description": "d"}
REPLIES = (
    {"match": {"last_user": "^go"}, "calls": [{"name": "Agent", "arguments": START}]},
    {"match": {"last_user": "^leaf"}, "calls": [{"name": "bash", "arguments": {"command": "true"}}]},
    {"match": {"last_user": "^"}, "text": "done"},
)
WAYS = {
    "text": (("-p", "go"), ""),
    "json": (("--mode", "json", "-p", "go"), ""),
    "rpc": (("--mode", "rpc"), json.dumps({"id": "1", "type": "prompt", "message": "go"}) + "\n"),
    "process": (("--mode", "json", "-p", "go"), ""),
    "mcp": (("mcp",), ""),
}


@pytest.mark.sample(3)
@pytest.mark.attack("D17")
@pytest.mark.parametrize("name", WAYS)
def test_no_run_listens(place, name):
    strace = need_strace()
    words, said = WAYS[name]
    if name == "process":
        (place.agent_dir / "subagents.json").write_text(json.dumps({"runner": "process"}))
    log = place.root / "log"
    command = [strace, "-f", "-qq", "-e", "trace=listen,bind", "-e", "signal=none", "-o", str(log)]
    model = [] if name == "mcp" else ["--model", place.script(*REPLIES)]
    command += [sys.executable, "-m", "retinue", *words, *model]
    environment = {"PATH": os.environ["PATH"], "HOME": str(place.home), "RETINUE_NO_LOCAL": "1"}
    done = subprocess.run(
        command, cwd=place.work, env=environment, input=said, capture_output=True, text=True, timeout=60, check=False
    )
    heard = [line for line in log.read_text().splitlines() if "listen(" in line or "AF_INET" in line]
    assert (done.returncode, heard) == (0, []), done.stderr
    assert name == "mcp" or "done" in done.stdout or name == "rpc"
