import asyncio
import json
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from retinue.testing import MockServer
from tests.unit.testing.wire_reader import APIS, Heard, ask, hear, make_body, post, read_events

REPLY = {
    "thinking": "Let me look — first.",
    "text": "Ich schaue nach: 漢字 🙂",
    "calls": [{"name": "read", "arguments": {"path": "ä.py", "limit": 5}}, {"name": "ls"}],
    "usage": {"input": 11, "output": 22, "cacheRead": 33},
}
STOPS = {
    "anthropic-messages": ("end_turn", "max_tokens", "tool_use", "refusal"),
    "openai-completions": ("stop", "length", "tool_calls", "content_filter"),
    "openai-responses": ("completed", "max_output_tokens", "completed", "content_filter"),
    "google-generative-ai": ("STOP", "MAX_TOKENS", "STOP", "SAFETY"),
}
MODES = pytest.mark.parametrize("stream", [True, False], ids=["stream", "plain"])
EVERY_API = pytest.mark.parametrize("api", APIS)


@EVERY_API
@MODES
@pytest.mark.parametrize("chunk_chars", [0, 1, 7])
async def test_every_format_says_all(api: str, stream: bool, chunk_chars: int) -> None:
    async with MockServer([{**REPLY, "chunk_chars": chunk_chars}]) as server:
        heard = hear(api, await ask(server, api, stream=stream))
    is_google = api == "google-generative-ai"
    assert heard == Heard(
        text="Ich schaue nach: 漢字 🙂",
        thinking="Let me look — first.",
        signature="" if api == "openai-completions" else "c2lnbmF0dXJlXzBfMA==",
        calls=[
            ("read", "" if is_google else "call_0_2", {"path": "ä.py", "limit": 5}),
            ("ls", "" if is_google else "call_0_3", {}),
        ],
        usage=(11, 22, 33, 0),
        stop=STOPS[api][2],
    )


@EVERY_API
@MODES
async def test_stop_reasons_are_translated(api: str, stream: bool) -> None:
    stops = ["stop", "length", "toolUse", "refusal"]
    async with MockServer([{"text": "x", "stop": stop} for stop in stops]) as server:
        heard = [hear(api, await ask(server, api, stream=stream, turns=turn)).stop for turn in range(4)]
    assert heard == list(STOPS[api])


@EVERY_API
@MODES
async def test_turns_choose_the_reply(api: str, stream: bool) -> None:
    async with MockServer([{"text": "one"}, {"text": "two"}, {"text": "three"}]) as server:
        heard = [hear(api, await ask(server, api, stream=stream, turns=turn)).text for turn in (2, 0, 1, 1)]
    assert heard == ["three", "one", "two", "two"]


@EVERY_API
async def test_exhausted_script_is_an_error(api: str) -> None:
    async with MockServer([{"text": "one"}]) as server:
        response = await ask(server, api, stream=True, turns=1)
    assert response.status == 400
    assert response.json["error"]["message"] == "the script has no further reply: script has 1, asked for 2"


async def test_repeating_script_begins_again() -> None:
    script = {"replies": [{"calls": [{"name": "ls"}]}, {"text": "two"}], "repeat": True}
    async with MockServer(script) as server:
        heard = [hear(APIS[0], await ask(server, APIS[0], stream=False, turns=turn)) for turn in (0, 1, 2)]
    assert [(one.text, [call[1] for call in one.calls]) for one in heard] == [
        ("", ["call_0_0"]),
        ("two", []),
        ("", ["call_2_0"]),
    ]


@EVERY_API
async def test_match_plays_its_own_track(api: str) -> None:
    rule = {"last_user": "^deploy"}
    script: list[dict[str, Any]] = [
        {"text": "plain"},
        {"calls": [{"name": "ls"}], "match": rule},
        {"text": "deployed", "match": rule},
    ]
    async with MockServer(script) as server:
        first = hear(api, await ask(server, api, stream=True, user="deploy it"))
        second = hear(api, await ask(server, api, stream=True, user="deploy it", turns=1))
        other = hear(api, await ask(server, api, stream=True, user="hello"))
    assert ([call[0] for call in first.calls], second.text, other.text) == (["ls"], "deployed", "plain")


async def test_usage_chunk_only_on_request() -> None:
    path, body = make_body("openai-completions", True)
    body.pop("stream_options")
    async with MockServer([{"text": "x"}]) as server:
        response = await post(server, path, json.dumps(body).encode())
    assert not any("usage" in data for _, data in read_events(response.body)[:-1])


async def test_delays_are_kept() -> None:
    loop = asyncio.get_running_loop()
    script = [{"text": "abcde", "delay_ms": 60, "chunk_ms": 20, "chunk_chars": 1}]
    took = []
    async with MockServer(script) as server:
        for stream in (True, False):
            began = loop.time()
            assert hear(APIS[1], await ask(server, APIS[1], stream=stream)).text == "abcde"
            took.append(loop.time() - began)
    assert all(0.14 <= seconds < 0.6 for seconds in took)


async def test_one_connection_serves_many() -> None:
    path, body = make_body("anthropic-messages", False)
    data = json.dumps(body).encode()
    request = f"POST {path} HTTP/1.1\r\ncontent-length: {len(data)}\r\n\r\n".encode() + data
    async with MockServer([{"text": "x", "delay_ms": 5}]) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        for at in range(0, len(request) * 3, 50):
            writer.write((request * 3)[at : at + 50])
            await asyncio.sleep(0)
        answers = [await read_plain(reader) for _ in range(3)]
        writer.close()
    assert [answer["content"][0]["text"] for answer in answers] == ["x", "x", "x"]


async def read_plain(reader: asyncio.StreamReader) -> Any:
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
    return json.loads(await reader.readexactly(length))


@pytest.mark.parametrize(
    ("path", "data", "status"),
    [
        ("/v1/messages", b"{", 400),
        ("/v1/messages", b'{"messages": 5}', 400),
        ("/v1/responses", b'{"input": 5}', 400),
        ("/v1/chat/completions", b"", 400),
        ("/nowhere", b"{}", 404),
    ],
)
async def test_bad_requests_are_told(path: str, data: bytes, status: int) -> None:
    async with MockServer([{"text": "x"}]) as server:
        response = await post(server, path, data)
    assert (response.status, "message" in response.json["error"]) == (status, True)


async def test_models_are_listed() -> None:
    async with MockServer([]) as server:
        openai = await post(server, "/v1/models", b"", method="GET")
        google = await post(server, "/v1beta/models", b"", method="GET")
    assert [entry["id"] for entry in openai.json["data"]] == ["mock-1"]
    assert [entry["name"] for entry in google.json["models"]] == ["models/mock-1"]


async def test_requests_are_recorded() -> None:
    async with MockServer([{"text": "x"}]) as server:
        await ask(server, "anthropic-messages", stream=False)
        (request,) = server.requests
    assert (request.method, request.path, request.json["model"]) == ("POST", "/v1/messages", "mock-1")
    assert request.headers["host"] == "x"


def test_models_json_points_at_server() -> None:
    with MockServer.in_thread([{"text": "x"}]) as server:
        assert server.models_json(api="google-generative-ai", reasoning=True) == {
            "providers": {
                "mock": {
                    "baseUrl": f"http://127.0.0.1:{server.port}/v1beta",
                    "api": "google-generative-ai",
                    "apiKey": "mock-key",
                    "models": [{"id": "mock-1", "contextWindow": 128000, "maxTokens": 16384, "reasoning": True}],
                }
            }
        }


def post_plain(url: str, headers: dict[str, str]) -> Any:
    body = json.dumps(make_body("anthropic-messages", False)[1]).encode()
    with urllib.request.urlopen(urllib.request.Request(url, body, headers), timeout=5) as response:
        return json.load(response)


def test_process_serves_until_input_ends(tmp_path: Path) -> None:
    script = tmp_path / "script.json"
    script.write_text('{"replies": [{"text": "from a process"}]}')
    command = [sys.executable, "-m", "retinue.testing.server", "--script", str(script), "--log", str(tmp_path / "log")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout and process.stdin and process.stderr
        port = json.loads(process.stdout.readline())["port"]
        reply = post_plain(f"http://127.0.0.1:{port}/v1/messages?key=secret&a=1", {"X-Api-Key": "secret"})
        process.stdin.close()
        assert (process.wait(5), process.stderr.read()) == (0, b"")
    log = (tmp_path / "log").read_text()
    line = json.loads(log)
    assert reply["content"] == [{"type": "text", "text": "from a process"}]
    assert (line["path"], line["headers"]["x-api-key"]) == ("/v1/messages?key=***&a=1", "***")
    assert "secret" not in log and line["arrivedNs"] > 0


def test_process_ends_on_sigterm(tmp_path: Path) -> None:
    script = tmp_path / "script.json"
    script.write_text("[]")
    command = [sys.executable, "-m", "retinue.testing.server", "--script", str(script)]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as process:
        assert process.stdout
        process.stdout.readline()
        process.terminate()
        assert process.wait(5) == 0


def test_process_names_a_bad_script(tmp_path: Path) -> None:
    script = tmp_path / "script.json"
    script.write_text('[{"txt": "x"}]')
    command = [sys.executable, "-m", "retinue.testing.server", "--script", str(script)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=10)
    assert done.returncode == 2
    assert done.stderr.startswith(f"error: {script}: replies[0]: Object contains unknown field `txt`; see")
