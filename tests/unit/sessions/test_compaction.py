import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET, structs

from retinue.core.errors import CompactionFailed
from retinue.core.messages import (
    AssistantMessage,
    BashExecutionMessage,
    CompactionSummaryMessage,
    ImageContent,
    Message,
    SystemMessage,
    TextContent,
    ThinkingContent,
    ToolCall,
    ToolResultMessage,
    Usage,
    UserMessage,
)
from retinue.sessions.compaction import (
    Compaction,
    CompactionConfig,
    Preparation,
    compact,
    count_context_tokens,
    estimate_tokens,
    find_cut,
    leave_out,
    needs_compaction,
    prepare_compaction,
)
from retinue.sessions.entry import Entry
from retinue.sessions.summary import render_conversation
from retinue.sessions.view import Context

KEEP = CompactionConfig(keep_recent_tokens=100)
SUMMARY = "## Goal\nshort"


def user(size: int = 40) -> UserMessage:
    return UserMessage("u" * size, 1)


def reply(text: str = "", *calls: ToolCall, total: int = 0, stop: str = "stop") -> AssistantMessage:
    content = [*([TextContent(text)] if text else []), *calls]
    return AssistantMessage(content, "a", "p", "m", Usage(total_tokens=total), stop, 2)  # type: ignore[arg-type]


def call(name: str, path: str, call_id: str = "c") -> ToolCall:
    return ToolCall(call_id, name, {"path": path})


def result(size: int = 40) -> ToolResultMessage:
    return ToolResultMessage("c", "read", [TextContent("r" * size)], False, 3)


def context(*messages: Message, compaction: Entry | None = None, trusted_from: int = 0) -> Context:
    ids = [f"e{n}" for n in range(len(messages))]
    return Context(list(messages), ids, compaction=compaction, trusted_from=trusted_from)


class Model:
    """Answers with what it was given and remembers what it was asked."""

    def __init__(self, *replies: AssistantMessage) -> None:
        self.replies = list(replies)
        self.prompts: list[str] = []

    async def __call__(self, system: str, prompt: str) -> AssistantMessage:
        self.prompts.append(prompt)
        return self.replies.pop(0)


def plan(*messages: Message, prefix: tuple[Message, ...] = (), previous: str = "") -> Preparation:
    return Preparation("e9", list(messages), list(prefix), 500, previous, frozenset({"r.py"}), frozenset({"m.py"}), 40)


@pytest.mark.parametrize(
    ("message", "tokens"),
    [
        (UserMessage("", 1), 0),
        (UserMessage("abcde", 1), 2),
        (UserMessage([TextContent("abcd"), ImageContent("data", "image/png")], 1), 1201),
        (UserMessage([TextContent("a"), ImageContent("data", "image/png")], 1), 1201),
        (reply("abcd", ToolCall("c", "read", {"path": "x"})), 5),
        (AssistantMessage([ThinkingContent("abcdefgh")], "a", "p", "m", Usage(), "stop", 1), 2),
        (SystemMessage("abcd", 1, {"a": "abcd"}), 2),
        (SystemMessage("abcd", 1, {"a": "b"}), 2),
        (SystemMessage("abcd", 1, {"a": "abcd"}, [{"name": "t"}]), 6),
        (BashExecutionMessage("list", "abcd", False, False, 1), 2),
        (CompactionSummaryMessage("abcdefgh", 100, 1), 2),
    ],
)
def test_tokens_are_characters_over_four(message: Message, tokens: int) -> None:
    assert estimate_tokens(message) == tokens


def test_last_usage_corrects_the_estimate() -> None:
    assert count_context_tokens(context(user(4000), reply("x", total=777), user(40))) == 787


def test_usage_before_an_edit_is_not_trusted() -> None:
    assert count_context_tokens(context(user(400), reply("abcd", total=777), user(40), trusted_from=2)) == 111


def test_failed_reply_has_no_usage() -> None:
    assert count_context_tokens(context(user(400), reply("abcd", total=777, stop="error"))) == 101


@pytest.mark.parametrize(("tokens", "needed"), [(83_616, False), (83_617, True)])
def test_threshold_leaves_the_reserve(tokens: int, needed: bool) -> None:
    assert needs_compaction(tokens, 100_000, CompactionConfig()) is needed
    assert not needs_compaction(tokens, 100_000, CompactionConfig(enabled=False))


def test_short_context_needs_nothing() -> None:
    assert prepare_compaction(context(user(), reply("hi")), KEEP) is None


def test_cut_is_at_users_message() -> None:
    old = [user(), reply("one"), user(400), reply("two")]
    prepared = prepare_compaction(context(*old), KEEP)
    assert prepared is not None
    assert (prepared.first_kept_entry_id, prepared.to_summarise, prepared.span_prefix) == ("e2", old[:2], [])


def test_cut_inside_a_request_keeps_its_start() -> None:
    messages = [user(), reply("old"), user(), reply("", call("read", "a")), result(400), reply("x" * 400), result(40)]
    prepared = prepare_compaction(context(*messages), KEEP)
    assert prepared is not None
    assert prepared.first_kept_entry_id == "e5"
    assert (prepared.to_summarise, prepared.span_prefix) == (messages[:2], messages[2:5])


def test_second_compaction_starts_at_kept_part() -> None:
    head = [SystemMessage("s", 1), user()]
    previous = Entry("compaction", "e0", summary="before", details={"readFiles": ["old.py"], "modifiedFiles": ["x.py"]})
    replies = reply("", call("read", "new.py")), reply("", call("edit", "old.py"))
    rest = [user(), replies[0], result(), replies[1], user(400), reply("y")]
    old = Context([*head, *rest], ["e0", "e0", *(f"e{n}" for n in range(1, 7))], compaction=previous)
    prepared = prepare_compaction(old, KEEP)
    assert prepared is not None
    assert (prepared.to_summarise, prepared.previous_summary) == (rest[:4], "before")
    assert (prepared.read_files, prepared.modified_files) == (frozenset({"new.py"}), frozenset({"old.py", "x.py"}))


def test_files_are_those_really_used() -> None:
    asked = reply("", call("write", "a.py"))
    details = {"modifiedInput": {"by": ["fixer"], "args": {"path": "b.py"}}}
    done = structs.replace(result(), tool_call_id=asked.calls[0].id, details=details)
    prepared = prepare_compaction(context(user(), asked, done, user(400), reply("y")), KEEP)
    assert prepared is not None and prepared.modified_files == frozenset({"b.py"})


def test_files_of_extensions_are_not_carried() -> None:
    previous = Entry("compaction", "e0", summary="before", details={"readFiles": ["x"]}, from_hook=True)
    prepared = prepare_compaction(context(user(), user(), reply("y"), user(400), compaction=previous), KEEP)
    assert prepared is not None and prepared.read_files == frozenset()


def test_everything_can_be_summarised() -> None:
    prepared = prepare_compaction(context(user(), reply("y"), user(9000)), KEEP, keep_recent=False)
    assert prepared is not None
    assert (prepared.first_kept_entry_id, len(prepared.to_summarise)) == (None, 3)


MESSAGES = st.lists(
    st.one_of(
        st.builds(user, st.integers(1, 400)),
        st.builds(result, st.integers(0, 400)),
        st.builds(lambda size: reply("x" * size), st.integers(1, 400)),
        st.just(SystemMessage("s" * 50, 1)),
    ),
    max_size=20,
)


@given(MESSAGES, st.integers(0, 300))
def test_cut_is_never_at_a_result(messages: list[Message], keep: int) -> None:
    cut = find_cut(messages, 0, keep)
    has_points = any(isinstance(message, UserMessage | AssistantMessage) for message in messages)
    assert not has_points or isinstance(messages[cut], UserMessage | AssistantMessage)


@given(MESSAGES, st.integers(0, 300))
def test_every_message_is_summarised_or_kept(messages: list[Message], keep: int) -> None:
    prepared = prepare_compaction(context(*messages), CompactionConfig(keep_recent_tokens=keep))
    if prepared is not None:
        kept = len(messages) if prepared.first_kept_entry_id is None else int(prepared.first_kept_entry_id[1:])
        gone = [message for message in messages[:kept] if not isinstance(message, SystemMessage)]
        assert prepared.to_summarise + prepared.span_prefix == gone


async def test_summary_lists_files() -> None:
    model = Model(reply(SUMMARY, total=5))
    done = await compact(plan(user(400)), model, "the tests")
    files = "\n\n<read-files>\nr.py\n</read-files>\n\n<modified-files>\nm.py\n</modified-files>"
    details = {"readFiles": ["r.py"], "modifiedFiles": ["m.py"]}
    assert done == Compaction(SUMMARY + files, "e9", 500, Usage(total_tokens=5), details)
    assert "focus on: the tests" in model.prompts[0] and "u" * 400 in model.prompts[0]


async def test_split_request_gets_two_summaries() -> None:
    model = Model(reply("history", total=5), reply("prefix", total=7))
    done = await compact(plan(user(400), prefix=(user(400),), previous="older"), model)
    assert done.summary.startswith("history\n\n---\n\n## Current request, first part\n\nprefix")
    assert done.usage.total_tokens == 12
    assert "<previous-summary>\nolder\n</previous-summary>" in model.prompts[0]


async def test_prefix_alone_keeps_previous_summary() -> None:
    done = await compact(plan(prefix=(user(400),), previous="older"), Model(reply("prefix")))
    assert done.summary.startswith("older\n\n---")


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (reply("x", stop="error"), "the summary failed: error"),
        (reply("x", stop="aborted"), "the summary failed: aborted"),
        (reply(""), "empty summary"),
        (reply("  \n"), "empty summary"),
        (reply("x", call("read", "a")), "called a tool"),
        (reply("x" * 400), "no shorter"),
    ],
)
async def test_useless_summary_is_refused(answer: AssistantMessage, message: str) -> None:
    with pytest.raises(CompactionFailed, match=message):
        await compact(plan(user(400)), Model(answer))


async def test_cut_off_summary_is_taken() -> None:
    done = await compact(plan(user(400)), Model(reply("x", stop="length")))
    assert done.summary.startswith("x\n\n[the summary was cut off here, at the model's output limit]")


def test_conversation_reads_as_a_text() -> None:
    messages = [user(3), reply("I look.", call("read", "a")), result(2100), SystemMessage("hidden", 1)]
    assert render_conversation(messages) == (
        '[User]: uuu\n\n[Assistant]: I look.\n\n[Assistant tool calls]: read(path="a")\n\n'
        f"[Tool result]: {'r' * 2000}\n[100 more characters]"
    )


def test_unset_details_are_no_files() -> None:
    previous = Entry("compaction", "e0", summary=UNSET)
    prepared = prepare_compaction(context(user(), user(), reply("y"), user(400), compaction=previous), KEEP)
    assert prepared is not None and prepared.previous_summary == ""


def test_head_that_fills_the_window_leaves_nothing_to_keep() -> None:
    for head_tokens in (6143, 6144, 6145, 50_000):
        assert CompactionConfig().fit(8192, head_tokens).keep_recent_tokens == 0
    assert CompactionConfig().fit(8192, 6140).keep_recent_tokens == 2


@pytest.mark.parametrize(
    ("config", "window", "head_tokens", "reserve", "keep"),
    [
        (CompactionConfig(), 200_000, 0, 16_384, 20_000),
        (CompactionConfig(), 8192, 0, 2048, 3072),
        (CompactionConfig(), 8192, 1000, 2048, 2572),
        (CompactionConfig(reserve_tokens=30_000), 40_000, 4000, 26_000, 5000),
        (CompactionConfig(reserve_tokens=30_000), 40_000, 35_000, 10_000, 0),
        (CompactionConfig(reserve_tokens=5000), 40_000, 4000, 5000, 15_500),
    ],
)
def test_numbers_fit_the_window(
    config: CompactionConfig, window: int, head_tokens: int, reserve: int, keep: int
) -> None:
    fitting = config.fit(window, head_tokens)
    assert (fitting.enabled, fitting.reserve_tokens, fitting.keep_recent_tokens) == (True, reserve, keep)
    assert CompactionConfig().fit(8192) == CompactionConfig().fit(8192, 0)


def test_parts_of_usage_are_added() -> None:
    counted = structs.replace(reply("x"), usage=Usage(input=1000, output=200, cache_read=30, cache_write=4))
    assert count_context_tokens(context(user(4000), counted)) == 1234


def test_prompt_counts_until_the_provider_has_counted() -> None:
    said = context(SystemMessage("s" * 40, 1), user(400), SystemMessage("t" * 40, 1))
    # Both texts with an empty line between them are 82 characters.
    assert [count_context_tokens(said, head) for head in (None, 0, 500)] == [121, 100, 600]


@pytest.mark.parametrize(("keep", "cut"), [(10, 3), (11, 2), (20, 2), (21, 1), (40, 0), (99, 0)])
def test_cut_keeps_so_many_tokens(keep: int, cut: int) -> None:
    assert find_cut([user(40), reply("x" * 40), user(40), reply("x" * 40)], 0, keep) == cut


def test_cut_behind_the_last_point_is_at_it() -> None:
    messages = [user(40), reply("", call("read", "a")), result(400)]
    assert (find_cut(messages, 0, 50), find_cut([result(400)], 0, 50)) == (1, 0)


def test_checkpoint_alone_is_not_summarised_again() -> None:
    previous = Entry("compaction", "e0", summary="before")
    head = [SystemMessage("s", 1), CompactionSummaryMessage("before", 100, 1)]
    old = Context([*head, user(400)], ["e0", "e0", "e1"], compaction=previous)
    assert prepare_compaction(old, KEEP) is None
    assert prepare_compaction(Context(list(head), ["e0", "e0"], compaction=previous), KEEP, keep_recent=False) is None


def test_files_of_the_summary_before_are_carried() -> None:
    previous = Entry("compaction", "e0", summary="before", details={"readFiles": ["x", 5], "modifiedFiles": ["y"]})
    odd = reply("", ToolCall("c", "read", {"path": 5}), ToolCall("d", "read", {"path": ""}))
    prepared = prepare_compaction(context(user(), odd, user(400), compaction=previous), KEEP)
    assert prepared is not None
    assert (prepared.read_files, prepared.modified_files) == (frozenset({"x"}), frozenset({"y"}))


async def test_summary_must_be_shorter_than_all_it_replaces() -> None:
    parts = plan(user(100), prefix=(user(100),), previous="p" * 100)
    heading = "\n\n---\n\n## Current request, first part\n\n"
    for size, is_taken in ((299, True), (300, False)):
        model = Model(reply("x" * 100), reply("y" * (size - 100 - len(heading))))
        if is_taken:
            await compact(parts, model)
        else:
            with pytest.raises(CompactionFailed, match=r"no shorter \(300 characters\) than what it sums up \(300\)"):
                await compact(parts, model)


def test_note_replaces_a_summary_that_failed() -> None:
    asked = [UserMessage(f"{number} " + "u" * 1198, 1) for number in range(4)]
    files = plan(*asked, reply("said"), prefix=(UserMessage([], 1),), previous="p" * 3000)
    note = leave_out(files, "no model", 2400)
    assert "6 messages are left out, and no summary of them could be made (no model)" in note.summary
    assert [f"- {number} u" in note.summary for number in range(4)] == [False, True, True, True]
    assert note.summary.count("[… 800 characters left out …]") == 3
    assert "What happened before them:\n\nppp" in note.summary
    assert "[… 1800 characters left out …]" in note.summary
    assert note.summary.endswith("<modified-files>\nm.py\n</modified-files>")
    details = {"readFiles": ["r.py"], "modifiedFiles": ["m.py"]}
    assert note == Compaction(note.summary, "e9", 500, Usage(), details)


def test_note_is_short_where_there_is_little() -> None:
    many = structs.replace(plan(reply("said")), read_files=frozenset({"r" * 500}))
    note = leave_out(many, "no model", 400).summary
    assert "What happened" not in note and "What the user said" not in note
    size = len("\n\n<read-files>\n\n</read-files>\n\n<modified-files>\nm.py\n</modified-files>") + 500
    assert f"[… {size - 100} characters left out …]" in note
    shown = leave_out(plan(user(300)), "no model", 600).summary
    assert "- " + "u" * 133 + "\n[… 100 characters left out …]\n" in shown


def test_summary_without_checkpoint_is_not_summarised_again() -> None:
    previous = Entry("compaction", "e0", summary="before")
    old = context(CompactionSummaryMessage("before", 100, 1), user(), reply("y"), user(400), compaction=previous)
    prepared = prepare_compaction(old, KEEP)
    assert prepared is not None and prepared.to_summarise == [user(), reply("y")]
