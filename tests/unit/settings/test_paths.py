from pathlib import Path

import pytest

from retinue.core.errors import ConfigError, UsageError
from retinue.settings.paths import Paths, find_agent_dir, find_home, find_paths, find_project, find_session_dir


def test_agent_dir_from_environment(tmp_path: Path) -> None:
    assert find_agent_dir({"PI_CODING_AGENT_DIR": "~/x"}, tmp_path) == tmp_path / "x"
    assert find_agent_dir({"PI_CODING_AGENT_DIR": "/a/../b"}, tmp_path) == Path("/b")
    assert find_agent_dir({}, tmp_path) == tmp_path / ".pi" / "agent"


def test_no_home_is_a_clear_error() -> None:
    with pytest.raises(ConfigError, match="set HOME or PI_CODING_AGENT_DIR"):
        find_agent_dir({}, None)
    with pytest.raises(ConfigError, match="needs a home directory"):
        find_agent_dir({"PI_CODING_AGENT_DIR": "~/x"}, None)


def test_strange_home_falls_back_to_system() -> None:
    system = find_home({})
    assert find_home({"HOME": ""}) == find_home({"HOME": "relative"}) == system


@pytest.mark.parametrize("mark", [".pi", ".agents", ".codingcode", ".git"])
def test_project_is_nearest_marked_ancestor(tmp_path: Path, mark: str) -> None:
    deep = tmp_path / "home" / "project" / "a" / "b"
    deep.mkdir(parents=True)
    (tmp_path / "home" / "project" / mark).mkdir()
    assert find_project(deep, tmp_path / "home") == tmp_path / "home" / "project"


def test_home_is_never_a_project(tmp_path: Path) -> None:
    deep = tmp_path / "home" / "a"
    deep.mkdir(parents=True)
    (tmp_path / "home" / ".git").mkdir()
    (tmp_path / ".git").mkdir()
    assert find_project(deep, tmp_path / "home") == deep
    assert find_project(tmp_path / "home", tmp_path / "home") == tmp_path / "home"


def test_linked_home_is_seen_through(tmp_path: Path) -> None:
    (tmp_path / "real" / "a").mkdir(parents=True)
    (tmp_path / "real" / ".git").mkdir()
    (tmp_path / "home").symlink_to("real")
    assert find_project(tmp_path / "real" / "a", tmp_path / "home") == tmp_path / "real" / "a"


def test_session_dir_precedence(tmp_path: Path) -> None:
    paths = Paths(tmp_path / "w", tmp_path / "w", tmp_path / "agent", tmp_path)
    environment = {"PI_CODING_AGENT_SESSION_DIR": "~/env"}
    assert find_session_dir(paths, environment, flag="flag", setting="/s") == tmp_path / "w" / "flag"
    assert find_session_dir(paths, environment, setting="/s") == tmp_path / "env"
    assert find_session_dir(paths, {}, setting="/s") == Path("/s")


@pytest.mark.parametrize(
    ("cwd", "name"), [("/work/my project", "--work-my project--"), ("/a/b:c\\d", "--a-b-c-d--"), ("/", "----")]
)
def test_session_directory_is_named_as_pi_does(cwd, name):
    assert find_session_dir(Paths(Path(cwd), Path("/"), Path("/d")), {}) == Path("/d/sessions") / name


def test_bad_working_directory_is_a_usage_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="no such file or directory"):
        find_paths(tmp_path / "no", {})
    with pytest.raises(UsageError, match="not a directory"):
        find_paths(tmp_path / "file", {})
    with pytest.raises(UsageError, match="working directory"):
        find_paths("a\0b", {})


def test_agent_dir_must_be_a_directory(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="file': not a directory; set PI_CODING_AGENT_DIR to one"):
        find_paths(tmp_path, {"PI_CODING_AGENT_DIR": str(tmp_path / "file")})
