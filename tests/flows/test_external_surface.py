"""Children in processes of their own as callers of the `subagent` tool see them."""

import json
import signal

import pytest

from retinue.testing import fresh_home, run_cli
from tests.fake_child import FakeChild, reply

LOOKER = "---\nname: looker\ndescription: d\ntools: read\n---\n\nLook around.\n"
MOCK = {"baseUrl": "http://127.0.0.1:9/v1", "api": "openai-completions", "apiKey": "k", "models": [{"id": "m-1"}]}
MODELS = {"providers": {"mock": MOCK}}
ZERO = {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0, "cost": 0, "turns": 0}


@pytest.fixture
def child(tmp_path):
    return FakeChild(tmp_path / "bin")


@pytest.fixture
def run(tmp_path, child):
    """Runs `retinue run --json` with the fake child; gives back its status, its one result and its details."""

    def start(*steps, model="mock/m-1", **settings):
        child.plan(steps)
        home, work = fresh_home(tmp_path, MODELS), tmp_path / "work"
        work.mkdir(exist_ok=True)
        agent_dir = home / ".pi" / "agent"
        (agent_dir / "agents").mkdir(exist_ok=True)
        (agent_dir / "agents" / "looker.md").write_text(LOOKER)
        known = {"runner": "pi", "piCommand": str(child.path), "subagents": settings}
        (agent_dir / "subagents.json").write_text(json.dumps(known))
        done = run_cli(["run", "--json", "looker", "Where?", "--model", model], work, home=home)
        details = json.loads(done.stdout)["details"]
        return done.status, details["results"][0], details.get("error")

    return start


@pytest.mark.spec("devkit:34", "devkit:31")
def test_usage_is_that_of_the_last_record(run):
    late = reply("Here.", usage={"input": 7, "output": 3, "cost": 0.25})
    end = {"record": {"type": "turn_end", "message": late["record"]["message"], "toolResults": []}}
    status, result, error = run(reply("a", stop="toolUse"), late, end)
    assert (status, result["exitCode"], result["output"], error) == (0, 0, "Here.", None)
    assert result["usage"] == {**ZERO, "input": 7, "output": 3, "cost": 0.25, "turns": 1}


@pytest.mark.spec("devkit:34")
def test_unknown_usage_is_zeros(run):
    _, result, _ = run({"text": "Here.\n"})
    assert (result["output"], result["usage"]) == ("Here.", ZERO)


@pytest.mark.spec("devkit:35")
def test_failure_has_code_error_and_partial(run):
    status, result, error = run(reply("Half of it", stop="toolUse"), {"error": "no such file\n"}, {"exit": 3})
    assert (status, result["exitCode"], error["code"]) == (1, 3, "SUBAGENT_FAILED")
    for part in ("exit code 3.", "Error:\nno such file", "Partial output:\nHalf of it", "Session file:\n"):
        assert part in error["message"]


@pytest.mark.spec("devkit:36")
def test_missing_program_is_a_result(run, child):
    child.path.unlink()
    status, result, error = run()
    assert (status, result["exitCode"], error["code"]) == (1, 1, "SUBAGENT_FAILED")
    assert "Failed to spawn pi: " in error["message"]


@pytest.mark.spec("devkit:37", "devkit:42")
def test_runtime_limit_is_124(run, child):
    _, result, error = run({"sleep_s": 60}, timeoutMs=700)
    assert (result["exitCode"], result["timeoutReason"], error["code"]) == (124, "runtime", "SUBAGENT_TIMEOUT")
    assert ("after 700ms." in error["message"], len(child.starts) < 2) == (True, True)


@pytest.mark.spec("devkit:38", "devkit:42")
def test_idle_limit_is_124(run, child):
    _, result, error = run({"sleep_s": 60}, idleTimeoutMs=700)
    assert (result["exitCode"], result["timeoutReason"]) == (124, "idle")
    assert ("without activity" in error["message"], len(child.starts) < 2) == (True, True)


@pytest.mark.spec("devkit:46", "devkit:47")
@pytest.mark.parametrize(
    ("step", "limit"),
    [
        ({"record": {"type": "x"}, "times": 10_001}, "persisted JSONL line hard limit (10000 lines)"),
        ({"error": "x" * 1024, "times": 1025}, "stderr hard limit (1048576 bytes)"),
    ],
)
def test_hit_caps_are_truncation(run, step, limit):
    _, result, error = run(reply("Half of it", stop="toolUse"), step, {"sleep_s": 60})
    assert (result["exitCode"], error["code"]) == (1, "SUBAGENT_OUTPUT_TRUNCATED")
    assert f"Subagent child output exceeded {limit} and was stopped." in error["message"]
    assert "Half of it" in error["message"]


@pytest.mark.spec("devkit:43")
def test_transient_failure_is_tried_again(run, child):
    child_steps = (reply(stop="error", errorMessage="429 rate limit"), {"exit": 1})
    status, result, _ = run(*child_steps)
    assert (status, result["exitCode"], len(child.starts)) == (1, 1, 2)


def test_killed_child_is_one_failure(run):
    status, result, error = run(reply("Half of it", stop="toolUse"), {"signal": signal.SIGKILL})
    assert (status, error["code"], result["exitCode"]) == (1, "SUBAGENT_FAILED", 137)


def test_pi_is_not_told_a_model_of_ours(run, child):
    status, result, error = run(reply("Here."), model="offline/rules")
    assert (status, child.starts, result["exitCode"] != 0) == (1, [], True)
    assert "runner pi cannot use 'offline/rules'" in error["message"]
