from pathlib import Path

import pytest
from msgspec.structs import replace

from retinue.core.definition import Definition
from retinue.core.errors import RetinueError, UsageError
from retinue.core.run import Run
from retinue.engine.clock import make_uuid
from retinue.engine.request import RunRequest
from retinue.engine.session_path import PathBases, SessionOpener, find_file_below, find_session_dir
from retinue.sessions.log import Session
from retinue.testing.clock import FakeClock

REQUEST = RunRequest(agent="a", task="t", description="d", surface="fleet")
AGENT = Definition(name="a", dialect="pi", source="user", path="a.md", persist_session=True)


def make_session(path: Path | None) -> Session:
    return Session.create(cwd="/", directory=None, path=path, clock=FakeClock(), new_id=make_uuid)


def make_run(attempt: int = 1, started_ms: int = 0) -> Run:
    run = Run(id="r", parent_id="main", depth=1, agent="a", description="d", attempt=attempt)
    return replace(run, started_ms=started_ms)


@pytest.mark.parametrize("elsewhere", [False, True])
def test_resumed_run_goes_on_with_its_file(tmp_path: Path, elsewhere: bool) -> None:
    above = make_session(tmp_path / "main.jsonl")
    file = tmp_path / ("own.jsonl" if elsewhere else "main/r/session.jsonl")
    request = replace(REQUEST, session_file=str(file)) if elsewhere else REQUEST
    keeper = SessionOpener(FakeClock(), None)
    with pytest.raises(RetinueError, match='Agent "r" has no active session to resume'):
        keeper.open(make_run(2, started_ms=5), request, above, tmp_path)
    first = keeper.open(make_run(), request, above, tmp_path)
    first.append_custom("note", {"n": 1})
    first.close()
    second = keeper.open(make_run(2, started_ms=5), request, above, tmp_path)
    assert (second.path, second.id, list(second.customs("note"))) == (file, first.id, [{"n": 1}])
    assert (second.tree is above.tree) is not elsewhere
    second.close()
    above.close()


@pytest.mark.parametrize(("attempt", "started_ms"), [(2, 0), (1, 5)])
def test_run_that_wrote_nothing_may_have_no_file(tmp_path: Path, attempt: int, started_ms: int) -> None:
    above = make_session(tmp_path / "main.jsonl")
    session = SessionOpener(FakeClock(), None).open(make_run(attempt, started_ms), REQUEST, above, tmp_path)
    assert session.path == tmp_path / "main" / "r" / "session.jsonl"
    assert session.parent_session == str(above.path)
    session.close()
    above.close()


def test_file_below_the_main_session_is_under_its_lock(tmp_path: Path) -> None:
    above, keeper = make_session(tmp_path / "main.jsonl"), SessionOpener(FakeClock(), None)
    for name, tree in (("main/own.jsonl", above.tree), ("mainly/own.jsonl", None)):
        request = replace(REQUEST, session_file=str(tmp_path / name))
        assert keeper.find_place(make_run(), request, above) == (tmp_path / name, tree)
    above.close()


def test_session_without_file_is_kept_until_forgotten(tmp_path: Path) -> None:
    above, keeper = make_session(tmp_path / "main.jsonl"), SessionOpener(FakeClock(), None)
    request = replace(REQUEST, keeps_session=False)
    first = keeper.open(make_run(), request, above, tmp_path)
    assert (first.path, keeper.open(make_run(2, started_ms=5), request, above, tmp_path) is first) == (None, True)
    keeper.forget("r")
    with pytest.raises(RetinueError, match="no active session"):
        keeper.open(make_run(2, started_ms=5), request, above, tmp_path)
    above.close()


@pytest.mark.parametrize("orphans", [False, True])
def test_run_of_an_agent_without_session(tmp_path: Path, orphans: bool) -> None:
    keeper = SessionOpener(FakeClock(), tmp_path if orphans else None)
    path, tree = keeper.find_place(make_run(), REQUEST, make_session(None))
    assert (path, tree) == (tmp_path / "r" / "session.jsonl" if orphans else None, None)


@pytest.mark.parametrize(
    ("text", "folder"), [("kept", "/work/kept"), ("../x", "/x"), ("~", "/home/me"), ("~/a", "/home/me/a"), ("/b", "/b")]
)
def test_folder_of_sessions_is_a_path(text: str, folder: str) -> None:
    grounds = PathBases(cwd="/work", project="/work", home="/home/me")
    assert find_session_dir(replace(AGENT, session_dir=text), grounds) == folder
    assert find_session_dir(replace(AGENT, session_dir=text, persist_session=False), grounds) == ""


@pytest.mark.parametrize(
    ("text", "source", "home", "words"),
    [
        ("~you/x", "user", "/home/me", "~ is the home directory"),
        ("a\0b", "user", "/home/me", "expected a path"),
        ("~/x", "user", "", "set HOME"),
        ("../x", "project", "/home/me", "inside '/work' only"),
        ("/workshop", "project", "/home/me", "inside '/work' only"),
    ],
)
def test_other_folders_of_sessions_are_refused(text: str, source: str, home: str, words: str) -> None:
    definition = replace(AGENT, session_dir=text, source=source)
    with pytest.raises(UsageError, match=words):
        find_session_dir(definition, PathBases(cwd="/work", project="/work", home=home))


def test_project_keeps_sessions_inside() -> None:
    definition = replace(AGENT, session_dir="kept", source="project")
    assert find_session_dir(definition, PathBases(cwd="/work/sub", project="/work")) == "/work/sub/kept"


@pytest.mark.parametrize(
    ("above", "file"),
    [("/x/own.jsonl", "/x/own/r/session.jsonl"), ("/x/p/session.jsonl", "/x/r/session.jsonl")],
)
def test_all_below_a_run_is_in_one_folder(above: str, file: str) -> None:
    assert find_file_below(above, "p", "r") == file
    assert find_file_below("/x/q/session.jsonl", "p", "r") == "/x/q/session/r/session.jsonl"
