from pathlib import Path

import pytest

from retinue.core.errors import SessionError, SessionLocked, SessionNotFound
from retinue.sessions.lock import note_path
from retinue.sessions.tree import SessionTree, delete_session


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "s.jsonl"
    path.write_bytes(b"")
    return path


def test_children_go_with_their_session(path: Path) -> None:
    child = path.with_suffix("") / "r1" / "session.jsonl"
    child.parent.mkdir(parents=True)
    child.write_bytes(b"")
    (path.parent / "other.jsonl").write_bytes(b"")
    delete_session(path)
    assert [left.name for left in path.parent.iterdir()] == ["other.jsonl"]
    with pytest.raises(SessionNotFound, match=r"there is no session '.*s.jsonl'"):
        delete_session(path)


def test_folder_behind_a_link_is_left(path: Path) -> None:
    folder = path.parent / "elsewhere"
    folder.mkdir()
    path.with_suffix("").symlink_to(folder)
    delete_session(path)
    assert (path.exists(), folder.is_dir()) == (False, True)


def test_session_in_use_is_left(path: Path) -> None:
    holder = SessionTree()
    holder.lock(path)
    with pytest.raises(SessionLocked):
        delete_session(path)
    assert path.exists()
    holder.close()
    delete_session(path)
    assert not path.exists() and not note_path(path).exists()


def test_failure_is_told(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: Path, missing_ok: bool = False) -> None:
        if self == path:
            raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "unlink", fail)
    with pytest.raises(SessionError, match=r"s\.jsonl: cannot be deleted: permission denied"):
        delete_session(path)
    SessionTree().lock(path)
