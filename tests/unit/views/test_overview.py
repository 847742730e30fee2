import shutil

import pytest

from retinue.core.errors import SessionError
from retinue.sessions.log import Session
from retinue.testing import FakeClock
from retinue.views.overview import delete_session


@pytest.fixture
def path(tmp_path):
    """A session on disk with that of one run."""
    path = tmp_path / "s.jsonl"
    session = Session.create(cwd="/", directory=None, path=path, clock=FakeClock(), new_id=lambda: "one")
    session.append_session_info("a name")
    session.close()
    path.touch()
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "run.jsonl").touch()
    return path


def test_session_goes_with_its_runs(path):
    delete_session(str(path))
    assert list(path.parent.glob("s*")) == []


def test_runs_that_stay_keep_their_session(path, monkeypatch):
    def fail(folder):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(shutil, "rmtree", fail)
    with pytest.raises(SessionError, match="cannot be deleted: permission denied"):
        delete_session(str(path))
    assert path.is_file()
