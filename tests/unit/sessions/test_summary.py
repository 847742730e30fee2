from retinue.core.messages import UserMessage
from retinue.sessions.summary import render_conversation, shorten


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
