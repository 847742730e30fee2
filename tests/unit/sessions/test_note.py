import json
from itertools import pairwise

import pytest

from retinue.sessions.entry import EntryIds, NewEntry, render_notes


def test_ids_are_eight_digits_and_differ() -> None:
    ids = EntryIds("seed")
    made = [ids.make(()) for _ in range(5000)]
    assert len(set(made)) == 5000 and {len(entry_id) for entry_id in made} == {8}
    assert {(int(later, 16) - int(earlier, 16)) % 2**32 for earlier, later in pairwise(made)} == {0x9E3779B1}
    assert EntryIds("seed").make({made[0], made[1]}) == made[2]
    assert EntryIds("other").make(()) != made[0]


@pytest.mark.parametrize("leaf", [None, "abc", "a-b", 'say "hi"', "ä", ""])
def test_notes_hang_on_each_other(leaf: str | None) -> None:
    lines = render_notes([NewEntry("n1", "label", {"x": 1}, 0), NewEntry("n2", "custom", {"y": [2]}, 1)], leaf)
    assert [(line.entry_id, line.kind, line.data[-2:]) for line in lines] == [
        ("n1", "label", b"}\n"),
        ("n2", "custom", b"}\n"),
    ]
    stamp = "1970-01-01T00:00:00.00"
    assert [json.loads(line.data) for line in lines] == [
        {"type": "label", "id": "n1", "parentId": leaf, "timestamp": f"{stamp}0Z", "x": 1},
        {"type": "custom", "id": "n2", "parentId": "n1", "timestamp": f"{stamp}1Z", "y": [2]},
    ]
