import pytest

from retinue.core.errors import CompactionFailed
from retinue.core.messages import AssistantMessage, TextContent, ToolCall, ToolResultMessage, Usage, UserMessage
from retinue.sessions.compaction import PREAMBLE, BranchSummary, BranchSummaryInput, has_words, prepare_parting, sum_up
from retinue.sessions.entry import Entry
from retinue.sessions.log import Session
from retinue.testing.clock import FakeClock

MUCH = 10_000


def make_session():
    return Session.create(cwd="/w", directory=None, clock=FakeClock(), new_id=lambda: "a-b")


def reply(words, *calls, stop=None):
    return AssistantMessage([TextContent(words), *calls], "api", "p", "m", Usage(), stop or "stop", 1)


def read(path, name="read"):
    return ToolCall(f"{name}-{path}", name, {"path": path})


def fill(session):
    """A beginning, and a branch after it; the entry where they part."""
    session.append_message(UserMessage("begin", 1))
    fork = session.append_message(reply("begun"))
    session.append_message(UserMessage("left " + "x" * 400, 1))
    session.append_message(reply("doing", read("a.py"), read("b.py", "edit")))
    session.append_message(ToolResultMessage("read-a.py", "read", [TextContent("text of a")], False, 1))
    session.append_message(reply("done"))
    return fork


def test_only_the_left_branch_is_told():
    session = make_session()
    fork = fill(session)
    parting = prepare_parting(session.present.load_beyond(fork), MUCH)
    texts = [message.content if isinstance(message, UserMessage) else message.text for message in parting.messages]
    assert texts == ["left " + "x" * 400, "doing", "done"]
    assert (parting.read_files, parting.modified_files) == (["a.py"], ["b.py"])


def test_newest_come_first_when_room_is_short():
    session = make_session()
    fork = fill(session)
    parting = prepare_parting(session.present.load_beyond(fork), 60)
    assert [message.text for message in parting.messages] == ["doing", "done"]
    assert parting.modified_files == ["b.py"]


def test_nothing_is_left_at_the_same_place():
    session = make_session()
    fill(session)
    session.append_label(session.leaf_id, "mark")
    entries = session.present.load_beyond(session.entries()[-2].id)
    assert ([entry.type for entry in entries], has_words(entries)) == (["label"], False)


def test_files_of_an_earlier_summary_count():
    session = make_session()
    fork = session.append_message(reply("begun"))
    session.append_branch_summary("earlier", fork, details={"readFiles": ["r.py", 7], "modifiedFiles": ["m.py"]})
    parting = prepare_parting(session.present.load_beyond(fork), MUCH)
    assert (parting.read_files, parting.modified_files) == (["r.py"], ["m.py"])


def test_summary_that_is_too_long_is_taken_along():
    session = make_session()
    fork = session.append_message(reply("begun"))
    session.append_branch_summary("s" * 4000, fork)
    session.append_message(UserMessage("short", 1))
    assert len(prepare_parting(session.present.load_beyond(fork), 100).messages) == 2


async def test_summary_names_files():
    asked = []

    async def summarise(system, prompt):
        asked.append(prompt)
        return reply("notes")

    done = await sum_up(BranchSummaryInput([UserMessage("left", 1)], ["a.py"], []), summarise, "the tests")
    text = f"{PREAMBLE}notes\n\n<read-files>\na.py\n</read-files>"
    assert done == BranchSummary(text, Usage(), {"readFiles": ["a.py"], "modifiedFiles": []})
    assert "[User]: left" in asked[0] and asked[0].endswith("focus on: the tests")


@pytest.mark.parametrize("stop", ["error", "aborted"])
async def test_failed_summary_is_none(stop):
    async def summarise(system, prompt):
        return reply("notes", stop=stop)

    with pytest.raises(CompactionFailed):
        await sum_up(BranchSummaryInput([UserMessage("left", 1)], [], []), summarise)


def test_call_of_a_left_branch_is_answered():
    session = make_session()
    session.append_message(UserMessage("begin", 1))
    calling = session.append_message(reply("doing", read("a.py"), stop="toolUse"))
    session.append_message(ToolResultMessage("read-a.py", "read", [TextContent("text of a")], False, 1))
    session.branch(calling)
    assert session.context().messages[-1].content == [TextContent("interrupted, effect unknown")]


def make_entries(*said):
    session = make_session()
    for message in said:
        session.append_message(message) if isinstance(message, UserMessage) else session.append_branch_summary(
            message, None
        )
    return session.entries()


@pytest.mark.parametrize(("room", "kept"), [(29, 2), (30, 3), (20, 2), (19, 1), (10, 1), (1, 1)])
def test_room_is_counted_in_tokens(room, kept):
    entries = make_entries(*[UserMessage("x" * 40, 1)] * 3)
    assert len(prepare_parting(entries, room).messages) == kept


@pytest.mark.parametrize(("used", "kept"), [(89, 2), (90, 1), (91, 1)])
def test_long_summary_needs_some_room_still(used, kept):
    entries = make_entries("s" * 4000, UserMessage("x" * 4 * used, 1))
    assert len(prepare_parting(entries, 100).messages) == kept


def test_files_of_extensions_and_other_entries_do_not_count():
    details = {"readFiles": ["r.py"], "modifiedFiles": ["m.py"]}
    for entry in (
        Entry("branch_summary", "a", summary="x", details=details, from_hook=True),
        Entry("label", "a", details=details),
        Entry("label", "a", details=details, from_hook=True),
    ):
        parting = prepare_parting([entry], MUCH)
        assert (parting.read_files, parting.modified_files) == ([], [])
    ours = Entry("branch_summary", "a", summary="x", details=details, from_hook=False)
    assert prepare_parting([ours], MUCH).read_files == ["r.py"]
