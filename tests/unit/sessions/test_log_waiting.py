import pytest

from retinue.core.errors import SessionUnsaved
from retinue.core.messages import AssistantMessage, TextContent, Usage, UserMessage
from retinue.sessions.files import Files
from retinue.sessions.log import Session
from retinue.sessions.tree import SessionTree
from retinue.testing.clock import FakeClock

REPLY = AssistantMessage([TextContent("done")], "api", "p", "m", Usage(), "stop", 2)


class Disk(Files):
    is_full = False

    def write(self, fd, data):
        return super().write(fd, data[:50] if self.is_full else data)


@pytest.fixture
def main(tmp_path):
    made = Session.create(
        cwd="/w", directory=tmp_path, clock=FakeClock(), new_id=lambda: "main", tree=SessionTree(Disk())
    )
    made.append_message(UserMessage("go", 1))
    yield made
    made.tree.close()


@pytest.fixture
def child(main):
    made = Session.create(
        cwd="/w",
        directory=None,
        path=main.tree.child_path("r1"),
        clock=FakeClock(),
        new_id=lambda: "c",
        tree=main.tree,
    )
    made.append_opening("a#1", ("p", "m"), "low")
    made.append_message(UserMessage("task", 1))
    return made


def read(session):
    return Session.open(session.path, clock=FakeClock(), new_id=lambda: "x", read_only=True)


def test_task_alone_makes_no_file(child):
    assert (child.path.parent.exists(), child.name, len(child)) == (False, "a#1", 4)
    assert child.context().messages == [UserMessage("task", 1)]


def test_first_reply_brings_the_file(child):
    before = child.stored_entries()
    child.append_message(REPLY)
    again = read(child)
    assert again.stored_entries() == child.stored_entries()
    assert (again.stored_entries()[:-1], again.context().messages) == (before, [UserMessage("task", 1), REPLY])


def test_end_without_reply_brings_the_file(child):
    child.append_custom("end", "stopped")
    assert read(child).stored_entries() == child.stored_entries()


def test_words_after_a_reply_are_written(child):
    child.append_message(REPLY)
    child.append_message(UserMessage("more", 3))
    assert read(child).context().messages[-1] == UserMessage("more", 3)


def test_refused_file_is_made_later(child, main):
    main.tree.files.is_full = True
    with pytest.raises(SessionUnsaved):
        child.append_message(REPLY)
    assert (child.path.exists(), len(child)) == (False, 4)
    main.tree.files.is_full = False
    child.append_message(REPLY)
    assert read(child).context().messages == [UserMessage("task", 1), REPLY]


def test_main_session_waits_for_nothing(main):
    assert read(main).context().messages == [UserMessage("go", 1)]


def test_waiting_entries_hang_together(child):
    waiting = child.leaf_id
    last = child.append_message(REPLY)
    assert [entry["parentId"] for entry in read(child).stored_entries()][1:] == [
        entry["id"] for entry in child.stored_entries()[:-1]
    ]
    assert (child.read_entry(last)["parentId"], child.read_entry(waiting)["message"]["role"]) == (waiting, "user")
