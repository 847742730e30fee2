"""Sessions with null in optional fields, resumed by the real program against a server that records."""

import json

import pytest

from retinue.settings.schema import SETTINGS
from retinue.settings.subagents import SUBAGENT_SETTINGS
from retinue.testing import MockServer
from retinue.testing.server import APIS

MODEL_FIELDS = (
    "name",
    "reasoning",
    "input",
    "cost",
    "contextWindow",
    "maxTokens",
    "headers",
    "compat",
    "baseUrl",
    "api",
)
SERVER_FIELDS = ("args", "env", "cwd", "url", "headers", "type", "timeout", "exposure", "toolExposure", "concurrency")


def call(**extra):
    return {"type": "toolCall", "id": "call_1", "name": "read", "arguments": {"path": "a.py", "limit": None}, **extra}


def reply(api, *content, stop="toolUse", **extra):
    usage = {"input": 10, "output": 5, "cacheRead": 0, "cacheWrite": 0, "totalTokens": 15}
    head = {"role": "assistant", "api": api, "provider": "mock", "model": "mock-1", "timestamp": 2}
    return {**head, "content": list(content), "usage": usage, "stopReason": stop, **extra}


RESULT = {"role": "toolResult", "toolCallId": "call_1", "toolName": "read", "isError": False, "timestamp": 3}


def write_session(path, *messages):
    lines = [{"type": "session", "version": 3, "id": "0197", "timestamp": "2026-01-01T00:00:00.000Z", "cwd": ""}]
    for number, message in enumerate(messages):
        parent = lines[-1]["id"] if number else None
        head = {"type": "message", "id": f"{number:08x}", "parentId": parent, "timestamp": "2026-01-01T00:00:00.000Z"}
        lines.append({**head, "message": message})
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def go_on(place, api, *messages, mode=()):
    """What the model is sent when such a session goes on, and what the user is told."""
    path = write_session(place.root / "s.jsonl", *messages)
    with MockServer.in_thread([{"text": "Done."}] * 5) as server:
        (place.agent_dir / "models.json").write_text(json.dumps(server.models_json(api=api)))
        args = (*mode, "-p", "--model", "mock/mock-1", "--session", str(path), "And now?")
        result = place.run(*args)
    assert result.status == 0, result.stderr
    (request,) = server.requests
    return request.json, result


def start(text="Read it."):
    return {"role": "user", "content": [{"type": "text", "text": text}], "timestamp": 1}


def found(**extra):
    return {**RESULT, "content": [{"type": "text", "text": "the file's text"}], **extra}


@pytest.mark.parametrize("api", APIS)
def test_null_fields_change_no_request(place, api):
    thought = {"type": "thinking", "thinking": "Look."}
    said = {"type": "text", "text": "Looking."}
    plain, quiet = go_on(place, api, start(), reply(api, thought, said, call()), found())
    nulls = reply(
        *(api, {**thought, "thinkingSignature": None, "redacted": None}, {**said, "textSignature": None}),
        call(thoughtSignature=None, namespace=None),
        **dict.fromkeys(("responseId", "responseModel", "errorMessage", "rawStopReason", "thinkingLevel")),
    )
    nulls["usage"] = {**nulls["usage"], "reasoning": None, "cost": None}
    with_nulls, also_quiet = go_on(place, api, start(), nulls, found(details=None, usage=None))
    assert with_nulls == plain
    assert "the file's text" in json.dumps(plain) and "a.py" in json.dumps(plain)
    assert quiet.stderr == also_quiet.stderr == ""


@pytest.mark.parametrize(
    "messages,told",
    [
        ([start(), reply("x", call(name=7)), found()], "a tool call"),
        ([start(), {"role": "oracle", "content": "x", "timestamp": 2}], "a message of role 'oracle'"),
        ([start(), reply("x", {"type": "hologram", "data": "x"}, {"type": "text", "text": "y"})], "'hologram'"),
        ([start(), reply("x", call())], "the call 'call_1' of read has no result"),
        ([start(), found()], "the result of call 'call_1' (read)"),
    ],
)
def test_what_is_left_out_is_told(place, messages, told):
    _, result = go_on(place, "openai-completions", *messages)
    assert told in result.stderr and result.stderr.count("retinue:") == 1


def test_null_in_any_setting_says_nothing(place):
    nulls = dict.fromkeys(("compaction", "retry", "defaultModel", "steeringMode", "defaultTools", "enabledModels"))
    own = {item.key: None for item in SETTINGS if "." not in item.key}
    deep = {"compaction": {"reserveTokens": None, "modelOverrides": {"a/b": None, "c/d": {"reserveTokens": None}}}}
    provider = {"baseUrl": "http://127.0.0.1:1", "api": "openai-completions", "apiKey": "k"}
    fields = dict.fromkeys(("name", "oauth", "headers", "compat", "authHeader", "modelOverrides"))
    model = {"id": "m", **dict.fromkeys((*MODEL_FIELDS, "thinkingLevelMap", "samplingParamsByThinkingLevel"))}
    cost = {"input": 1, "output": 1, "cacheRead": 0, "cacheWrite": 0, "tiers": None}
    models = [model, {**model, "id": "n", "cost": cost, "compat": {"supportsStore": None, "maxTokensField": None}}]
    server = {"command": "true", "enabled": False, **dict.fromkeys(SERVER_FIELDS)}
    files = {
        "settings.json": {**nulls, **own, **deep},
        "models.json": {"providers": {"p": {**provider, **fields, "models": models}, "q": None}},
        "mcp.json": {"mcpServers": {"s": server, "t": None}},
        "keybindings.json": {"app.exit": None},
        "subagents.json": {item.key.partition(".")[0]: None for item in SUBAGENT_SETTINGS},
        "auth.json": {"anthropic": None, "openai": {"type": "api_key", "key": "k", "env": None}},
    }
    for name, content in files.items():
        (place.agent_dir / name).write_text(json.dumps(content))
        (place.agent_dir / name).chmod(0o600)
    hook = {"name": "h", "point": "agent.turn.start", "type": "observer", "command": "true"}
    hook |= dict.fromkeys(("args", "env", "priority", "enabled"))
    (place.home / ".codingcode").mkdir()
    (place.home / ".codingcode" / "hooks.yaml").write_text(json.dumps({"hooks": [hook]}))
    (place.agent_dir / "agents").mkdir()
    head = "".join(f"{name}:\n" for name in ("model", "thinking", "max_turns", "color", "isolation", "persist_session"))
    (place.agent_dir / "agents" / "helper.md").write_text(f"---\ndescription: Helps\n{head}---\nHelp.\n")
    result = place.run("-p", "hi", replies=[{"text": "Hello."}])
    assert (result.status, result.stdout, result.stderr) == (0, "Hello.\n", "")
    assert place.run("agents").stderr == ""
    assert {"p/m", "p/n"} <= set(place.run("models").stdout.split())
