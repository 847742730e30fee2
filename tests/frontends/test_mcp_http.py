"""`retinue mcp --http` as a black box: several clients, who come and go, poll tasks and answer what agents ask."""

import asyncio
import json
import os
import re
import socket
import time
from contextlib import asynccontextmanager

import httpx2
import pytest

from retinue.testing.process import open_cli

ENVELOPE = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}
TASKS = {"extensions": {"io.modelcontextprotocol/tasks": {}}}
LOOK = {"agent": "Explore", "task": "look"}
ASKER = "---\nname: asker\ndescription: d\ntools: read, ask_parent\n---\nWork.\n"
QUESTION = [
    {"calls": [{"name": "ask_parent", "arguments": {"question": "Which port?", "options": ["80", "81"]}}]},
    {"text": "done"},
]


class Server:
    """The program and its address."""

    def __init__(self, process):
        self.process = process
        self.lines = [process.stderr.readline().decode().rstrip("\n") for _ in range(2)]
        self.url, self.authorization = self.lines[0], self.lines[1].removeprefix("Authorization: ")
        self.count = 0

    def post(self, method, capabilities=None, headers=(), **params):
        """A request of the newest revision by hand; returns the response."""
        self.count += 1
        meta = {**ENVELOPE, "io.modelcontextprotocol/clientCapabilities": capabilities or {}}
        body = {"jsonrpc": "2.0", "id": self.count, "method": method, "params": {**params, "_meta": meta}}
        name = params.get("name") or params.get("taskId")
        given = {
            "Authorization": self.authorization,
            "Accept": "application/json, text/event-stream",
            "MCP-Protocol-Version": "2026-07-28",
            "Mcp-Method": method,
            **({"Mcp-Name": name} if name else {}),
            **dict(headers),
        }
        return httpx2.post(self.url, json=body, headers={key: value for key, value in given.items() if value})

    def ask(self, method, capabilities=TASKS, **params):
        """The result or the error of a request."""
        answer = self.post(method, capabilities, **params).json()
        return answer.get("result") or answer["error"]

    def start_task(self, capabilities=TASKS, **arguments):
        call = {"name": "subagent", "arguments": arguments or LOOK}
        return self.ask("tools/call", capabilities, **call)

    def wait_for(self, task_id, *statuses):
        while (task := self.ask("tasks/get", taskId=task_id))["status"] not in statuses:
            time.sleep(0.05)
        return task


@pytest.fixture
def serve(place):
    processes = []

    def start(*replies, env=None, args=()):
        arguments = ["mcp", "--http", "--model", place.script(*replies), *args]
        opened = open_cli(arguments, place.work, env, home=place.home)
        processes.append((opened, opened.__enter__()))
        return Server(processes[-1][1])

    yield start
    for opened, process in processes:
        process.terminate()
        assert process.wait(5) == 143
        assert b"Traceback" not in process.stderr.read()
        opened.__exit__(None, None, None)


@pytest.fixture
def asker(place):
    folder = place.agent_dir / "agents"
    folder.mkdir()
    (folder / "asker.md").write_text(ASKER)
    return {"agent": "asker", "task": "look"}


@asynccontextmanager
async def client(server, **options):
    """The official client, connected."""
    from mcp import Client
    from mcp.client.streamable_http import streamable_http_client

    headers = {"Authorization": server.authorization}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=30) as http,
        Client(streamable_http_client(server.url, http_client=http), **options) as connected,
    ):
        yield connected


def text_of(result):
    return "\n".join(block.text for block in result.content)


def heard(place):
    """What agents were answered, as their sessions say."""
    lines = [line for path in place.agent_dir.rglob("*.jsonl") for line in path.read_text().splitlines()]
    messages = [json.loads(line).get("message", {}) for line in lines]
    return [each["content"][0]["text"] for each in messages if each.get("toolName") == "ask_parent"]


@pytest.mark.parametrize(("mode", "version"), [("auto", "2026-07-28"), ("legacy", "2025-11-25")])
async def test_both_kinds_of_clients_are_served(serve, mode, version):
    server = serve({"text": "found it"})
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/mcp", server.lines[0])
    assert re.fullmatch(r"Authorization: Bearer [\w-]{43}", server.lines[1])
    async with client(server, mode=mode) as connected:
        assert connected.protocol_version == version
        assert "subagent" in [tool.name for tool in (await connected.list_tools()).tools]
        result = await connected.call_tool("subagent", LOOK)
    assert (text_of(result), result.is_error) == ("found it", False)


def test_stranger_is_refused(serve):
    server = serve(env={"RETINUE_MCP_TOKEN": "my-own-token"})
    assert server.lines[1] == "Authorization: Bearer my-own-token"
    answers = {
        "none": server.post("tools/list", headers={"Authorization": ""}),
        "wrong": server.post("tools/list", headers={"Authorization": "Bearer other"}),
        "origin": server.post("tools/list", headers={"Origin": "https://evil.example"}),
        "unsigned origin": server.post("tools/list", headers={"Origin": "https://evil.example", "Authorization": ""}),
        "host": server.post("tools/list", headers={"Host": "evil.example"}),
        "own origin": server.post("tools/list", headers={"Origin": server.url.removesuffix("/mcp")}),
    }
    assert {name: answer.status_code for name, answer in answers.items()} == {
        **{"none": 401, "wrong": 401, "origin": 403, "unsigned origin": 403, "host": 421, "own origin": 200}
    }
    assert answers["none"].headers["www-authenticate"].startswith("Bearer")


@pytest.mark.parametrize(
    ("args", "env", "words"),
    [
        (["--http", "--host", "0.0.0.0"], {}, "set RETINUE_MCP_TOKEN"),
        (["--http", "--port", "many"], {}, "--port must be a number"),
        (["--http"], {"RETINUE_MCP_TOKEN": "two words"}, "RETINUE_MCP_TOKEN may contain"),
        (["--port", "80"], {}, "--port needs --http"),
    ],
)
def test_wrong_flags_are_refused(place, args, env, words):
    result = place.run("mcp", *args, env=env)
    assert (result.status, words in result.stderr, result.stdout) == (2, True, ""), result.stderr


def test_taken_port_is_named(place):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        result = place.run("mcp", "--http", "--port", str(taken.getsockname()[1]))
    assert (result.status, "cannot listen on '127.0.0.1'" in result.stderr) == (2, True), result.stderr


def test_task_is_polled_by_another_connection(serve):
    server = serve({"text": "the report", "delay_ms": 300})
    started = server.start_task()
    assert (started["resultType"], started["status"]) == ("task", "working")
    assert {"result", "error", "inputRequests", "requestState"} & set(started) == set()
    task = server.wait_for(started["taskId"], "completed")
    assert task["result"]["content"] == [{"type": "text", "text": "the report"}]
    assert server.ask("tasks/get", taskId=started["taskId"]) == task
    # Without the extension a call is answered as always.
    assert server.ask("tools/call", {}, name="subagent", arguments=LOOK)["resultType"] == "complete"


def test_cancelled_task_stops_its_run(serve):
    server = serve({"text": "late", "delay_ms": 60_000})
    task_id = server.start_task()["taskId"]
    for _ in range(2):
        assert server.ask("tasks/cancel", taskId=task_id)["resultType"] == "complete"
    server.wait_for(task_id, "cancelled")
    listed = server.ask("tools/call", name="list_subagents", arguments={})
    assert "running" not in listed["content"][0]["text"]


@pytest.mark.parametrize("method", ["tasks/get", "tasks/update", "tasks/cancel"])
def test_unknown_task_is_an_error(serve, method):
    server = serve()
    more = {"inputResponses": {}} if method == "tasks/update" else {}
    assert server.ask(method, taskId="nobody", **more)["code"] == -32602
    assert server.ask(method, {}, taskId="nobody", **more)["code"] == -32021
    assert server.post(method, TASKS, {"Mcp-Name": "other"}, taskId="nobody", **more).json()["error"]["code"] == -32020


def test_question_of_a_task_is_answered_once(place, serve, asker):
    server = serve(*QUESTION)
    forms = {**TASKS, "elicitation": {}}
    task_id = server.start_task(forms, **asker)["taskId"]
    [(key, request)] = server.wait_for(task_id, "input_required")["inputRequests"].items()
    assert request["method"] == "elicitation/create"
    assert "Which port?" in request["params"]["message"]
    wrong = [{"action": "accept", "content": {}}, {"action": "shout"}, "yes", None]
    for response in wrong:
        server.ask("tasks/update", taskId=task_id, inputResponses={key: response, "other": {"action": "cancel"}})
    assert server.ask("tasks/get", taskId=task_id)["status"] == "input_required"
    for port in ("81", "82"):  # the second client is late
        answer = {key: {"action": "accept", "content": {"answer": port}}}
        assert server.ask("tasks/update", taskId=task_id, inputResponses=answer)["resultType"] == "complete"
    task = server.wait_for(task_id, "completed", "failed")
    assert (task["result"]["content"][0]["text"], heard(place)) == ("done", ["81"])


@pytest.mark.parametrize("action", ["accept", "decline"])
async def test_question_of_a_call_goes_to_the_user(place, serve, asker, action):
    from mcp.types import ElicitResult

    asked = []

    async def elicit(context, params):
        asked.append(params.message)
        return ElicitResult(action=action, content={"answer": "81"} if action == "accept" else None)

    async with client(serve(*QUESTION), elicitation_callback=elicit) as connected:
        result = await connected.call_tool("subagent", asker)
    [question], [answer] = asked, heard(place)
    assert ("Which port?" in question, text_of(result)) == (True, "done")
    assert answer == ("81" if action == "accept" else "no answer: decide yourself and say so")


async def test_waiting_reader_passes_the_question_on(place, serve, asker):
    from mcp.types import ElicitResult

    async def elicit(context, params):
        return ElicitResult(action="accept", content={"answer": "81"})

    start = {"subagent_type": "asker", "prompt": "look", "description": "a look"}
    async with client(serve(*QUESTION), elicitation_callback=elicit) as connected:
        run_id = re.search(r"Agent ID: (\w+)", text_of(await connected.call_tool("Agent", start)))[1]
        result = await connected.call_tool("get_subagent_result", {"agent_id": run_id, "wait": True})
    assert (text_of(result).endswith("done"), heard(place)) == (True, ["81"])


@pytest.mark.parametrize("answer", ["allow", "deny", None])
async def test_permission_is_asked_of_the_user(place, serve, answer):
    from mcp.types import ElicitResult

    asked = []

    async def elicit(context, params):
        asked.append(params.requested_schema["properties"]["answer"]["enum"])
        return ElicitResult(action="accept", content={"answer": answer})

    (place.agent_dir / "agents").mkdir()
    (place.agent_dir / "agents" / "writer.md").write_text(
        "---\nname: writer\ndescription: d\ntools: write\n---\nWork.\n"
    )
    (place.agent_dir / "subagents.json").write_text('{"approvals": "ask", "subagents": {"allowWrite": true}}')
    call = {"name": "write", "arguments": {"path": "new.txt", "content": "fresh"}}
    server = serve({"calls": [call]}, {"text": "done"})
    async with client(server, elicitation_callback=elicit if answer else None) as connected:
        result = await connected.call_tool("subagent", {"agent": "writer", "task": "look"})
    # If nobody can be asked, the answer is no.
    assert (text_of(result)[:4], (place.work / "new.txt").exists()) == ("done", answer == "allow")
    assert [(options[0], options[-1]) for options in asked] == ([("allow", "deny")] if answer else [])


def test_foreign_request_state_is_refused(place, serve, asker):
    server = serve(*QUESTION)
    call = {"name": "subagent", "arguments": asker}
    asked = server.ask("tools/call", {"elicitation": {}}, **call)
    assert asked["resultType"] == "input_required"
    other = {**call, "arguments": LOOK}
    for state, wrong in ((asked["requestState"], other), ("x" * 32, call)):
        assert server.ask("tools/call", {"elicitation": {}}, requestState=state, **wrong)["code"] == -32602
    # Nothing is lost: the right one still works.
    answer = {key: {"action": "accept", "content": {"answer": "81"}} for key in asked["inputRequests"]}
    more = {"requestState": asked["requestState"], "inputResponses": answer}
    assert server.ask("tools/call", {"elicitation": {}}, **call, **more)["content"][0]["text"] == "done"
    assert heard(place) == ["81"]


async def test_client_that_leaves_stops_its_call(serve):
    server = serve({"text": "late", "delay_ms": 60_000})

    async def look(connected):
        return text_of(await connected.call_tool("list_subagents", {}))

    async with client(server) as connected:
        leaving = asyncio.create_task(connected.call_tool("subagent", LOOK))
        while "running" not in await look(connected):
            await asyncio.sleep(0.05)
        leaving.cancel()
        while "running" in await look(connected):
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("body", ["{", "[]", "null", '{"jsonrpc": "2.0"}', "[" * 100_000, '{"id": ' + "9" * 5000 + "}"])
@pytest.mark.parametrize("version", ["2025-11-25", "2026-07-28"])
def test_garbage_gets_an_error(serve, body, version):
    server = serve()
    headers = {"Authorization": server.authorization, "MCP-Protocol-Version": version}
    headers |= {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    answer = httpx2.post(server.url, content=body, headers=headers)
    assert (answer.status_code, answer.json()["error"]["code"] < 0) == (400, True)
    assert server.ask("tools/list")["tools"]
    session = httpx2.post(server.url, content=body, headers={**headers, "Mcp-Session-Id": os.urandom(8).hex()})
    assert session.status_code in (400, 404)
