import asyncio

import pytest

from bench.longsession import write_session
from retinue.settings.request import SessionWish
from retinue.ui.widgets.conversation import Conversation
from tests.ui.pilot_world import open_stage

LINES, MOST = 130, 45


@pytest.fixture
def wish(tmp_path, monkeypatch):
    """A session that counts as long, and is read in small pieces."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("retinue.ui.link.LONG", 40)
    monkeypatch.setattr("retinue.ui.conversation_blocks.TAIL", 20)
    for name, value in {"PAGE": 15, "MOST": MOST}.items():
        monkeypatch.setattr(f"retinue.ui.widgets.conversation.{name}", value)
    return SessionWish("named", str(write_session(tmp_path / "long.jsonl", tmp_path, LINES, 0)))


async def test_long_session_scrolls_to_top(tmp_path, wish):
    async with open_stage(tmp_path, session=wish) as stage:
        talk, conversation = stage.app.link.state.talk, stage.app.screen.query_one("#conversation", Conversation)
        await stage.wait(lambda: conversation.has_class("-has-earlier"))
        assert talk.blocks[-1].text.startswith(f"Message {LINES - 1}.")
        await stage.wait(lambda: talk.is_whole)
        while conversation.has_class("-has-earlier"):
            conversation.scroll_home(animate=False)
            await stage.pilot.pause()
        assert read_ends(conversation)[0] == 1 and len(talk.blocks) == LINES - 1
        assert stage.app.link.state.usage.output == 5 * (LINES // 2 - 1)


def read_ends(conversation):
    """The numbers of the first and the last message that have a view."""
    views = conversation.views
    assert len(views) <= MOST and [view for view in conversation.children if view in views] == list(views)
    return [int(view.block.text.split(".")[0].removeprefix("Message ")) for view in (views[0], views[-1])]


async def test_beginning_is_one_key_away(tmp_path, wish):
    async with open_stage(tmp_path, session=wish) as stage:
        talk, conversation = stage.app.link.state.talk, stage.app.screen.query_one("#conversation", Conversation)
        await stage.wait(lambda: talk.is_whole)
        conversation.show_beginning()
        await stage.wait(lambda: conversation.scroll_y == 0 and read_ends(conversation) == [1, 15])
        assert not conversation.is_anchored  # Textual would move it without a word, and nothing more would be loaded
        while conversation.has_class("-has-later"):
            conversation.scroll_end(animate=False)
            await asyncio.sleep(0.02)  # also before everything is laid out
        assert read_ends(conversation)[1] == LINES - 1 and conversation.is_anchored
        conversation.show_beginning()
        await stage.wait(lambda: conversation.has_class("-has-later"))
        conversation.anchor()
        await stage.wait(lambda: not conversation.has_class("-has-later"))
        assert read_ends(conversation)[1] == LINES - 1 and conversation.has_class("-has-earlier")


async def test_long_session_goes_on(tmp_path, wish):
    async with open_stage(tmp_path, *[{"text": "gone on"}] * LINES, session=wish) as stage:
        talk = stage.app.link.state.talk
        await stage.write("go")
        await stage.press("enter")
        await stage.rest()
        await stage.wait(lambda: talk.is_whole)
        said = stage.app.link.crew.history.list_messages()
        assert (len(said) - LINES, stage.prompts[-1], said[-1].text) == (2, "go", "gone on")
        assert len(talk.unread) + len(talk.blocks) == LINES + 1
