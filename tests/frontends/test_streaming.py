"""Every model call streams, watched or not, and a silent model is told from a slow one."""

import json
import time
from contextlib import contextmanager

import pytest

from retinue.testing.server import APIS, MockServer
from tests.frontends.rpc_caller import call

ASK = [{"calls": [{"name": "subagent", "arguments": {"agent": "Explore", "task": "look"}}]}, {"text": "Done."}]
LOOK = {"match": {"last_user": "look"}}
STALL = {"text": "some words", "chunk_chars": 4, "fault": {"kind": "stall", "at": "mid_text"}, **LOOK}
TRICKLE = {"text": "slow but steady words", "chunk_chars": 1, "chunk_ms": 100, **LOOK}


@contextmanager
def serve(place, *replies, api="openai-completions", crew=None, **settings):
    with MockServer.in_thread({"replies": list(replies)}) as server:
        (place.agent_dir / "models.json").write_text(json.dumps(server.models_json(api=api, model="m")))
        (place.agent_dir / "settings.json").write_text(json.dumps(settings))
        (place.agent_dir / "subagents.json").write_text(json.dumps(crew or {}))
        yield server


def are_streamed(server):
    return [request.json.get("stream", "alt=sse" in request.path) for request in server.requests]


@pytest.mark.parametrize("api", APIS)
def test_unwatched_answer_is_streamed(place, api):
    with serve(place, {"text": "Here."}, api=api) as server:
        done = place.run("-p", "hi", "--model", "mock/m")
    assert (done.stdout, are_streamed(server)) == ("Here.\n", [True])


@pytest.mark.parametrize("api", APIS)
def test_unwatched_child_is_streamed(place, api):
    with serve(place, *ASK, {"text": "Seen.", **LOOK}, api=api, crew={"surfaces": ["subagent"]}) as server:
        done = place.run("-p", "hi", "--model", "mock/m")
    assert (done.stdout, are_streamed(server)) == ("Done.\n", [True] * 3)


def test_summary_is_streamed(place):
    replies = [{"text": "word " * 4000}, {"match": {"system": "hand-over notes"}, "text": "It was about words."}]
    with serve(place, *replies) as server, call(place, "--tools", "", model="mock/m") as caller:
        caller.say("tell me a lot")
        assert "It was about words." in caller.get("compact")["summary"]
    assert len(server.requests) > 1 and all(are_streamed(server))


@pytest.mark.parametrize("api", APIS)
def test_whole_answer_to_a_stream_request_is_taken(place, api):
    with serve(place, {"text": "Here."}, api=api) as server:
        server.streams = False
        done = place.run("-p", "hi", "--model", "mock/m")
    assert (done.stdout, are_streamed(server)) == ("Here.\n", [True])


@pytest.mark.sample(3)
@pytest.mark.parametrize("runner", ["inprocess", "durable", "process"])
@pytest.mark.parametrize(
    "reply", [STALL, {"text": "late", "fault": {"kind": "no_headers"}, **LOOK}], ids=["mid", "head"]
)
def test_silent_child_is_ended(place, runner, reply):
    agent = {
        "calls": [{"name": "Agent", "arguments": {"subagent_type": "Explore", "prompt": "look", "description": "d"}}]
    }
    crew = {"runner": runner, "limits": {"idleSeconds": 1}}
    with serve(place, agent, {"text": "Done."}, {"text": "Done."}, reply, crew=crew):
        begun_s = time.monotonic()
        done = place.run("-p", "hi", "--model", "mock/m", "--mode", "json", timeout_s=20)
    assert time.monotonic() - begun_s < 15
    assert "(idle limit)" in done.stdout


def test_slow_child_is_not_silent(place):
    agent = {
        "calls": [{"name": "Agent", "arguments": {"subagent_type": "Explore", "prompt": "look", "description": "d"}}]
    }
    crew = {"limits": {"idleSeconds": 0.8}}
    with serve(place, agent, {"text": "Done."}, {"text": "Done."}, TRICKLE, crew=crew):
        done = place.run("-p", "hi", "--model", "mock/m", "--mode", "json")
    assert "(idle limit)" not in done.stdout
    assert "slow but steady words" in done.stdout
