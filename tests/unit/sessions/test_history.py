from itertools import count

import pytest

from retinue.core.messages import AssistantMessage, TextContent, Usage, UserMessage
from retinue.sessions import history
from retinue.sessions.log import Session
from retinue.testing.clock import FakeClock


@pytest.fixture
def session():
    numbers = count()
    return Session.create(cwd="/w", directory=None, clock=FakeClock(), new_id=lambda: f"id-{next(numbers)}")


def reply(model):
    return AssistantMessage([TextContent("x")], "api", "p", model, Usage(), "stop", 1)


def count_reads(session, monkeypatch):
    reads, store = [], session.present.history.store
    read = store.read
    monkeypatch.setattr(store, "read", lambda offset, length: reads.append(length) or read(offset, length))
    return reads


def test_neighbours_are_read_together(session, monkeypatch):
    ids = [session.append_message(UserMessage("x" * number, 1)) for number in range(60)]
    reads = count_reads(session, monkeypatch)
    assert ([entry.id for entry in session.all_entries()], len(reads)) == (ids, 1)
    end = session.present.history.index.offsets[59] + session.present.history.index.lengths[59]
    assert reads == [end - session.present.history.index.offsets[0]]


@pytest.mark.parametrize(("ahead", "size", "most"), [(9, 10**6, 6), (0, 10**6, 60), (256, 600, 25), (256, 1, 60)])
def test_blocks_are_bounded(session, monkeypatch, ahead, size, most):
    ids = [session.append_message(UserMessage(f"{number:03}", 1)) for number in range(60)]
    monkeypatch.setattr(history, "_READ_AHEAD", ahead)
    monkeypatch.setattr(history, "_READ_BYTES", size)
    reads = count_reads(session, monkeypatch)
    assert [entry.message.content for entry in session.all_entries()] == [f"{number:03}" for number in range(60)]
    longest = max(session.present.history.index.lengths)
    assert (len(reads) <= most, max(reads) <= max(size, longest)) == (True, True)
    session.branch(ids[3])
    last = session.append_message(UserMessage("branch", 1))
    assert [entry.id for entry in session.entries()] == [*ids[:4], last]


def fill(session):
    session.append_model_change("p", "old")
    session.append_thinking_level("low")
    session.append_model_change("p", "new")
    session.append_message(UserMessage("one", 1))
    session.append_thinking_level("high")
    return session.append_message(UserMessage("two", 1))


def load(session):
    return [entry.type for entry in session.present.history.load_branch(len(session) - 1)]


def test_compaction_is_loaded_with_what_it_keeps_and_the_choices_before(session):
    kept = fill(session)
    session.append_compaction("sum", kept, 10)
    session.append_message(UserMessage("three", 1))
    assert load(session) == ["model_change", "thinking_level_change", "message", "compaction", "message"]
    context = session.context()
    assert (context.model, context.thinking) == (("p", "new"), "high")


@pytest.mark.parametrize("kept", ["none", None, 5])
def test_compaction_that_keeps_nothing_is_loaded_alone(session, kept):
    fill(session)
    session.append_compaction("sum", kept, 10)
    assert load(session) == ["model_change", "thinking_level_change", "compaction"]


def test_branch_without_compaction_is_loaded_whole(session):
    fill(session)
    assert load(session) == [entry.type for entry in session.all_entries()] and len(session) == 6


def test_last_choices_are_found_in_their_order(session):
    session.append_message(reply("m1"))
    session.append_thinking_level("low")
    session.append_thinking_level("high")
    session.append_message(reply("m2"))
    session.append_message(UserMessage("one", 1))
    found = session.present.history.load_settings(list(range(5)))
    assert [entry.type for entry in found] == ["thinking_level_change", "message"]
    assert (found[0].thinking_level, found[1].message.model) == ("high", "m2")
    assert session.present.read_choice() == (("p", "m2"), "high")


def test_last_entry_of_a_kind_is_found(session):
    assert session.present.history.find_last("session_info") is None
    for name in ("one", "two"):
        session.append_session_info(name)
    session.append_message(UserMessage("x", 1))
    assert (session.name, session.present.history.find_last("session_info").name) == ("two", "two")
