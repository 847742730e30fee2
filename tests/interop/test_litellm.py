"""The program in front of LiteLLM's proxy, in all four formats."""

import json
from contextlib import ExitStack

import pytest

from retinue.testing import MockServer
from tests.interop.model_world import MASTER_KEY, PATHS, Place, open_litellm, read_answer, read_text

SCRIPT = [
    {"text": "Let me look.", "calls": [{"name": "ls", "arguments": {"path": "."}}, {"name": "ls", "id": "other"}]},
    {"text": "Seen."},
]
BRIEF = ("--system-prompt", "Answer in a few words.")
WAYS = pytest.mark.parametrize("api", PATHS)


TEXT = "Hello from behind."
OVERFLOW = {"kind": "overflow", "message": "This model's maximum context length is 4096 tokens", "status": 400}
MOCKS = {"mock": TEXT, "limited": "litellm.RateLimitError", "broken": "litellm.InternalServerError"}


@pytest.fixture(scope="module")
def address(litellm, tmp_path_factory):
    # Behind `hosted_vllm` LiteLLM translates every format into chat completions.
    models = {name: {"model": "hosted_vllm/x", "api_key": "x", "mock_response": text} for name, text in MOCKS.items()}
    scripts = {"caller": SCRIPT, "said": [{"text": TEXT, "chunk_chars": 5}], "too-long": [{"error": OVERFLOW}]}
    with ExitStack() as stack:
        for name, script in scripts.items():
            server = stack.enter_context(MockServer.in_thread(script))
            back = {"model": "hosted_vllm/mock-1", "api_key": "x", "api_base": server.base_url("openai-completions")}
            models[name] = back
        yield stack.enter_context(open_litellm(tmp_path_factory.mktemp("litellm"), models))


def name_mock(api):
    """A model that says the text: LiteLLM's own mock cannot stream responses."""
    return "said" if api == "openai-responses" else "mock"


@WAYS
def test_reply_of_a_mock_is_read(api, address, tmp_path):
    place = Place(tmp_path, address, api, name_mock(api), MASTER_KEY)
    answer = read_answer(place.run("--mode", "json", "-p", *BRIEF, "Hi"))
    assert (read_text(answer), answer["stopReason"]) == (TEXT, "stop")


@WAYS
def test_unwatched_reply_is_read(api, address, tmp_path):
    result = Place(tmp_path, address, api, name_mock(api), MASTER_KEY).run("-p", *BRIEF, "Hi")
    assert (result.status, result.stdout) == (0, f"{TEXT}\n"), result.stderr


@WAYS
def test_tools_are_called(api, address, tmp_path):
    place = Place(tmp_path, address, api, "caller", MASTER_KEY, maxTokens=1000)
    (place.work / "seen.txt").write_text("x")
    result = place.run("--mode", "json", "-p", *BRIEF, "Look")
    assert read_text(read_answer(result)) == "Seen."
    messages = [line["message"] for line in result.lines if line["type"] == "message_end"]
    results = [message for message in messages if message["role"] == "toolResult"]
    assert [(one["toolName"], one["isError"], "seen.txt" in json.dumps(one)) for one in results] == [
        ("ls", False, True)
    ] * 2


@WAYS
def test_exceeded_window_is_known(api, address, tmp_path):
    result = Place(tmp_path, address, api, "too-long", MASTER_KEY).run("--mode", "json", "-p", *BRIEF, "Hi")
    assert result.status == 1
    assert "ContextWindowExceededError" in result.stderr
    assert "too long for this model" in result.stderr


@WAYS
@pytest.mark.parametrize("model", ["limited", "broken"])
def test_failures_are_tried_again_and_told(api, model, address, tmp_path):
    result = Place(tmp_path, address, api, model, MASTER_KEY).run("--mode", "json", "-p", *BRIEF, "Hi")
    assert result.status == 1
    assert [line["type"] for line in result.lines].count("auto_retry_start") == 1
