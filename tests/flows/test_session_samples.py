"""Stored files of every version, with the context that pi itself reads from them (`*.context.json`)."""

import json
import shutil
from pathlib import Path

import msgspec
import pytest

from retinue.core.errors import SessionError, UsageError
from retinue.core.messages import (
    AssistantMessage,
    Message,
    SystemMessage,
    TextContent,
    ThinkingContent,
    ToolCall,
    ToolResultMessage,
    Usage,
    UserMessage,
)
from retinue.sessions.entry import MAX_RECORD_BYTES
from retinue.sessions.log import Session
from retinue.sessions.view import TOOL_RESULT
from retinue.testing.clock import FakeClock

SAMPLES = Path(__file__).parent.parent / "data" / "sessions"


def open_session(path: Path) -> Session:
    return Session.open(path, clock=FakeClock(), new_id=lambda: "fixed")


def new_session(directory: Path | None) -> Session:
    return Session.create(cwd="/work", directory=directory, clock=FakeClock(), new_id=lambda: "fixed")


def reply(*content: TextContent | ThinkingContent | ToolCall, stop: str = "stop") -> AssistantMessage:
    return AssistantMessage(list(content), "api", "p", "m", Usage(), stop, 2)  # type: ignore[arg-type]


def result(call_id: str, text: str) -> ToolResultMessage:
    return ToolResultMessage(call_id, "read", [TextContent(text)], False, 3)


@pytest.mark.parametrize("name", ["v1", "v2", "v3"])
def test_samples_read_as_pi_reads_them(tmp_path: Path, name: str) -> None:
    path = Path(shutil.copy(SAMPLES / f"{name}.jsonl", tmp_path))
    session = open_session(path)
    context = session.context()
    model = None if context.model is None else {"provider": context.model[0], "modelId": context.model[1]}
    ours = {
        "messages": json.loads(msgspec.json.encode(context.messages)),
        "thinkingLevel": context.thinking or "off",
        "model": model,
    }
    assert ours == json.loads((SAMPLES / f"{name}.context.json").read_text())
    session.close()
    assert path.read_bytes() == (SAMPLES / f"{name}.jsonl").read_bytes()


@pytest.mark.parametrize("name", ["v1", "v2", "v3"])
def test_samples_can_be_continued(tmp_path: Path, name: str) -> None:
    path = Path(shutil.copy(SAMPLES / f"{name}.jsonl", tmp_path))
    session = open_session(path)
    before = session.context().messages
    session.append_message(UserMessage("go on", 1))
    session.append_message(reply(TextContent("yes")))
    session.close()
    again = open_session(path)
    assert again.context().messages == [*before, UserMessage("go on", 1), reply(TextContent("yes"))]
    again.close()


def test_version_one_has_no_branches(tmp_path: Path) -> None:
    session = open_session(Path(shutil.copy(SAMPLES / "v1.jsonl", tmp_path)))
    with pytest.raises(SessionError, match="format version 1, which has no branches"):
        session.branch(None)
    session.close()


def test_system_messages_replay(tmp_path: Path) -> None:
    session = open_session(Path(shutil.copy(SAMPLES / "v3.jsonl", tmp_path)))
    context = session.context()
    assert (session.name, session.cwd) == ("A name", "/work/project")
    assert context.sections == {"preamble": "You are helpful.", "skills": "s"}
    assert [tool["name"] for tool in context.tools] == ["read"]
    session.close()


@pytest.mark.parametrize("stored", [True, False])
def test_everything_written_is_read_back(tmp_path: Path, stored: bool) -> None:
    session = new_session(tmp_path if stored else None)
    messages: list[Message] = [
        SystemMessage("You are", 1, {"a": "b"}, [{"name": "read", "description": "", "parameters": {}}]),
        UserMessage("hello \u2028 é 😀 \x00 \x1b[0m", 1),
        reply(ThinkingContent("", "sig", True), TextContent("a"), ToolCall("c", "read", {"n": 2**70}), stop="toolUse"),
        result("c", "x" * 3000),
    ]
    for message in messages:
        session.append_message(message)
    assert session.context().messages == messages
    session.close()
    assert (session.path is not None) is stored
    if session.path is not None:
        again = open_session(session.path)
        assert again.context().messages == messages
        again.close()


def test_cached_context_follows_appends(tmp_path: Path) -> None:
    session = new_session(tmp_path)
    session.context()
    session.append_message(SystemMessage("base", 1, {"a": "1"}))
    first = session.append_message(UserMessage("one", 1))
    session.append_model_change("p2", "m2")
    session.append_thinking_level("low")
    session.append_message(reply(TextContent("two")))
    cached = session.context()
    session.branch(session.leaf_id)
    assert session.context() == cached
    session.branch(first)
    session.append_message(UserMessage("other", 1))
    assert [message.content for message in session.context().messages] == ["base", "one", "other"]  # type: ignore[union-attr]
    session.close()


def test_returned_context_may_be_changed(tmp_path: Path) -> None:
    session = new_session(None)
    session.append_message(UserMessage("one", 1))
    session.context().messages.clear()
    assert session.context().messages == [UserMessage("one", 1)]


def test_nothing_kept_by_compaction(tmp_path: Path) -> None:
    session = new_session(tmp_path)
    session.append_message(SystemMessage("base", 1))
    session.append_message(UserMessage("one", 1))
    entry_id = session.append_compaction("summary", None, 9)
    session.append_message(UserMessage("two", 1))
    context = session.context()
    assert [type(message).__name__ for message in context.messages] == [
        "SystemMessage",
        "CompactionSummaryMessage",
        "UserMessage",
    ]
    assert context.entry_ids[:2] == [entry_id, entry_id]
    assert context.system is not None and context.system.content == "base"
    session.close()


def test_interrupted_call_gets_a_result(tmp_path: Path) -> None:
    session = new_session(tmp_path)
    calls = reply(ToolCall("c1", "read", {}), ToolCall("c2", "bash", {}), stop="toolUse")
    session.append_message(calls)
    session.append_custom(TOOL_RESULT, {"toolCallId": "c2", "message": msgspec.to_builtins(result("c2", "done"))})
    assert session.context().messages == [calls]
    session.close()
    assert session.path is not None
    again = open_session(session.path)
    lost = ToolResultMessage("c1", "read", [TextContent("interrupted, effect unknown")], True, 2)
    assert again.context().messages == [calls, lost, result("c2", "done")]
    assert again.settle() == [lost, result("c2", "done")]
    assert again.settle() == []
    again.append_message(UserMessage("go on", 1))
    again.close()
    last = open_session(session.path)
    assert last.context().messages == [calls, lost, result("c2", "done"), UserMessage("go on", 1)]
    last.close()


def test_message_wins_over_early_result(tmp_path: Path) -> None:
    session = new_session(tmp_path)
    session.append_message(reply(ToolCall("c1", "read", {}), stop="toolUse"))
    session.append_custom(TOOL_RESULT, {"toolCallId": "c1", "message": msgspec.to_builtins(result("c1", "early"))})
    session.append_message(result("c1", "final"))
    session.close()
    assert session.path is not None
    again = open_session(session.path)
    assert again.context().messages[1:] == [result("c1", "final")]
    again.close()


def test_long_payload_is_cut_in_place(tmp_path: Path) -> None:
    session = new_session(tmp_path)
    session.append_message(result("c1", "x" * (MAX_RECORD_BYTES + 1000)))
    session.append_message(UserMessage("next", 1))
    assert session.path is not None
    assert max(map(len, session.path.read_bytes().split(b"\n"))) < MAX_RECORD_BYTES + 1000
    session.close()
    again = open_session(session.path)
    cut, following = again.context().messages
    assert isinstance(cut, ToolResultMessage) and isinstance(cut.content[0], TextContent)
    assert f"[cut here: {MAX_RECORD_BYTES + 1000} characters" in cut.content[0].text
    assert following == UserMessage("next", 1)
    again.close()


@pytest.mark.parametrize("session_id", ["", "-a", "a/b", "..", "a b", "x" * 129, "é", "a\n"])
def test_bad_session_id_is_refused(session_id: str) -> None:
    with pytest.raises(UsageError, match="session id"):
        Session.create(cwd="/", directory=None, session_id=session_id, clock=FakeClock(), new_id=lambda: "x")


def test_file_is_named_like_pi_names_it(tmp_path: Path) -> None:
    session = Session.create(cwd="/", directory=tmp_path, session_id="my.id_1", clock=FakeClock(), new_id=lambda: "x")
    assert session.path == tmp_path / "2023-11-14T22-13-20-000Z_my.id_1.jsonl"
    assert not session.path.exists()
    session.close()
