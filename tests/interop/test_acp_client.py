"""The protocol's TypeScript library drives `retinue acp`."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from retinue.testing.process import _command, _environment, fresh_home

STEPS = Path(__file__).with_name("acp_steps.mjs")
# Looked for at once: the tests' own environment no longer says where it is.
SDK = os.environ.get("RETINUE_ACP_DIR", "")


@pytest.mark.interop
def test_typescript_client_works_with_a_session(tmp_path: Path) -> None:
    node = shutil.which("node")
    if not SDK or node is None:
        pytest.skip("no ACP library: `make interop` installs it")
    home, work = fresh_home(tmp_path), tmp_path / "work"
    work.mkdir()
    script = tmp_path / "script.json"
    call = {"name": "write", "arguments": {"path": "new.txt", "content": "fresh\n"}}
    script.write_text(json.dumps({"replies": [{"calls": [call]}, {"text": "done"}]}))
    entry = Path(SDK, "node_modules/@agentclientprotocol/sdk/dist/v1/stable/acp.js")
    argv = [node, STEPS, entry, work, *_command(), "acp", "--model", f"scripted/{script}"]
    env = {**_environment(home), "PATH": os.environ["PATH"]}
    done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert (seen["hello"], seen["stop"], seen["listed"]) == ("retinue", "end_turn", [seen["sessionId"]])
    [asked] = seen["asked"]
    diff = {"type": "diff", "path": str(work / "new.txt"), "newText": "fresh\n"}
    assert asked == {"kinds": ["allow_once", "allow_always", "reject_once"], "content": [diff]}
    kinds = [update["sessionUpdate"] for update in seen["updates"]]
    replayed = ["user_message_chunk", "tool_call", "tool_call_update", "agent_message_chunk"]
    assert kinds[seen["live"] :] == replayed
    assert (work / "new.txt").read_text() == "fresh\n"
