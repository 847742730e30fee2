"""`retinue acp` as a black box: the protocol's own client drives it, and so do lines that no client would send."""

import asyncio
import base64
import json
import subprocess
import sys
from contextlib import asynccontextmanager
from types import SimpleNamespace

import pytest

from retinue.testing.process import open_cli
from tests.flows.mcp_world import PROGRAM
from tests.frontends.client_world import open_streams

EDIT = {"calls": [{"name": "edit", "arguments": {"path": "a.txt", "edits": [{"oldText": "one", "newText": "two"}]}}]}
WRITE = {"calls": [{"name": "write", "arguments": {"path": "new.txt", "content": "fresh\n"}}]}


class Editor:
    """A client of the protocol's library: keeps what it is told and answers as it is set up."""

    def __init__(self, answer="allow"):
        self.updates, self.asked, self.saved = [], [], []
        self.answer, self.unsaved, self.terminals = answer, {}, []

    async def session_update(self, session_id, update, **_):
        self.updates.append(json.loads(update.model_dump_json(by_alias=True, exclude_none=True)))

    async def request_permission(self, session_id, tool_call, options, **_):
        from acp.schema import AllowedOutcome, DeniedOutcome, RequestPermissionResponse

        self.asked.append((tool_call, options))
        if self.answer is None:
            return RequestPermissionResponse(outcome=DeniedOutcome(outcome="cancelled"))
        if isinstance(self.answer, dict):
            return self.answer
        return RequestPermissionResponse(outcome=AllowedOutcome(outcome="selected", option_id=self.answer))

    async def read_text_file(self, path, session_id, **_):
        from acp.schema import ReadTextFileResponse

        return ReadTextFileResponse(content=self.unsaved[path] if path in self.unsaved else open(path).read())

    async def write_text_file(self, content, path, session_id, **_):
        self.saved.append((path, content))
        self.unsaved.pop(path, None)
        with open(path, "w") as file:
            file.write(content)

    async def create_terminal(self, command, session_id, args=None, cwd=None, **_):
        from acp.schema import CreateTerminalResponse

        done = await asyncio.to_thread(subprocess.run, [command, *args], cwd=cwd, capture_output=True, text=True)
        self.terminals.append(done)
        return CreateTerminalResponse(terminal_id=str(len(self.terminals)))

    async def wait_for_terminal_exit(self, session_id, terminal_id, **_):
        from acp.schema import WaitForTerminalExitResponse

        return WaitForTerminalExitResponse(exit_code=self.terminals[int(terminal_id) - 1].returncode)

    async def terminal_output(self, session_id, terminal_id, **_):
        from acp.schema import TerminalOutputResponse

        return TerminalOutputResponse(output=self.terminals[int(terminal_id) - 1].stdout, truncated=False)

    async def release_terminal(self, session_id, terminal_id, **_): ...

    def on_connect(self, connection): ...

    def list(self, kind):
        return [update for update in self.updates if update["sessionUpdate"] == kind]

    @property
    def text(self):
        return "".join(update["content"]["text"] for update in self.list("agent_message_chunk"))


@asynccontextmanager
async def connect(place, *replies, editor=None, files=False, terminal=False, args=()):
    from acp import connect_to_agent, text_block
    from acp.schema import ClientCapabilities, FileSystemCapabilities

    editor = editor or Editor()
    async with open_streams(place, "acp", "--model", place.script(*replies), *args) as (reader, writer):
        agent = connect_to_agent(editor, writer, reader, use_unstable_protocol=True)
        offered = ClientCapabilities(
            fs=FileSystemCapabilities(read_text_file=bool(files), write_text_file=files is True), terminal=terminal
        )
        hello = await agent.initialize(protocol_version=1, client_capabilities=offered)

        async def prompt(session_id, *blocks):
            parts = [text_block(block) if isinstance(block, str) else block for block in blocks]
            return await agent.prompt(session_id=session_id, prompt=parts)

        try:
            yield SimpleNamespace(agent=agent, editor=editor, hello=hello, prompt=prompt)
        finally:
            await agent.close()


async def end_turn(link, place, text):
    session = await link.agent.new_session(cwd=str(place.work), mcp_servers=[])
    return await link.prompt(session.session_id, text)


@pytest.mark.fresh
async def test_prompt_is_streamed(place):
    replies = [{"thinking": "hm", "text": "Hello from the script", "usage": {"input": 7, "output": 3}}]
    async with connect(place, *replies) as link:
        session = await link.agent.new_session(cwd=str(place.work), mcp_servers=[])
        answer = await link.prompt(session.session_id, "hi")
    assert (answer.stop_reason, answer.usage.output_tokens) == ("end_turn", 3)
    assert link.editor.text == "Hello from the script"
    assert link.editor.list("agent_thought_chunk")
    assert link.hello.agent_capabilities.load_session
    assert [mode.id for mode in session.modes.available_modes] == ["ask", "plan", "auto"]


async def test_edit_is_shown_as_whole_texts(place):
    path = place.work / "a.txt"
    path.write_text("one\nrest\n")
    async with connect(place, EDIT, {"text": "done"}) as link:
        session = await link.agent.new_session(cwd=str(place.work), mcp_servers=[])
        await link.prompt(session.session_id, "change it")
    [start] = link.editor.list("tool_call")
    assert (start["kind"], start["locations"], start["status"]) == ("edit", [{"path": str(path)}], "in_progress")
    end = link.editor.list("tool_call_update")[-1]
    diff = {"type": "diff", "path": str(path), "oldText": "one\nrest\n", "newText": "two\nrest\n"}
    assert (end["status"], end["content"]) == ("completed", [diff])


@pytest.mark.parametrize(("answer", "expected"), [("allow", True), ("deny", False), (None, False)])
async def test_permission_decides(place, answer, expected):
    async with connect(place, WRITE, {"text": "done"}, editor=Editor(answer)) as link:
        session = await link.agent.new_session(cwd=str(place.work), mcp_servers=[])
        await link.agent.set_session_mode(session_id=session.session_id, mode_id="ask")
        await link.prompt(session.session_id, "write it")
    [(call, options)] = link.editor.asked
    assert (place.work / "new.txt").exists() is expected
    assert call.content[0].new_text == "fresh\n" and call.tool_call_id == link.editor.list("tool_call")[0]["toolCallId"]
    assert [option.kind for option in options] == ["allow_once", "allow_always", "reject_once"]


@pytest.mark.parametrize("outcome", ["cancelled", None, "nonsense"])
async def test_only_a_selected_option_permits(place, outcome):
    editor = Editor({"outcome": {"outcome": outcome, "optionId": "allow"}})
    async with connect(place, WRITE, {"text": "done"}, editor=editor) as link:
        session = await link.agent.new_session(cwd=str(place.work), mcp_servers=[])
        await link.agent.set_session_mode(session_id=session.session_id, mode_id="ask")
        await link.prompt(session.session_id, "write it")
    assert (len(editor.asked), (place.work / "new.txt").exists()) == (1, False)


async def test_plan_mode_changes_nothing(place):
    async with connect(place, WRITE, {"text": "done"}) as link:
        session = await link.agent.new_session(cwd=str(place.work), mcp_servers=[])
        await link.agent.set_session_mode(session_id=session.session_id, mode_id="plan")
        await link.prompt(session.session_id, "write it")
    assert not (place.work / "new.txt").exists()
    assert link.editor.list("current_mode_update")[-1]["currentModeId"] == "plan"
    assert link.editor.list("tool_call_update")[-1]["status"] == "failed"


async def test_subagent_is_a_live_tool_call(place):
    call = {"subagent_type": "general-purpose", "prompt": "look", "description": "a look"}
    ls = {"calls": [{"name": "ls", "arguments": {"path": "."}}]}
    replies = [
        {"match": {"last_user": "^delegate"}, "calls": [{"name": "Agent", "arguments": call}]},
        {"match": {"last_user": "^delegate"}, "text": "started"},
        {"match": {"last_user": "^look"}, **ls},
        {"match": {"last_user": "^look"}, "text": "report"},
        {"match": {"last_user": "task-notification"}, "text": "all done"},
    ]
    async with connect(place, *replies) as link:
        session = await link.agent.new_session(cwd=str(place.work), mcp_servers=[])
        await link.prompt(session.session_id, "delegate")
    start = next(each for each in link.editor.list("tool_call") if each["toolCallId"].startswith("run-"))
    assert start["title"] == "general-purpose: a look"
    own = [each for each in link.editor.list("tool_call_update") if each["toolCallId"] == start["toolCallId"]]
    assert own[0]["status"] == "in_progress" and own[-1]["status"] == "completed"
    assert any("ls ." in json.dumps(each) for each in own[1:-1])


async def test_sessions_are_listed_loaded_and_resumed(place):
    async with connect(place, {"text": "first answer"}, {"text": "second answer"}) as link:
        session = await link.agent.new_session(cwd=str(place.work), mcp_servers=[])
        await link.prompt(session.session_id, "first question")
        await link.agent.close_session(session_id=session.session_id)
    async with connect(place, {"text": "first answer"}, {"text": "second answer"}) as link:
        listed = (await link.agent.list_sessions(cwd=str(place.work))).sessions
        assert [each.session_id for each in listed] == [session.session_id]
        await link.agent.load_session(cwd=str(place.work), session_id=session.session_id, mcp_servers=[])
        said = [update["content"]["text"] for update in link.editor.list("user_message_chunk")]
        assert (said, link.editor.text) == (["first question"], "first answer")
        await link.agent.close_session(session_id=session.session_id)
        await link.agent.resume_session(cwd=str(place.work), session_id=session.session_id)
        await link.prompt(session.session_id, "go on")
    assert link.editor.text == "first answersecond answer"


async def test_mode_and_model_are_config_options(place):
    async with connect(place, {"text": "x"}) as link:
        session = await link.agent.new_session(cwd=str(place.work), mcp_servers=[])
        mode, model = session.config_options[:2]
        await link.agent.set_config_option(config_id=mode.id, session_id=session.session_id, value="plan")
        [told] = link.editor.list("config_option_update")
        assert (mode.category, told["configOptions"][0]["currentValue"]) == ("mode", "plan")
        assert (model.category, "offline/rules" in [each.value for each in model.options]) == ("model", True)
        chosen = await link.agent.set_config_option(
            config_id=model.id, session_id=session.session_id, value="offline/rules"
        )
    assert chosen.config_options[1].current_value == "offline/rules"


async def test_cancel_ends_the_prompt(place):
    async with connect(place, {"text": "slow", "delay_ms": 60_000}) as link:
        session = await link.agent.new_session(cwd=str(place.work), mcp_servers=[])
        task = asyncio.create_task(link.prompt(session.session_id, "wait"))
        while not [path for path in place.sessions() if "wait" in path.read_text()]:
            await asyncio.sleep(0.02)
        await link.agent.cancel(session_id=session.session_id)
        assert (await task).stop_reason == "cancelled"


async def test_images_and_files_reach_the_model(place):
    from acp import embedded_text_resource, image_block, resource_block, resource_link_block

    pixel = base64.b64encode(b"\x89PNG\r\n\x1a\n").decode()
    embedded = resource_block(embedded_text_resource("file:///x/notes%20a.md", "the notes"))
    async with connect(place, {"text": "seen"}) as link:
        session = await link.agent.new_session(cwd=str(place.work), mcp_servers=[])
        blocks = [image_block(pixel, "image/png"), embedded, resource_link_block("b.md", "file:///x/b.md")]
        await link.prompt(session.session_id, "look", *blocks)
    stored = next(entry["message"] for entry in place.entries() if entry.get("message", {}).get("role") == "user")
    texts = [block.get("text", block["type"]) for block in stored["content"]]
    assert texts == ["look", "image", '<file path="/x/notes a.md">\nthe notes\n</file>', "[b.md](/x/b.md)"]


async def test_unsaved_text_is_read_and_changed(place):
    path = place.work / "a.txt"
    path.write_text("old\n")
    editor = Editor()
    editor.unsaved[str(path)] = "one unsaved\n"
    read = {"calls": [{"name": "read", "arguments": {"path": "a.txt"}}]}
    async with connect(place, read, EDIT, {"text": "done"}, editor=editor, files=True) as link:
        session = await link.agent.new_session(cwd=str(place.work), mcp_servers=[])
        await link.prompt(session.session_id, "change it")
    first = next(each for each in editor.list("tool_call_update") if each["status"] == "completed")
    assert "one unsaved" in json.dumps(first["content"])
    assert path.read_text() in ("two unsaved\n", "one unsaved\n") and editor.saved


async def test_slash_commands_are_offered(place):
    skill = place.agent_dir / "skills" / "greet" / "SKILL.md"
    skill.parent.mkdir(parents=True)
    skill.write_text("---\nname: greet\ndescription: says hello\n---\nSay hello.\n")
    async with connect(place, {"text": "hello"}) as link:
        session = await link.agent.new_session(cwd=str(place.work), mcp_servers=[])
        await link.prompt(session.session_id, "/skill:greet")
    [offer] = link.editor.list("available_commands_update")
    assert "skill:greet" in [each["name"] for each in offer["availableCommands"]]


def request(request_id, method, **params):
    return json.dumps({"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}).encode()


LINES = [
    (b"nonsense", None, -32700),
    (b"[1, 2]", None, -32600),
    (b"7", None, -32600),
    (b'{"jsonrpc": "2.0", "id": 4}', 4, -32600),
    (request(5, "session/dance"), 5, -32601),
    (request(6, "session/prompt", sessionId="gone", prompt=[]), 6, -32002),
    (request(7, "session/new", cwd="relative", mcpServers=[]), 7, -32602),
    (request(8, "session/load", cwd="/", sessionId="gone", mcpServers=[]), 8, -32002),
    (request(9, "session/load", cwd="/", sessionId="/tmp/made.jsonl", mcpServers=[]), 9, -32002),
    (request(10, "session/list", cursor="9" * 5000), 10, -32602),
]


def test_garbage_gets_an_error_and_the_connection_lives(place):
    with open_cli(["acp", "--model", place.script()], place.work, home=place.home, has_stdin=True) as process:
        for line, request_id, code in LINES:
            process.stdin.write(line + b"\n")
            process.stdin.flush()
            answer = json.loads(process.stdout.readline())
            assert (answer["id"], answer["error"]["code"]) == (request_id, code), answer
        process.stdin.write(b'{"id": 11, "method": "session/list"}\n')
        process.stdin.flush()
        assert json.loads(process.stdout.readline())["result"] == {"sessions": []}
        process.stdin.close()
        assert process.wait(10) == 0
        assert b"Traceback" not in process.stderr.read()


BAD_BLOCKS = [
    ({"type": "image", "data": "!", "mimeType": "image/png"}, "not base64"),
    ({"type": "image", "data": "aaaa", "mimeType": "text/html"}, "send one of: image/png"),
    ({"type": "audio", "data": "aaaa", "mimeType": "audio/wav"}, "cannot contain audio"),
]


def test_bad_content_is_refused_before_the_session(place):
    with open_cli(["acp", "--model", place.script()], place.work, home=place.home, has_stdin=True) as process:
        send(process, 1, "session/new", cwd=str(place.work), mcpServers=[])
        session = json.loads(process.stdout.readline())["result"]["sessionId"]
        process.stdout.readline()
        for number, (block, text) in enumerate(BAD_BLOCKS, 2):
            send(process, number, "session/prompt", sessionId=session, prompt=[block])
            answer = json.loads(process.stdout.readline())
            assert answer["error"]["code"] == -32602 and text in answer["error"]["message"]
    assert not place.sessions()


async def test_session_is_loaded_by_its_whole_id_only(place):
    from acp.exceptions import RequestError

    async with connect(place, {"text": "first"}) as link:
        session = await link.agent.new_session(cwd=str(place.work), mcp_servers=[])
        await link.prompt(session.session_id, "hi")
        await link.agent.close_session(session_id=session.session_id)
        for name in (session.session_id[:20], str(place.sessions()[0])):
            with pytest.raises(RequestError, match="there is no session"):
                await link.agent.load_session(cwd=str(place.work), session_id=name, mcp_servers=[])
        loads = [
            link.agent.load_session(cwd=str(place.work), session_id=session.session_id, mcp_servers=[])
            for _ in range(2)
        ]
        assert all(await asyncio.gather(*loads))


async def test_two_clients_cannot_share_a_session(place):
    from acp.exceptions import RequestError

    async with connect(place, {"text": "one"}) as first, connect(place, {"text": "two"}) as second:
        session = await first.agent.new_session(cwd=str(place.work), mcp_servers=[])
        await first.prompt(session.session_id, "begin")
        with pytest.raises(RequestError, match="is being written by process"):
            await second.agent.load_session(cwd=str(place.work), session_id=session.session_id, mcp_servers=[])


async def test_question_of_a_subagent_ends(place):
    call = {"subagent_type": "general-purpose", "prompt": "look", "description": "a look"}
    replies = [
        {"match": {"last_user": "^delegate"}, "calls": [{"name": "Agent", "arguments": call}]},
        {"match": {"last_user": "^delegate"}, "text": "started"},
        {"match": {"last_user": "^look"}, **WRITE},
        {"match": {"last_user": "^look"}, "text": "report"},
        {"match": {"last_user": "task-notification"}, "text": "all done"},
    ]
    async with connect(place, *replies) as link:
        session = await link.agent.new_session(cwd=str(place.work), mcp_servers=[])
        await link.agent.set_session_mode(session_id=session.session_id, mode_id="ask")
        await link.prompt(session.session_id, "delegate")
    asked = [call.tool_call_id for call, _ in link.editor.asked if call.tool_call_id.startswith("question-")]
    ended = [each["toolCallId"] for each in link.editor.list("tool_call_update") if each.get("status") == "completed"]
    assert asked and set(asked) <= set(ended) and (place.work / "new.txt").exists()


def test_silent_terminal_does_not_hold_a_cancel(place):
    (place.agent_dir / "subagents.json").write_text('{"sandbox": {"mode": "off"}}')
    bash = {"calls": [{"name": "bash", "arguments": {"command": "sleep 99"}}]}
    with open_cli(["acp", "--model", place.script(bash)], place.work, home=place.home, has_stdin=True) as process:
        send(process, 1, "initialize", protocolVersion=1, clientCapabilities={"terminal": True})
        send(process, 2, "session/new", cwd=str(place.work), mcpServers=[])
        session = read_until(process, "id", 2)["result"]["sessionId"]
        send(process, 3, "session/prompt", sessionId=session, prompt=[{"type": "text", "text": "run"}])
        asked = read_until(process, "method", "terminal/create")
        process.stdin.write(json.dumps({"id": asked["id"], "result": {"terminalId": "t"}}).encode() + b"\n")
        process.stdin.flush()
        read_until(process, "method", "terminal/wait_for_exit")
        cancel = {"method": "session/cancel", "params": {"sessionId": session}}
        process.stdin.write(json.dumps(cancel).encode() + b"\n")
        process.stdin.flush()
        assert read_until(process, "method", "terminal/release")["params"]["terminalId"] == "t"
        assert read_until(process, "id", 3)["result"]["stopReason"] == "cancelled"
        process.stdin.close()
        assert process.wait(10) == 0


def read_until(process, key, value):
    """The next message with this value; answers of the program have no method."""
    for line in process.stdout:
        message = json.loads(line)
        if message.get(key) == value and (key == "method" or "method" not in message):
            return message
    raise AssertionError(f"no message with {key} {value}")


async def test_terminal_that_cannot_be_killed_gives_its_output(place):
    (place.agent_dir / "subagents.json").write_text('{"sandbox": {"mode": "off"}}')
    bash = {"calls": [{"name": "bash", "arguments": {"command": "echo begun", "timeout": 0.1}}]}
    editor = Editor()
    editor.wait_for_terminal_exit = lambda **_: asyncio.sleep(60)
    async with connect(place, bash, {"text": "done"}, editor=editor, terminal=True) as link:
        await end_turn(link, place, "run it")
    shown = json.dumps(editor.list("tool_call_update")[-1])
    assert "begun" in shown and "timed out after 0.1 seconds" in shown


def test_client_that_leaves_loses_nothing(place):
    replies = [{"text": "slow", "delay_ms": 60_000}]
    with open_cli(["acp", "--model", place.script(*replies)], place.work, home=place.home, has_stdin=True) as process:
        send(process, 1, "session/new", cwd=str(place.work), mcpServers=[])
        session = json.loads(process.stdout.readline())["result"]["sessionId"]
        prompt = [{"type": "text", "text": "keep this"}]
        send(process, 2, "session/prompt", sessionId=session, prompt=prompt)
        while not [path for path in place.sessions() if "keep this" in path.read_text()]:
            pass
        process.stdin.close()
        assert process.wait(15) == 0


def send(process, *message, **params):
    process.stdin.write(request(*message, **params) + b"\n")
    process.stdin.flush()


async def test_servers_of_the_editor_give_tools(place):
    from acp.schema import McpServerStdio

    program = place.root / "server.py"
    program.write_text(PROGRAM)
    server = McpServerStdio(name="my server", command=sys.executable, args=["-I", "-S", str(program)], env=[])
    call = {"calls": [{"name": "mcp__my-server__hi", "arguments": {}}]}
    async with connect(place, call, {"text": "done"}) as link:
        session = await link.agent.new_session(cwd=str(place.work), mcp_servers=[server])
        await link.prompt(session.session_id, "greet")
    assert link.editor.list("tool_call_update")[-1]["status"] == "completed", link.editor.updates


@pytest.mark.parametrize(("sandbox", "expected"), [("off", 1), ("auto", 0)])
async def test_terminal_of_the_editor_is_used_without_a_sandbox(place, sandbox, expected):
    (place.agent_dir / "subagents.json").write_text(json.dumps({"sandbox": {"mode": sandbox}}))
    bash = {"calls": [{"name": "bash", "arguments": {"command": "echo $((40 + 2)); exit 3"}}]}
    editor = Editor()
    async with connect(place, bash, {"text": "done"}, editor=editor, terminal=True) as link:
        session = await link.agent.new_session(cwd=str(place.work), mcp_servers=[])
        await link.prompt(session.session_id, "run it")
    shown = [block["type"] for each in editor.list("tool_call_update") for block in each.get("content", [])]
    assert (len(editor.terminals), "terminal" in shown) == (expected, bool(expected))
    end = editor.list("tool_call_update")[-1]
    assert end["status"] == "failed" and "42" in json.dumps(end) and "code 3" in json.dumps(end)
