import pytest

from retinue.core.errors import SessionUnsaved
from retinue.sessions.files import Files
from retinue.sessions.log import Session
from retinue.sessions.tree import SessionTree
from retinue.testing.clock import FakeClock

CHOSEN = ("a#1", ("p", "m"), "low")


class CountingFiles(Files):
    """Counts writes, and refuses them while it is full."""

    def __init__(self):
        self.writes = 0
        self.is_full = False

    def write(self, fd, data):
        self.writes += 1
        return super().write(fd, data[:100] if self.is_full else data)


@pytest.fixture
def files():
    return CountingFiles()


@pytest.fixture
def session(tmp_path, files):
    made = Session.create(
        cwd="/w", directory=tmp_path, clock=FakeClock(), new_id=lambda: "a-b", tree=SessionTree(files)
    )
    yield made
    made.tree.close()


def test_opening_is_one_write(session, files):
    first, before = session.append_custom("x", 1), files.writes
    last = session.append_opening(*CHOSEN)
    stored, context = session.stored_entries(since=first), session.context()
    assert (files.writes - before, session.leaf_id) == (1, last)
    assert [entry["type"] for entry in stored] == ["session_info", "model_change", "thinking_level_change"]
    assert [entry["parentId"] for entry in stored] == [first, stored[0]["id"], stored[1]["id"]]
    assert (session.name, context.model, context.thinking) == CHOSEN


def test_opening_reads_as_written(session):
    session.append_opening(*CHOSEN)
    session.tree.close()
    again = Session.open(session.path, clock=FakeClock(), new_id=lambda: "c", read_only=True)
    assert again.stored_entries() == session.stored_entries()
    assert (again.name, again.context().model, again.context().thinking) == CHOSEN
    again.close()


def test_opening_happens_whole_or_not(session, files):
    files.is_full = True
    with pytest.raises(SessionUnsaved):
        session.append_opening(*CHOSEN)
    assert (len(session), session.leaf_id, session.path.exists()) == (0, None, False)
    files.is_full = False
    session.append_opening(*CHOSEN)
    assert session.name == "a#1"
