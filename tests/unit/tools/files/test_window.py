import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from retinue.tools.files.window import read_window
from retinue.tools.truncate import MAX_BYTES


def never() -> bool:
    return False


@given(
    lines=st.lists(st.integers(0, 90).map(lambda size: b"x" * size * size), max_size=80),
    closed=st.booleans(),
    first=st.integers(1, 85),
    limit=st.one_of(st.none(), st.integers(1, 30)),
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_window_is_a_slice(tmp_path: Path, lines: list[bytes], closed: bool, first: int, limit: int | None) -> None:
    data = b"\n".join(lines) + (b"\n" if closed and lines else b"")
    path = tmp_path / "file"
    path.write_bytes(data)
    handle = os.open(path, os.O_RDONLY)
    try:
        window = read_window(handle, first, limit, never)
    finally:
        os.close(handle)
    whole = data.splitlines(keepends=True)
    rest = b"".join(whole[first - 1 :])
    wanted = b"".join(whole[first - 1 :][: (limit or 2000) + 1])
    assert window.data == wanted[: MAX_BYTES + 5]
    assert (window.total_lines, window.found) == (len(whole), bool(rest))
    assert window.lines_before == min(first - 1, len(whole))
    assert window.first_line_bytes == len(rest.split(b"\n", 1)[0])


@pytest.mark.parametrize("content", [b"", b"\n", b"a", b"a\n\n"])
def test_small_contents_are_counted(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "file").write_bytes(content)
    handle = os.open(tmp_path / "file", os.O_RDONLY)
    window = read_window(handle, 1, None, never)
    os.close(handle)
    assert (window.data, window.total_lines) == (content, len(content.splitlines()))


def test_stop_is_obeyed(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"a\n" * 1000)
    handle = os.open(tmp_path / "file", os.O_RDONLY)
    window = read_window(handle, 500, None, lambda: True)
    os.close(handle)
    assert (window.found, window.total_lines) == (False, None)
