import json
import os
from pathlib import Path
from typing import Any

import pytest

from retinue.sandbox.stubs import Stubs
from retinue.settings.decisions import save_decision
from retinue.settings.paths import PROTECTED, Paths, find_paths
from retinue.settings.trust import decide_trust, load_decisions


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    (folder / ".pi" / "skills").mkdir(parents=True)
    return folder


def save(agent_dir: Path, decisions: Any, mode: int = 0o600) -> None:
    (agent_dir / "trust.json").write_text(decisions if isinstance(decisions, str) else json.dumps(decisions))
    (agent_dir / "trust.json").chmod(mode)


def answer(cwd: Path, **options: Any) -> tuple[bool, str]:
    trust = decide_trust(find_paths(cwd, os.environ), **{"approve": None, **options})
    return trust.trusted, trust.reason


def test_flags_win_over_all(project: Path, agent_dir: Path) -> None:
    save(agent_dir, {str(project): False})
    assert answer(project, approve=True) == (True, "--approve")
    save(agent_dir, {str(project): True})
    assert answer(project, approve=False, default="always") == (False, "--no-approve")


@pytest.mark.attack("A7")
def test_closest_decision_applies(project: Path, agent_dir: Path) -> None:
    save(agent_dir, {str(project.parent): False, str(project): True, "/": None})
    assert answer(project) == (True, f"saved for {project}")
    save(agent_dir, {str(project.parent): True})
    # pi does not write down what was there when it was asked.
    assert answer(project) == (False, f"{project / '.pi'} was not there when {project.parent} was trusted")
    save_decision(find_paths(project, os.environ), project.parent, True)
    assert answer(project) == (True, f"saved for {project.parent}")


@pytest.mark.attack("I1", "A7")
@pytest.mark.parametrize("below", ["", "sub", "sub/deep"])
def test_decision_covers_what_was_there(tmp_path: Path, agent_dir: Path, below: str) -> None:
    folder = tmp_path / "top" / below
    (folder / ".agents").mkdir(parents=True)
    save_decision(find_paths(tmp_path, os.environ), tmp_path / "top", True)
    assert answer(folder) == (True, f"saved for {tmp_path / 'top'}")
    (folder / ".pi" / "agents").mkdir(parents=True)
    assert answer(folder) == (False, f"{folder / '.pi'} was not there when {tmp_path / 'top'} was trusted")


@pytest.mark.attack("I1", "A7")
def test_repositories_below_are_not_covered(tmp_path: Path, agent_dir: Path) -> None:
    for name in (".git", ".pi/agents", "inner/.pi/agents"):
        (tmp_path / "top" / "clone" / name).mkdir(parents=True)
    save_decision(find_paths(tmp_path, os.environ), tmp_path / "top", True)
    clone = tmp_path / "top" / "clone"
    assert answer(clone / "inner") == (False, f"{clone} is a repository of its own inside {tmp_path / 'top'}")
    bound = json.loads((agent_dir / "retinue" / "trust.json").read_text())["folders"]
    assert bound[str(tmp_path / "top")]["configs"] == {}


@pytest.mark.attack("I1", "A7")
def test_folder_that_came_back_is_asked_about(tmp_path: Path, agent_dir: Path) -> None:
    config = tmp_path / "top" / "sub" / ".pi"
    (config / "agents").mkdir(parents=True)
    save_decision(find_paths(tmp_path, os.environ), tmp_path / "top", True)
    assert answer(config.parent)[0]
    config.rename(config.with_name("old"))
    (config / "agents").mkdir(parents=True)
    assert answer(config.parent) == (False, f"{config} was not there when {tmp_path / 'top'} was trusted")


@pytest.mark.attack("I1")
def test_linked_folder_needs_no_decision(tmp_path: Path, agent_dir: Path) -> None:
    (tmp_path / "work" / "tools" / "agents").mkdir(parents=True)
    (tmp_path / "work" / ".pi").symlink_to("tools")
    trust = decide_trust(find_paths(tmp_path / "work", os.environ), approve=True)
    assert (trust.protected, find_paths(tmp_path / "work", os.environ).configs) == ((), ())
    assert [item.code for item in trust.diagnostics] == ["linked-config"]


def test_yes_below_does_not_cover_project(project: Path, agent_dir: Path) -> None:
    (project / "sub").mkdir()
    save(agent_dir, {str(project / "sub"): True})
    assert answer(project / "sub") == (False, "no decision")
    save(agent_dir, {str(project / "sub"): False, str(project): True})
    assert answer(project / "sub") == (False, f"saved for {project / 'sub'}")


@pytest.mark.attack("A18")
def test_aliases_of_a_path_grant_nothing(project: Path, agent_dir: Path) -> None:
    save(agent_dir, {f"{project}/": True, f"{project}/../project": True, str(project).upper(): True, "~": True})
    assert answer(project) == (False, "no decision")


@pytest.mark.attack("A6")
def test_link_is_judged_by_its_target(project: Path, agent_dir: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(project)
    save(agent_dir, {str(tmp_path / "link"): True})
    assert answer(tmp_path / "link") == (False, "no decision")


@pytest.mark.parametrize(("default", "trusted"), [("always", True), ("never", False), ("ask", False)])
def test_default_decides_without_a_terminal(project: Path, agent_dir: Path, default: str, trusted: bool) -> None:
    assert answer(project, default=default)[0] is trusted


def test_skipped_files_are_named_in_one_line(project: Path, agent_dir: Path) -> None:
    (project / ".codingcode").mkdir()
    trust = decide_trust(find_paths(project, os.environ), approve=None)
    assert trust.notice == (
        f"'{project}' is not trusted: skipped .pi/skills, .codingcode (use --approve to load them for this run)"
    )


@pytest.mark.attack("I1")
def test_bare_folder_is_not_trusted(tmp_path: Path, agent_dir: Path) -> None:
    (tmp_path / "plain" / ".pi").mkdir(parents=True)
    assert answer(tmp_path / "plain") == (False, "nothing to protect")
    assert decide_trust(find_paths(tmp_path / "plain", os.environ), approve=None).is_open
    save(agent_dir, {str(tmp_path): False})
    assert answer(tmp_path / "plain") == (False, f"saved for {tmp_path}")


def test_home_has_nothing_to_protect(home: Path, agent_dir: Path) -> None:
    (home / ".agents").mkdir()
    assert answer(home) == (False, "nothing to protect")


@pytest.mark.attack("A16")
@pytest.mark.parametrize(
    ("content", "mode", "problem"),
    [
        ('{"/": true', 0o600, "found the end of the file"),
        ('{"/": "yes"}', 0o600, "'/': found 'yes'; expected true, false or null; no saved decision is used"),
        ('{"/": true}', 0o666, "can be written by others (mode 0666; run chmod 600); no saved decision is used"),
        ("[]", 0o600, "found an array; expected an object"),
    ],
)
def test_doubtful_file_decides_nothing(project: Path, agent_dir: Path, content: str, mode: int, problem: str) -> None:
    save(agent_dir, content, mode)
    trust = decide_trust(find_paths(project, os.environ), approve=None)
    assert (trust.trusted, len(trust.diagnostics)) == (False, 1)
    assert problem in trust.diagnostics[0].message


@pytest.mark.attack("A16")
def test_linked_trust_file_is_refused(project: Path, agent_dir: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere.json").write_text(json.dumps({str(project): True}))
    (agent_dir / "trust.json").symlink_to(tmp_path / "elsewhere.json")
    assert load_decisions(agent_dir / "trust.json")[0] == {}


@pytest.mark.attack("SEC-5")
def test_protected_files_are_never_opened(tmp_path: Path, agent_dir: Path) -> None:
    for name in PROTECTED:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        os.mkfifo(tmp_path / name)
    paths = Paths(tmp_path, tmp_path, agent_dir)
    assert decide_trust(paths, approve=None).protected == PROTECTED


def test_stand_in_needs_no_trust(tmp_path: Path, agent_dir: Path) -> None:
    (tmp_path / "work" / "sub").mkdir(parents=True)
    stubs = Stubs()
    stubs.hold([], [str(tmp_path / "work" / name) for name in (".agents", ".codingcode", ".git", ".pi")])
    paths = find_paths(tmp_path / "work" / "sub", os.environ)
    assert (paths.project, decide_trust(paths, approve=None).protected) == (tmp_path / "work" / "sub", ())
    (tmp_path / "work" / ".agents" / "a.md").touch()
    paths = find_paths(tmp_path / "work" / "sub", os.environ)
    assert (paths.project, decide_trust(paths, approve=None).protected) == (tmp_path / "work", (".agents",))
    stubs.release()
