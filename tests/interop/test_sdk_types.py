"""Requests are what the providers' own libraries would send, and replies what they would read: by their types."""

from collections.abc import Iterable
from os import PathLike
from types import UnionType
from typing import IO, Annotated, Any, Literal, Union

import pytest
import typing_extensions
from pydantic import ConfigDict, TypeAdapter

from retinue.core.messages import AssistantMessage, ImageContent, TextContent, ToolResultMessage, UserMessage
from retinue.core.model import Draft, ModelRequest, Reply, ToolSpec
from retinue.models.adapter import build_model
from retinue.models.governor import Governor
from retinue.models.transport import Transport
from retinue.testing.clock import FakeClock
from tests.flows.odd_world import ANTHROPIC, CHAT, DONE, GOOGLE, RESPONSES, serve
from tests.flows.provider_world import FAST, to_info

pytestmark = pytest.mark.interop
APIS = (CHAT, RESPONSES, ANTHROPIC, GOOGLE)
MODELS = {CHAT: "gpt-5.2", RESPONSES: "gpt-5.2", ANTHROPIC: "claude-sonnet-4-5", GOOGLE: "gemini-3-pro"}
PIXEL = ImageContent("iVBORw0KGgo=", "image/png")
SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
READ = ToolSpec("read", "Read a file.", SCHEMA)


def make_strict(kind: Any, seen: set[Any]) -> Any:
    """The same type, whose typed dictionaries refuse keys that they do not have and look into their lists at once."""
    origin, parts = typing_extensions.get_origin(kind), typing_extensions.get_args(kind)
    if typing_extensions.is_typeddict(kind):
        if kind not in seen:
            seen.add(kind)
            hints = typing_extensions.get_type_hints(kind, include_extras=True)
            kind.__annotations__ = {name: make_strict(hint, seen) for name, hint in hints.items()}
            kind.__pydantic_config__ = ConfigDict(extra="forbid")
        return kind
    if origin is None or origin is Literal:
        return kind
    if origin in (IO, PathLike):
        return bytes  # what a program may give instead of text; it is never on the wire
    if origin is Annotated:
        return Annotated[(make_strict(parts[0], seen), *parts[1:])]
    if origin is UnionType:
        origin = Union
    made = tuple(part if isinstance(part, list) else make_strict(part, seen) for part in parts)
    return list[made] if origin is Iterable else origin[made if len(made) > 1 else made[0]]


def check_dict(kind: Any, body: dict[str, Any]) -> None:
    """The body is one of these, with no further keys."""
    TypeAdapter(make_strict(kind, set())).validate_python(body)


def check_request(api: str, body: dict[str, Any]) -> None:
    """The body is a request of this API, by the types of its library."""
    if api == CHAT:
        from openai.types.chat.completion_create_params import CompletionCreateParamsStreaming

        check_dict(CompletionCreateParamsStreaming, body)
    elif api == RESPONSES:
        from openai.types.responses.response_create_params import ResponseCreateParamsStreaming

        check_dict(ResponseCreateParamsStreaming, body)
    elif api == ANTHROPIC:
        from anthropic.types.message_create_params import MessageCreateParamsStreaming

        check_dict(MessageCreateParamsStreaming, body)
    else:
        from google.genai import types

        assert set(body) <= {"systemInstruction", "tools", "generationConfig", "contents"}
        types.Content.model_validate(body["systemInstruction"])
        types.GenerationConfig.model_validate(body["generationConfig"])
        for tool in body["tools"]:
            types.Tool.model_validate(tool)
        for content in body["contents"]:
            types.Content.model_validate(content)


def chat_stream() -> list[Any]:
    from openai.types import CompletionUsage
    from openai.types.chat import ChatCompletionChunk
    from openai.types.chat.chat_completion_chunk import (
        Choice,
        ChoiceDelta,
        ChoiceDeltaToolCall,
        ChoiceDeltaToolCallFunction,
    )

    def chunk(finish: Any = None, usage: Any = None, **delta: Any) -> Any:
        choices = [Choice(index=0, delta=ChoiceDelta(**delta), finish_reason=finish)] if usage is None else []
        return ChatCompletionChunk(
            id="c1", choices=choices, created=1, model="m", object="chat.completion.chunk", usage=usage
        )

    def piece(index: int, arguments: str, call_id: str | None = None, name: str | None = None) -> Any:
        function = ChoiceDeltaToolCallFunction(name=name, arguments=arguments)
        return chunk(tool_calls=[ChoiceDeltaToolCall(index=index, id=call_id, function=function, type="function")])

    return [
        chunk(role="assistant", content=""),
        chunk(content="Let me "),
        chunk(content="look."),
        piece(0, "", "call_1", "read"),
        piece(0, '{"path": "a"}'),
        piece(1, '{"path":', "call_2", "read"),
        piece(1, ' "b"}'),
        chunk("tool_calls"),
        chunk(usage=CompletionUsage(prompt_tokens=10, completion_tokens=5, total_tokens=15)),
        DONE,
    ]


def responses_stream() -> list[Any]:
    from openai.types import responses as kinds
    from openai.types.responses.response_usage import InputTokensDetails, OutputTokensDetails

    numbers = iter(range(100))

    def event(kind: Any, name: str, **fields: Any) -> Any:
        return kind(type=f"response.{name}", sequence_number=next(numbers), **fields)

    def item_events(place: int, empty: Any, whole: Any, pieces: list[Any]) -> list[Any]:
        added = event(kinds.ResponseOutputItemAddedEvent, "output_item.added", item=empty, output_index=place)
        done = event(kinds.ResponseOutputItemDoneEvent, "output_item.done", item=whole, output_index=place)
        return [added, *pieces, done]

    def message(text: str) -> Any:
        parts = [kinds.ResponseOutputText(type="output_text", text=text, annotations=[])] if text else []
        return kinds.ResponseOutputMessage(
            id="msg_1", type="message", role="assistant", status="completed", content=parts
        )

    def call(number: int, arguments: str) -> Any:
        return kinds.ResponseFunctionToolCall(
            id=f"fc_{number}", call_id=f"call_{number}", type="function_call", name="read", arguments=arguments
        )

    def said(text: str) -> Any:
        fields = {"item_id": "msg_1", "output_index": 0, "content_index": 0, "logprobs": []}
        return event(kinds.ResponseTextDeltaEvent, "output_text.delta", delta=text, **fields)

    def wrote(number: int, text: str) -> Any:
        kind = kinds.ResponseFunctionCallArgumentsDeltaEvent
        fields = {"item_id": f"fc_{number}", "output_index": number}
        return event(kind, "function_call_arguments.delta", delta=text, **fields)

    first, second = '{"path": "a"}', '{"path": "b"}'
    output = [message("Let me look."), call(1, first), call(2, second)]
    usage = kinds.ResponseUsage(
        input_tokens=10,
        output_tokens=5,
        total_tokens=15,
        input_tokens_details=InputTokensDetails.model_construct(cached_tokens=0, cache_write_tokens=0),
        output_tokens_details=OutputTokensDetails(reasoning_tokens=0),
    )
    response = kinds.Response.model_construct(
        id="resp_1", object="response", model="m", status="completed", output=output, usage=usage
    )
    return [
        event(kinds.ResponseCreatedEvent, "created", response=response.model_copy(update={"output": []})),
        *item_events(0, message(""), output[0], [said("Let me "), said("look.")]),
        *item_events(1, call(1, ""), output[1], [wrote(1, first)]),
        *item_events(2, call(2, ""), output[2], [wrote(2, second[:5]), wrote(2, second[5:])]),
        event(kinds.ResponseCompletedEvent, "completed", response=response),
    ]


def anthropic_stream() -> list[Any]:
    from anthropic import types as kinds
    from anthropic.types.raw_message_delta_event import Delta

    def block(index: int, content: Any, *deltas: Any) -> list[Any]:
        return [
            kinds.RawContentBlockStartEvent(type="content_block_start", index=index, content_block=content),
            *[kinds.RawContentBlockDeltaEvent(type="content_block_delta", index=index, delta=one) for one in deltas],
            kinds.RawContentBlockStopEvent(type="content_block_stop", index=index),
        ]

    def said(text: str) -> Any:
        return kinds.TextDelta(type="text_delta", text=text)

    def call(number: int) -> Any:
        return kinds.ToolUseBlock.model_construct(type="tool_use", id=f"call_{number}", name="read", input={})

    def wrote(text: str) -> Any:
        return kinds.InputJSONDelta(type="input_json_delta", partial_json=text)

    usage = kinds.Usage.model_construct(input_tokens=10, output_tokens=1)
    message = kinds.Message.model_construct(
        id="msg_1", type="message", role="assistant", model="m", content=[], usage=usage
    )
    end = Delta.model_construct(stop_reason="tool_use", stop_sequence=None)
    return [
        kinds.RawMessageStartEvent.model_construct(type="message_start", message=message),
        *block(0, kinds.TextBlock(type="text", text=""), said("Let me "), said("look.")),
        *block(1, call(1), wrote('{"path": "a"}')),
        *block(2, call(2), wrote('{"path":'), wrote(' "b"}')),
        kinds.RawMessageDeltaEvent.model_construct(
            type="message_delta", delta=end, usage=kinds.MessageDeltaUsage.model_construct(output_tokens=5)
        ),
        kinds.RawMessageStopEvent(type="message_stop"),
    ]


def google_stream() -> list[Any]:
    from google.genai import types

    def event(*parts: Any, reason: Any = None, usage: Any = None) -> Any:
        candidate = types.Candidate(content=types.Content(role="model", parts=list(parts)), finish_reason=reason)
        return types.GenerateContentResponse(response_id="r1", candidates=[candidate], usage_metadata=usage)

    def call(number: int, path: str) -> Any:
        return types.Part(function_call=types.FunctionCall(id=f"call_{number}", name="read", args={"path": path}))

    usage = types.GenerateContentResponseUsageMetadata(prompt_token_count=10, candidates_token_count=5)
    return [
        event(types.Part(text="Let me ")),
        event(types.Part(text="look."), call(1, "a")),
        event(call(2, "b")),
        event(reason=types.FinishReason.STOP, usage=usage),
    ]


STREAMS = {CHAT: chat_stream, RESPONSES: responses_stream, ANTHROPIC: anthropic_stream, GOOGLE: google_stream}


def to_wire(event: Any) -> Any:
    """An event of a library as its server would send it."""
    if isinstance(event, bytes):
        return event
    return event.model_dump(mode="json", by_alias=True, exclude_none=True, warnings=False)


async def hold(api: str, **fields: Any) -> tuple[list[Reply], list[dict[str, Any]]]:
    """A conversation of two turns with images, calls and an error; the replies and the requests."""
    events = [to_wire(event) for event in STREAMS[api]()]
    transport = Transport()
    messages: list[Any] = [UserMessage([TextContent("hi"), PIXEL], 1)]
    replies = []
    with serve(events, events) as odd:
        info = to_info(api, odd.url, **fields)
        info = type(info)(**{name: getattr(info, name) for name in info.__struct_fields__} | {"id": MODELS[api]})
        model = build_model(info, transport=transport, key="k", governor=Governor(FakeClock(auto=True)), timing=FAST)
        try:
            for _ in range(2):
                draft = Draft(info, started_ms=1, watcher=lambda delta: None)
                request = ModelRequest("be brief", messages, [READ], thinking="low", session_id="s1")
                replies.append(await model.reply(request, draft))
                messages = [*messages, *answer(replies[-1].message), UserMessage("and now?", 2)]
        finally:
            await transport.close()
    return replies, odd.requests


def answer(said: AssistantMessage) -> list[Any]:
    """The reply and the results of its calls, one an image, one an error."""
    contents = [[TextContent("x"), PIXEL], [TextContent("no such file")]]
    results = [
        ToolResultMessage(call.id, call.name, content, index == 1, 2)
        for index, (call, content) in enumerate(zip(said.calls, contents, strict=True))
    ]
    return [said, *results]


@pytest.mark.parametrize("reasoning", [True, False])
@pytest.mark.parametrize("api", APIS)
async def test_requests_are_what_the_library_takes(api, reasoning):
    _, requests = await hold(api, reasoning=reasoning)
    assert len(requests) == 2
    for body in requests:
        check_request(api, body)


@pytest.mark.parametrize("api", APIS)
async def test_replies_of_the_library_are_read(api):
    replies, _ = await hold(api)
    for reply in replies:
        assert (reply.failure, reply.message.text, reply.message.stop_reason) == (None, "Let me look.", "toolUse")
        assert [(call.name, call.arguments) for call in reply.message.calls] == [
            ("read", {"path": "a"}),
            ("read", {"path": "b"}),
        ]
        assert (reply.message.usage.input, reply.message.usage.output) == (10, 5)


@pytest.mark.parametrize(
    ("api", "change"),
    [
        (CHAT, {"message": [{"role": "user"}]}),
        (RESPONSES, {"temperature": "hot"}),
        (ANTHROPIC, {"max_tokens": None}),
        (CHAT, {"messages": [{"role": "user", "content": [{"type": "text", "texts": "x"}]}]}),
    ],
)
async def test_wrong_requests_are_noticed(api, change):
    _, requests = await hold(api)
    with pytest.raises(ValueError, match=r"validation error|Extra"):
        check_request(api, {**requests[0], **change})
