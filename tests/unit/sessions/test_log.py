import json
import os
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from retinue.core.errors import SessionError, SessionLocked, SessionUnsaved
from retinue.core.messages import (
    AssistantMessage,
    SystemMessage,
    TextContent,
    ToolCall,
    ToolResultMessage,
    Usage,
    UserMessage,
)
from retinue.sessions.files import Files
from retinue.sessions.log import Session
from retinue.sessions.tree import SessionTree
from retinue.testing.clock import FakeClock

REPLY = AssistantMessage([TextContent("done")], "api", "p2", "m2", Usage(), "stop", 2)
numbers = count(1)


class CountingFiles(Files):
    def __init__(self) -> None:
        self.syncs = self.read_bytes = 0

    def sync(self, fd: int) -> None:
        self.syncs += 1

    def pread(self, fd: int, length: int, offset: int) -> bytes:
        data = super().pread(fd, length, offset)
        self.read_bytes += len(data)
        return data


def new_id() -> str:
    return f"id-{next(numbers)}"


def create(folder: Path, **fields: Any) -> Session:
    return Session.create(**{"cwd": "/w", "directory": folder, "clock": FakeClock(), "new_id": new_id, **fields})


def reopen(session: Session, **fields: Any) -> Session:
    assert session.path is not None
    return Session.open(session.path, clock=FakeClock(), new_id=new_id, **{"read_only": True, **fields})


def write_file(path: Path, *lines: dict[str, Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def say(text: str, **fields: Any) -> dict[str, Any]:
    return {"type": "message", **fields, "message": {"role": "user", "content": text, "timestamp": 1}}


def open_file(path: Path, **fields: Any) -> Session:
    return Session.open(path, clock=FakeClock(), new_id=new_id, **fields)


APPENDS: list[tuple[Callable[[Session, str], str], int]] = [
    (lambda session, first: session.append_message(UserMessage("more", 1)), 0),
    (lambda session, first: session.append_message(SystemMessage("new", 1)), 0),
    (lambda session, first: session.append_message(REPLY), 0),
    (lambda session, first: session.append_message(REPLY, sync=True), 1),
    (lambda session, first: session.append_model_change("p", "m"), 0),
    (lambda session, first: session.append_thinking_level("high"), 0),
    (lambda session, first: session.append_compaction("sum", None, 10, Usage(input=5)), 1),
    (lambda session, first: session.append_compaction("sum", first, 10, None, {"readFiles": ["a"]}), 1),
    (lambda session, first: session.append_compaction("sum", None, 10, system_message=SystemMessage("other", 1)), 1),
    (lambda session, first: session.append_context_edit(first, {"content": "edited"}), 0),
    (lambda session, first: session.append_context_edit(first, None), 0),
    (lambda session, first: session.append_branch_summary("left", first), 1),
    (lambda session, first: session.append_custom("kind", {"n": 1}), 0),
    (lambda session, first: session.append_customs([("kind", 1), ("kind", 2)]), 0),
    (lambda session, first: session.append_custom_message("kind", "seen"), 0),
    (lambda session, first: session.append_session_info("named"), 0),
    (lambda session, first: session.append_opening("named", ("p", "m"), "low"), 0),
    (lambda session, first: session.append_label(first, "mark"), 0),
]


@pytest.mark.parametrize("number", range(len(APPENDS)))
def test_what_is_added_reads_as_it_was_kept(tmp_path: Path, number: int) -> None:
    append, syncs = APPENDS[number]
    files = CountingFiles()
    session = create(tmp_path, tree=SessionTree(files))
    session.append_message(SystemMessage("system", 1))
    first = session.append_message(UserMessage("one", 1))
    session.context()
    last = append(session, first)
    again = reopen(session)
    assert (session.leaf_id, again.leaf_id, files.syncs) == (last, last, syncs)
    assert session.stored_entries() == again.stored_entries()
    ours, theirs = session.context(), again.context()
    assert (ours.messages, ours.entry_ids, ours.model, ours.thinking, ours.system) == (
        theirs.messages,
        theirs.entry_ids,
        theirs.model,
        theirs.thinking,
        theirs.system,
    )
    assert session.choice == again.choice == (ours.model, ours.thinking)
    session.close()


def test_choices_are_known_without_a_context(tmp_path: Path) -> None:
    session = create(tmp_path)
    session.append_message(UserMessage("one", 1))
    session.branch(session.leaf_id)
    session.append_model_change("p", "m")
    session.append_thinking_level("high")
    assert session.choice == (("p", "m"), "high")
    session.append_compaction("sum", None, 10)
    stored = session.stored_entries()[-1]
    assert (stored["firstKeptEntryId"], "usage" in stored, "details" in stored) == (stored["id"], False, False)
    session.close()


def test_notification_does_not_read_the_session_again(tmp_path: Path) -> None:
    files = CountingFiles()
    session = create(tmp_path, tree=SessionTree(files))
    session.append_message(UserMessage("long " * 10_000, 1))
    session.context()
    before = files.read_bytes
    for number in range(10):
        session.append_custom_message("kind", f"report {number}")
        assert len(session.context().messages) == number + 2
    assert files.read_bytes - before < 5_000
    session.close()


def test_custom_message_is_shown_unless_told(tmp_path: Path) -> None:
    session = create(tmp_path)
    session.append_custom_message("kind", "a", details={"n": 1})
    session.append_custom_message("kind", "b", display=False)
    session.append_custom_message("other", "c")
    session.append_custom("kind", 1)
    session.append_custom("other", 2)
    assert [entry.get("display") for entry in session.stored_entries()] == [True, False, True, None, None]
    assert (next(session.custom_details("kind")), list(session.customs("kind"))) == ({"n": 1}, [1])
    assert len(list(session.custom_details("kind"))) == 2
    session.close()


def test_label_can_be_taken_away(tmp_path: Path) -> None:
    session = create(tmp_path)
    first = session.append_message(UserMessage("one", 1))
    session.append_label(first, "mark")
    session.append_label(first, "")
    assert [entry.get("label") for entry in session.stored_entries()] == [None, "mark", None]
    session.close()


@pytest.mark.parametrize(
    ("act", "told"),
    [
        (lambda session: session.append_context_edit("none", None), "has no entry 'none' to edit"),
        (lambda session: session.append_label("none", "x"), "has no entry 'none' to label"),
        (lambda session: session.branch("none"), "has no entry 'none'"),
        (lambda session: session.stored_entries("none"), "Entry not found: .* has no 'none'"),
    ],
)
def test_unknown_entry_is_refused(tmp_path: Path, act: Callable[[Session], object], told: str) -> None:
    session = create(tmp_path)
    first = session.append_message(UserMessage("one", 1))
    with pytest.raises(SessionError, match=told):
        act(session)
    assert (len(session), session.leaf_id) == (1, first)
    session.close()


def test_branch_from_the_start_has_no_parent(tmp_path: Path) -> None:
    session = create(tmp_path)
    session.append_message(UserMessage("one", 1))
    session.branch(None)
    assert (session.leaf_id, session.context().messages) == (None, [])
    second = session.append_message(UserMessage("two", 1))
    assert (session.read_entry(second)["parentId"], session.context().messages) == (None, [UserMessage("two", 1)])
    session.close()


def test_missing_results_are_written_once(tmp_path: Path) -> None:
    files = CountingFiles()
    session = create(tmp_path, tree=SessionTree(files))
    calls = [ToolCall(call_id, "read", {}) for call_id in ("c1", "c2", "c3")]
    session.append_message(AssistantMessage(calls, "api", "p", "m", Usage(), "toolUse", 2))
    session.append_message(ToolResultMessage("c1", "read", [], False, 3))
    assert session.context().messages[1:] == [ToolResultMessage("c1", "read", [], False, 3)]
    session.close()
    again = reopen(session, read_only=False, tree=SessionTree(files))
    added = again.settle()
    assert ([message.tool_call_id for message in added], files.syncs, again.settle()) == (["c2", "c3"], 2, [])
    assert reopen(session).context().messages[2:] == added == again.context().messages[2:]
    again.close()


V1 = [
    {"type": "session", "id": "old", "cwd": "/w"},
    say("one"),
    say("two"),
    {"type": "compaction", "summary": "sum", "firstKeptEntryIndex": 2, "tokensBefore": 9},
    say("three"),
]


def test_first_version_has_no_branches(tmp_path: Path) -> None:
    old = open_file(write_file(tmp_path / "old.jsonl", *V1))
    ids = [entry["id"] for entry in old.stored_entries()]
    assert [entry["parentId"] for entry in old.stored_entries()] == [None, *ids[:-1]]
    assert [getattr(m, "content", "") for m in old.context().messages] == ["", "two", "three"]
    with pytest.raises(SessionError, match="is of format version 1, which has no branches; fork it first"):
        old.branch(ids[0])
    copy = create(tmp_path / "new")
    copy.copy_branch(old, ids[-1])
    assert [entry["id"] for entry in copy.stored_entries()] == ids
    assert copy.stored_entries()[2]["firstKeptEntryId"] == ids[1]
    assert copy.context().messages == reopen(copy).context().messages == old.context().messages
    old.close()
    copy.close()


@pytest.mark.parametrize("index", [0, 5, "2"])
def test_first_version_that_keeps_nothing(tmp_path: Path, index: Any) -> None:
    lines = [{**line, "firstKeptEntryIndex": index} if line["type"] == "compaction" else line for line in V1]
    old = open_file(write_file(tmp_path / "old.jsonl", *lines), read_only=True)
    assert [getattr(m, "content", "") for m in old.context().messages] == ["", "three"]


def test_first_version_that_keeps_all(tmp_path: Path) -> None:
    lines = [{**line, "firstKeptEntryIndex": 1} if line["type"] == "compaction" else line for line in V1]
    old = open_file(write_file(tmp_path / "old.jsonl", *lines), read_only=True)
    assert [getattr(m, "content", "") for m in old.context().messages] == ["", "one", "two", "three"]


def test_second_version_has_branches(tmp_path: Path) -> None:
    lines = [say("one", id="a", parentId=None), say("two", id="b", parentId="a")]
    lines.append({"type": "compaction", "id": "c", "parentId": "b", "summary": "s", "firstKeptEntryIndex": 1})
    session = open_file(write_file(tmp_path / "s.jsonl", {"type": "session", "version": 2, "id": "s"}, *lines))
    assert len(session.context().messages) == 1
    copy = create(tmp_path / "new")
    copy.copy_branch(session, "c")
    assert "firstKeptEntryId" not in copy.stored_entries()[2]
    session.branch("a")
    assert session.context().messages == [UserMessage("one", 1)]
    session.close()
    copy.close()


def test_newer_version_is_only_read(tmp_path: Path) -> None:
    path = write_file(tmp_path / "s.jsonl", {"type": "session", "version": 4, "id": "s"}, say("one", id="a"))
    session = open_file(path)
    with pytest.raises(SessionUnsaved, match="its format version 4 is newer than 3"):
        session.append_message(REPLY)
    session.close()
    assert session.read_only == "its format version 4 is newer than 3"


@pytest.mark.parametrize("header", [{"type": "session", "version": 3, "cwd": "/there"}, None])
def test_id_comes_from_the_name_of_the_file(tmp_path: Path, header: dict[str, Any] | None) -> None:
    lines = [*([header] if header else []), say("one", id="a", parentId=None)]
    for name, identity in (("2026_s1.jsonl", "s1"), ("2026_s1/r1/session.jsonl", "r1")):
        session = open_file(write_file(tmp_path / name, *lines), cwd="/here", is_alone=True)
        assert (session.id, session.cwd) == (identity, "/there" if header else "/here")
        assert (session.damage.missing_header, session.parent_session) == (header is None, None)
        session.append_message(UserMessage("two", 1))
        assert len(reopen(session)) == 2
        session.close()
        assert (tmp_path / name).read_text().count('"type": "session"') == (header is not None)


def test_header_is_written_once_and_names_the_parent(tmp_path: Path) -> None:
    session = create(tmp_path, parent_session="/p.jsonl", session_id="s1")
    assert (bool(session.damage), session.parent_session) == (False, "/p.jsonl")
    for text in ("one", "two"):
        session.append_message(UserMessage(text, 1))
    again = reopen(session)
    assert (again.id, again.parent_session, len(again), bool(again.damage)) == ("s1", "/p.jsonl", 2, False)
    assert session.path is not None and session.path.read_text().count('"type":"session"') == 1
    session.close()


def test_closed_session_keeps_what_it_has(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    session = create(tmp_path)
    session.append_message(UserMessage("one", 1))
    assert len(os.listdir("/proc/self/fd")) == before + 2
    session.close()
    assert len(os.listdir("/proc/self/fd")) == before
    with pytest.raises(SessionUnsaved, match="it is closed"):
        session.append_message(UserMessage("two", 1))
    assert len(reopen(session)) == 1


def test_child_uses_the_lock_of_its_main_session(tmp_path: Path) -> None:
    files = CountingFiles()
    main = create(tmp_path, tree=SessionTree(files))
    main.append_message(UserMessage("one", 1), sync=True)
    assert main.tree is not None
    child = create(tmp_path, path=main.tree.child_path("r1"), tree=main.tree)
    chosen = [child.append_model_change("p", "m"), child.append_thinking_level("low")]
    waiting = child.append_message(UserMessage("task", 1))
    assert child.path is not None and not child.path.exists() and child.leaf_id == waiting
    child.append_message(REPLY, sync=True)
    assert (files.syncs, child.path.exists()) == (1, True)
    child.append_message(UserMessage("more", 1))
    assert [entry["id"] for entry in reopen(child).stored_entries()][:3] == [*chosen, waiting]
    assert len(reopen(child)) == len(child) == 5
    with pytest.raises(SessionLocked):
        open_file(child.path)
    open_file(child.path, is_alone=True).close()
    child.close()
    assert main.tree.is_locked
    main.append_message(UserMessage("two", 1))
    again = open_file(child.path, tree=main.tree)
    again.append_message(UserMessage("again", 1))
    again.close()
    assert main.tree.is_locked
    main.close()


def test_facts_of_a_child_are_written_at_once(tmp_path: Path) -> None:
    main = create(tmp_path)
    main.append_message(UserMessage("one", 1))
    assert main.tree is not None
    child = create(tmp_path, path=main.tree.child_path("r1"), tree=main.tree)
    child.append_customs([("kind", 1), ("kind", 2)])
    assert list(reopen(child).customs("kind")) == [1, 2]
    main.close()


def test_failed_opening_leaves_nothing_open(tmp_path: Path) -> None:
    holder = create(tmp_path)
    holder.append_message(UserMessage("one", 1))
    (tmp_path / "junk.jsonl").write_text("no session\n")
    before = len(os.listdir("/proc/self/fd"))
    tree = SessionTree()
    for path in (holder.path, tmp_path / "junk.jsonl", tmp_path / "none.jsonl", tmp_path):
        assert path is not None
        with pytest.raises(SessionError):
            open_file(path, tree=tree)
    assert (len(os.listdir("/proc/self/fd")), tree.is_locked) == (before, False)
    holder.close()


def test_failure_of_the_lock_is_told(tmp_path: Path) -> None:
    path = write_file(tmp_path / "s.jsonl", {"type": "session", "version": 3, "id": "s"})

    class Odd(Files):
        def open(self, path: Path, flags: int, mode: int = 0o600) -> int:
            if flags == os.O_RDONLY:
                raise OSError(5, "Input/output error")
            return super().open(path, flags, mode)

    with pytest.raises(SessionError, match=r"cannot open session .*: Input/output error"):
        open_file(path, tree=SessionTree(Odd()))


def test_call_after_a_branch_is_still_running(tmp_path: Path) -> None:
    session = create(tmp_path)
    first = session.append_message(UserMessage("one", 1))
    session.branch(first)
    calling = AssistantMessage([ToolCall("c1", "read", {})], "api", "p", "m", Usage(), "toolUse", 2)
    session.append_message(calling)
    session.append_label(first, "mark")
    assert session.present.read_context().messages == [UserMessage("one", 1), calling]
    assert len(reopen(session).context().messages) == 3
    session.close()
