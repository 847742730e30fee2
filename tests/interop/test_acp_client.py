"""The protocol's libraries for TypeScript and Python drive `retinue acp` with the same steps."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from retinue.testing.process import _command, _environment, fresh_home

HERE = Path(__file__).parent
# Looked for at once: the tests' own environment no longer says where it is.
SDK = os.environ.get("RETINUE_ACP_DIR", "")
TODO = [{"content": "look", "status": "in_progress"}, {"content": "write", "status": "pending"}]
CALLS = [
    {"name": "todo_write", "arguments": {"todos": TODO}},
    {"name": "read", "arguments": {"path": "a.txt"}},
    {"name": "write", "arguments": {"path": "new.txt", "content": "fresh\n"}},
    {
        "name": "Agent",
        "arguments": {"subagent_type": "general-purpose", "prompt": "look", "description": "a look"},
    },
]
REPLIES = [
    {"match": {"last_user": "^work"}, "thinking": "hm", "text": "begin", "calls": CALLS},
    {"match": {"last_user": "^work"}, "text": "started"},
    {"match": {"last_user": "^look"}, "calls": [{"name": "ls", "arguments": {"path": "."}}]},
    {"match": {"last_user": "^look"}, "text": "report"},
    {"match": {"last_user": "task-notification"}, "text": "all done"},
    {"match": {"last_user": "^wait"}, "text": "slow work", "chunk_chars": 4, "chunk_ms": 30_000},
]


def find_client(kind: str) -> list[str]:
    if kind == "python":
        return [sys.executable, str(HERE / "acp_steps.py")]
    node = shutil.which("node")
    if not SDK or node is None:
        pytest.skip("no ACP library: `make interop` installs it")
    entry = Path(SDK, "node_modules/@agentclientprotocol/sdk/dist/v1/stable/acp.js")
    return [node, str(HERE / "acp_steps.mjs"), str(entry)]


@pytest.fixture(scope="module", params=["typescript", "python"])
def seen(request, tmp_path_factory):
    """What a client saw, and where it worked."""
    root = tmp_path_factory.mktemp("acp")
    home, work = fresh_home(root), root / "work"
    work.mkdir()
    (work / "a.txt").write_text("stored\n")
    script = root / "script.json"
    script.write_text(json.dumps({"replies": REPLIES}))
    argv = [*find_client(request.param), work, *_command(), "acp", "--model", f"scripted/{script}"]
    env = {**_environment(home), "PATH": os.environ["PATH"]}
    done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return {**json.loads(done.stdout), "work": work}


def find(seen, kind, start=""):
    updates = [each for each in seen["updates"] if each["sessionUpdate"] == kind]
    return [each for each in updates if each.get("toolCallId", "").startswith(start)] if start else updates


@pytest.mark.interop
def test_client_opens_lists_and_loads_a_session(seen):
    assert (seen["hello"], seen["stop"], seen["listed"]) == ("retinue", "end_turn", [seen["sessionId"]])
    assert (seen["options"], seen["modes"]) == (["mode", "model", "thought_level"], ["ask", "plan", "auto"])
    assert set(seen["replayed"]) == {
        *("user_message_chunk", "agent_message_chunk", "agent_thought_chunk", "tool_call", "tool_call_update", "plan")
    }


@pytest.mark.interop
def test_client_sees_text_thoughts_plan_and_commands(seen):
    text = "".join(each["content"]["text"] for each in find(seen, "agent_message_chunk"))
    assert text == "beginstartedall done"
    assert "".join(each["content"]["text"] for each in find(seen, "agent_thought_chunk")) == "hm"
    assert find(seen, "plan")[0]["entries"] == [{**item, "priority": "medium"} for item in TODO]
    assert find(seen, "available_commands_update")


@pytest.mark.interop
def test_client_decides_about_a_change_and_makes_it(seen):
    path = str(seen["work"] / "new.txt")
    diff = {"type": "diff", "path": path, "newText": "fresh\n"}
    assert seen["asked"] == [{"kinds": ["allow_once", "allow_always", "reject_once"], "content": [diff]}]
    call = next(each for each in find(seen, "tool_call") if each["kind"] == "edit")
    assert call["locations"] == [{"path": path}]
    last = find(seen, "tool_call_update", call["toolCallId"])[-1]
    assert (last["status"], last["content"]) == ("completed", [diff])
    assert ["write", path] in seen["files"] and Path(path).read_text() == "fresh\n"


@pytest.mark.interop
def test_client_gives_unsaved_text(seen):
    assert ["read", str(seen["work"] / "a.txt")] in seen["files"]
    assert any("unsaved" in json.dumps(each) for each in find(seen, "tool_call_update"))


@pytest.mark.interop
def test_client_sees_a_subagent_at_work(seen):
    [call] = find(seen, "tool_call", "run-")
    shown = find(seen, "tool_call_update", call["toolCallId"])
    assert any("ls ." in json.dumps(each) for each in shown)
    assert shown[-1]["status"] == "completed" and "report" in json.dumps(shown[-1])


@pytest.mark.interop
def test_client_cancels_and_asks_for_an_unknown_session(seen):
    assert (seen["cancelled"], seen["unknown"]) == ("cancelled", -32002)
