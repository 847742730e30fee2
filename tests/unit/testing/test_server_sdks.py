"""The providers' own clients read what the mock server writes."""

from collections.abc import Iterator
from typing import Any

import pytest

from retinue.testing import MockServer

REPLY = {
    "thinking": "hm",
    "text": "Hello wörld",
    "calls": [{"name": "read", "arguments": {"path": "a.py"}}, {"name": "ls", "id": "mine"}],
    "usage": {"input": 5, "output": 7, "cacheRead": 3, "cacheWrite": 2},
    "chunk_chars": 3,
}
ASK = [{"role": "user", "content": "hi"}]


# Seconds of importing each: only for whoever runs these tests, not for all who collect them.
@pytest.fixture(scope="module")
def anthropic() -> Any:
    return pytest.importorskip("anthropic")


@pytest.fixture(scope="module")
def openai() -> Any:
    return pytest.importorskip("openai")


@pytest.fixture(scope="module")
def genai() -> Any:
    return pytest.importorskip("google.genai")


@pytest.fixture(scope="module")
def server() -> Iterator[MockServer]:
    with MockServer.in_thread([REPLY]) as server:
        yield server


@pytest.mark.parametrize("stream", [True, False])
def test_anthropic_client_reads_reply(server: MockServer, anthropic: Any, stream: bool) -> None:
    with anthropic.Anthropic(api_key="k", base_url=server.base_url("anthropic-messages")) as client:
        if stream:
            with client.messages.stream(model="m", max_tokens=9, messages=ASK) as events:
                message = events.get_final_message()
        else:
            message = client.messages.create(model="m", max_tokens=9, messages=ASK)
    thinking, text, *calls = message.content
    assert (thinking.thinking, bool(thinking.signature), text.text) == ("hm", True, "Hello wörld")
    assert [(call.name, call.id, call.input) for call in calls] == [
        ("read", "call_0_2", {"path": "a.py"}),
        ("ls", "mine", {}),
    ]
    usage = message.usage
    counts = (usage.input_tokens, usage.output_tokens, usage.cache_read_input_tokens, usage.cache_creation_input_tokens)
    assert (counts, message.stop_reason) == ((5, 7, 3, 2), "tool_use")


def test_openai_client_reads_chat(server: MockServer, openai: Any) -> None:
    with openai.OpenAI(api_key="k", base_url=server.base_url("openai-completions")) as client:
        reply = client.chat.completions.create(model="m", messages=ASK)
    choice = reply.choices[0]
    calls = [(call.function.name, call.id, call.function.arguments) for call in choice.message.tool_calls]
    assert (choice.message.content, choice.finish_reason) == ("Hello wörld", "tool_calls")
    assert calls == [("read", "call_0_2", '{"path":"a.py"}'), ("ls", "mine", "{}")]
    assert (reply.usage.prompt_tokens, reply.usage.completion_tokens) == (10, 7)


def test_openai_client_streams_chat(server: MockServer, openai: Any) -> None:
    options = {"include_usage": True}
    with (
        openai.OpenAI(api_key="k", base_url=server.base_url("openai-completions")) as client,
        client.chat.completions.stream(model="m", messages=ASK, stream_options=options) as events,
    ):
        reply = events.get_final_completion()
    choice = reply.choices[0]
    calls = [(call.function.name, call.id, call.function.arguments) for call in choice.message.tool_calls]
    assert (choice.message.content, choice.finish_reason) == ("Hello wörld", "tool_calls")
    assert calls == [("read", "call_0_2", '{"path":"a.py"}'), ("ls", "mine", "{}")]
    assert reply.usage.prompt_tokens_details.cached_tokens == 3


@pytest.mark.parametrize("stream", [True, False])
def test_openai_client_reads_responses(server: MockServer, openai: Any, stream: bool) -> None:
    with openai.OpenAI(api_key="k", base_url=server.base_url("openai-responses")) as client:
        if stream:
            with client.responses.stream(model="m", input="hi") as events:
                pieces = [event.delta for event in events if event.type == "response.output_text.delta"]
                response = events.get_final_response()
            assert pieces == ["Hel", "lo ", "wör", "ld"]
        else:
            response = client.responses.create(model="m", input="hi")
    reasoning, _, *calls = response.output
    assert (reasoning.summary[0].text, response.output_text) == ("hm", "Hello wörld")
    assert [(call.name, call.call_id, call.arguments) for call in calls] == [
        ("read", "call_0_2", '{"path":"a.py"}'),
        ("ls", "mine", "{}"),
    ]
    assert (response.usage.input_tokens, response.usage.output_tokens, response.status) == (10, 7, "completed")


@pytest.mark.parametrize("stream", [True, False])
def test_google_client_reads_reply(server: MockServer, genai: Any, stream: bool) -> None:
    with genai.Client(api_key="k", http_options={"base_url": server.url}) as client:
        if stream:
            chunks = list(client.models.generate_content_stream(model="m", contents="hi"))
        else:
            chunks = [client.models.generate_content(model="m", contents="hi")]
    parts = [part for chunk in chunks for part in chunk.candidates[0].content.parts or []]
    calls = [(part.function_call.name, part.function_call.args) for part in parts if part.function_call]
    assert "".join(part.text for part in parts if part.text and not part.thought) == "Hello wörld"
    assert calls == [("read", {"path": "a.py"}), ("ls", {})]
    usage = chunks[-1].usage_metadata
    assert (usage.prompt_token_count, usage.candidates_token_count, usage.cached_content_token_count) == (10, 7, 3)


def test_anthropic_client_sees_status(anthropic: Any) -> None:
    fault = {"kind": "status", "code": 429, "headers": {"retry-after": "0"}}
    with (
        MockServer.in_thread([{"text": "x", "fault": fault}]) as server,
        anthropic.Anthropic(api_key="k", base_url=server.url, max_retries=1) as client,
        pytest.raises(anthropic.RateLimitError, match="scripted status 429"),
    ):
        client.messages.create(model="m", max_tokens=9, messages=ASK)
    assert len(server.requests) == 2
