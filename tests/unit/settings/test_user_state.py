import json
import stat

import pytest

from retinue.settings.paths import find_paths
from retinue.settings.user_state import MOST_CHARS, MOST_ENTRIES, HistoryFile, UserState


@pytest.fixture
def paths(home, tmp_path):
    return find_paths(tmp_path, {"HOME": str(home)})


def test_history_comes_back(paths):
    for text in ("one", "two\nlines", "é\ud800"):
        HistoryFile(paths).add(text)
    assert HistoryFile(paths).load() == ["one", "two\nlines", "é?"]


def test_history_is_the_users_alone(paths):
    history = HistoryFile(paths)
    history.add("a secret")
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (history.path, history.path.parent)]
    assert modes == [0o600, 0o700]


def test_projects_have_their_own_history(paths, home, tmp_path):
    other = tmp_path / "other"
    (other / ".git").mkdir(parents=True)
    HistoryFile(paths).add("here")
    assert HistoryFile(find_paths(other, {"HOME": str(home)})).load() == []


def test_history_is_bounded(paths):
    history = HistoryFile(paths)
    for number in range(2 * MOST_ENTRIES + 5):
        history.add(str(number))
    history.add("x" * (MOST_CHARS + 1))
    kept = history.load()
    assert (len(kept), kept[-1]) == (MOST_ENTRIES, str(2 * MOST_ENTRIES + 4))
    assert len(history.path.read_text().splitlines()) == MOST_ENTRIES
    assert stat.S_IMODE(history.path.stat().st_mode) == 0o600


@pytest.mark.parametrize("data", [b"\xff\n", b'{"a": 1}\n', b'"half', b"5\n\n", b""])
def test_broken_lines_are_left_out(paths, data):
    history = HistoryFile(paths)
    history.add("one")
    with history.path.open("ab") as file:
        file.write(data)
    assert history.load() == ["one"]


def test_history_that_cannot_be_kept_is_no_error(paths):
    history = HistoryFile(paths)
    history.path.mkdir(parents=True)
    history.add("one")
    assert history.load() == []


def test_theme_is_remembered(paths):
    assert UserState(paths).theme == ""
    paths.user_settings.parent.mkdir(parents=True, exist_ok=True)
    paths.user_settings.write_text('{"defaultModel": "m"}')
    UserState(paths).choose_theme("light")
    assert UserState(paths).theme == "light"
    assert json.loads(paths.user_settings.read_text()) == {"defaultModel": "m", "theme": "light"}


@pytest.mark.parametrize(("content", "theme"), [('{"theme": "nord"}', "nord"), ("{", ""), ('{"theme": 5}', "")])
def test_theme_of_an_earlier_version_is_found(paths, content, theme):
    paths.own_dir.mkdir(parents=True)
    (paths.own_dir / "screen.json").write_text(content)
    assert UserState(paths).theme == theme
    UserState(paths).choose_theme("x")
    assert UserState(paths).theme == "x"
