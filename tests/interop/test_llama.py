"""The program in front of a real llama.cpp with one slot."""

import asyncio
import json
import signal
import time

import pytest

from retinue import Retinue
from retinue.testing.process import open_cli
from tests.interop.model_world import Place, open_llama, read_answer, read_text

APIS = ("openai-completions", "openai-responses", "anthropic-messages")
BRIEF = ("--no-tools", "--system-prompt", "Answer in a few words.")
ENDLESS = {"maxTokens": 100_000, "contextWindow": 4096, "samplingParams": {"ignore_eos": True}}


@pytest.fixture(scope="module")
def address(llama):
    with open_llama(4096) as opened:
        yield opened


@pytest.mark.parametrize("api", APIS)
def test_reply_is_streamed(api, address, tmp_path):
    place = Place(tmp_path, address, api, "smollm2")
    result = place.run("--mode", "json", "-p", *BRIEF, "Say hello.")
    answer = read_answer(result)
    pieces = [
        line["assistantMessageEvent"]["delta"]
        for line in result.lines
        if line["type"] == "message_update" and line["assistantMessageEvent"]["type"] == "text_delta"
    ]
    assert len(pieces) > 1
    assert "".join(pieces) == read_text(answer) != ""
    assert answer["usage"]["input"] + answer["usage"]["cacheRead"] > 10
    assert answer["usage"]["output"] >= len(pieces) > 0


@pytest.mark.parametrize("api", APIS)
def test_conversation_goes_on(api, address, tmp_path):
    place = Place(tmp_path, address, api, "smollm2")
    for question in ("My name is Ada.", "What is my name?"):
        result = place.run("-p", "--continue", *BRIEF, question)
        assert (result.status, bool(result.stdout.strip())) == (0, True), result.stderr


@pytest.mark.parametrize("api", APIS)
def test_too_long_prompt_is_explained(api, address, tmp_path):
    place = Place(tmp_path, address, api, "smollm2", contextWindow=100_000)
    result = place.run("-p", *BRIEF, "word " * 6000)
    assert result.status == 1
    assert "accepts 4096 tokens, not 100000" in result.stderr
    assert "the message has 5000 tokens or more" in result.stderr


@pytest.mark.parametrize("api", APIS[:2])
def test_endless_output_ends(api, address, tmp_path):
    place = Place(tmp_path, address, api, "smollm2", **{**ENDLESS, "maxTokens": 300})
    answer = read_answer(place.run("--mode", "json", "-p", *BRIEF, "Count."))
    assert answer["usage"]["output"] == 300
    # llama.cpp calls every response `completed`, also one that was cut off.
    assert answer["stopReason"] == ("length" if api == "openai-completions" else "stop")


@pytest.mark.parametrize("api", APIS[:2])
@pytest.mark.parametrize("by", [signal.SIGINT, signal.SIGTERM])
def test_abort_frees_the_slot(api, by, address, tmp_path):
    place = Place(tmp_path, address, api, "smollm2", **ENDLESS)
    args = ["--model", place.model, "--mode", "json", "-p", *BRIEF, "Count."]
    with open_cli(args, place.work, home=place.home) as process:
        for line in process.stdout:
            if b'"text_delta"' in line:
                break
        began_s = time.monotonic()
        process.send_signal(by)
        rest = process.stdout.read()
        process.wait(20)
        assert time.monotonic() - began_s < 5
    last = [json.loads(line) for line in rest.splitlines() if b'"message_end"' in line][-1]["message"]
    assert (last["stopReason"], bool(read_text(last))) == ("aborted", True)
    began_s = time.monotonic()
    again = Place(tmp_path / "again", address, api, "smollm2", maxTokens=4)
    read_answer(again.run("--mode", "json", "-p", *BRIEF, "Hello?"))
    # The reply that was given up would have taken longer than that, and there is one slot.
    assert time.monotonic() - began_s < 15


@pytest.mark.parametrize("api", APIS)
async def test_five_agents_share_one_slot(api, address, tmp_path, monkeypatch):
    place = Place(tmp_path, address, api, "smollm2")
    monkeypatch.setenv("HOME", str(place.home))
    monkeypatch.setenv("PI_CODING_AGENT_DIR", str(place.home / ".pi" / "agent"))
    async with Retinue(cwd=str(place.work), model=place.model, max_concurrent=5) as crew:
        runs = [await crew.spawn("Explore", f"Say the number {n}.", description=f"number {n}") for n in range(5)]
        outcomes = await asyncio.gather(*[run.wait(120) for run in runs])
    assert [(outcome.status, outcome.error) for outcome in outcomes] == [("completed", "")] * 5
    assert all(outcome.text.strip() for outcome in outcomes)


@pytest.mark.timeout(400)
def test_small_window_never_ends_a_session(address, tmp_path):
    place = Place(tmp_path, address, "openai-completions", "smollm2", contextWindow=4096, maxTokens=32)
    told = []
    for number in range(5):
        words = f"Part {number}: " + "some words " * 400
        result = place.run("--mode", "json", "-p", "--continue", *BRIEF, words, timeout_s=200)
        assert result.status == 0, result.stderr
        told += [line["type"] for line in result.lines]
    assert "compaction_end" in told
