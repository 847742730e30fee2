"""How long the program waits for a provider, and what it says meanwhile, against servers on loopback."""

import json
import signal
import time
from contextlib import contextmanager

import pytest

from retinue import Retinue
from retinue.testing.server import APIS, MockServer
from tests.frontends.client_world import open_mcp_client
from tests.frontends.rpc_caller import call

NEVER = {"text": "late", "fault": {"kind": "no_headers"}}
SLOW = {"text": "word " * 400, "chunk_chars": 5, "chunk_ms": 50}
CHILD = {"agent": "Explore", "task": "look"}
ONCE = {"retry": {"enabled": False}}


@contextmanager
def serve(place, *replies, api="openai-completions", **settings):
    """A server as the only provider, and settings of the user."""
    with MockServer.in_thread({"replies": list(replies)}) as server:
        (place.agent_dir / "models.json").write_text(json.dumps(server.models_json(api=api, model="m")))
        (place.agent_dir / "settings.json").write_text(json.dumps(settings))
        yield server


def ask(place, *args, timeout_s=10, **options):
    return place.run(*args, "--model", "mock/m", timeout_s=timeout_s, **options)


@pytest.mark.sample(4)
@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("mode", ["text", "json"])
def test_headers_are_awaited_as_set(place, api, mode):
    with serve(place, NEVER, api=api, httpIdleTimeoutMs=300, **ONCE):
        done = ask(place, "-p", "--mode", mode, "hi")
    assert "mock/m: no answer within 0.3 s" in done.stdout + done.stderr


@pytest.mark.sample(4)
@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("mode", ["text", "json"])
def test_whole_call_is_limited_as_set(place, api, mode):
    with serve(place, SLOW, api=api, retry={"enabled": False, "provider": {"timeoutMs": 400}}):
        done = ask(place, "-p", "--mode", mode, "hi")
    assert "not finished within 0.4 s; raise the setting retry.provider.timeoutMs" in done.stdout + done.stderr


@pytest.mark.parametrize("runner", ["inprocess", "process", "durable"])
@pytest.mark.parametrize("reply", [NEVER, SLOW], ids=["headers", "whole"])
def test_limits_hold_for_each_runner(place, runner, reply):
    (place.agent_dir / "subagents.json").write_text(json.dumps({"runner": runner, "surfaces": ["subagent"]}))
    parent = [{"calls": [{"name": "subagent", "arguments": CHILD}]}, {"text": "Done."}]
    child = {**reply, "match": {"last_user": "look"}}
    limits = {"httpIdleTimeoutMs": 300} if reply is NEVER else {}
    retry = {"enabled": False, "provider": {"timeoutMs": 900}}
    with serve(place, *parent, child, **limits, retry=retry) as server:
        done = ask(place, "-p", "go", timeout_s=20)
    assert done.stdout == "Done.\n", done.stderr
    told = json.dumps(server.requests[-1].json["messages"][-1])
    assert ("within 0.3 s" if reply is NEVER else "within 0.9 s") in told


def test_limits_hold_over_rpc(place):
    with serve(place, NEVER, httpIdleTimeoutMs=300, **ONCE), call(place, model="mock/m") as caller:
        caller.get("prompt", message="hi")
        ended = caller.read_until("agent_end")
    assert "no answer within 0.3 s" in ended["messages"][-1]["errorMessage"]


async def test_limits_hold_over_mcp(place):
    with serve(place, NEVER, httpIdleTimeoutMs=300, **ONCE):
        async with open_mcp_client(place, "--model", "mock/m") as client:
            told = await client.call_tool("subagent", CHILD)
    assert "no answer within 0.3 s" in told.content[0].text


async def test_limits_hold_for_programs(tmp_path, agent_dir):
    agent_dir.mkdir(parents=True, exist_ok=True)
    async with MockServer({"replies": [NEVER]}) as server:
        (agent_dir / "models.json").write_text(json.dumps(server.models_json(model="m")))
        limits = {"http_idle_timeout_ms": 300, "retry": {"enabled": False}}
        async with Retinue(tmp_path, model="mock/m", **limits) as crew:
            assert "no answer within 0.3 s" in (await crew.prompt("hi")).error


BUSY = {"text": "late", "fault": {"kind": "status", "code": 503}}
QUICK = {"retry": {"baseDelayMs": 100}}
LONGEST_S = 0.1 + 0.2 + 0.4


def test_each_prompt_waits_anew(place):
    with serve(place, BUSY, **QUICK) as server, call(place, model="mock/m") as caller:
        for number in (1, 2, 3):
            begun_s = time.monotonic()
            caller.say("hi")
            assert len(server.requests) == 4 * number
            assert time.monotonic() - begun_s < LONGEST_S + 1
        delays = [record["delayMs"] for record in caller.seen if record["type"] == "auto_retry_start"]
    assert [delay <= most for delay, most in zip(delays, [100, 200, 400] * 3, strict=True)] == [True] * 9


def test_each_attempt_of_a_subagent_waits_anew(place):
    with serve(place, BUSY, **QUICK) as server:
        begun_s = time.monotonic()
        done = ask(place, "run", "Explore", "look")
    assert (done.status, len(server.requests)) == (1, 8)
    assert time.monotonic() - begun_s < 2 * LONGEST_S + 2
    assert done.stderr.count("retrying in") == 6


def test_wait_is_shown_on_standard_error(place):
    with serve(place, BUSY, **QUICK):
        done = ask(place, "-p", "hi")
    lines = [line for line in done.stderr.splitlines() if "retrying in" in line]
    assert [line[: line.index("; ")] for line in lines] == [
        "retinue: mock/m: HTTP 503 (request req_mock): server_error: scripted status 503"
    ] * 3
    assert lines[2].endswith(" s (3 of 3)")
    assert (done.stdout, done.status) == ("", 1)


def test_told_wait_holds_for_the_next_prompt(place):
    told = {"kind": "status", "code": 429, "headers": {"retry-after": "1.5"}}
    with serve(place, {"text": "Here.", "fault": {**told, "times": 1}}, **ONCE), call(place, model="mock/m") as caller:
        caller.say("hi")
        begun_s = time.monotonic()
        assert caller.say("hi") == "Here."
        assert time.monotonic() - begun_s > 1
        assert "retinue: mock asked to wait; the next call follows in 1." in caller.kill(signal.SIGTERM)[1]
