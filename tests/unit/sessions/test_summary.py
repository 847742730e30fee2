import pytest

from retinue.core.messages import (
    BashExecutionMessage,
    CompactionSummaryMessage,
    TextContent,
    ToolResultMessage,
    UserMessage,
)
from retinue.sessions.summary import (
    HISTORY_PROMPT,
    PREFIX_PROMPT,
    UPDATE_PROMPT,
    render_conversation,
    render_prompt,
    shorten,
)


def make_messages(*sizes: int) -> list[UserMessage]:
    # "[User]: " has eight characters.
    return [UserMessage(f"{number:02}".ljust(size - 8, "."), 0) for number, size in enumerate(sizes)]


def test_conversation_that_fits_is_whole() -> None:
    messages = make_messages(*[98] * 10)
    whole = render_conversation(messages)
    assert (whole.count("[User]: "), render_conversation(messages, 1000)) == (10, whole)
    assert render_conversation(messages, 999) != whole


def test_first_and_latest_parts_are_kept() -> None:
    messages = make_messages(*[98] * 10)
    # 900 without the first and what the note takes: 702, which is seven parts with the empty lines between them.
    text = render_conversation(messages, 900)
    shown = [part[8:10] for part in text.split("\n\n") if part.startswith("[User]")]
    assert (shown, "[2 parts are left out here: there is no room for them]" in text) == (
        ["00", "03", "04", "05", "06", "07", "08", "09"],
        True,
    )
    assert [render_conversation(messages, most).count("[User]: ") for most in (898, 897)] == [8, 7]


def test_long_part_is_shortened_in_its_middle() -> None:
    text = "a" * 60 + "b" * 60
    assert shorten(text, 120) == text
    assert shorten(text, 90) == "a" * 60 + "\n[… 30 characters left out …]\n" + "b" * 30
    shown = render_conversation(make_messages(400, 98), 400)
    assert "characters left out" in shown and len(shown) < 400


@pytest.mark.parametrize(("size", "is_cut"), [(100, False), (101, True)])
def test_part_takes_a_quarter_at_most(size: int, is_cut: bool) -> None:
    shown = render_conversation(make_messages(size, 98, 98, 98, 98), 400)
    assert ("characters left out" in shown) is is_cut


@pytest.mark.parametrize(("most", "kept"), [(340, 5), (339, 4), (342, 7), (150, 1)])
def test_room_is_what_the_first_part_and_the_note_leave(most: int, kept: int) -> None:
    # Each later part takes fifty with the empty line before it.
    shown = render_conversation(make_messages(40, *[48] * 6), most)
    assert (shown.count("[User]: "), f"[{7 - kept} parts are left out" in shown) == (kept, kept < 7)


def test_long_first_part_alone_is_shortened() -> None:
    shown = render_conversation(make_messages(900), 800)
    assert shown.count("[User]: ") == 1 and "parts are left out" not in shown and "700 characters left out" in shown
    both = render_conversation(make_messages(900, 50), 800)
    assert both.count("[User]: ") == 2 and "parts are left out" not in both


def test_commands_and_summaries_are_shown() -> None:
    ran = BashExecutionMessage("list", "o" * 2001, False, False, 1)
    hidden = BashExecutionMessage("list", "out", False, False, 1, exclude_from_context=True)
    text = render_conversation([ran, hidden, CompactionSummaryMessage("sum", 5, 1)])
    assert text == f"[User ran a command]: list\n{'o' * 2000}\n\n[Summary of earlier work]: sum"


@pytest.mark.parametrize(("size", "more"), [(2000, ""), (2001, "\n[1 more characters]")])
def test_long_result_is_cut(size: int, more: str) -> None:
    result = ToolResultMessage("c", "read", [TextContent("r" * size)], False, 1)
    assert render_conversation([result]) == f"[Tool result]: {'r' * 2000}{more}"


def test_previous_summary_takes_a_third() -> None:
    messages = make_messages(98, 98, 98)
    whole = render_prompt("history", messages, "p" * 300, "", 900)
    assert f"<previous-summary>\n{'p' * 300}\n</previous-summary>\n\n{UPDATE_PROMPT}" in whole
    cut = render_prompt("history", messages, "p" * 301, "", 900)
    assert "[… 1 characters left out …]" in cut
    # With the summary there is room for 299 characters, which is one less than the conversation takes.
    tight = render_prompt("history", messages, "p" * 149, "", 448)
    assert "parts are left out" in tight and "parts are left out" not in render_prompt("history", messages, "", "", 448)
    assert UPDATE_PROMPT not in render_prompt("history", messages, "", "")


def test_each_part_is_asked_for_in_its_words() -> None:
    whole, first = (render_prompt(part, make_messages(98), "", "tests") for part in ("history", "prefix"))
    assert (HISTORY_PROMPT in whole, PREFIX_PROMPT in whole) == (True, False)
    assert (HISTORY_PROMPT in first, PREFIX_PROMPT in first) == (False, True)
    assert whole.endswith(": tests")
