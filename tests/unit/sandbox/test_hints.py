from pathlib import Path

import pytest

from retinue.sandbox.hints import Hints
from retinue.sandbox.profile import Profile, SandboxSettings, build_readonly, build_writing
from retinue.testing import make_repo

ROFS = "touch: cannot touch '/usr/x': Read-only file system"
DENIED = "touch: cannot touch '/usr/x': Permission denied"
UNRESOLVED = "curl: (6) Could not resolve host: example.org"
READER = "this run is read-only: commands write in $TMPDIR only, and there is no network"
OFFLINE = "commands have no network: sandbox.network is off in the user's subagents.json"


@pytest.mark.parametrize("output", [ROFS, DENIED, UNRESOLVED])
def test_reader_is_told_once(output: str, tmp_path: Path) -> None:
    hints = Hints(build_readonly(tmp_path, SandboxSettings()), has_mounts=True)
    assert [hints.explain(text) for text in ("fine", output, output, ROFS)] == ["", READER, "", ""]


def test_writer_is_told_its_place(tmp_path: Path) -> None:
    hints = Hints(Profile(str(tmp_path), "workspace_write", network=True), has_mounts=True)
    told = [hints.explain(text) for text in (DENIED, UNRESOLVED, ROFS)]
    assert told[:2] == ["", ""]
    assert told[2].startswith(f"commands write below '{tmp_path}' and in $TMPDIR; hooks,")


def test_fallback_refuses_in_other_words(tmp_path: Path) -> None:
    hints = Hints(Profile(str(tmp_path), "workspace_write"), has_mounts=False)
    assert hints.explain(DENIED) == f"commands write below '{tmp_path}' and in $TMPDIR; see retinue doctor"
    assert [hints.explain(f"{DENIED}\n{UNRESOLVED}"), hints.explain(UNRESOLVED)] == [OFFLINE, ""]


def test_missing_repository_is_named(tmp_path: Path) -> None:
    complaint = f"fatal: cannot copy 'a' to '{tmp_path}/.git/description': Read-only file system"
    hints = Hints(build_writing(tmp_path, SandboxSettings()), has_mounts=True)
    told = hints.explain(complaint)
    assert told.startswith(
        f"'{tmp_path}' is not a repository, and agents cannot create one: run git init there yourself"
    )
    repo = make_repo(tmp_path / "repo", {"a": "b"})
    hints = Hints(build_writing(repo, SandboxSettings()), has_mounts=True)
    assert "is not a repository" not in hints.explain(complaint)
