"""`retinue -p` at a provider's usage limit: waits, or ends with status 75 and continues later."""

import json
import re
import time
from contextlib import contextmanager
from email.utils import formatdate

import pytest

from retinue.testing.server import APIS, MockServer

RESUME = re.compile(r"Resume with: retinue -p --session (\S+) --wait")
TAG = re.compile(r'<active_agent name=\\"(\w+)\\" agent_id=\\"(\w+)\\" (?:parent_agent_id=\\"(\w+)\\")?')
FIRST = {"calls": [{"name": "ls", "arguments": {}}]}
SHORT = {"retry": {"maxAgentDelayMs": 500}}
SPAWN = {"name": "Agent", "arguments": {"subagent_type": "Explore", "prompt": "look around", "description": "look"}}

SLOW_CHILD = """
import os, time

def register(api):
    if os.environ.get("PI_SUBAGENT_CHILD"):
        time.sleep(1)
"""


def limit(wait_s, text="late", times=1, **match):
    error = {"message": "usage limit reached", "kind": "rate", "status": 429, "retry_after_s": wait_s, "times": times}
    return {"text": text, "error": error, **({"match": match} if match else {})}


@contextmanager
def serve(place, *replies, api="openai-completions", **settings):
    with MockServer.in_thread({"replies": list(replies)}) as server:
        (place.agent_dir / "models.json").write_text(json.dumps(server.models_json(api=api, model="m")))
        (place.agent_dir / "settings.json").write_text(json.dumps({**SHORT, **settings}))
        yield server


def ask(place, *args, **options):
    return place.run("-p", *args, "--model", "mock/m", timeout_s=20, **options)


def last_line(done):
    return done.stderr.rstrip("\n").rpartition("\n")[2]


@pytest.mark.sample(2)
@pytest.mark.parametrize("api", APIS)
def test_limit_ends_with_status_and_command(place, api):
    with serve(place, FIRST, limit(1.2, "Two files."), api=api) as server:
        done = ask(place, "How many files?")
        assert (done.status, done.stdout) == (75, "")
        found = RESUME.fullmatch(last_line(done))
        assert found is not None and len(server.requests) == 2
        again = place.run("-p", "--session", found[1], "--wait", timeout_s=20)
        assert (again.status, again.stdout) == (0, "Two files.\n")
        assert len(server.requests) == 3


def test_first_request_at_limit_is_kept(place):
    with serve(place, limit(1.2, "Hello.")) as server:
        done = ask(place, "Say hello")
        assert done.status == 75
        again = place.run("-p", "-c", "--wait", timeout_s=20)
        assert (again.status, again.stdout, len(server.requests)) == (0, "Hello.\n", 2)


@pytest.mark.parametrize("chosen", [("--session", "here/main.jsonl"), ("--session-dir", "here")])
def test_session_elsewhere_is_named_by_its_path(place, chosen):
    with serve(place, limit(1.2, "Hello.")):
        done = ask(place, *chosen, "Say hello")
        found = RESUME.fullmatch(last_line(done))
        assert found is not None and found[1].startswith(str(place.work / "here"))
        again = place.run("-p", "--session", found[1], "--wait", timeout_s=20)
        assert (again.status, again.stdout) == (0, "Hello.\n")


def test_wait_continues_after_reset(place):
    with serve(place, limit(1.2, "Hello.")) as server:
        began_s = time.monotonic()
        done = ask(place, "Say hello", "--wait")
        assert (done.status, done.stdout, len(server.requests)) == (0, "Hello.\n", 2)
        assert time.monotonic() - began_s > 1.2
        assert "mock: limit until" in done.stderr


@pytest.mark.parametrize("behind_s", [5 * 3600, -5 * 3600])
def test_times_are_read_by_the_providers_clock(place, behind_s):
    there_s = time.time() - behind_s
    headers = {"date": formatdate(there_s, usegmt=True), "retry-after": formatdate(there_s + 2, usegmt=True)}
    with serve(place, {"text": "Hello.", "fault": {"kind": "status", "code": 429, "headers": headers, "times": 1}}):
        began_s = time.monotonic()
        done = ask(place, "Say hello", "--wait")
        assert (done.status, done.stdout) == (0, "Hello.\n")
        assert "mock: limit until" in done.stderr and time.monotonic() - began_s > 1


def test_closed_gate_sends_nothing(place):
    with serve(place, limit(3600, "Hello.", 9)) as server:
        assert ask(place, "Say hello").status == 75
        again = ask(place, "-c")
        assert (again.status, len(server.requests)) == (75, 1)
        assert RESUME.fullmatch(last_line(again))


def test_children_wait_and_continue(place):
    child = {"match": {"last_user": "look around"}}
    replies = [{"calls": [SPAWN]}, {"text": "Started."}, {"text": "All done."}]
    replies = [
        {"calls": [SPAWN]},
        {**limit(1.5, "Child report."), **child},
        limit(1.5, "Started."),
        {"text": "All done."},
        {"text": "All done."},
    ]
    with serve(place, *replies):
        done = ask(place, "--mode", "json", "Delegate")
        records = [json.loads(line) for line in done.stdout.splitlines()]
        waiting = [record for record in records if record["type"] == "subagents:waiting"]
        assert done.status == 75
        assert waiting and all(record["provider"] == "mock" and record["until"] > 1e12 for record in waiting)
        found = RESUME.fullmatch(last_line(done))
        again = place.run("-p", "--session", found[1], "--wait", timeout_s=20)
        assert (again.status, again.stdout) == (0, "All done.\n")


def test_no_credit_is_no_limit(place):
    error = {"message": "insufficient_quota", "kind": "rate", "status": 429, "retry_after_s": 3600, "times": 9}
    with serve(place, {"text": "x", "error": error}) as server:
        done = ask(place, "Say hello")
        assert (done.status, len(server.requests)) == (1, 1)
        assert "no credit or quota" in done.stderr


def test_nothing_to_continue_is_usage_error(place):
    with serve(place, {"text": "Hello."}):
        assert ask(place, "Say hello").status == 0
        done = ask(place, "-c")
        assert (done.status, done.stdout) == (2, "")
        assert "no interrupted work" in done.stderr


def test_process_child_waits_and_continues(place):
    (place.agent_dir / "subagents.json").write_text(json.dumps({"runner": "process"}))
    child = {"match": {"last_user": "look around"}}
    replies = [
        {"calls": [SPAWN]},
        {**limit(1.5, "Child report."), **child},
        {"text": "Started."},
        {"text": "All done."},
    ]
    with serve(place, *replies):
        done = ask(place, "--mode", "json", "--wait", "Delegate")
        names = [record["type"] for record in done.lines if record["type"].startswith("subagents:")]
        assert done.status == 0, done.stderr
        assert names == [
            "subagents:created",
            "subagents:started",
            "subagents:waiting",
            "subagents:continued",
            "subagents:completed",
        ]
        ends = [record for record in done.lines if record["type"] == "subagents:completed"]
        assert "Child report." in ends[0]["result"]


def test_slow_start_of_a_probe_is_not_ended(place):
    (place.agent_dir / "subagents.json").write_text(json.dumps({"runner": "process"}))
    (place.agent_dir / "extensions").mkdir()
    (place.agent_dir / "extensions" / "slow.py").write_text(SLOW_CHILD)
    late = limit(1.2, "Child report.", last_user="look around")
    with serve(place, {"calls": [SPAWN, SPAWN]}, late, *[{"text": "All done."}] * 3) as server:
        done, ends_s = ask(place, "Delegate"), time.monotonic() + 30
        while done.status == 75 and time.monotonic() < ends_s:
            done = place.run("-p", "-c", timeout_s=20)
        of_child = [request for request in server.requests if b"active_agent name" in request.body]
        assert (done.status, done.stdout, len(of_child)) == (0, "All done.\n", 4), done.stderr


def test_process_waits_for_the_provider_of_its_child(place):
    agents = place.agent_dir / "agents"
    agents.mkdir()
    (agents / "lead.md").write_text("---\ndescription: leads\nallowed_subagents: leaf\nmodel: second/n\n---\nLead.")
    (agents / "leaf.md").write_text("---\ndescription: works\nmodel: mock/m\n---\nWork.")
    spawn = {"calls": [{"name": "Agent", "arguments": {"subagent_type": "leaf", "prompt": "dig"}}]}
    lead = {"calls": [{"name": "Agent", "arguments": {"subagent_type": "lead", "prompt": "look around"}}]}
    said = {"text": "Started."}
    pairs = [("^look around", spawn), ("^look around", said), ("Delegate", lead), ("Delegate", said)]
    others = {"replies": [{**reply, "match": {"last_user": words}} for words, reply in pairs]}
    with MockServer.in_thread(others) as other, serve(place, {**limit(3600), "match": {"last_user": "dig"}}) as server:
        add_second(place, other, fallbackModels=[], runner="process")
        done = place.run("-p", "--mode", "json", "--model", "second/n", "Delegate", timeout_s=20)
        waiting = [(record.get("description"), record["provider"]) for record in done.lines if "until" in record]
        assert (done.status, waiting) == (75, [("look around", "mock")]), done.stderr
        bodies = [request.body.decode() for request in (*other.requests, *server.requests)]
        tags = [TAG.search(body) for body in bodies if TAG.search(body)]
        lead, leaf = (next(tag for tag in tags if tag[1] == name) for name in ("lead", "leaf"))
        assert (lead[3], leaf[3]) == (None, lead[2])


def test_processes_tell_each_other_of_a_limit(place):
    (place.agent_dir / "subagents.json").write_text(json.dumps({"runner": "process"}))
    tasks = [{"subagent_type": "general-purpose", "prompt": f"look {name}", "description": name} for name in "ab"]
    slow = {"name": "bash", "arguments": {"command": "sleep 5"}}
    replies = [
        {"calls": [{"name": "Agent", "arguments": task} for task in tasks]},
        {"text": "Started."},
        {**limit(3600, last_user="^look a"), "delay_ms": 3000},
        {"calls": [slow], "match": {"last_user": "^look b"}},
        {"text": "Not asked for.", "match": {"last_user": "^look b"}},
    ]
    with serve(place, *replies) as server:
        done = ask(place, "--mode", "json", "Delegate")
        waiting = [record["description"] for record in done.lines if record["type"] == "subagents:waiting"]
        assert (done.status, sorted(waiting), len(server.requests)) == (75, ["a", "b"], 4)


def add_second(place, other, **settings):
    models = json.loads((place.agent_dir / "models.json").read_text())
    models["providers"] |= other.models_json(provider="second", model="n")["providers"]
    (place.agent_dir / "models.json").write_text(json.dumps(models))
    (place.agent_dir / "subagents.json").write_text(json.dumps({"fallbackModels": ["second/n"], **settings}))


def test_process_child_asks_the_fallback_model(place):
    replies = [{"calls": [SPAWN]}, {**limit(3600), "match": {"last_user": "look"}}, {"text": "Started."}]
    others = {"replies": [FIRST, {"text": "From the other."}, {"text": "All done."}]}
    with MockServer.in_thread(others) as other, serve(place, *replies) as server:
        add_second(place, other, fallbackAfterSeconds=1, runner="process")
        done = ask(place, "--mode", "json", "--wait", "Delegate")
        (end,) = [record for record in done.lines if record["type"] == "subagents:completed"]
        assert (done.status, end["result"]) == (0, "From the other."), done.stderr
        assert (len(server.requests), len(other.requests)) == (3, 3)
        assert re.search(r"retinue: agent Explore#\w+: mock: limit reached; continuing with second/n\n", done.stderr)


def test_fallback_model_answers(place):
    others = {"replies": [FIRST, FIRST, {"text": "From the other."}]}
    with MockServer.in_thread(others) as other, serve(place, limit(3600, "x", 9)) as server:
        add_second(place, other, fallbackAfterSeconds=0)
        done = ask(place, "--wait", "How many files?")
        assert (done.status, done.stdout) == (0, "From the other.\n")
        assert (len(server.requests), len(other.requests)) == (1, 3)
        assert "continuing with second/n" in done.stderr


def test_single_agent_says_that_it_waits(place):
    with serve(place, limit(1.2, "Two files.")):
        done = place.run("run", "Explore", "How many files?", "--model", "mock/m", timeout_s=20)
        assert (done.status, done.stdout) == (0, "Two files.\n")
        (line,) = done.stderr.strip().splitlines()
        assert line.startswith("retinue: mock: limit until ") and line.endswith("; waiting")
