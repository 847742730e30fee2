import json
import os
import random
from contextlib import suppress
from pathlib import Path

import pytest

from retinue.core.errors import SessionError, SessionNotFound, SessionUnsaved
from retinue.core.messages import UserMessage
from retinue.sessions import scan
from retinue.sessions.log import Session
from retinue.testing.clock import FakeClock

HEADER = b'{"type":"session","version":3,"id":"s1","timestamp":"2026-01-01T00:00:00.000Z","cwd":"/work"}'


def entry(entry_id: str, parent: str | None, text: str | None = None) -> bytes:
    message = {"role": "user", "content": text or entry_id, "timestamp": 1}
    stamp = "2026-01-01T00:00:01.000Z"
    line = {"type": "message", "id": entry_id, "parentId": parent, "timestamp": stamp, "message": message}
    return json.dumps(line, separators=(",", ":")).encode()


ONE, TWO, THREE = entry("one", None), entry("two", "one"), entry("three", "two")


def write(path: Path, *lines: bytes, end: bytes = b"\n") -> Path:
    path.write_bytes(b"\n".join(lines) + end)
    return path


def open_session(path: Path, **options: bool) -> Session:
    return Session.open(path, clock=FakeClock(), new_id=lambda: "fixed", **options)  # type: ignore[arg-type]


def texts(session: Session) -> list[object]:
    return [message.content for message in session.context().messages if isinstance(message, UserMessage)]


def check(path: Path, expected: list[str], damage: str) -> None:
    """The intact entries are there, the damage is named, and what is appended now can be read later."""
    session = open_session(path)
    assert (texts(session), str(session.damage)) == (expected, damage)
    session.append_message(UserMessage("next", 2), sync=True)
    session.close()
    again = open_session(path, read_only=True)
    assert texts(again) == [*expected, "next"]
    again.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "2026-01-01T00-00-00-000Z_s1.jsonl"


def test_clean_file_is_not_damaged(path: Path) -> None:
    check(write(path, HEADER, ONE, TWO), ["one", "two"], "")


def test_torn_end_goes_to_side_file(path: Path) -> None:
    write(path, HEADER, ONE, TWO, THREE[:60], end=b"")
    check(path, ["one", "two"], f"damaged session: torn end of 60 bytes kept in {path.name}.damaged")
    assert path.with_name(path.name + ".damaged").read_bytes() == THREE[:60] + b"\n"


@pytest.mark.sample(24)
@pytest.mark.parametrize("length", range(1, len(THREE)))
def test_every_torn_length_is_survived(path: Path, length: int) -> None:
    write(path, HEADER, ONE, TWO, THREE[:length], end=b"")
    check(path, ["one", "two"], f"damaged session: torn end of {length} bytes kept in {path.name}.damaged")


@pytest.mark.attack("I6")
@pytest.mark.parametrize("ending", [".damaged", ".lock"])
def test_link_beside_session_is_not_followed(path: Path, ending: str) -> None:
    mine = path.parent / "mine"
    mine.write_text("mine\n")
    path.with_name(path.name + ending).symlink_to(mine)
    write(path, HEADER, ONE, b"evil", end=b"")
    with suppress(SessionError, OSError):
        open_session(path).close()
    assert mine.read_text() == "mine\n"


def test_missing_last_newline_is_added(path: Path) -> None:
    open_session(write(path, HEADER, ONE, end=b"")).close()
    assert path.read_bytes() == HEADER + b"\n" + ONE + b"\n"
    check(write(path, HEADER, ONE, TWO, end=b""), ["one", "two"], "")
    assert path.read_bytes().startswith(HEADER + b"\n" + ONE + b"\n" + TWO + b"\n")


def test_bad_middle_line_is_skipped(path: Path) -> None:
    damage = "damaged session: 1 unreadable line skipped, 1 entry without a parent re-attached"
    check(write(path, HEADER, ONE, TWO[:40], THREE), ["one", "three"], damage)


def test_history_is_never_rewritten(path: Path) -> None:
    before = write(path, HEADER, ONE, b"\xff\xfe garbage", b"", THREE).read_bytes()
    session = open_session(path)
    session.append_message(UserMessage("next", 2))
    session.close()
    assert path.read_bytes().startswith(before)


def test_nul_block_before_entry_is_skipped(path: Path) -> None:
    check(write(path, HEADER, ONE, b"\0" * 512 + TWO), ["one", "two"], "damaged session: 512 NUL bytes skipped")


def test_nul_block_at_end_is_cut(path: Path) -> None:
    write(path, HEADER, ONE, TWO, end=b"\n" + b"\0" * 4096)
    check(path, ["one", "two"], "damaged session: 4096 NUL bytes skipped")
    assert b"\0" not in path.read_bytes()


def test_nul_block_after_unended_line_is_cut(path: Path) -> None:
    write(path, HEADER, ONE, TWO, end=b"\0" * 100)
    check(path, ["one", "two"], "damaged session: 100 NUL bytes skipped")
    assert b"\0" not in path.read_bytes()


def test_empty_file_becomes_session(path: Path) -> None:
    check(write(path, end=b""), [], "")
    assert json.loads(path.read_bytes().split(b"\n")[0])["id"] == "s1"


def test_header_alone_is_enough(path: Path) -> None:
    check(write(path, HEADER), [], "")


@pytest.mark.sample(16)
@pytest.mark.parametrize("length", range(1, len(HEADER)))
def test_torn_header_becomes_session(path: Path, length: int) -> None:
    damage = f"damaged session: torn end of {length} bytes kept in {path.name}.damaged"
    check(write(path, HEADER[:length], end=b""), [], damage)


def test_missing_header_is_noted(path: Path) -> None:
    check(write(path, ONE, TWO), ["one", "two"], "damaged session: no header")


def test_header_after_bad_line_is_found(path: Path) -> None:
    write(path, b"\x00\x01", HEADER, ONE)
    session = open_session(path)
    assert (session.id, session.cwd, texts(session)) == ("s1", "/work", ["one"])
    session.close()


def test_byte_order_mark_and_crlf_are_accepted(path: Path) -> None:
    path.write_bytes(b"\xef\xbb\xbf" + b"\r\n".join([HEADER, ONE, TWO, b""]))
    check(path, ["one", "two"], "")


def test_line_separators_do_not_split_lines(path: Path) -> None:
    session = Session.create(cwd="/", directory=None, path=path, clock=FakeClock(), new_id=lambda: "fixed")
    session.append_message(UserMessage("a\u2028b\u2029c\x85d\x0b\x0ce\r\nf", 1))
    session.close()
    assert path.read_bytes().isascii() and path.read_bytes().count(b"\n") == 2
    check(path, ["a\u2028b\u2029c\x85d\x0b\x0ce\r\nf"], "")


def test_raw_line_separators_are_read(path: Path) -> None:
    raw = entry("two", "one").replace(b'"content":"two"', '"content":"x\u2028y\x85z"'.encode())
    check(write(path, HEADER, ONE, raw), ["one", "x\u2028y\x85z"], "")


def test_newer_version_is_read_only(path: Path) -> None:
    before = write(path, HEADER.replace(b'"version":3', b'"version":4'), ONE, TWO[:9], end=b"").read_bytes()
    session = open_session(path)
    assert texts(session) == ["one"]
    with pytest.raises(SessionUnsaved, match="format version 4 is newer than 3"):
        session.append_message(UserMessage("next", 2))
    session.close()
    assert path.read_bytes() == before


@pytest.mark.parametrize("version", [b"null", b'"three"', b"[]", b"3.5"])
def test_odd_version_is_taken_as_current(path: Path, version: bytes) -> None:
    check(write(path, HEADER.replace(b'"version":3', b'"version":' + version), ONE), ["one"], "")


def test_orphan_hangs_on_previous_entry(path: Path) -> None:
    damage = "damaged session: 1 entry without a parent re-attached"
    check(write(path, HEADER, ONE, entry("x", "gone"), entry("y", "x")), ["one", "x", "y"], damage)


def test_parent_cycle_is_harmless(path: Path) -> None:
    damage = "damaged session: 1 entry without a parent re-attached"
    check(write(path, HEADER, entry("a", "b"), entry("b", "a"), entry("a", "b")), ["a", "b", "a"], damage)


@pytest.mark.parametrize("line", [b"null", b"[]", b'"text"', b"42", b"{", b"{}x", b'{"type":"message"'])
def test_lines_that_are_no_objects_count(path: Path, line: bytes) -> None:
    check(write(path, HEADER, ONE, line, TWO), ["one", "two"], "damaged session: 1 unreadable line skipped")


@pytest.mark.parametrize(
    "line",
    [
        b'{"type":"message","id":"odd","parentId":"one","message":null}',
        b'{"type":"message","id":"odd","parentId":"one","message":{"role":"martian","content":[]}}',
        b'{"type":"message","id":"odd","parentId":"one"}',
        b'{"type":"hologram","id":"odd","parentId":"one","pixels":[1,2]}',
        b'{"type":7,"id":"odd","parentId":"one"}',
        b'{"type":"compaction_v9","id":"odd","parentId":"one"}',
        b'{"type":"message","id":"odd","parentId":"one","message":{"role":"user","content":null,"timestamp":1}}',
    ],
)
def test_unknown_entries_keep_the_chain(path: Path, line: bytes) -> None:
    write(path, HEADER, ONE, line, entry("two", "odd"))
    session = open_session(path)
    kept = [text for text in texts(session) if text]
    assert (kept, str(session.damage)) == (["one", "two"], "")
    session.close()


@pytest.mark.parametrize("entry_id", ['a"b', "a\\", "é", "a\nb", "x\u2028", " ", "\x7f"])
def test_odd_ids_can_be_continued(path: Path, entry_id: str) -> None:
    check(write(path, HEADER, entry(entry_id, None, "one")), ["one"], "")


@pytest.mark.parametrize("kept", [b"[]", b"{}", b"7", b"null", b'"gone"'])
def test_odd_first_kept_keeps_nothing(path: Path, kept: bytes) -> None:
    line = b'{"type":"compaction","id":"c","parentId":"one","summary":"s","firstKeptEntryId":' + kept + b"}"
    check(write(path, HEADER, ONE, line, entry("two", "c")), ["two"], "")


def test_deep_nesting_is_a_bad_line(path: Path) -> None:
    deep = b'{"type":"custom","id":"d","parentId":"one","data":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    damage = "damaged session: 1 unreadable line skipped"
    check(write(path, HEADER, ONE, deep, TWO), ["one", "two"], damage)


def test_lone_surrogates_and_nan_are_read(path: Path) -> None:
    raw = TWO.replace(b'"content":"two","timestamp":1', b'"content":"x\\ud800y","timestamp":1,"odd":NaN')
    check(write(path, HEADER, ONE, raw), ["one", "x�y"], "")


def test_oversized_line_is_skipped_unread(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan, "MAX_LINE_BYTES", 4096)
    monkeypatch.setattr(scan, "CHUNK_BYTES", 1024)
    long = entry("long", "one", "x" * 10_000)
    damage = "damaged session: 1 oversized line skipped, 1 entry without a parent re-attached"
    check(write(path, HEADER, ONE, long, entry("two", "long")), ["one", "two"], damage)


def test_oversized_unended_line_is_ended(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan, "MAX_LINE_BYTES", 4096)
    monkeypatch.setattr(scan, "CHUNK_BYTES", 1024)
    write(path, HEADER, ONE, entry("long", "one", "x" * 10_000), end=b"")
    check(path, ["one"], "damaged session: 1 oversized line skipped")


@pytest.mark.parametrize("content", [b"\x7fELF" + bytes(range(256)) * 40, b"hello\nworld\n", "text".encode("utf-16")])
def test_binary_file_is_refused_unchanged(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(SessionError, match="is not a session file"):
        open_session(path)
    assert path.read_bytes() == content
    assert [item.name for item in path.parent.iterdir()] == [path.name]


def test_directory_is_refused(path: Path) -> None:
    path.mkdir()
    with pytest.raises(SessionError, match="is not a session file: it is a directory"):
        open_session(path)


def test_pipe_is_refused_at_once(path: Path) -> None:
    os.mkfifo(path)
    with pytest.raises(SessionError, match="it is a pipe"):
        open_session(path)
    with pytest.raises(SessionError, match="it is a pipe"):
        open_session(path, read_only=True)


@pytest.mark.parametrize("name", ["none.jsonl", "x" * 300, "a\0b", "none/none.jsonl"])
def test_missing_file_is_not_found(tmp_path: Path, name: str) -> None:
    with pytest.raises(SessionNotFound, match="there is no session file"):
        open_session(tmp_path / name)


def test_read_only_opening_changes_nothing(path: Path) -> None:
    before = write(path, HEADER, ONE, TWO[:20], end=b"").read_bytes()
    session = open_session(path, read_only=True)
    assert texts(session) == ["one"]
    session.close()
    assert (path.read_bytes(), list(path.parent.iterdir())) == (before, [path])


@pytest.mark.sample(15)
@pytest.mark.parametrize("seed", range(40))
def test_random_damage_never_hides_intact_lines(path: Path, seed: int) -> None:
    dice = random.Random(seed)
    lines = [HEADER, *(entry(f"e{n}", f"e{n - 1}" if n else None) for n in range(20))]
    broken = dice.sample(range(1, 21), 5)
    for number in broken:
        place = dice.randrange(len(lines[number]))
        junk = dice.choice([b"\0" * 9, b"\xff\xfe", b'"', b"}", b"{"])
        lines[number] = lines[number][:place] + junk + lines[number][place + 1 :]
    write(path, *lines, end=dice.choice([b"", b"\n", b"\0\0", b"\n{"]))
    session = open_session(path)
    intact = {f"e{n}" for n in range(20) if n + 1 not in broken}
    assert intact <= set(map(str, texts(session))), f"seed {seed}"
    session.close()
