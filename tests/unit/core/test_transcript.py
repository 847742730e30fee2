from hypothesis import given
from hypothesis import strategies as st

from retinue.core.messages import (
    AssistantMessage,
    Message,
    SystemMessage,
    TextContent,
    ToolCall,
    ToolResultMessage,
    Usage,
    UserMessage,
)
from retinue.core.transcript import interrupt_call, is_sound, repair_transcript

IDS = st.sampled_from(["a", "b", "a-2", "c", ""])


def reply(*content: TextContent | ToolCall, stop: str = "toolUse") -> AssistantMessage:
    return AssistantMessage(list(content), "api", "provider", "model", Usage(), stop, 7)  # type: ignore[arg-type]


def call(call_id: str) -> ToolCall:
    return ToolCall(call_id, "read", {})


def result(call_id: str, text: str = "done") -> ToolResultMessage:
    return ToolResultMessage(call_id, "read", [TextContent(text)], False, 8)


BLOCKS = st.one_of(st.builds(TextContent, st.just("text")), st.builds(call, IDS))
STOPS = st.sampled_from(["stop", "toolUse", "length", "error", "aborted"])
REPLIES = st.builds(lambda blocks, stop: reply(*blocks, stop=stop), st.lists(BLOCKS, max_size=4), STOPS)
MESSAGES = st.one_of(
    st.builds(UserMessage, st.just("hello"), st.just(1)),
    st.builds(SystemMessage, st.just("be good"), st.just(1)),
    REPLIES,
    st.builds(result, IDS),
)
HISTORIES = st.lists(MESSAGES, max_size=12)


@given(HISTORIES)
def test_repaired_transcripts_are_sound(history: list[Message]) -> None:
    assert is_sound(repair_transcript(history))


@given(HISTORIES)
def test_repairing_twice_changes_nothing(history: list[Message]) -> None:
    once = repair_transcript(history)
    assert repair_transcript(once) is once


@given(HISTORIES)
def test_people_and_texts_are_never_lost(history: list[Message]) -> None:
    def visible(messages: list[Message]) -> list[object]:
        kept = [m for m in messages if not isinstance(m, ToolResultMessage)]
        return [m.text if isinstance(m, AssistantMessage) else m for m in kept]

    finished = [m for m in history if not isinstance(m, AssistantMessage) or m.stop_reason not in ("error", "aborted")]
    expected = [m for m in finished if not isinstance(m, AssistantMessage) or m.content]
    assert visible(repair_transcript(history)) == visible(expected)


def test_sound_list_is_returned_itself() -> None:
    history: list[Message] = [UserMessage("hi", 1), reply(call("a"), call("b")), result("a"), result("b")]
    assert repair_transcript(history) is history


def test_call_without_result_gets_one() -> None:
    history: list[Message] = [reply(call("a"), call("b")), result("b"), UserMessage("go on", 9)]
    expected = [history[0], interrupt_call("a", "read", 7), result("b"), history[2]]
    assert repair_transcript(history) == expected


def test_late_result_moves_behind_its_call() -> None:
    history: list[Message] = [reply(call("a")), SystemMessage("new rules", 2), result("a")]
    assert repair_transcript(history) == [history[0], history[2], history[1]]


def test_result_without_call_is_dropped() -> None:
    history: list[Message] = [UserMessage("hi", 1), result("gone"), reply(TextContent("yes"), stop="stop")]
    assert repair_transcript(history) == [history[0], history[2]]


def test_second_use_of_id_is_renamed() -> None:
    history: list[Message] = [reply(call("a")), result("a", "one"), reply(call("a")), result("a", "two")]
    expected = [history[0], history[1], reply(call("a-2")), result("a-2", "two")]
    assert repair_transcript(history) == expected


def test_same_id_twice_in_reply_keeps_order() -> None:
    history: list[Message] = [reply(call("a"), call("a")), result("a", "one"), result("a", "two")]
    expected = [reply(call("a"), call("a-2")), result("a", "one"), result("a-2", "two")]
    assert repair_transcript(history) == expected


def test_second_result_of_call_is_dropped() -> None:
    history: list[Message] = [reply(call("a")), result("a", "one"), result("a", "two")]
    assert repair_transcript(history) == history[:2]


def test_aborted_reply_goes_with_its_results() -> None:
    history: list[Message] = [UserMessage("hi", 1), reply(call("a"), stop="aborted"), result("a")]
    assert repair_transcript(history) == history[:1]
