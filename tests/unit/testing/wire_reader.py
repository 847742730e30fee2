"""An independent, strict reader of the four wire formats, over a raw socket: what a careful client would accept."""

import asyncio
import json
from dataclasses import dataclass, field
from typing import Any

from retinue.testing import MockServer

PATHS = {
    "anthropic-messages": "/v1/messages",
    "openai-completions": "/v1/chat/completions",
    "openai-responses": "/v1/responses",
    "google-generative-ai": "/v1beta/models/mock-1",
}
APIS = list(PATHS)


@dataclass
class Response:
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    chunks: list[bytes] = field(default_factory=list)
    end: str = ""
    """complete, closed, reset or silent"""

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Heard:
    text: str = ""
    thinking: str = ""
    signature: str = ""
    calls: list[tuple[str, str, Any]] = field(default_factory=list)
    usage: tuple[int, int, int, int] | None = None
    stop: str = ""


def make_body(api: str, stream: bool, turns: int = 0, user: str = "hi") -> tuple[str, dict[str, Any]]:
    """A request after so many assistant turns, each with one tool call and its result."""
    if api == "google-generative-ai":
        contents: list[dict[str, Any]] = [{"role": "user", "parts": [{"text": user}]}]
        for turn in range(turns):
            contents.append({"role": "model", "parts": [{"functionCall": {"name": "ls", "args": {"n": turn}}}]})
            contents.append({"role": "user", "parts": [{"functionResponse": {"name": "ls", "response": {"n": turn}}}]})
        action = ":streamGenerateContent?alt=sse" if stream else ":generateContent"
        return PATHS[api] + action, {"contents": contents}
    if api == "openai-responses":
        items: list[dict[str, Any]] = [{"role": "user", "content": [{"type": "input_text", "text": user}]}]
        for turn in range(turns):
            items.append({"type": "reasoning", "id": f"rs_{turn}", "summary": []})
            items.append({"type": "function_call", "call_id": f"c{turn}", "name": "ls", "arguments": "{}"})
            items.append({"type": "function_call_output", "call_id": f"c{turn}", "output": "x"})
        return PATHS[api], {"model": "mock-1", "input": items, "stream": stream}
    messages: list[dict[str, Any]] = [{"role": "user", "content": user}]
    for turn in range(turns):
        if api == "anthropic-messages":
            use = {"type": "tool_use", "id": f"c{turn}", "name": "ls", "input": {}}
            messages.append({"role": "assistant", "content": [use]})
            result = {"type": "tool_result", "tool_use_id": f"c{turn}", "content": "x"}
            messages.append({"role": "user", "content": [result]})
        else:
            call = {"id": f"c{turn}", "type": "function", "function": {"name": "ls", "arguments": "{}"}}
            messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
            messages.append({"role": "tool", "tool_call_id": f"c{turn}", "content": "x"})
    options = {"stream_options": {"include_usage": True}} if stream and api == "openai-completions" else {}
    return PATHS[api], {"model": "mock-1", "messages": messages, "stream": stream, **options}


async def ask(
    server: MockServer, api: str, *, stream: bool, turns: int = 0, user: str = "hi", silence_s: float = 2
) -> Response:
    path, body = make_body(api, stream, turns, user)
    return await post(server, path, json.dumps(body).encode(), silence_s=silence_s)


async def post(server: MockServer, path: str, data: bytes, *, silence_s: float = 2, method: str = "POST") -> Response:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(f"{method} {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data)
    response = Response()
    try:
        async with asyncio.timeout(silence_s):
            await _receive(reader, response)
        response.end = "complete"
    except asyncio.IncompleteReadError as error:
        response.body += error.partial
        response.end = "closed"
    except ConnectionResetError:
        response.end = "reset"
    except TimeoutError:
        response.end = "silent"
    finally:
        writer.transport.abort()
    return response


async def _receive(reader: asyncio.StreamReader, response: Response) -> None:
    head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    response.status = int(head[0].split(" ")[1])
    response.headers = dict(line.split(": ", 1) for line in head[1:] if line)
    if response.headers.get("transfer-encoding") != "chunked":
        left = int(response.headers["content-length"])
        while left:
            piece = await reader.read(left)
            if not piece:
                raise asyncio.IncompleteReadError(b"", left)
            response.body += piece
            left -= len(piece)
        return
    while size := int((await reader.readuntil(b"\r\n"))[:-2], 16):
        chunk = await reader.readexactly(size + 2)
        assert chunk.endswith(b"\r\n")
        response.chunks.append(chunk[:-2])
        response.body += chunk[:-2]
    assert await reader.readexactly(2) == b"\r\n"


def read_events(body: bytes) -> list[tuple[str, Any]]:
    """Events as (name, data); every line must be known, every event complete."""
    found: list[tuple[str, Any]] = []
    name = ""
    data: list[str] = []
    *lines, last = body.decode().split("\n")
    assert last == ""
    for line in lines:
        match line.split(": ", 1):
            case ["event", value]:
                name = value
            case ["data", value]:
                data.append(value)
            case [""]:
                text = "\n".join(data)
                found.append((name, text if text == "[DONE]" else json.loads(text)))
                name, data = "", []
            case other:
                raise AssertionError(other)
    assert not data
    return found


def hear(api: str, response: Response) -> Heard:
    """What a reply says, streamed or not."""
    assert (response.status, response.end) == (200, "complete")
    if response.headers["content-type"].startswith("text/event-stream"):
        return STREAMS[api](read_events(response.body))
    return PLAINS[api](response.json)


def hear_anthropic_usage(usage: dict[str, int]) -> tuple[int, int, int, int]:
    names = ("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
    return tuple(usage[name] for name in names)  # type: ignore[return-value]


def hear_anthropic(message: dict[str, Any]) -> Heard:
    assert (message["type"], message["role"], message["stop_sequence"]) == ("message", "assistant", None)
    heard = Heard(usage=hear_anthropic_usage(message["usage"]), stop=message["stop_reason"])
    for block in message["content"]:
        if block["type"] == "text":
            heard.text += block["text"]
        elif block["type"] == "thinking":
            heard.thinking += block["thinking"]
            heard.signature += block["signature"]
        else:
            assert block["type"] == "tool_use"
            heard.calls.append((block["name"], block["id"], block["input"]))
    return heard


def hear_anthropic_stream(events: list[tuple[str, Any]]) -> Heard:
    assert all(name == data["type"] for name, data in events)
    events = [event for event in events if event[0] != "ping"]
    assert [events[0][0], events[-2][0], events[-1][0]] == ["message_start", "message_delta", "message_stop"]
    message = events[0][1]["message"]
    assert (message["content"], message["stop_reason"]) == ([], None)
    partial = ""
    for name, data in events[1:-2]:
        if name == "content_block_start":
            assert data["index"] == len(message["content"])
            message["content"].append(data["content_block"])
            partial = ""
            continue
        block = message["content"][data["index"]]
        assert data["index"] == len(message["content"]) - 1
        if name == "content_block_stop":
            if block["type"] == "tool_use":
                block["input"] = json.loads(partial)
            continue
        delta = data["delta"]
        match block["type"], delta["type"]:
            case "text", "text_delta":
                block["text"] += delta["text"]
            case "thinking", "thinking_delta":
                assert block["signature"] == ""
                block["thinking"] += delta["thinking"]
            case "thinking", "signature_delta":
                block["signature"] = delta["signature"]
            case "tool_use", "input_json_delta":
                partial += delta["partial_json"]
            case other:
                raise AssertionError(other)
    message.update(stop_reason=events[-2][1]["delta"]["stop_reason"], usage=events[-2][1]["usage"])
    return hear_anthropic(message)


def hear_chat_usage(usage: dict[str, Any]) -> tuple[int, int, int, int]:
    details = usage["prompt_tokens_details"]
    read, written = details["cached_tokens"], details.get("cache_write_tokens", 0)
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    return usage["prompt_tokens"] - read - written, usage["completion_tokens"], read, written


def hear_chat(reply: dict[str, Any]) -> Heard:
    (choice,) = reply["choices"]
    message = choice["message"]
    assert (reply["object"], message["role"]) == ("chat.completion", "assistant")
    return Heard(
        text=message["content"] or "",
        thinking=message.get("reasoning_content", ""),
        calls=[
            (call["function"]["name"], call["id"], json.loads(call["function"]["arguments"]))
            for call in message.get("tool_calls", [])
        ],
        usage=hear_chat_usage(reply["usage"]),
        stop=choice["finish_reason"],
    )


def hear_chat_stream(events: list[tuple[str, Any]]) -> Heard:
    assert {name for name, _ in events} == {""}
    *chunks, usage, done = [data for _, data in events]
    assert (done, usage["choices"]) == ("[DONE]", [])
    assert {(chunk["object"], chunk["usage"]) for chunk in chunks} == {("chat.completion.chunk", None)}
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    finishes = [chunk["choices"][0]["finish_reason"] for chunk in chunks]
    assert deltas[0]["role"] == "assistant" and deltas[-1] == {} and set(finishes[:-1]) <= {None}
    calls: list[dict[str, Any]] = []
    for delta in deltas:
        for call in delta.get("tool_calls", []):
            if call["index"] == len(calls):
                calls.append({"id": call["id"], "name": call["function"]["name"], "arguments": ""})
            assert call["index"] == len(calls) - 1
            calls[-1]["arguments"] += call["function"]["arguments"]
    return Heard(
        text="".join(delta.get("content") or "" for delta in deltas),
        thinking="".join(delta.get("reasoning_content", "") for delta in deltas),
        calls=[(call["name"], call["id"], json.loads(call["arguments"])) for call in calls],
        usage=hear_chat_usage(usage["usage"]),
        stop=finishes[-1],
    )


def hear_responses(response: dict[str, Any]) -> Heard:
    usage = response["usage"]
    details = usage["input_tokens_details"]
    read, written = details["cached_tokens"], details.get("cache_write_tokens", 0)
    heard = Heard(usage=(usage["input_tokens"] - read - written, usage["output_tokens"], read, written))
    assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"]
    heard.stop = (response["incomplete_details"] or {}).get("reason") or response["status"]
    for item in response["output"]:
        if item["type"] == "message":
            heard.text += "".join(part["text"] for part in item["content"])
        elif item["type"] == "reasoning":
            heard.thinking += "".join(part["text"] for part in item["summary"])
            heard.signature += item["encrypted_content"]
        else:
            assert item["type"] == "function_call"
            heard.calls.append((item["name"], item["call_id"], json.loads(item["arguments"])))
    return heard


def hear_responses_stream(events: list[tuple[str, Any]]) -> Heard:
    assert all(name == data["type"] for name, data in events)
    assert [data["sequence_number"] for _, data in events] == list(range(len(events)))
    assert [name for name, _ in events[:2]] == ["response.created", "response.in_progress"]
    assert events[-1][0] in ("response.completed", "response.incomplete")
    pieces: dict[int, str] = {}
    items: list[dict[str, Any]] = []
    for name, data in events[2:-1]:
        index = data["output_index"]
        if name == "response.output_item.added":
            assert (index, data["item"].get("content", []), data["item"].get("summary", [])) == (len(pieces), [], [])
            pieces[index] = ""
        elif name.endswith(".delta"):
            pieces[index] += data["delta"]
        elif name in ("response.output_text.done", "response.reasoning_summary_text.done"):
            assert data["text"] == pieces[index]
        elif name == "response.function_call_arguments.done":
            assert data["arguments"] == pieces[index]
        elif name == "response.output_item.done":
            items.append(data["item"])
        else:
            assert name.rpartition(".")[0].endswith("_part")
    assert items == events[-1][1]["response"]["output"]
    return hear_responses(events[-1][1]["response"])


def hear_google(reply: dict[str, Any]) -> Heard:
    usage = reply["usageMetadata"]
    read = usage.get("cachedContentTokenCount", 0)
    heard = Heard(usage=(usage["promptTokenCount"] - read, usage["candidatesTokenCount"], read, 0))
    assert usage["totalTokenCount"] == usage["promptTokenCount"] + usage["candidatesTokenCount"]
    (candidate,) = reply["candidates"]
    heard.stop = candidate.get("finishReason", "")
    assert candidate["content"]["role"] == "model"
    for part in candidate["content"].get("parts", []):
        if "functionCall" in part:
            heard.calls.append((part["functionCall"]["name"], "", part["functionCall"]["args"]))
        elif part.get("thought"):
            heard.thinking += part["text"]
            heard.signature += part.get("thoughtSignature", "")
        else:
            heard.text += part["text"]
    return heard


def hear_google_stream(events: list[tuple[str, Any]]) -> Heard:
    chunks = [hear_google(data) for _, data in events]
    assert {chunk.stop for chunk in chunks[:-1]} <= {""}
    return Heard(
        text="".join(chunk.text for chunk in chunks),
        thinking="".join(chunk.thinking for chunk in chunks),
        signature="".join(chunk.signature for chunk in chunks),
        calls=[call for chunk in chunks for call in chunk.calls],
        usage=chunks[-1].usage,
        stop=chunks[-1].stop,
    )


PLAINS = dict(zip(APIS, (hear_anthropic, hear_chat, hear_responses, hear_google), strict=True))
STREAMS = dict(
    zip(APIS, (hear_anthropic_stream, hear_chat_stream, hear_responses_stream, hear_google_stream), strict=True)
)
