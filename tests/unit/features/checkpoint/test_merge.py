import pytest

from retinue.features.checkpoint.merge import merge_lines

BASE = b"1\n2\n3\n4\n5\n"


@pytest.mark.parametrize(
    ("ours", "theirs", "merged"),
    [
        (b"1\n2\n3\n4\n5\nmore", b"one\n2\n3\n4\n5\n", b"one\n2\n3\n4\n5\nmore"),
        (b"1\nB\n3\n4\n5\n", b"1\n2\nC\n4\n5\n", b"1\nB\nC\n4\n5\n"),
        (b"1\n3\n4\n5\n", b"1\n2\n4\n5\n", b"1\n4\n5\n"),
        (b"1\n4\n5\n", b"1\n2\n4\n5\n", b"1\n4\n5\n"),
        (b"1\r\n2\n3\n4\n5\n", b"1\n2\n3\n4\n", b"1\r\n2\n3\n4\n"),
        (b"", BASE, b""),
    ],
)
def test_changes_of_other_lines_are_merged(ours, theirs, merged):
    assert merge_lines(BASE, ours, theirs) == (merged, [])
    assert merge_lines(BASE, theirs, ours) == (merged, [])


@pytest.mark.parametrize(
    ("ours", "theirs", "place"),
    [
        (b"1\nB\n3\n4\n5\n", b"1\nb\n3\n4\n5\n", (2, 2)),
        (b"0\n1\nB\nC\n4\n5\n", b"1\n2\nc\n4\n5\n", (3, 4)),
        (b"1\n2\nnew\n3\n4\n5\n", b"1\n2\nother\n3\n4\n5\n", (3, 3)),
        (b"1\n3\n4\n5\n", b"1\nb\n3\n4\n5\n", (2, 2)),
    ],
)
def test_same_line_is_a_conflict(ours, theirs, place):
    assert merge_lines(BASE, ours, theirs).conflicts == [place]
    assert merge_lines(BASE, ours, theirs, "ours").content == ours
    assert merge_lines(BASE, ours, theirs, "theirs").content.replace(b"0\n", b"") == theirs
