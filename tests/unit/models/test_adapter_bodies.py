import orjson
import pytest

from retinue.core.errors import ModelError
from retinue.core.messages import (
    AssistantMessage,
    BashExecutionMessage,
    BranchSummaryMessage,
    CompactionSummaryMessage,
    CustomMessage,
    ImageContent,
    SystemMessage,
    TextContent,
    ThinkingContent,
    ToolCall,
    ToolResultMessage,
    Usage,
    UserMessage,
)
from retinue.core.model import ModelInfo, ModelRequest, ToolSpec
from retinue.models.adapter import ADAPTERS, build_model
from retinue.models.governor import Governor
from retinue.models.transport import Transport
from retinue.testing.clock import FakeClock

EVERY_API = pytest.mark.parametrize("api", ADAPTERS)
ANTHROPIC, CHAT, RESPONSES, GOOGLE = ADAPTERS
TOOL = ToolSpec("read", "Read.", {"type": "object", "properties": {}})
MARK = {"type": "ephemeral"}
ASKED = (UserMessage("hi", 1),)


def make(api, **fields):
    info = ModelInfo(provider=fields.pop("provider", "p"), id=fields.pop("id", "m"), api=api, **fields)
    return build_model(info, transport=Transport(), key="k", governor=Governor(FakeClock()))


def body_of(model, messages=ASKED, **fields):
    body = orjson.loads(model.build_body(ModelRequest(fields.pop("system", "sys"), list(messages), **fields)))
    assert body.pop("stream", model.info.api == GOOGLE)
    return body


def said(*blocks, model="m", api=ANTHROPIC, stop="stop"):
    return AssistantMessage(list(blocks), api, "p", model, Usage(), stop, 1)


def result(call_id, *blocks, is_error=False):
    return ToolResultMessage(call_id, "read", list(blocks) or [TextContent("out")], is_error, 1)


def test_unknown_api_lists_the_four():
    with pytest.raises(ModelError, match=r"'soap'; expected one of anthropic-messages, openai-completions, .*google"):
        make("soap")


@EVERY_API
def test_special_messages_become_user_text(api):
    messages = [
        SystemMessage("not sent", 1),
        BashExecutionMessage("ls -l", "total 0", False, True, 1, exit_code=2, full_output_path="/tmp/o"),
        BashExecutionMessage("secret", "hidden", False, False, 1, exclude_from_context=True),
        CustomMessage("note", "from a feature", True, 1),
        BranchSummaryMessage("tried A", "e1", 1),
        CompactionSummaryMessage("did B", 900, 1),
    ]
    sent = orjson.dumps(body_of(make(api), messages)).decode()
    assert all(
        text in sent for text in ("ls -l", "total 0", "exit code 2", "/tmp/o", "from a feature", "tried A", "did B")
    )
    assert "not sent" not in sent and "hidden" not in sent


@EVERY_API
@pytest.mark.parametrize("stop", ["error", "aborted"])
def test_broken_reply_is_not_replayed(api, stop):
    broken = said(TextContent("half a"), ToolCall("c1", "read", {}), stop=stop)
    messages = [UserMessage("q", 1), broken, result("c1"), UserMessage("again", 1)]
    assert body_of(make(api), messages) == body_of(make(api), [messages[0], messages[3]])


@EVERY_API
def test_images_are_left_out_for_text_models(api):
    image = ImageContent("aW1hZ2U=", "image/png")
    messages = [UserMessage([image, image], 1), said(ToolCall("c1", "read", {})), result("c1", image)]
    sent = orjson.dumps(body_of(make(api), messages)).decode()
    assert "aW1hZ2U=" not in sent
    assert sent.count("this model gets text only") == 2


@EVERY_API
@pytest.mark.parametrize("model_id", ["m", "gemini-2.5-pro", "gemini-3-pro"])
def test_images_of_results_are_sent(api, model_id):
    image = ImageContent("aW1hZ2U=", "image/png")
    calls = said(ToolCall("c1", "read", {}), ToolCall("c2", "read", {}))
    messages = [UserMessage("q", 1), calls, result("c1", TextContent("see"), image), result("c2", image)]
    sent = orjson.dumps(body_of(make(api, id=model_id, input=("text", "image")), messages)).decode()
    assert sent.count("aW1hZ2U=") == 2


@EVERY_API
def test_lone_surrogates_are_replaced(api):
    call = said(ToolCall("c1", "read", {"path": "\udcff", "n": 2**70}))
    sent = body_of(make(api), [UserMessage("a\ud800b", 1), call, result("c1", TextContent("\udfff"))])
    assert "a\ufffdb" in orjson.dumps(sent).decode()


@EVERY_API
def test_foreign_call_ids_are_made_safe(api):
    long_id = "call_" + "x" * 60 + "|fc_" + "y/+=" * 100
    messages = [UserMessage("q", 1), said(ToolCall(long_id, "read", {}), model="other"), result(long_id)]
    sent = orjson.dumps(body_of(make(api), messages)).decode()
    assert "y/+=" not in sent
    assert "interrupted" not in sent


@EVERY_API
def test_output_limit_fits_the_context(api):
    model = make(api, context_window=10_000, max_tokens=9000)
    names = {ANTHROPIC: "max_tokens", CHAT: "max_completion_tokens", RESPONSES: "max_output_tokens"}

    def limit(body):
        return body[names[api]] if api in names else body["generationConfig"]["maxOutputTokens"]

    assert 8000 < limit(body_of(model)) < 9000
    assert limit(body_of(model, [UserMessage("x" * 100_000, 1)])) == 1024
    assert limit(body_of(model, max_tokens=500)) == 500


def test_anthropic_marks_what_to_cache():
    body = body_of(make(ANTHROPIC), [UserMessage("a", 1), UserMessage("b", 1)], tools=[TOOL, TOOL])
    assert body["system"] == [{"type": "text", "text": "sys", "cache_control": MARK}]
    assert ["cache_control" in tool for tool in body["tools"]] == [False, True]
    assert [message["content"][0].get("cache_control") for message in body["messages"]] == [None, MARK]


def test_anthropic_marks_the_last_result():
    calls = said(ToolCall("c1", "read", {}), ToolCall("c2", "read", {}))
    body = body_of(make(ANTHROPIC), [UserMessage("a", 1), calls, result("c1"), result("c2", is_error=True)])
    assert body["messages"][-1] == {
        "role": "user",
        "content": [
            {"type": "tool_result", "tool_use_id": "c1", "content": "out"},
            {"type": "tool_result", "tool_use_id": "c2", "content": "out", "is_error": True, "cache_control": MARK},
        ],
    }


def test_anthropic_without_cache_has_no_marks():
    body = body_of(make(ANTHROPIC), tools=[TOOL], cache=False)
    assert b"cache_control" not in orjson.dumps(body)


@pytest.mark.parametrize(
    ("model_id", "compat", "level", "expected"),
    [
        ("claude-sonnet-4-5", {}, "off", {"thinking": {"type": "disabled"}}),
        ("claude-sonnet-4-5", {}, "low", {"thinking": {"type": "enabled", "budget_tokens": 2048}}),
        ("claude-3-7-sonnet", {}, "max", {"thinking": {"type": "enabled", "budget_tokens": 15_360}}),
        (
            "claude-opus-4-7",
            {},
            "medium",
            {"thinking": {"type": "adaptive", "display": "summarized"}, "output_config": {"effort": "medium"}},
        ),
        (
            "own",
            {"forceAdaptiveThinking": True},
            "minimal",
            {"thinking": {"type": "adaptive", "display": "summarized"}, "output_config": {"effort": "low"}},
        ),
    ],
)
def test_anthropic_thinking_by_model(model_id, compat, level, expected):
    body = body_of(make(ANTHROPIC, id=model_id, reasoning=True, compat=compat), thinking=level)
    assert {name: body[name] for name in ("thinking", "output_config") if name in body} == expected
    assert body["max_tokens"] == 16_384


def test_anthropic_keeps_redacted_thinking():
    blocks = [ThinkingContent("", "opaque", redacted=True), ThinkingContent("unsigned"), TextContent("t")]
    body = body_of(make(ANTHROPIC), [UserMessage("q", 1), said(*blocks)])
    assert body["messages"][1]["content"] == [
        {"type": "redacted_thinking", "data": "opaque"},
        {"type": "text", "text": "unsigned"},
        {"type": "text", "text": "t"},
    ]


@pytest.mark.parametrize(
    ("compat", "level", "expected"),
    [
        ({}, "high", {"reasoning_effort": "high"}),
        ({}, "off", {}),
        ({"supportsReasoningEffort": False}, "high", {}),
        ({"thinkingFormat": "openrouter"}, "low", {"reasoning": {"effort": "low"}}),
        ({"thinkingFormat": "openrouter"}, "off", {"reasoning": {"effort": "none"}}),
        ({"thinkingFormat": "deepseek"}, "high", {"thinking": {"type": "enabled"}, "reasoning_effort": "high"}),
        ({"thinkingFormat": "deepseek"}, "off", {"thinking": {"type": "disabled"}}),
        ({"thinkingFormat": "zai"}, "off", {"thinking": {"type": "disabled"}}),
        ({"thinkingFormat": "qwen", "supportsReasoningEffort": False}, "low", {"enable_thinking": True}),
        (
            {"thinkingFormat": "qwen-chat-template"},
            "off",
            {"chat_template_kwargs": {"enable_thinking": False, "preserve_thinking": True}},
        ),
        (
            {
                "thinkingFormat": "chat-template",
                "chatTemplateKwargs": {
                    "think": {"$var": "thinking.enabled"},
                    "effort": {"$var": "thinking.effort", "omitWhenOff": True},
                    "fixed": 1,
                },
            },
            "medium",
            {"chat_template_kwargs": {"think": True, "effort": "medium", "fixed": 1}},
        ),
        (
            {"thinkingTokenBudgetField": "thinking_budget_tokens", "supportsReasoningEffort": False},
            "low",
            {"thinking_budget_tokens": 2048},
        ),
    ],
)
def test_chat_thinking_by_format(compat, level, expected):
    body = body_of(make(CHAT, reasoning=True, compat=compat, base_url="http://host.example/v1"), thinking=level)
    usual = ("model", "messages", "max_completion_tokens", "stream_options")
    assert {name: body[name] for name in body if name not in usual} == expected


@pytest.mark.parametrize(
    ("base_url", "role", "field", "extra"),
    [
        ("", "developer", "max_completion_tokens", {"store": False, "prompt_cache_key": "s1"}),
        ("http://127.0.0.1:8080/v1", "system", "max_tokens", {}),
        ("https://api.deepseek.com", "system", "max_tokens", {"thinking": {"type": "disabled"}}),
        ("https://openrouter.ai/api/v1", "system", "max_completion_tokens", {"reasoning": {"effort": "none"}}),
    ],
)
def test_chat_compat_follows_the_address(base_url, role, field, extra):
    body = body_of(make(CHAT, reasoning=True, base_url=base_url), session_id="s1")
    assert body["messages"][0] == {"role": role, "content": "sys"}
    usual = {"model": "m", "stream_options": {"include_usage": True}, "messages": body["messages"]}
    assert body == {field: 16_384, **usual, **extra}


def test_chat_compat_for_odd_servers():
    compat = {
        "requiresToolResultName": True,
        "requiresAssistantAfterToolResult": True,
        "supportsUsageInStreaming": False,
    }
    messages = [UserMessage("q", 1), said(ToolCall("c1", "read", {}), api=CHAT), result("c1"), UserMessage("go", 1)]
    body = body_of(make(CHAT, compat=compat), messages)
    assert "stream_options" not in body
    assert [(message["role"], message.get("name")) for message in body["messages"]] == [
        ("system", None),
        ("user", None),
        ("assistant", None),
        ("tool", "read"),
        ("assistant", None),
        ("user", None),
    ]


def test_chat_marks_anthropic_caches():
    model = make(CHAT, provider="openrouter", id="anthropic/claude")
    calls = said(ToolCall("c1", "read", {}), api=CHAT)
    body = body_of(model, [UserMessage("q", 1), calls, result("c1")], tools=[TOOL])
    marked = [{"type": "text", "text": "out", "cache_control": MARK}]
    assert body["messages"][-1] == {"role": "tool", "tool_call_id": "c1", "content": marked}
    assert body["messages"][0]["content"][0]["cache_control"] == MARK
    assert body["tools"][-1]["cache_control"] == MARK


def test_chat_replays_reasoning_in_its_field():
    own = said(ThinkingContent("hm", "reasoning"), ToolCall("c1", "read", {}), api=CHAT)
    sent = body_of(make(CHAT), [UserMessage("q", 1), own, result("c1")])["messages"][2]
    assert (sent["reasoning"], sent["content"]) == ("hm", None)


def test_chat_sends_thinking_as_text():
    own = said(ThinkingContent("hm", "reasoning"), TextContent("t"), api=CHAT)
    model = make(CHAT, compat={"requiresThinkingAsText": True})
    assert body_of(model, [UserMessage("q", 1), own])["messages"][2] == {"role": "assistant", "content": "hm\n\nt"}


@pytest.mark.parametrize("api", [CHAT, RESPONSES])
def test_sampling_parameters_win(api):
    model = make(api, sampling_params={"temperature": 0.1, "max_completion_tokens": 7, "max_output_tokens": 7})
    raw = model.build_body(ModelRequest("s", [UserMessage("q", 1)]))
    body = orjson.loads(raw)
    assert body["temperature"] == 0.1
    assert raw.count(b"max_completion_tokens") == raw.count(b"max_output_tokens") == 1


@pytest.mark.parametrize(
    ("levels", "level", "expected"),
    [
        ({}, "off", {"reasoning": {"effort": "none"}}),
        ({"off": None}, "off", {"reasoning": {"effort": "minimal", "summary": "auto"}}),
        ({"xhigh": "xtra"}, "xhigh", {"reasoning": {"effort": "xtra", "summary": "auto"}}),
        ({}, "max", {"reasoning": {"effort": "high", "summary": "auto"}}),
    ],
)
def test_responses_effort_is_mapped(levels, level, expected):
    body = body_of(make(RESPONSES, reasoning=True, thinking_level_map=levels), thinking=level)
    assert {"reasoning": body["reasoning"]} == expected
    assert body.get("include", []) == (["reasoning.encrypted_content"] if "summary" in body["reasoning"] else [])


def test_responses_of_another_model_lose_ids():
    blocks = [ThinkingContent("hm", '{"type":"reasoning","id":"rs_1"}'), ToolCall("c1|fc_1", "read", {})]
    own = body_of(make(RESPONSES), [UserMessage("q", 1), said(*blocks, api=RESPONSES), result("c1|fc_1")])["input"]
    other = body_of(make(RESPONSES), [UserMessage("q", 1), said(*blocks, api=RESPONSES, model="x"), result("c1|fc_1")])
    call = {"type": "function_call", "call_id": "c1", "name": "read", "arguments": "{}"}
    assert own[1:3] == [{"type": "reasoning", "id": "rs_1"}, {**call, "id": "fc_1"}]
    assert other["input"][1:3] == [{"role": "assistant", "content": [{"type": "output_text", "text": "hm"}]}, call]
    assert own[3]["call_id"] == "c1"


@pytest.mark.parametrize(
    ("model_id", "levels", "level", "config"),
    [
        ("gemini-2.5-flash", {}, "off", {"thinkingBudget": 0}),
        ("gemini-2.5-pro", {}, "off", {"thinkingBudget": 128}),
        ("gemini-2.5-pro", {}, "high", {"includeThoughts": True, "thinkingBudget": 32_768}),
        ("gemini-2.5-flash-lite", {}, "minimal", {"includeThoughts": True, "thinkingBudget": 512}),
        ("gemini-3-pro-preview", {"off": None, "minimal": None}, "off", {"thinkingLevel": "LOW"}),
        ("gemini-3.5-flash", {}, "medium", {"includeThoughts": True, "thinkingLevel": "MEDIUM"}),
        ("other", {}, "medium", {"includeThoughts": True, "thinkingBudget": -1}),
    ],
)
def test_google_thinking_by_model(model_id, levels, level, config):
    model = make(GOOGLE, id=model_id, reasoning=True, thinking_level_map=levels)
    assert body_of(model, thinking=level)["generationConfig"]["thinkingConfig"] == config


def test_google_drops_signatures_that_are_not_base64():
    blocks = [TextContent("a", "c2ln"), ToolCall("c1", "read", {}, thought_signature="no base64!")]
    body = body_of(make(GOOGLE), [UserMessage("q", 1), said(*blocks, api=GOOGLE), result("c1")])
    assert body["contents"][1]["parts"] == [
        {"text": "a", "thoughtSignature": "c2ln"},
        {"functionCall": {"name": "read", "args": {}}},
    ]


@EVERY_API
def test_empty_conversation_is_valid_json(api):
    assert body_of(make(api), [])
    assert body_of(make(api), [UserMessage("", 1)], system="")
