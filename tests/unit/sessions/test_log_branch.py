import random

import pytest

from retinue.core.messages import AssistantMessage, TextContent, ToolCall, ToolResultMessage, Usage, UserMessage
from retinue.sessions.log import Session
from retinue.sessions.view import TOOL_RESULT
from retinue.testing.clock import FakeClock


def make_session():
    return Session.create(cwd="/w", directory=None, clock=FakeClock(), new_id=lambda: "a-b")


def reply(words, *calls):
    stop = "toolUse" if calls else "stop"
    return AssistantMessage([TextContent(words), *calls], "api", "p", words, Usage(), stop, 1)


def answer(call_id):
    return ToolResultMessage(call_id, "read", [TextContent(call_id)], False, 1)


def add_turn(session, chance, number):
    session.append_message(UserMessage(f"ask {number}", 1))
    calls = [ToolCall(f"c{number}-{n}", "read", {}) for n in range(chance.randrange(4))]
    entry_id = session.append_message(reply(f"m{number}", *calls))
    for call in calls:
        session.append_custom(TOOL_RESULT, {"toolCallId": "none"})
        session.append_message(answer(call.id))
    if chance.random() < 0.2:
        session.append_context_edit(entry_id, {"content": [{"type": "text", "text": "edited"}]})
    if chance.random() < 0.1:
        session.append_thinking_level(chance.choice(["low", "high"]))
    if chance.random() < 0.05:
        session.append_compaction("before", entry_id, 10)


@pytest.mark.parametrize("seed", range(12))
def test_recent_is_the_end(seed):
    chance, session = random.Random(seed), make_session()
    for number in range(40):
        add_turn(session, chance, number)
    whole = session.context()
    for count in (1, 2, 3, 5, 8, 20, 100, 1000):
        recent, is_all = session.present.read_recent(count)
        assert recent == whole.messages[-len(recent) :]
        assert is_all == (len(recent) == len(whole.messages))
        assert not isinstance(recent[0], ToolResultMessage)


@pytest.mark.parametrize("seed", range(12))
def test_choice_is_the_context_s(seed):
    chance, session = random.Random(seed), make_session()
    for number in range(20):
        add_turn(session, chance, number)
    whole = session.context()
    session.branch(session.leaf_id)
    assert session.choice == (whole.model, whole.thinking) == session.present.read_choice()


def test_context_read_before_is_kept():
    session = make_session()
    session.append_message(UserMessage("one", 1))
    session.branch(session.leaf_id)
    present = session.present
    context = present.read_context()
    session.keep_context(present, context)
    session.append_message(UserMessage("two", 1))
    assert session.context().messages == [UserMessage("one", 1), UserMessage("two", 1)]


def test_context_read_too_early_is_not():
    session = make_session()
    session.append_message(UserMessage("one", 1))
    session.branch(session.leaf_id)
    present = session.present
    context = present.read_context()
    session.append_message(UserMessage("two", 1))
    session.keep_context(present, context)
    assert session.context().messages == [UserMessage("one", 1), UserMessage("two", 1)]


def test_recent_begins_where_nothing_hangs_on_what_is_before():
    session, calls = make_session(), [ToolCall("c1", "read", {}), ToolCall("c2", "read", {})]
    said = [UserMessage("ask", 1), reply("m", *calls), answer("c1"), answer("c2"), UserMessage("more", 1)]
    for message in said:
        session.append_message(message)
    assert [session.present.read_recent(count) for count in (1, 2, 3, 4, 5, 6)] == [
        (said[4:], False),
        (said[1:], False),
        (said[1:], False),
        (said[1:], False),
        (said, True),
        (said, True),
    ]


def test_recent_of_what_begins_in_the_middle():
    session = make_session()
    session.append_session_info("named")
    session.append_model_change("p", "m")
    session.append_message(UserMessage("one", 1))
    assert session.present.read_recent(2) == ([UserMessage("one", 1)], True)
    other = make_session()
    call = reply("m", ToolCall("c1", "read", {}))
    for message in (call, answer("c1")):
        other.append_message(message)
    assert other.present.read_recent(1) == ([call, answer("c1")], True)


def test_branch_passes_its_own_entries():
    session = make_session()
    first, second = (session.append_message(UserMessage(text, 1)) for text in ("one", "two"))
    session.branch(first)
    third = session.append_message(UserMessage("three", 1))
    assert [session.present.passes(entry_id) for entry_id in (first, second, third)] == [True, False, True]
    assert [entry.id for entry in session.present.load_beyond(second)] == [third]
