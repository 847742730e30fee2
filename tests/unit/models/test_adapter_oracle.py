"""Request bodies against pydantic-ai's for the same conversation. Each normaliser lists what may differ, and why."""

import base64
import re
from typing import Any

import orjson
import pytest

from retinue.core.messages import (
    AssistantMessage,
    ImageContent,
    TextContent,
    ThinkingContent,
    ToolCall,
    ToolResultMessage,
    Usage,
    UserMessage,
)
from retinue.core.model import ModelInfo, ModelRequest, ToolSpec
from retinue.models.adapter import build_model
from retinue.models.governor import Governor
from retinue.models.transport import Transport
from retinue.testing.clock import FakeClock
from retinue.testing.server import MockServer

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

IMAGE = base64.b64encode(bytes(range(200, 256)) * 3).decode()
SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
SIGNATURE = "c2lnbmF0dXJl"
REASONING = {
    "type": "reasoning",
    "id": "rs_1",
    "summary": [{"type": "summary_text", "text": "Both, then."}],
    "encrypted_content": SIGNATURE,
}
MODELS = {
    "anthropic-messages": "claude-sonnet-4-5",
    "openai-completions": "o3",
    "openai-responses": "gpt-5",
    "google-generative-ai": "gemini-3-pro-preview",
}


def our_body(api: str) -> dict[str, Any]:
    signature = {
        "openai-completions": "reasoning_content",
        "openai-responses": orjson.dumps(REASONING).decode(),
    }.get(api, SIGNATURE)
    text_signature = '{"v":1,"id":"msg_1"}' if api == "openai-responses" else ""
    said = [
        ThinkingContent("Both, then.", signature),
        TextContent("Reading.", text_signature) if text_signature else TextContent("Reading."),
        ToolCall("call_a", "read", {"path": "a"}),
        ToolCall("call_b", "read", {"path": "ü"}),
    ]
    info = ModelInfo("p", MODELS[api], api, reasoning=True, input=("text", "image"), max_tokens=32_000)
    messages = [
        UserMessage([TextContent("Look"), ImageContent(IMAGE, "image/png")], 1),
        AssistantMessage(said, api, "p", MODELS[api], Usage(), "toolUse", 2),
        ToolResultMessage("call_a", "read", [TextContent("text of a")], False, 3),
        ToolResultMessage("call_b", "read", [TextContent("text of b")], False, 3),
        UserMessage("go on", 4),
    ]
    model = build_model(info, transport=Transport(), key="k", governor=Governor(FakeClock()))
    request = ModelRequest("Be brief.", messages, [ToolSpec("read", "Read a file.", SCHEMA)], "high", cache=False)
    return orjson.loads(model.build_body(request))


async def their_body(api: str) -> dict[str, Any]:
    from pydantic_ai.direct import model_request
    from pydantic_ai.messages import (
        BinaryContent,
        ModelRequest,
        ModelResponse,
        SystemPromptPart,
        TextPart,
        ThinkingPart,
        ToolCallPart,
        ToolReturnPart,
        UserPromptPart,
    )
    from pydantic_ai.models import ModelRequestParameters
    from pydantic_ai.tools import ToolDefinition

    tool = ToolDefinition(name="read", description="Read a file.", parameters_json_schema=SCHEMA)
    async with MockServer([{"text": "unused"}, {"text": "ok"}]) as server:
        model, settings = their_model(api, server)
        own = {"provider_name": model.system}
        thinking_id = {"openai-completions": "reasoning_content", "openai-responses": "rs_1"}.get(api)
        signature = None if api == "openai-completions" else SIGNATURE
        image = BinaryContent(base64.b64decode(IMAGE), media_type="image/png")
        said = [
            ThinkingPart("Both, then.", signature=signature, id=thinking_id, **own),
            TextPart("Reading.", id="msg_1", **own),
            ToolCallPart("read", {"path": "a"}, tool_call_id="call_a"),
            ToolCallPart("read", {"path": "ü"}, tool_call_id="call_b"),
        ]
        messages = [
            ModelRequest(parts=[SystemPromptPart("Be brief."), UserPromptPart(["Look", image])]),
            ModelResponse(parts=said, model_name=model.model_name, **own),
            ModelRequest(
                parts=[
                    ToolReturnPart("read", "text of a", tool_call_id="call_a"),
                    ToolReturnPart("read", "text of b", tool_call_id="call_b"),
                    UserPromptPart("go on"),
                ]
            ),
        ]
        parameters = ModelRequestParameters(function_tools=[tool])
        settings["max_tokens"] = 32_000
        async with model:
            await model_request(model, messages, model_request_parameters=parameters, model_settings=settings)
        return server.requests[-1].json


def their_model(api: str, server: MockServer) -> tuple[Any, dict[str, Any]]:
    if api == "anthropic-messages":
        from pydantic_ai.models.anthropic import AnthropicModel
        from pydantic_ai.providers.anthropic import AnthropicProvider

        provider = AnthropicProvider(api_key="k", base_url=server.base_url(api))
        thinking = {"type": "enabled", "budget_tokens": 16_384}
        return AnthropicModel(MODELS[api], provider=provider), {"anthropic_thinking": thinking}
    if api == "google-generative-ai":
        from pydantic_ai.models.google import GoogleModel
        from pydantic_ai.providers.google import GoogleProvider

        thinking = {"include_thoughts": True, "thinking_level": "HIGH"}
        model = GoogleModel(MODELS[api], provider=GoogleProvider(api_key="k", base_url=server.url))
        return model, {"google_thinking_config": thinking}
    from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
    from pydantic_ai.providers.openai import OpenAIProvider

    provider = OpenAIProvider(api_key="k", base_url=server.base_url(api))
    settings = {"openai_reasoning_effort": "high", "openai_store": False}
    if api == "openai-completions":
        return OpenAIChatModel(MODELS[api], provider=provider), settings
    return OpenAIResponsesModel(MODELS[api], provider=provider), {**settings, "openai_reasoning_summary": "auto"}


def normalise_anthropic(body: dict[str, Any]) -> dict[str, Any]:
    # A prompt, a user message or a result of one text may be a string or a list of one block.
    # A result that is no error may say so or not. User messages in a row are one to the API.
    # Theirs sends tool_choice's default, and a truth value for a plain reply.
    messages: list[dict[str, Any]] = []
    for message in body["messages"]:
        content = _blocks(message["content"])
        for block in content:
            if block["type"] == "tool_result":
                block["content"] = _blocks(block["content"])
                block.setdefault("is_error", False)
        if messages and messages[-1]["role"] == message["role"]:
            messages[-1]["content"] += content
        else:
            messages.append({"role": message["role"], "content": content})
    kept = {name: value for name, value in body.items() if name not in ("tool_choice", "stream")}
    return {**kept, "messages": messages, "system": _blocks(body["system"])}


def normalise_chat(body: dict[str, Any]) -> dict[str, Any]:
    # Theirs makes tool schemas strict, which changes what an optional parameter is, so ours does not.
    # Theirs sends tool_choice's and stream's default; the system prompt's role follows the host, here loopback.
    # `store` is sent by ours to OpenAI itself only.
    for tool in body["tools"]:
        tool["function"].pop("strict", None)
        tool["function"]["parameters"].pop("additionalProperties", None)
    body["messages"][0]["role"] = "system"
    left_out = ("tool_choice", "stream", "stream_options", "store")
    return {name: value for name, value in body.items() if name not in left_out}


def normalise_responses(body: dict[str, Any]) -> dict[str, Any]:
    # The prompt is `instructions` with us, the first input item with them; a text of the user may be a string.
    # Strictness and defaults as in the chat format.
    if body["input"][0].get("role") in ("system", "developer"):
        body["instructions"] = body["input"].pop(0)["content"]
    for item in body["input"]:
        if item.get("role") == "user" and isinstance(item["content"], str):
            item["content"] = [{"type": "input_text", "text": item["content"]}]
    for tool in body["tools"]:
        tool.pop("strict", None)
        tool["parameters"].pop("additionalProperties", None)
    return {name: value for name, value in body.items() if name not in ("tool_choice", "stream")}


def normalise_google(body: dict[str, Any]) -> dict[str, Any]:
    # Both spellings of field names and both alphabets of base64 are accepted by the API.
    # The name of a result's field is free: `output` is the documentation's, `return_value` theirs.
    # Theirs moves the signature of a thought to the next part and invents one for calls; ours replays what it got.
    # Theirs asks for validated calls and text replies in so many words; both are defaults for us.
    body = _rename(body)
    for content in body["contents"]:
        for part in content["parts"]:
            part.pop("thoughtSignature", None)
            response = part.get("functionResponse", {}).get("response", {})
            if "return_value" in response:
                response["output"] = response.pop("return_value")
            if "inlineData" in part:
                data = part["inlineData"]["data"]
                part["inlineData"]["data"] = data.replace("-", "+").replace("_", "/")
    body["systemInstruction"].pop("role", None)
    body["generationConfig"].pop("responseModalities", None)
    body.pop("toolConfig", None)
    return body


NORMALISERS = {
    "anthropic-messages": normalise_anthropic,
    "openai-completions": normalise_chat,
    "openai-responses": normalise_responses,
    "google-generative-ai": normalise_google,
}


@pytest.mark.parametrize("api", MODELS)
async def test_body_agrees_with_the_oracle(api):
    normalise = NORMALISERS[api]
    assert normalise(our_body(api)) == normalise(await their_body(api))


@pytest.mark.parametrize("api", MODELS)
def test_signature_is_replayed_where_it_came(api):
    sent = orjson.dumps(our_body(api)).decode()
    expected = {
        "anthropic-messages": '{"type":"thinking","thinking":"Both, then.","signature":"c2lnbmF0dXJl"}',
        "openai-completions": '"reasoning_content":"Both, then."',
        "openai-responses": '"encrypted_content":"c2lnbmF0dXJl"',
        "google-generative-ai": '{"thought":true,"text":"Both, then.","thoughtSignature":"c2lnbmF0dXJl"}',
    }
    assert expected[api] in sent


def _blocks(content: Any) -> list[dict[str, Any]]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _rename(value: Any) -> Any:
    if isinstance(value, dict):
        return {_to_camel(name): _rename(inner) for name, inner in value.items()}
    return [_rename(item) for item in value] if isinstance(value, list) else value


def _to_camel(name: str) -> str:
    return name if name == "return_value" else re.sub(r"_([a-z])", lambda match: match[1].upper(), name)
