import os
from pathlib import Path

import pytest

from retinue.sessions import trust
from retinue.sessions.trust import TrustedSessions


@pytest.fixture
def known(tmp_path: Path) -> TrustedSessions:
    return TrustedSessions(tmp_path / "own", tmp_path / "agent", tmp_path / "project", tmp_path / "project" / "new")


def test_session_seen_when_fresh_is_trusted(known: TrustedSessions, tmp_path: Path) -> None:
    path, folder = tmp_path / "elsewhere" / "s.jsonl", tmp_path / "work"
    assert not known.judge(path, "s", folder, is_fresh=False)
    assert known.judge(path, "s", folder, is_fresh=True)
    assert [known.judge(path, name, folder, is_fresh=False) for name in ("s", "other")] == [True, False]
    assert [known.believes_folder(path, "s", str(place)) for place in (folder, tmp_path)] == [True, False]
    assert not known.judge(path.with_name("t.jsonl"), "s", folder, is_fresh=False)


def test_session_of_the_project_is_never_remembered(known: TrustedSessions, tmp_path: Path) -> None:
    path = tmp_path / "project" / "new" / "s.jsonl"
    assert [known.judge(path, "s", tmp_path, is_fresh=fresh) for fresh in (True, False)] == [True, False]
    assert not known.believes_folder(path, "s", str(tmp_path))
    assert known.judge(tmp_path / "agent" / "s.jsonl", "s", tmp_path, is_fresh=False)


def test_old_records_are_forgotten_when_there_are_many(
    known: TrustedSessions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trust, "_MOST", 2)
    records = tmp_path / "own" / "sessions-elsewhere"
    for name in ("a", "b"):
        known.judge(tmp_path / name, name, tmp_path, is_fresh=True)
        for record in records.iterdir():
            os.utime(record, (0, 0))
    known.judge(tmp_path / "c", "c", tmp_path, is_fresh=True)
    assert [known.judge(tmp_path / name, name, tmp_path, is_fresh=False) for name in "abc"] == [False, False, True]
    assert len(list(records.iterdir())) == 1
