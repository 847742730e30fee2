import json
from typing import Any

import pytest

from retinue.sessions import scan
from retinue.sessions.scan import Damage, Scan, scan_file

HEADER = {"type": "session", "version": 3, "id": "s"}


def read(data: bytes) -> Scan:
    return scan_file(lambda length, offset: data[offset : offset + length])


def render(*lines: dict[str, Any]) -> bytes:
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)


def describe(found: Scan) -> Any:
    index = found.index
    return index.ids, index.kinds, list(index.parents), list(index.offsets), list(index.lengths), str(found.damage)


def entry(entry_id: str, parent: str | None, **fields: Any) -> dict[str, Any]:
    return {"type": "message", "id": entry_id, "parentId": parent, **fields}


@pytest.mark.parametrize("start", [b"", b"\xef\xbb\xbf", b"junk\n", b"\0\0\0\n"])
def test_places_are_right_however_it_is_read(monkeypatch: pytest.MonkeyPatch, start: bytes) -> None:
    lines = [entry("a", None), entry("b", "a", text="x" * 90), {**entry("c", "b"), "type": "label"}, entry("d", "a")]
    data = start + render(HEADER, *lines[:2]) + b"\0\0" + render(*lines[2:]) + b"\n \n" + render(entry("e", "c"))[:-1]
    whole = read(data)
    assert (whole.index.ids, list(whole.index.parents)) == (["a", "b", "c", "d", "e"], [-1, 0, 1, 0, 2])
    for place, entry_id in enumerate(whole.index.ids):
        offset = whole.index.offsets[place]
        assert json.loads(data[offset : offset + whole.index.lengths[place]])["id"] == entry_id
    assert (whole.size, whole.keep_bytes, whole.is_unended, whole.header) == (len(data), len(data), True, HEADER)
    assert (whole.damage.bad_lines, whole.damage.nul_bytes) == (start.count(b"junk"), 2 + start.count(b"\0"))
    assert [whole.index.path(place) for place in (-1, 0, 4)] == [[], [0], [0, 1, 2, 4]]
    for size in (1, 2, 3, 7, 50, 64, 100):
        monkeypatch.setattr(scan, "CHUNK_BYTES", size)
        assert describe(read(data)) == describe(whole), size


def test_byte_order_mark_before_an_entry() -> None:
    data = b"\xef\xbb\xbf" + render(entry("a", None))
    assert describe(read(data))[:5] == (["a"], ["message"], [-1], [3], [len(data) - 4])


def test_entries_without_a_known_parent_hang_on_the_one_before() -> None:
    lines = [entry("a", None), entry("b", None), {"type": "message", "id": "c"}, {"type": "message", "parentId": "a"}]
    lines.append(entry("e", "none"))
    found = read(render(HEADER, *lines))
    assert found.index.ids == ["a", "b", "c", f"at-{found.index.offsets[3]:x}", "e"]
    assert (list(found.index.parents), found.damage.orphans) == ([-1, -1, 1, 2, 3], 3)


def test_later_header_is_no_entry() -> None:
    found = read(render(HEADER, entry("a", None), {**HEADER, "id": "t", "parentId": "a"}, entry("b", "a")))
    assert (found.header, found.index.ids, bool(found.damage)) == (HEADER, ["a", "b"], False)


@pytest.mark.parametrize(
    ("header", "version", "ids"),
    [
        ({"type": "session"}, 1, ["00000000", "00000001"]),
        ({"type": "session", "version": 1}, 1, ["00000000", "00000001"]),
        ({"type": "session", "version": 2}, 2, ["x", "y"]),
        ({"type": "session", "version": "new"}, 3, ["x", "y"]),
    ],
)
def test_first_version_is_numbered(header: dict[str, Any], version: int, ids: list[str]) -> None:
    found = read(render(header, entry("x", None), entry("y", "x")))
    assert (found.version, found.index.ids, list(found.index.parents)) == (version, ids, [-1, 0])
    assert not found.damage


def test_lines_before_the_header_are_taken() -> None:
    found = read(render(entry("a", None), entry("b", "a"), HEADER, entry("c", "b")))
    assert (found.index.ids, list(found.index.parents), found.version) == (["a", "b", "c"], [-1, 0, 1], 3)
    assert (read(b"").version, read(b"").looks_like_session, read(b"").is_unended) == (3, False, False)


@pytest.mark.parametrize("chunk", [1, 10, 99, 4096])
def test_longest_line_is_bounded(monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    monkeypatch.setattr(scan, "CHUNK_BYTES", chunk)
    long = render(entry("b", "a", text="x" * 400))
    data = render(HEADER, entry("a", None)) + long + b"\n" + render(entry("c", "a"))
    for most, is_read in ((len(long) - 1, True), (len(long) - 120, chunk == 4096)):
        monkeypatch.setattr(scan, "MAX_LINE_BYTES", most)
        found = read(data)
        assert found.index.ids == (["a", "b", "c"] if is_read else ["a", "c"])
        assert (found.damage.long_lines, found.damage.bad_lines) == (0 if is_read else 1, 0)
        place = found.index.by_id["c"]
        assert data[found.index.offsets[place] :][: found.index.lengths[place]] + b"\n" == render(entry("c", "a"))


def test_long_unended_line_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan, "CHUNK_BYTES", 20)
    monkeypatch.setattr(scan, "MAX_LINE_BYTES", 100)
    data = render(HEADER, entry("a", None)) + b"x" * 500
    found = read(data)
    assert (found.damage.long_lines, found.keep_bytes, found.is_unended) == (1, len(data), True)


@pytest.mark.parametrize(
    ("tail", "kept", "torn", "nuls"),
    [
        (b"", 0, 0, 0),
        (b'{"type":"mess', 0, 13, 0),
        (b"\0\0", 0, 0, 2),
        (b'{"type\0\0', 0, 6, 2),
        (b'{"type":"label","id":"b","parentId":"a"}\0\0\0', 40, 0, 3),
    ],
)
def test_end_is_judged(tail: bytes, kept: int, torn: int, nuls: int) -> None:
    sound = render(HEADER, entry("a", None))
    found = read(sound + tail)
    assert (found.keep_bytes - len(sound), found.damage.torn_bytes, found.damage.nul_bytes) == (kept, torn, nuls)
    assert (found.is_unended, found.size, found.looks_like_session) == (kept > 0, len(sound + tail), True)


@pytest.mark.parametrize(
    ("data", "looks"),
    [(b'{"ty', True), (b'{"type":"sess', True), (b"{", True), (b"abc", False), (b"abc\n{", False), (b"\n\n", False)],
)
def test_session_about_to_be_made_looks_like_one(data: bytes, looks: bool) -> None:
    assert read(data).looks_like_session is looks


@pytest.mark.parametrize(
    ("damage", "text"),
    [
        (Damage(), ""),
        (Damage(torn_bytes=1), "torn end of 1 bytes"),
        (Damage(torn_bytes=2, saved_to="x"), "torn end of 2 bytes kept in x"),
        (Damage(bad_lines=1), "1 unreadable line skipped"),
        (Damage(bad_lines=2), "2 unreadable lines skipped"),
        (Damage(nul_bytes=1), "1 NUL bytes skipped"),
        (Damage(long_lines=1), "1 oversized line skipped"),
        (Damage(long_lines=2), "2 oversized lines skipped"),
        (Damage(orphans=1), "1 entry without a parent re-attached"),
        (Damage(orphans=2), "2 entries without a parent re-attached"),
        (Damage(missing_header=True), "no header"),
        (Damage(missing_header=True, bad_lines=1), "no header, 1 unreadable line skipped"),
    ],
)
def test_damage_is_told(damage: Damage, text: str) -> None:
    assert (str(damage), bool(damage)) == (f"damaged session: {text}" if text else "", bool(text))
