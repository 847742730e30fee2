import json
import re
import signal
import time
from pathlib import Path

import pytest

from retinue.testing import MockServer, make_repo
from retinue.testing.process import open_cli

BRANCH = pytest.mark.here("what a run on a worker writes comes home as a branch")
WRITER = "---\nname: writer\ndescription: d\ntools: read, write, bash\n---\n\nWrite it.\n"


def call(name, **arguments):
    return {"calls": [{"name": name, "arguments": arguments}]}


DONE = call("subagent_finalize", status="SUCCESS", result="The answer.")


def wait_for(condition, limit_s=30):
    deadline_s = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline_s
        time.sleep(0.02)


@pytest.fixture
def run(place):
    """Runs `retinue run --json` with a script for a model; gives back its status and its result."""

    def start(*args, replies=(), env=None):
        done = place.run("run", "--json", *args, "--model", place.script(*replies), env=env)
        return done.status, json.loads(done.stdout)

    return start


def agent(place, text, name="writer.md", folder="agents"):
    (place.agent_dir / folder).mkdir(exist_ok=True)
    (place.agent_dir / folder / name).write_text(text)


def read_session(result):
    path = Path(result["details"]["results"][0]["sessionFile"])
    return [item["message"] for item in map(json.loads, path.read_text().splitlines()) if item["type"] == "message"]


def read_prompt(result):
    """The system prompt of the run as JSON text, its tools included."""
    return json.dumps(next(message for message in read_session(result) if message["role"] == "system"))


def test_answer_goes_to_stdout(place):
    done = place.run("run", "explorer", "Where", "is it?", "--model", place.script({"text": "Here."}))
    assert (done.status, done.stdout, done.stderr) == (0, "Here.\n", "")


def test_task_may_come_by_pipe(place):
    done = place.run("run", "explorer", "--model", place.script({"text": "Here."}), stdin="Where is it?\n")
    assert (done.status, done.stdout) == (0, "Here.\n")


@pytest.mark.spec("devkit:30", "devkit:29")
def test_success_has_the_contract_shape(place, run):
    status, result = run("explorer", "Where is it?", replies=[{"text": "Here."}])
    details, (one,) = result["details"], result["details"]["results"]
    assert (status, result["content"]) == (0, [{"type": "text", "text": "Here."}])
    assert set(details) == {"mode", "runId", "results"}
    assert (details["mode"], re.fullmatch("[0-9a-f]{8}", details["runId"]) is not None) == ("single", True)
    path = one.pop("sessionFile")
    assert re.search(r"/sessions/--[^/]+--/runs/[0-9a-f]{17}/session\.jsonl$", path)
    usage = one.pop("usage")
    assert set(usage) == {"input", "output", "cacheRead", "cacheWrite", "cost", "turns"}
    items = [{"type": "text", "text": "Here."}]
    nothing = {"commands": [], "files": [], "verification": [], "commit": None, "notes": []}
    assert (one.pop("verification"), one.pop("receipts")) == ("not verified", nothing)
    assert (one, usage["turns"]) == (
        {"agent": "explorer", "task": "Where is it?", "exitCode": 0, "output": "Here.", "displayItems": items},
        1,
    )


@pytest.mark.spec("devkit:7", "devkit:5", "devkit:6")
@pytest.mark.parametrize(
    ("args", "code", "text"),
    [
        ([], "INVALID_INPUT", "Missing required parameter: agent"),
        (["explorer"], "INVALID_INPUT", "Missing required parameter: task"),
        (["explorer", " "], "INVALID_INPUT", "Missing required parameter: task"),
        (["nobody", "x"], "UNKNOWN_AGENT", "Unknown agent: nobody. Available agents: Explore, explorer, "),
    ],
)
def test_bad_calls_give_a_result(run, args, code, text):
    status, result = run(*args)
    error = result["details"]["error"]
    assert (status, result["details"]["results"], result["details"]["mode"]) == (1, [], "single")
    assert (error["code"], error["message"]) == (code, result["content"][0]["text"])
    assert error["message"].startswith(text)


def test_text_mode_tells_misuse(place):
    done = place.run("run", "explorr", "x")
    assert (done.status, done.stdout) == (2, "")
    assert "(did you mean 'explorer'?)" in done.stderr
    assert place.run("run").status == 2


def test_unreadable_agent_says_why(place, run):
    agent(place, "---\ntools: [read\n---\nx\n", "broken.md")
    error = run("broken", "x")[1]["details"]["error"]
    assert (error["code"], "broken.md:" in error["message"]) == ("UNKNOWN_AGENT", True)


@pytest.mark.spec("fleet:B8")
def test_disabled_agent_is_refused(place, run):
    agent(place, WRITER.replace("tools", "enabled: false\ntools"))
    status, result = run("writer", "x")
    assert (status, result["details"]["error"]["code"]) == (1, "SUBAGENT_DISABLED")


def test_unknown_runner_is_refused(place, run):
    agent(place, WRITER.replace("tools", "runner: docker\ntools"))
    status, result = run("writer", "x")
    error = result["details"]["error"]
    reason = "runner: found 'docker'; expected one of inprocess, durable, process, pi, cluster; the agent is disabled"
    assert (status, error["code"], reason in error["message"]) == (1, "SUBAGENT_DISABLED", True)


def test_fallback_agent_is_used(place, run):
    (place.agent_dir / "subagents.json").write_text('{"fallbackSubagent": "general-purpose"}')
    status, result = run("nobody", "x", replies=[{"text": "done"}])
    assert (status, result["details"]["results"][0]["agent"]) == (0, "general-purpose")


@pytest.mark.spec("devkit:22", "devkit:23", "devkit:26")
@pytest.mark.parametrize(
    ("flags", "setting", "tools"),
    [
        ([], {}, ["read"]),
        pytest.param(["--write"], {}, ["read", "write", "bash"], marks=BRANCH),
        pytest.param([], {"subagents": {"allowWrite": True}}, ["read", "write", "bash"], marks=BRANCH),
    ],
)
def test_writing_needs_permission(place, run, flags, setting, tools):
    agent(place, WRITER)
    (place.agent_dir / "subagents.json").write_text(json.dumps(setting))
    replies = [call("write", path="made.txt", content="x"), {"text": "done"}]
    status, result = run("writer", "write it", *flags, replies=replies)
    assert (status, (place.work / "made.txt").exists()) == (0, "write" in tools)
    assert [name for name in ("read", "write", "bash") if f'"name": "{name}"' in read_prompt(result)] == tools


@pytest.mark.spec("devkit:26")
def test_agent_without_tools_has_none(place, run):
    agent(place, WRITER.replace("read, write, bash", "write"))
    _, result = run("writer", "x", replies=[call("write", path="made.txt", content="x"), {"text": "done"}])
    assert not (place.work / "made.txt").exists()
    assert "- No tools explicitly configured" in read_prompt(result)


@pytest.mark.spec("devkit:54")
def test_prompt_has_all_parts(place, run):
    _, result = run("explorer", "Find the parser", replies=[{"text": "done"}])
    text = read_prompt(result)
    for part in ("# Agent: explorer", "You may only read", "Subagent depth: 1/1.", "- grep", "Find the parser"):
        assert part in text


@pytest.mark.spec("devkit:9", "devkit:10")
@pytest.mark.parametrize(
    ("env", "setting", "depths"),
    [({"PI_SUBAGENT_DEPTH": "1"}, {}, "1/1"), ({}, {"subagents": {"maxDepth": 0}}, "0/0")],
)
def test_depth_is_one_counter(place, run, env, setting, depths):
    (place.agent_dir / "subagents.json").write_text(json.dumps(setting))
    status, result = run("explorer", "x", env=env)
    text = f"Subagent depth exceeded ({depths}). Nested subagents are not allowed."
    error = {"code": "SUBAGENT_DEPTH_EXCEEDED", "message": text}
    assert (status, result["details"]) == (1, {"mode": "management", "results": [], "error": error})


@pytest.mark.spec("devkit:3")
def test_switched_off_tool_refuses(place, run):
    (place.agent_dir / "subagents.json").write_text('{"subagents": {"enabled": false}}')
    error = run("explorer", "x")[1]["details"]["error"]
    assert error == {"code": "SUBAGENTS_DISABLED", "message": "Subagents are disabled in configuration"}


@pytest.mark.spec("devkit:12")
def test_child_knows_its_depth(place, run):
    agent(place, WRITER)
    echo = "echo $PI_SUBAGENT_CHILD $PI_SUBAGENT_DEPTH $PI_SUBAGENT_MAX_DEPTH"
    _, result = run("writer", "x", "--write", replies=[call("bash", command=echo), {"text": "done"}])
    (said,) = [message for message in read_session(result) if message["role"] == "toolResult"]
    assert said["content"][0]["text"] == "1 1 1\n"


@pytest.mark.spec("devkit:35")
def test_failure_is_reported_in_sections(run):
    status, result = run("explorer", "x", replies=[{"error": {"kind": "auth", "message": "bad key"}}])
    text, details = result["content"][0]["text"], result["details"]
    assert (status, details["error"]) == (1, {"code": "SUBAGENT_FAILED", "message": text})
    assert re.match(r"Subagent failed with exit code 1\.\n\nError:\n.*bad key", text, re.DOTALL)
    path = details["results"][0]["sessionFile"]
    assert text.endswith(f"\n\nSession file:\n~{path.partition('/home')[2]}")


@pytest.mark.spec("devkit:37")
def test_time_limit_is_told(place):
    (place.agent_dir / "subagents.json").write_text('{"subagents": {"timeoutMs": 300}}')
    model = place.script({"text": "late", "delay_ms": 20_000})
    done = place.run("run", "explorer", "x", "--json", "--model", model)
    details = json.loads(done.stdout)["details"]
    assert (done.status, details["error"]["code"], details["results"][0]["timeoutReason"]) == (
        1,
        "SUBAGENT_TIMEOUT",
        "runtime",
    )
    assert place.run("run", "explorer", "x", "--model", model).status == 124


@pytest.mark.spec("sticky:3", "sticky:13", "sticky:16")
def test_sticky_session_goes_on(place, run):
    replies = [{"match": {"last_user": "^(one|two)"}, **DONE}]
    status, first = run("scout", "one", replies=replies)
    session_id = first["details"]["sessionId"]
    _, second = run("scout", "two", "--session-id", session_id, replies=replies)
    path = second["details"]["results"][0]["sessionFile"]
    assert (status, path) == (0, first["details"]["results"][0]["sessionFile"])
    assert re.search(rf"/home/\.pi/subagent-sessions/[0-9a-f]{{16}}/scout_{session_id}\.jsonl$", path)
    assert [message["role"] for message in read_session(second)].count("user") == 2


def test_modules_of_the_folder_are_not_imported(place):
    for name in ("queue", "shlex", "difflib", "hashlib", "uuid", "bisect", "msgspec", "sitecustomize"):
        (place.work / f"{name}.py").write_text(f"open({str(place.root / 'ran')!r}, 'a').write({name!r})\n")
    done = place.run("run", "explorer", "Where is it?", "--model", "offline/rules")
    assert (done.status, (place.root / "ran").exists()) == (0, False)


@pytest.mark.parametrize("runner", ["inprocess", "process"])
def test_scout_delivers_without_a_key(place, runner):
    (place.agent_dir / "subagents.json").write_text(json.dumps({"runner": runner}))
    (place.work / "queue.py").write_text("class Queue:\n    pass\n")
    args = ["run", "--session-id", "q", "--model", "offline/rules", "scout"]
    first, second = place.run(*args, "Where is Queue defined?"), place.run(*args, "Who uses it?")
    head = "**Status:** SUCCESS\n**Session ID:** `q`\n\n---\n\n`Queue` is "
    assert (first.status, first.stdout.startswith(f"{head}a class defined in `queue.py:1`.")) == (0, True)
    assert (second.status, second.stdout.startswith(f"{head}defined, but no use of it was found.")) == (0, True)


@pytest.mark.spec("sticky:5")
def test_finalised_error_fails_the_command(place, run):
    replies = [call("subagent_finalize", status="ERROR", error="No such thing.")]
    status, result = run("scout", "x", replies=replies)
    assert (status, "error" in result["details"], result["details"]["finalized"]["status"]) == (1, False, "ERROR")
    done = place.run("run", "scout", "x", "--model", place.script(*replies))
    assert (done.status, done.stdout, "No such thing." in done.stderr) == (1, "", True)


def test_busy_session_is_refused(place, run):
    slow = place.script({**DONE, "delay_ms": 20_000})
    args = ["run", "scout", "x", "--session-id", "mine", "--model", slow]
    with open_cli(args, place.work, home=place.home) as process:
        wait_for(lambda: list(place.home.glob(".pi/subagent-sessions/*/scout_mine.jsonl.lock")))
        status, result = run("scout", "y", "--session-id", "mine", replies=[DONE])
        assert (status, result["details"]["error"]["code"]) == (1, "SUBAGENT_FAILED")
        assert f"scout_mine.jsonl is being written by process {process.pid}" in result["content"][0]["text"]


@pytest.mark.spec("devkit:53")
def test_interrupt_gives_a_result(place):
    with MockServer.in_thread([{"text": "late", "delay_ms": 60_000}]) as server:
        (place.agent_dir / "models.json").write_text(json.dumps(server.models_json()))
        args = ["run", "--json", "explorer", "x", "--model", "mock/mock-1"]
        with open_cli(args, place.work, home=place.home) as process:
            wait_for(lambda: server.requests)
            process.send_signal(signal.SIGINT)
            out, _ = process.communicate(timeout=30)
    details = json.loads(out)["details"]
    assert (process.returncode, details["error"]["code"], details["results"][0]["exitCode"]) == (
        130,
        "SUBAGENT_FAILED",
        130,
    )
    assert "Subagent execution was cancelled by user." in details["error"]["message"]


@pytest.mark.spec("devkit:49")
def test_pipe_gets_the_whole_answer(place, run):
    answer = "\n".join(map(str, range(6000)))
    status, result = run("explorer", "x", replies=[{"text": answer}])
    assert (status, result["details"]["error"]["code"]) == (0, "SUBAGENT_OUTPUT_TRUNCATED")
    done = place.run("run", "explorer", "x", "--model", place.script({"text": answer}))
    assert (done.status, done.stdout, done.stderr) == (0, f"{answer}\n", "")


@pytest.mark.spec("sticky:2", "sticky:22")
def test_child_has_the_finalising_tool(place):
    args = ["--mode", "json", "-p", "--tools", "read,subagent_finalize", "Task: look"]
    done = place.run(*args, replies=[DONE, {"text": "never"}], env={"PI_SUBAGENT_CHILD": "1"})
    ends = [record for record in done.lines if record["type"] == "tool_execution_end"]
    assert (done.status, [end["toolName"] for end in ends], ends[0]["isError"]) == (0, ["subagent_finalize"], False)
    assert sum(record["type"] == "turn_end" for record in done.lines) == 1


@pytest.mark.spec("sticky:1")
def test_parent_has_no_finalising_tool(place):
    done = place.run("-p", "--tools", "read,subagent_finalize", "look", replies=[DONE])
    assert (done.status, "there is no tool 'subagent_finalize'" in done.stderr) == (2, True)


@pytest.mark.spec("devkit:52", "devkit:30")
def test_stream_shows_the_call(place):
    (place.agent_dir / "subagents.json").write_text('{"surfaces": ["subagent"]}')
    go, look = {"match": {"last_user": "^go"}}, {"match": {"last_user": "^look"}}
    asked = call("subagent", agent="explorer", task="look")
    replies = [{**go, **asked}, {**go, "text": "thanks"}, {**look, "text": "Found."}]
    done = place.run("--mode", "json", "-p", "go", replies=replies)
    records = [record for record in done.lines if record.get("toolName") == "subagent"]
    assert [record["type"] for record in records] == [
        "tool_execution_start",
        "tool_execution_update",
        "tool_execution_end",
    ]
    partial, whole = records[1]["partialResult"], records[2]["result"]
    assert (partial["details"]["streaming"]["turnCount"], partial["details"]["results"]) == (1, [])
    assert (whole["content"][0]["text"], whole["details"]["results"][0]["exitCode"]) == ("Found.", 0)


@pytest.mark.spec("devkit:25")
def test_agent_has_its_own_model(place):
    agent(place, WRITER.replace("tools", f"model: {place.script({'text': 'mine'})}\ntools"))
    done = place.run("run", "writer", "x")
    assert (done.status, done.stdout) == (0, "mine\n")


@pytest.mark.sample(3)
@pytest.mark.spec("sticky:17")
@pytest.mark.parametrize("session_id", ["../x", "a/b", "..", "-x", "x" * 200])
def test_session_id_cannot_escape(place, run, session_id):
    status, result = run("scout", "x", f"--session-id={session_id}")
    assert (status, result["details"]["error"]["code"]) == (1, "INVALID_INPUT")
    assert list(place.home.rglob("*scout*")) == []


def test_agent_runs_as_main(place):
    agent(place, WRITER.replace("tools", "max_turns: 1\ntools"))
    done = place.run("-p", "--agent", "writer", "go", replies=[{"text": "done"}])
    assert (done.status, done.stdout) == (0, "done\n")
    system = next(item["message"] for item in place.entries() if item.get("message", {}).get("role") == "system")
    text = json.dumps(system)
    assert "Write it." in text
    assert [name for name in ("read", "bash", "edit", "write") if f'"name": "{name}"' in text] == [
        "read",
        "bash",
        "write",
    ]


def test_main_agent_obeys_readonly(place):
    agent(place, WRITER.replace("tools", "readonly: true\ntools"))
    replies = [call("write", path="made.txt", content="x"), {"text": "done"}]
    done = place.run("-p", "--agent", "writer", "go", replies=replies)
    assert (done.status, (place.work / "made.txt").exists()) == (0, False)
    refused = place.run("-p", "--agent", "writer", "--tools", "write", "go", replies=replies)
    assert (refused.status, "write can change things, and the agent is read-only" in refused.stderr) == (2, True)


def test_unknown_main_agent_is_misuse(place):
    done = place.run("-p", "--agent", "nobody", "go", replies=[{"text": "x"}])
    assert (done.status, done.stdout) == (2, "")
    assert done.stderr.startswith("retinue: Unknown agent: nobody. Available agents: ")


def test_project_agents_need_trust(place, run):
    folder = place.work / ".pi" / "agents"
    folder.mkdir(parents=True)
    (folder / "own.md").write_text(WRITER.replace("writer", "own"))
    assert run("own", "x")[1]["details"]["error"]["code"] == "UNKNOWN_AGENT"
    assert run("own", "x", "--approve", replies=[{"text": "ok"}])[0] == 0


@pytest.mark.parametrize("dialect", ["codingcode", "sticky", "pi"])
def test_every_dialect_runs(place, run, dialect):
    folder = {"codingcode": place.home / ".codingcode" / "agents", "sticky": place.agent_dir / "subagents"}
    path = folder.get(dialect, place.agent_dir / "agents") / "mine.md"
    path.parent.mkdir(parents=True)
    path.write_text("---\nname: mine\ndescription: d\n---\n\nBe mine.\n")
    answer = call("subagent_finalize", status="SUCCESS", result="ok") if dialect == "sticky" else {"text": "ok"}
    status, result = run("mine", "x", replies=[answer])
    one = result["details"]["results"][0]
    assert (status, one["output"], "Be mine." in read_prompt(result)) == (0, "ok", True)


def test_rules_know_tools_by_any_name(place):
    folder = place.home / ".codingcode" / "agents"
    folder.mkdir(parents=True)
    (folder / "scout.md").write_text("---\nname: scout\ndescription: d\ntools: read_file, search_code\n---\nLook.\n")
    make_repo(place.work, {"mail.py": "def open_inbox():\n    return 1\n"})
    done = place.run("run", "scout", "Where is open_inbox defined?", "--model", "offline/rules")
    assert (done.status, done.stdout.splitlines()[0]) == (0, "`open_inbox` is a function defined in `mail.py:1`.")


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    "command", [["agents"], ["doctor"], ["trust"], ["models"], ["sessions"], ["run", "explorer", "x"]]
)
def test_common_flags_stand_anywhere(place, command):
    inner = place.work / "inner"
    inner.mkdir()
    for args in (["-C", "inner", "-na", *command], [*command, "-na", "-C", "inner"]):
        done = place.run(*args)
        assert done.status in (0, 1), done.stderr


@pytest.mark.parametrize("model", ["nosuch/model", "scripted/nowhere.json"])
def test_json_is_printed_without_a_model(place, model):
    done = place.run("run", "--json", "--model", model, "explorer", "look")
    result = json.loads(done.stdout)
    assert (done.status, result["details"]["error"]["code"], result["details"]["results"]) == (1, "SUBAGENT_FAILED", [])
    assert result["content"][0]["text"] == result["details"]["error"]["message"]
