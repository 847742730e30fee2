from itertools import count
from pathlib import Path

import pytest

from retinue.core.messages import TextContent, UserMessage
from retinue.sessions.log import Session
from retinue.testing.clock import FakeClock


@pytest.fixture
def make(tmp_path: Path):
    numbers = count(1)

    def create() -> Session:
        return Session.create(cwd="/w", directory=tmp_path, clock=FakeClock(), new_id=lambda: f"id-{next(numbers):08}")

    return create


def say(session: Session, text: str) -> str:
    return session.append_message(UserMessage([TextContent(text)], 1))


def test_copy_ends_where_the_branch_does(make) -> None:
    source, whole, part, none = (make() for _ in range(4))
    ids = [say(source, text) for text in "abc"]
    for copy, leaf in ((whole, ids[2]), (part, ids[1]), (none, None)):
        copy.copy_branch(source, leaf)
    kept = [[entry["id"] for entry in copy.stored_entries()] for copy in (whole, part, none)]
    assert kept == [ids, ids[:2], []]


def test_copy_leaves_labels_and_other_records_behind(make) -> None:
    source, copy = make(), make()
    first = say(source, "a")
    source.append_custom("ours", {"x": 1})
    source.append_custom("theirs", {"y": 2})
    last = say(source, "b")
    copy.copy_branch(source, last, leave_out=("ours",))
    kept = copy.stored_entries()
    assert [(entry["type"], entry.get("customType")) for entry in kept] == [
        ("message", None),
        ("custom", "theirs"),
        ("message", None),
    ]
    assert (kept[0]["id"], kept[2]["id"], kept[1]["parentId"], kept[2]["parentId"]) == (
        first,
        last,
        first,
        kept[1]["id"],
    )
