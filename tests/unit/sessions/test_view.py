from typing import Any

import msgspec
import pytest
from msgspec import UNSET

from retinue.core.messages import (
    AssistantMessage,
    BranchSummaryMessage,
    CompactionSummaryMessage,
    CustomMessage,
    Message,
    SystemMessage,
    TextContent,
    ToolCall,
    ToolResultMessage,
    Usage,
    UserMessage,
)
from retinue.core.transcript import interrupt_call
from retinue.sessions.entry import Entry, RepairedEntry
from retinue.sessions.view import TOOL_RESULT, Context, build_context, parse_time_ms, read_choice, replay_system

STAMP = "2023-11-14T22:13:20.000Z"


def said(entry_id: str, message: Message | str) -> Entry:
    return Entry("message", entry_id, message=UserMessage(message, 1) if isinstance(message, str) else message)


def reply(*calls: str, stop: str = "stop") -> AssistantMessage:
    content = [TextContent("ok"), *(ToolCall(call, "read", {}) for call in calls)]
    return AssistantMessage(content, "a", "p", "m", Usage(), stop, 2)  # type: ignore[arg-type]


def result(call_id: str) -> ToolResultMessage:
    return ToolResultMessage(call_id, "read", [TextContent("done")], False, 3)


def compaction(entry_id: str, first_kept: str, **fields: Any) -> Entry:
    return Entry(
        "compaction", entry_id, STAMP, summary="sum", first_kept_entry_id=first_kept, tokens_before=7, **fields
    )


SUMMARY = CompactionSummaryMessage("sum", 7, 1_700_000_000_000)


def edit(entry_id: str, target: str, replacement: Any) -> Entry:
    return Entry("context_edit", entry_id, target_id=target, replacement=replacement)


def contents(context: Context) -> list[Any]:
    return [getattr(message, "content", message) for message in context.messages]


def test_empty_branch_is_an_empty_context() -> None:
    assert build_context([]) == Context()


def test_compaction_keeps_from_first_kept() -> None:
    system = SystemMessage("all", 1)
    path = [
        said("a", "1"),
        said("b", "2"),
        said("s", SystemMessage("old", 1)),
        compaction("c", "b", system_message=system),
    ]
    context = build_context([*path, said("d", "3")])
    assert context.messages == [system, SUMMARY, UserMessage("2", 1), UserMessage("3", 1)]
    assert (context.entry_ids, context.trusted_from) == (["c", "c", "b", "d"], 3)


def test_only_latest_compaction_counts() -> None:
    path = [said("a", "1"), compaction("c1", "a"), said("b", "2"), compaction("c2", "a"), said("d", "3")]
    context = build_context(path)
    assert contents(context) == [SUMMARY, "1", "2", "3"]
    assert context.compaction is path[3]


def test_unknown_first_kept_keeps_nothing() -> None:
    assert contents(build_context([said("a", "1"), compaction("c", "gone"), said("d", "3")])) == [SUMMARY, "3"]


def test_latest_edit_wins() -> None:
    path = [said("a", "1"), said("b", "2"), edit("e1", "a", {"content": "x"}), edit("e2", "a", {"content": "y"})]
    context = build_context([*path, edit("e3", "b", None), said("d", "3")])
    assert (contents(context), context.trusted_from) == (["y", "3"], 1)


def test_edited_reply_gets_blocks() -> None:
    context = build_context([said("a", reply()), edit("e", "a", {"content": "short"})])
    assert contents(context) == [[TextContent("short")]]


def test_odd_edits_change_nothing() -> None:
    path = [said("a", "1"), edit("e1", "a", 7), edit("e2", "gone", None), Entry("context_edit", "e3", target_id=5)]
    assert contents(build_context(path)) == ["1"]


def test_entries_of_extensions_become_messages() -> None:
    custom = Entry("custom_message", "a", STAMP, custom_type="t", content="c", display=True, details={"n": 1})
    left = Entry("branch_summary", "b", STAMP, summary="left", from_id="x")
    state = Entry("custom", "c", custom_type="t", data={"n": 1})
    assert build_context([custom, left, state, Entry("hologram", "d")]).messages == [
        CustomMessage("t", "c", True, 1_700_000_000_000, {"n": 1}),
        BranchSummaryMessage("left", "x", 1_700_000_000_000),
    ]


def test_model_is_last_chosen_or_used() -> None:
    chosen = Entry("model_change", "a", provider="x", model_id="y")
    thinking = Entry("thinking_level_change", "t", thinking_level="high")
    assert build_context([thinking, said("b", reply()), chosen]).model == ("x", "y")
    context = build_context([thinking, chosen, said("b", reply())])
    assert (context.model, context.thinking) == (("p", "m"), "high")


def test_system_messages_patch_each_other() -> None:
    tools = [{"name": "read"}, {"name": "bash"}]
    first = SystemMessage("base", 5, {"a": "1", "b": "2"}, tools)
    second = SystemMessage([TextContent("more")], 6, {"a": None, "c": "3"}, [{"name": "new"}], [{"name": "bash"}])
    expected = SystemMessage("base\n\nmore", 5, {"b": "2", "c": "3"}, [{"name": "read"}, {"name": "new"}])
    assert replay_system([first, UserMessage("x", 1), second]) == expected
    assert replay_system([UserMessage("x", 1)]) is None


def test_open_calls_are_answered_in_place() -> None:
    calls = reply("c1", "c2", "c3", stop="toolUse")
    early = {"toolCallId": "c3", "message": msgspec.to_builtins(result("c3"))}
    path = [said("a", calls), said("b", result("c2")), Entry("custom", "x", custom_type=TOOL_RESULT, data=early)]
    context = build_context([*path, said("d", "next")])
    assert context.messages == [
        calls,
        result("c2"),
        interrupt_call("c1", "read", 2),
        result("c3"),
        UserMessage("next", 1),
    ]
    assert context.entry_ids == ["a", "b", "a", "x", "d"]


def test_running_calls_are_left_alone() -> None:
    calls = reply("c1", stop="toolUse")
    assert build_context([said("a", calls)], lambda entry_id: False).messages == [calls]


def test_failed_replies_get_no_results() -> None:
    failed = reply("c1", stop="error")
    assert build_context([said("a", failed)]).messages == [failed]


def test_odd_stored_results_are_ignored() -> None:
    odd = [Entry("custom", f"x{n}", custom_type=TOOL_RESULT, data=data) for n, data in enumerate([None, 5, {}, UNSET])]
    assert build_context([said("a", reply("c1")), *odd]).messages[1:] == [interrupt_call("c1", "read", 2)]


def test_odd_times_are_zero() -> None:
    times = [parse_time_ms(stamp) for stamp in (STAMP, "2023-11-14T22:13:20+00:00", "", "yesterday")]
    assert times == [1_700_000_000_000, 1_700_000_000_000, 0, 0]


def test_context_tells_sections_and_tools() -> None:
    system = SystemMessage("all", 1, {"a": "1", "b": None}, [{"name": "read"}])
    context = build_context([said("s", system)])
    assert (context.system, context.sections, context.tools) == (
        replay_system([system]),
        {"a": "1"},
        [{"name": "read"}],
    )
    assert Context(system=system).sections == {"a": "1"}
    for bare in (Context(), Context(system=SystemMessage("all", 1))):
        assert (bare.sections, bare.tools) == ({}, [])


@pytest.mark.parametrize(
    ("path", "trusted_from"),
    [
        ([said("a", "1"), said("b", "2")], 0),
        ([compaction("c", "c"), said("d", "3")], 1),
        ([said("a", "1"), compaction("c", "a")], 2),
        ([said("a", "1"), compaction("c", "a"), said("d", "3")], 2),
        ([said("a", reply("c1")), compaction("c", "a"), said("d", "3"), said("e", "4")], 3),
        ([said("a", reply("c1")), said("b", "2"), edit("e", "b", None), said("d", "3")], 2),
    ],
)
def test_counts_hold_from_the_last_change_on(path: list[Entry], trusted_from: int) -> None:
    assert build_context(path).trusted_from == trusted_from


def test_kept_part_is_shown_once() -> None:
    path = [said("a", "1"), compaction("c1", "a"), said("b", "2"), compaction("c2", "b"), said("d", "3")]
    assert build_context(path).entry_ids == ["c2", "b", "d"]
    odd = Entry("compaction", "c", STAMP, summary="sum", first_kept_entry_id="c", tokens_before="many")
    assert build_context([odd]).messages == [CompactionSummaryMessage("sum", 0, 1_700_000_000_000)]


def test_message_of_another_kind_is_not_shown() -> None:
    stray = Entry("label", "a", message=UserMessage("1", 1))
    assert build_context([stray, Entry("message", "b"), said("c", "2")]).messages == [UserMessage("2", 1)]
    other = {"message": msgspec.to_builtins(result("c1"))}
    records = [Entry("custom", "x", custom_type="other", data=other), Entry("label", "y", custom_type=TOOL_RESULT)]
    context = build_context([said("a", reply("c1")), *records])
    assert context.messages[1:] == [interrupt_call("c1", "read", 2)]


def test_incomplete_choice_is_none() -> None:
    half = [Entry("model_change", "a", provider="x"), Entry("label", "b", provider="x", model_id="y")]
    stray = Entry("label", "c", thinking_level="low")
    assert read_choice([*half, stray]) == (None, None)
    thinking = [Entry("thinking_level_change", name, thinking_level=name) for name in ("low", "high")]
    assert read_choice([*thinking, *half]) == (None, "high")


INTERRUPTED = "the call 'c1' of read has no result; the model sees it as interrupted"


@pytest.mark.parametrize(
    ("path", "lost"),
    [
        ([said("a", "1"), compaction("c", "a")], []),
        ([said("a", "1"), compaction("c", "c")], []),
        ([compaction("c", "gone")], ["entry 'gone', from which the compaction 'c' keeps messages, is not there"]),
        ([Entry("message", "a")], ["entry 'a' holds no message"]),
        ([Entry("message", "a"), edit("e", "a", None)], []),
        ([Entry("message", "a"), edit("e", "a", {"content": "x"})], ["entry 'a' holds no message"]),
        ([RepairedEntry("message", "a", lost=("a part",))], ["a part (entry 'a') cannot be read"]),
        ([Entry("branch_summary", "b")], ["the summary of entry 'b' cannot be read"]),
        ([Entry("label", "b")], []),
        ([said("a", reply("c1"))], [INTERRUPTED]),
        ([said("a", reply("c1", "c2")), said("b", result("c2"))], [INTERRUPTED]),
        ([said("a", reply("c1")), said("b", result("c1"))], []),
        ([said("a", reply("c1")), said("b", "next")], []),
    ],
)
def test_losses_are_told(path: list[Entry], lost: list[str]) -> None:
    assert list(build_context(path).lost) == lost
