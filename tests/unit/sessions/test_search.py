import json
import os
from pathlib import Path

import pytest

from retinue.core.errors import SessionError, SessionNotFound
from retinue.core.messages import TextContent, UserMessage
from retinue.sessions import search as listing
from retinue.sessions.log import Session
from retinue.sessions.search import (
    SessionInfo,
    find_recent,
    find_session,
    list_directories,
    list_sessions,
    read_info,
)
from retinue.settings.paths import Paths, find_session_dir
from retinue.testing.clock import FakeClock


def make(directory: Path, session_id: str, cwd: str = "/work", texts: tuple[str, ...] = ("hello",)) -> Path:
    session = Session.create(cwd=cwd, directory=directory, session_id=session_id, clock=FakeClock(), new_id=lambda: "x")
    for text in texts:
        session.append_message(UserMessage([TextContent(text)], 1))
    session.close()
    assert session.path is not None
    return session.path


def to_session_directory(agent_dir: Path, cwd: str) -> Path:
    return find_session_dir(Paths(Path(cwd), Path("/"), agent_dir), {})


def test_list_tells_what_matters(tmp_path: Path) -> None:
    path = make(tmp_path, "s1", texts=("  first\n line ", "second"))
    session = Session.open(path, clock=FakeClock(), new_id=lambda: "x")
    session.append_session_info("old name")
    session.append_session_info("new name")
    session.close()
    os.utime(path, (5, 5))
    info = list_sessions([tmp_path])[0]
    expected = SessionInfo(
        str(path), "s1", "/work", "2023-11-14T22:13:20.000Z", 5000, 2, "new name", None, "first line"
    )
    expected.mtime_ns, expected.size, expected.name_offset = info.mtime_ns, info.size, info.name_offset
    assert info == expected


def test_latest_comes_first(tmp_path: Path) -> None:
    for number, session_id in enumerate(["b", "a", "c"]):
        os.utime(make(tmp_path, session_id), (number, number))
    assert [info.id for info in list_sessions([tmp_path])] == ["c", "a", "b"]
    recent = find_recent(tmp_path)
    assert recent is not None and recent.name.endswith("_c.jsonl")


def test_other_directories_can_be_left_out(tmp_path: Path) -> None:
    os.utime(make(tmp_path, "mine", "/work"), (1, 1))
    make(tmp_path, "other", "/elsewhere")
    assert [info.id for info in list_sessions([tmp_path], cwd="/work/.")] == ["mine"]
    recent = find_recent(tmp_path, "/work")
    assert recent is not None and recent.name.endswith("_mine.jsonl")
    assert find_recent(tmp_path, "/nowhere") is None


def test_junk_does_not_spoil_the_list(tmp_path: Path) -> None:
    make(tmp_path, "good")
    (tmp_path / "empty.jsonl").write_bytes(b"")
    (tmp_path / "binary.jsonl").write_bytes(bytes(range(256)))
    (tmp_path / "entry.jsonl").write_text('{"type":"message","id":"a"}\n')
    (tmp_path / "folder.jsonl").mkdir()
    os.mkfifo(tmp_path / "pipe.jsonl")
    (tmp_path / "loop.jsonl").symlink_to("loop.jsonl")
    assert [info.id for info in list_sessions([tmp_path, tmp_path / "none"])] == ["good"]
    recent = find_recent(tmp_path)
    assert recent is not None and recent.name.endswith("_good.jsonl")


def test_damaged_start_is_still_listed(tmp_path: Path) -> None:
    path = make(tmp_path, "s1")
    path.write_bytes(b"garbage\n\xef\xbb\xbf\n" + path.read_bytes())
    assert [(info.id, info.messages) for info in list_sessions([tmp_path])] == [("s1", 1)]


def test_spaced_json_is_counted(tmp_path: Path) -> None:
    header = {"type": "session", "version": 3, "id": "s", "timestamp": "", "cwd": "/"}
    message = {"type": "message", "id": "a", "parentId": None, "message": {"role": "user", "content": "hi"}}
    (tmp_path / "s.jsonl").write_text("\n".join(map(json.dumps, [header, message, message])))
    assert [(info.messages, info.first_message) for info in list_sessions([tmp_path])] == [(2, "hi")]


def test_counts_hold_across_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = make(tmp_path, "s1", texts=tuple("x" * (n * 7) for n in range(40)))
    for size in range(64, 200, 7):
        monkeypatch.setattr(listing, "CHUNK_BYTES", size)
        monkeypatch.setattr(listing, "HEAD_BYTES", 512 + size)
        assert list_sessions([tmp_path])[0].messages == 40, size
    assert path.exists()


def test_cache_follows_growing_files(tmp_path: Path) -> None:
    cache = tmp_path / "retinue" / "sessions.json"
    path = make(tmp_path, "s1")
    make(tmp_path, "s2")
    first = list_sessions([tmp_path], cache=cache)
    assert list_sessions([tmp_path], cache=cache) == first
    session = Session.open(path, clock=FakeClock(), new_id=lambda: "x")
    session.append_message(UserMessage("more", 1))
    session.append_session_info("named")
    session.close()
    fresh = list_sessions([tmp_path])
    assert list_sessions([tmp_path], cache=cache) == fresh
    assert {(info.id, info.messages, info.name) for info in fresh} == {("s1", 2, "named"), ("s2", 1, "")}


@pytest.mark.parametrize("content", [b"", b"garbage", b"[1]", b'[{"path":1}]'])
def test_broken_cache_is_ignored(tmp_path: Path, content: bytes) -> None:
    make(tmp_path, "s1")
    cache = tmp_path / "cache.json"
    cache.write_bytes(content)
    assert [info.id for info in list_sessions([tmp_path], cache=cache)] == ["s1"]


def test_children_are_listed_when_asked(tmp_path: Path) -> None:
    main = make(tmp_path, "s1")
    for path in (main.with_suffix("") / "r1" / "session.jsonl", tmp_path / "runs" / "r2" / "session.jsonl"):
        child = Session.create(cwd="/", directory=None, path=path, clock=FakeClock(), new_id=lambda: "c")
        child.append_message(UserMessage("task", 1))
        child.close()
    assert len(list_sessions([tmp_path])) == 1
    assert len(list_sessions([tmp_path], children=True)) == 3


@pytest.fixture
def agent_dir(tmp_path: Path) -> Path:
    for session_id in ("abc-1", "abc-2", "xyz-1"):
        make(to_session_directory(tmp_path, "/work"), session_id)
    make(to_session_directory(tmp_path, "/other"), "far-1", "/other")
    return tmp_path


def find(agent_dir: Path, reference: str) -> str:
    directory = to_session_directory(agent_dir, "/work")
    return find_session(reference, directory=directory, agent_dir=agent_dir, cwd=agent_dir).name.partition("_")[2]


@pytest.mark.parametrize(
    ("reference", "name"), [("xyz-1", "xyz-1.jsonl"), ("x", "xyz-1.jsonl"), ("abc-1", "abc-1.jsonl")]
)
def test_id_or_its_beginning_finds(agent_dir: Path, reference: str, name: str) -> None:
    assert find(agent_dir, reference) == name


def test_path_finds(agent_dir: Path) -> None:
    path = next(to_session_directory(agent_dir, "/other").iterdir())
    assert find(agent_dir, str(path)) == find(agent_dir, os.path.relpath(path, agent_dir)) == "far-1.jsonl"


def test_ambiguous_beginning_lists_candidates(agent_dir: Path) -> None:
    with pytest.raises(SessionError, match=r"'abc' fits 2 sessions; give more of the id:\n.*abc-\d.*\n.*abc-\d"):
        find(agent_dir, "abc")


def test_id_of_another_project_says_where(agent_dir: Path) -> None:
    with pytest.raises(SessionNotFound, match=r"session 'far' belongs to /other: go there, or give its path .*far-1"):
        find(agent_dir, "far")


@pytest.mark.parametrize("reference", ["", " ", "nope", "a\0b", "none/none.jsonl", "x.jsonl", "~/x.jsonl"])
def test_unknown_session_is_not_found(agent_dir: Path, reference: str) -> None:
    with pytest.raises(SessionNotFound, match=r"there is no session|the session is empty"):
        find(agent_dir, reference)


def test_directories_of_projects_are_listed(agent_dir: Path) -> None:
    assert [path.name for path in list_directories(agent_dir)] == ["--other--", "--work--"]
    assert list_directories(agent_dir / "none") == []


def test_byte_order_mark_hides_no_session(tmp_path: Path) -> None:
    path = make(tmp_path, "s1")
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert [info.id for info in list_sessions([tmp_path])] == ["s1"]
    assert find_session("s1", directory=tmp_path, agent_dir=tmp_path / "agent") == path


def name_session(path: Path, name: str) -> None:
    session = Session.open(path, clock=FakeClock(), new_id=lambda: "x")
    session.append_session_info(name)
    session.close()


def test_unchanged_session_is_taken_from_the_cache(tmp_path: Path) -> None:
    cache, folder = tmp_path / "cache" / "sessions.json", tmp_path / "s"
    path = make(folder, "s1")
    os.utime(path, (5, 5))
    seen = []
    for time_s, more in ((5, b""), (7, b""), (7, b"\n")):
        list_sessions([folder], cache=cache)
        cache.write_bytes(cache.read_bytes().replace(b"hello", b"known"))
        path.write_bytes(path.read_bytes() + more)
        os.utime(path, (time_s, time_s))
        seen.append(list_sessions([folder], cache=cache)[0].first_message)
    assert seen == ["known", "hello", "hello"]
    os.utime(cache, (1, 1))
    list_sessions([folder], cache=cache)
    assert (cache.stat().st_mtime, list(cache.parent.iterdir())) == (1, [cache])


def test_cache_that_cannot_be_written_stops_nobody(tmp_path: Path) -> None:
    make(tmp_path / "s", "s1")
    (tmp_path / "file").write_bytes(b"")
    (tmp_path / "caches" / "taken").mkdir(parents=True)
    for cache in (tmp_path / "file" / "cache.json", tmp_path / "caches" / "taken"):
        assert [info.id for info in list_sessions([tmp_path / "s"], cache=cache)] == ["s1"]
    assert [path.name for path in (tmp_path / "caches").iterdir()] == ["taken"]


def test_row_of_another_session_is_not_counted_on(tmp_path: Path) -> None:
    cache, folder = tmp_path / "cache.json", tmp_path / "s"
    path = make(folder, "s1", texts=("a", "b", "c"))
    list_sessions([folder], cache=cache)
    other = make(tmp_path / "t", "other", texts=("d" * 500, "e" * 500))
    path.write_bytes(other.read_bytes())
    assert [(info.id, info.messages) for info in list_sessions([folder], cache=cache)] == [("other", 2)]
    rows = json.loads(cache.read_bytes())
    rows[0].pop("size")
    cache.write_text(json.dumps(rows))
    assert [(info.id, info.messages) for info in list_sessions([folder], cache=cache)] == [("other", 2)]


def test_name_is_found_wherever_it_lies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = make(tmp_path, "s1", texts=("a", "b"))
    known = list_sessions([tmp_path])[0]
    name_session(path, "early")
    assert read_info(str(path), path.stat(), known) == list_sessions([tmp_path])[0]
    session = Session.open(path, clock=FakeClock(), new_id=lambda: "x")
    for _ in range(3):
        session.append_message(UserMessage("more", 1))
    session.close()
    for size in range(24, 700):
        monkeypatch.setattr(listing, "CHUNK_BYTES", size)
        info = list_sessions([tmp_path])[0]
        assert (info.messages, info.name) == (5, "early"), size


def test_name_in_spaced_json_is_found(tmp_path: Path) -> None:
    header = {"type": "session", "version": 3, "id": "s", "parentSession": "/p.jsonl"}
    lines = [header, {"type": "session_info", "id": "a", "name": " N "}]
    path = tmp_path / "s.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)))
    os.utime(path, ns=(0, 1_700_000_000_123_456_789))
    info = list_sessions([tmp_path])[0]
    assert (info.name, info.parent_session, info.modified_ms) == ("N", "/p.jsonl", 1_700_000_000_123)
    path.write_text(json.dumps({**header, "parentSession": 5}))
    assert list_sessions([tmp_path])[0].parent_session is None


def test_only_what_was_there_is_counted(tmp_path: Path) -> None:
    path = make(tmp_path, "s1")
    before = path.stat()
    session = Session.open(path, clock=FakeClock(), new_id=lambda: "x")
    session.append_message(UserMessage("while it is read", 1))
    session.close()
    known = read_info(str(path), before)
    assert known is not None and known.messages == 1
    grown = read_info(str(path), path.stat(), known)
    assert grown is not None and grown.messages == 2


@pytest.mark.parametrize(("size", "shown"), [(200, "x" * 200), (201, "x" * 199 + "…")])
def test_long_first_message_is_cut(tmp_path: Path, size: int, shown: str) -> None:
    make(tmp_path, "s1", texts=("x" * size, "second"))
    assert list_sessions([tmp_path])[0].first_message == shown


def test_reading_leaves_nothing_open_and_waits_for_nobody(tmp_path: Path) -> None:
    path = make(tmp_path, "s1")
    os.mkfifo(tmp_path / "pipe")
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        assert read_info(str(tmp_path / "pipe"), path.stat()) is None
        assert read_info(str(path), path.stat()) is not None and find_recent(tmp_path) == path
    assert len(os.listdir("/proc/self/fd")) == before


def test_recent_is_a_main_session(tmp_path: Path) -> None:
    for session_id in ("a", "c", "b"):
        os.utime(make(tmp_path, session_id), (5, 5))
    recent = find_recent(tmp_path)
    assert recent is not None and recent.name.endswith("_c.jsonl")
    child = recent.with_suffix("") / "r1"
    child.mkdir(parents=True)
    (child / "session.jsonl").write_bytes(recent.read_bytes())
    assert find_recent(tmp_path) == recent
    (tmp_path / "link").symlink_to(recent.with_suffix(""))
    assert len(list_sessions([tmp_path], children=True)) == 4


def test_session_is_found_by_its_place(agent_dir: Path) -> None:
    folder = to_session_directory(agent_dir, "/work")
    source = next(folder.iterdir()).read_bytes()
    places = [folder / "plain.jsonl", folder / "2026_named.jsonl", folder / "2026_named" / "run-1" / "session.jsonl"]
    for path in places:
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_bytes(b'{"type":"session","id":"inner"}\n' + source)
    (folder / "junk.jsonl").write_bytes(b"junk")
    found = [
        find_session(reference, directory=folder, agent_dir=agent_dir, cwd=folder)
        for reference in ("inner", "named", "run-1", "plain.jsonl", "2026_named/run-1")
    ]
    assert found == [*places, places[0], places[2].parent]
    with pytest.raises(SessionNotFound, match=r"there is no session file '.*/none.jsonl'"):
        find_session("none.jsonl", directory=folder, agent_dir=agent_dir, cwd=folder)


def test_ten_candidates_are_shown(tmp_path: Path) -> None:
    for number in range(10):
        make(tmp_path, f"same-{number}")
    told = []
    for session_id in ("same-a", "same-b"):
        with pytest.raises(SessionError) as refusal:
            find_session("same", directory=tmp_path, agent_dir=tmp_path / "agent")
        told.append(str(refusal.value))
        make(tmp_path, session_id)
    assert [text.count("same-") for text in told] == [20, 20]
    assert ("more" in told[0].partition("\n")[2], told[1].endswith("\n  and 1 more")) == (False, True)
