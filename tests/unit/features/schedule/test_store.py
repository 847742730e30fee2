import json
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from retinue.core.errors import UsageError
from retinue.features.schedule.job import Job, to_entry
from retinue.features.schedule.store import ScheduleStore, StoreError, list_sessions


def make_job(job_id: str, **more: Any) -> Job:
    base: dict[str, Any] = {"name": job_id, "prompt": "look", "schedule": "5m", "schedule_type": "interval"}
    return Job(id=job_id, subagent_type="Explore", interval_ms=300_000, enabled=True, **{**base, **more})


def read_stamp(path: Path) -> tuple[int, ...]:
    """What changes when a file or folder is written, but not when it is read."""
    found = os.stat(path)
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def count_run(job: Job) -> Job:
    return msgspec.structs.replace(job, run_count=job.runs + 1)


@pytest.fixture
def store(tmp_path: Path) -> ScheduleStore:
    return ScheduleStore(tmp_path, "s1")


@pytest.mark.spec("fleet:B81")
def test_nothing_is_made_unasked(tmp_path: Path, store: ScheduleStore) -> None:
    assert (store.update({"a": count_run}), store.remove("a"), store.jobs) == ({}, None, [])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.spec("fleet:B81")
def test_file_holds_version_and_jobs(tmp_path: Path, store: ScheduleStore) -> None:
    store.add(make_job("a"))
    path = tmp_path / ".pi" / "subagent-schedules" / "s1.json"
    document = {"version": 1, "jobs": [to_entry(make_job("a"))]}
    assert (store.path, path.read_text()) == (path, json.dumps(document, indent=2))
    assert [file.name for file in path.parent.iterdir()] == ["s1.json"]
    assert ScheduleStore(tmp_path, "s1").jobs == [make_job("a")]
    assert ScheduleStore(tmp_path, "s2").jobs == []


@pytest.mark.spec("fleet:B82")
def test_taken_name_is_refused(tmp_path: Path, store: ScheduleStore) -> None:
    ScheduleStore(tmp_path, "s1").add(make_job("a", name="Nightly"))
    with pytest.raises(UsageError, match=r'^A scheduled job named "Nightly" already exists\.$'):
        store.add(make_job("b", name="Nightly"))
    store.add(make_job("b", name="nightly"))
    assert [job.id for job in store.jobs] == ["a", "b"]


def test_unknown_id_touches_nothing(store: ScheduleStore) -> None:
    store.add(make_job("a"))
    before = (read_stamp(store.path), read_stamp(store.path.parent))
    assert (store.update({"x": count_run}), store.remove("x")) == ({}, None)
    assert (read_stamp(store.path), read_stamp(store.path.parent)) == before


def test_equal_job_is_not_written(store: ScheduleStore) -> None:
    store.add(make_job("a"))
    before = read_stamp(store.path)
    assert store.update({"a": lambda job: job}) == {}
    assert read_stamp(store.path) == before


def test_changes_of_others_are_kept(tmp_path: Path, store: ScheduleStore) -> None:
    other = ScheduleStore(tmp_path, "s1")
    store.add(make_job("a"))
    other.add(make_job("b"))
    revision = store.revision
    assert store.update({"b": count_run}) == {"b": make_job("b", run_count=1)}
    assert other.remove("a") == make_job("a")
    store.reload()
    assert (store.jobs, store.revision) == ([make_job("b", run_count=1)], revision + 2)


def test_own_writes_are_no_news(store: ScheduleStore) -> None:
    store.add(make_job("a"))
    store.update({"a": count_run})
    store.reload()
    assert (store.revision, store.find("a")) == (0, make_job("a", run_count=1))


def test_unknown_members_stay(store: ScheduleStore) -> None:
    store.path.parent.mkdir(parents=True)
    entry = {**to_entry(make_job("a")), "colour": "red"}
    store.path.write_text(json.dumps({"version": 1, "jobs": [entry, {"id": "odd"}], "more": True}))
    store.update({"a": count_run})
    assert json.loads(store.path.read_text()) == {
        "version": 1,
        "jobs": [{**to_entry(make_job("a", run_count=1)), "colour": "red"}, {"id": "odd"}],
        "more": True,
    }
    assert [problem.message for problem in store.problems] == [
        f"{store.path}: jobs[1] is not a scheduled job: Object missing required field `name`; it stays unchanged"
    ]


@pytest.mark.spec("fleet:B87")
@pytest.mark.parametrize("data", [b"", b'{"version": 1, "jobs": [', b"[]", b'{"jobs": 3}', b"\xff\xfe", b"[" * 90_000])
def test_broken_file_is_kept_aside(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / ".pi" / "subagent-schedules" / "s1.json"
    path.parent.mkdir(parents=True)
    path.write_bytes(data)
    store = ScheduleStore(tmp_path, "s1")
    assert (store.jobs, path.read_bytes(), len(store.problems)) == ([], data, 1)
    assert "it counts as empty and is kept aside" in store.problems[0].message
    store.add(make_job("a"))
    assert (store.jobs, store.problems) == ([make_job("a")], [])
    assert {file.name: file.read_bytes() for file in path.parent.iterdir() if file != path} == {
        "s1.json.broken-1": data
    }


def test_newer_version_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / ".pi" / "subagent-schedules" / "s1.json"
    path.parent.mkdir(parents=True)
    path.write_text('{"version": 2, "jobs": []}')
    store = ScheduleStore(tmp_path, "s1")
    with pytest.raises(StoreError, match="has version '2'; expected 1"):
        store.add(make_job("a"))
    assert path.read_text() == '{"version": 2, "jobs": []}'


@pytest.mark.attack("A20")
@pytest.mark.parametrize("linked", [".pi", ".pi/subagent-schedules"])
def test_linked_folders_are_refused(tmp_path: Path, linked: str) -> None:
    project, outside = tmp_path / "project", tmp_path / "outside"
    ScheduleStore(outside_of(outside), "s1").add(make_job("a"))
    (project / linked).parent.mkdir(parents=True)
    (project / linked).symlink_to(outside / linked)
    store = ScheduleStore(project, "s1")
    assert store.jobs == []
    with pytest.raises(StoreError, match="is a symbolic link; schedules are kept in real directories only"):
        store.add(make_job("b"))
    assert [job.id for job in ScheduleStore(outside, "s1").jobs] == ["a"]


def outside_of(folder: Path) -> Path:
    folder.mkdir()
    return folder


@pytest.mark.parametrize("kind", ["pipe", "folder", "link"])
def test_odd_files_are_left_alone(tmp_path: Path, kind: str) -> None:
    path = tmp_path / ".pi" / "subagent-schedules" / "s1.json"
    path.parent.mkdir(parents=True)
    match kind:
        case "pipe":
            os.mkfifo(path)
        case "folder":
            path.mkdir()
        case "link":
            path.symlink_to(tmp_path / "elsewhere")
    store = ScheduleStore(tmp_path, "s1")
    with pytest.raises(StoreError, match="cannot be read"):
        store.add(make_job("a"))
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize("session_id", ["", ".", "..", "../x", "a/b", "a\0b", "-x", "x" * 200])
def test_odd_session_ids_are_refused(tmp_path: Path, session_id: str) -> None:
    with pytest.raises(UsageError, match="is not a session id"):
        ScheduleStore(tmp_path, session_id)


def test_missing_project_is_said(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="gone: does not exist"):
        ScheduleStore(tmp_path / "gone", "s1").add(make_job("a"))


def test_odd_text_is_written(store: ScheduleStore) -> None:
    store.add(make_job("a", prompt="lone \ud800 é\u2028"))
    assert store.jobs[0].prompt == "lone \ufffd é\u2028"


def test_sessions_with_jobs_are_listed(tmp_path: Path) -> None:
    assert list_sessions(tmp_path) == []
    for session_id in ("s2", "s1"):
        ScheduleStore(tmp_path, session_id).add(make_job("a"))
    folder = tmp_path / ".pi" / "subagent-schedules"
    (folder / "s3.json").symlink_to(folder / "s1.json")
    (folder / "s1.json.broken-1").touch()
    assert list_sessions(tmp_path) == ["s1", "s2"]
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / ".pi").symlink_to(tmp_path / ".pi")
    assert list_sessions(tmp_path / "other") == []
