import pytest

from retinue.tools.truncate import cut_line, render_size, truncate_head, truncate_tail


def test_fitting_text_is_unchanged() -> None:
    for truncate in (truncate_head, truncate_tail):
        shown = truncate("a\nb\n", max_lines=2, max_bytes=4)
        assert (shown.content, shown.truncated, shown.total_lines) == ("a\nb\n", False, 2)


def test_head_and_tail_keep_whole_lines() -> None:
    assert truncate_head("a\nb\nc\n", max_lines=2).content == "a\nb"
    assert truncate_tail("a\nb\nc\n", max_lines=2).content == "b\nc"
    assert truncate_head("aa\nbb\ncc", max_bytes=6).content == "aa\nbb"
    assert truncate_tail("aa\nbb\ncc", max_bytes=6).content == "bb\ncc"


def test_overlong_line_is_marked() -> None:
    head = truncate_head("é" * 10, max_bytes=5)
    assert (head.content, head.first_line_exceeds_limit, head.truncated_by) == ("", True, "bytes")
    tail = truncate_tail("x\n" + "é" * 10, max_bytes=5)
    assert (tail.content, tail.last_line_partial, tail.output_bytes) == ("éé", True, 4)


def test_details_leave_text_out() -> None:
    assert truncate_head("a\nb\n", max_lines=1).to_details() == {
        "truncated": True,
        "truncatedBy": "lines",
        "totalLines": 2,
        "totalBytes": 4,
        "outputLines": 1,
        "outputBytes": 1,
        "lastLinePartial": False,
        "firstLineExceedsLimit": False,
        "maxLines": 1,
        "maxBytes": 51200,
    }


@pytest.mark.parametrize(
    ("size", "shown"), [(0, "0B"), (1023, "1023B"), (1536, "1.5KB"), (50 << 20, "50.0MB"), (3 << 40, "3072.0GB")]
)
def test_sizes_are_readable(size: int, shown: str) -> None:
    assert render_size(size) == shown


def test_lines_are_cut_once() -> None:
    assert (cut_line("x" * 500), cut_line("x" * 501)) == (("x" * 500, False), ("x" * 500 + "... [truncated]", True))
