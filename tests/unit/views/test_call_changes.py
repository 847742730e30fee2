import json
import os

import pytest

from retinue.core.run import Question
from retinue.views.call_changes import MAX_ROWS, CallChange, find_change


@pytest.fixture
def ask(tmp_path):
    def ask(**arguments):
        text = json.dumps(arguments)
        return find_change(Question(id="q", run_id="r", title="?", text=text, folder=str(tmp_path)))

    return ask


def test_edit_is_shown_with_its_surroundings(ask, tmp_path):
    (tmp_path / "a.py").write_text("one\ntwo\nthree\n")
    rows = (" 1 one", "-2 two", "+2 TWO", "+3 more", " 3 three")
    assert ask(path="a.py", edits=[{"oldText": "two", "newText": "TWO\nmore"}]) == CallChange(
        "a.py", rows, added=2, removed=1
    )


def test_written_file_is_compared_with_the_old_one(ask, tmp_path):
    (tmp_path / "a.py").write_text("".join(f"{number}\n" for number in range(30)))
    new = "".join(f"{number}{'!' if number in (2, 27) else ''}\n" for number in range(30))
    change = ask(path="a.py", content=new)
    assert [row for row in change.rows if row[0] != " "] == ["- 3 2", "+ 3 2!", "-28 27", "+28 27!"]


def test_new_file_is_added_lines(ask):
    assert ask(path="b/a.py", content="one\ntwo\n") == CallChange("b/a.py", ("+1 one", "+2 two"), is_new=True, added=2)


def test_long_diff_says_what_is_left_out(ask):
    change = ask(path="a", content="x\n" * (MAX_ROWS + 7))
    assert (len(change.rows), change.hidden, change.added) == (MAX_ROWS, 7, MAX_ROWS + 7)


@pytest.mark.attack("E13")
def test_links_name_their_target(ask, tmp_path):
    (tmp_path / "target").write_text("one\n")
    (tmp_path / "link").symlink_to("target")
    assert ask(path="link", content="two\n").path == f"link → {(tmp_path / 'target').resolve()}"


@pytest.mark.parametrize(
    "arguments",
    [
        {"path": "pipe", "content": "x"},
        {"path": ".", "content": "x"},
        {"path": "big", "content": "x"},
        {"path": "a\0b", "content": "x"},
        {"path": 5, "content": "x"},
        {"path": "a", "content": ["x"]},
        {"path": "a", "edits": [{"oldText": "not there", "newText": "x"}]},
        {"content": "x"},
    ],
)
def test_what_cannot_be_compared_is_not(ask, tmp_path, arguments):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "big").write_text("x" * 300_000)
    assert ask(**arguments) is None


def test_only_file_calls_on_this_machine_are_compared():
    assert find_change(Question(id="q", run_id="r", title="?", text='{"path": "a", "content": "x"}')) is None
