import os
import time
from pathlib import Path

import pytest
from msgspec.structs import replace

from retinue.core.diagnostics import Diagnostic
from retinue.definitions.discover import AgentFolders
from retinue.definitions.registry import DefinitionRegistry, Definitions
from retinue.settings.paths import find_paths

BUILTIN = ["Explore", "Plan", "explorer", "general-purpose", "implementer", "researcher", "reviewer", "scout", "tester"]


class World:
    """A home and a project with agent files in them."""

    def __init__(self, home: Path, project: Path) -> None:
        self.home, self.project = home, project
        project.mkdir(parents=True, exist_ok=True)

    def write(self, path: str, text: str) -> Path:
        target = self.home / path[2:] if path.startswith("~/") else self.project / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
        return target

    def places(self, below: str = "") -> AgentFolders:
        cwd = self.project / below
        cwd.mkdir(parents=True, exist_ok=True)
        paths = find_paths(cwd, os.environ)
        return AgentFolders(paths.project, paths.agent_dir, paths.home)

    def load(self, below: str = "", *, trusted: bool = True, hide_defaults: bool = False) -> Definitions:
        return DefinitionRegistry(self.places(below), trusted=trusted, hide_defaults=hide_defaults).read()


@pytest.fixture
def world(home: Path, tmp_path: Path) -> World:
    return World(home, tmp_path / "project")


def agent(name: str, more: str = "") -> str:
    return f"---\nname: {name}\ndescription: d\n{more}---\nbody\n"


def origins(found: Definitions) -> dict[str, str]:
    return {item.name: f"{item.source}/{item.dialect}" for item in found.list() if item.source != "builtin"}


def codes(found: Definitions) -> list[tuple[str, str]]:
    return [(os.path.basename(item.path), item.code) for item in found.diagnostics]


def test_builtins_are_there_without_fault(world: World) -> None:
    found = world.load()
    assert (sorted(item.name for item in found.list()), found.diagnostics) == (sorted(BUILTIN), ())


@pytest.mark.spec("devkit:13", "fleet:B26", "codingcode:8")
def test_all_places_are_read(world: World) -> None:
    world.write("~/.pi/agent/agents/a.md", agent("user-pi"))
    world.write("~/.codingcode/agents/a.md", agent("user-cc"))
    world.write("~/.pi/agent/subagents/a.md", agent("user-sticky"))
    world.write(".pi/agents/a.md", agent("own-pi"))
    world.write(".codingcode/agents/a.md", agent("own-cc"))
    assert origins(world.load()) == {
        "own-cc": "project/codingcode",
        "own-pi": "project/pi",
        "user-cc": "user/codingcode",
        "user-pi": "user/pi",
        "user-sticky": "user/sticky",
    }


@pytest.mark.spec("fleet:B27")
def test_agent_dir_moves_user_files(world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    world.write("~/.pi/agent/agents/a.md", agent("old"))
    monkeypatch.setenv("PI_CODING_AGENT_DIR", str(tmp_path / "else"))
    (tmp_path / "else" / "agents").mkdir(parents=True)
    (tmp_path / "else" / "agents" / "b.md").write_text(agent("new"))
    assert origins(world.load()) == {"new": "user/pi"}


@pytest.mark.spec("devkit:13", "fleet:B26")
def test_precedence_is_level_then_dialect(world: World) -> None:
    order = [
        world.write(".pi/agents/x.md", agent("same")),
        world.write(".codingcode/agents/x.md", agent("same")),
        world.write("~/.pi/agent/agents/x.md", agent("same")),
        world.write("~/.codingcode/agents/x.md", agent("same")),
        world.write("~/.pi/agent/subagents/x.md", agent("same")),
    ]
    while order:
        found = world.load().find("same")
        assert found is not None
        assert (found.path, found.shadows) == (str(order[0]), tuple(map(str, order[1:])))
        order.pop(0).unlink()


@pytest.mark.spec("fleet:B26")
@pytest.mark.parametrize("name", ["general-purpose", "Explore", "EXPLORE", "scout"])
def test_own_file_replaces_builtin(world: World, name: str) -> None:
    path = world.write(".pi/agents/x.md", agent(name))
    found = world.load().find(name.lower())
    assert found is not None and (found.path, [Path(item).stem for item in found.shadows]) == (
        str(path),
        [name if name != "EXPLORE" else "Explore"],
    )
    assert [item.code for item in world.load().diagnostics] == ["shadowed"]


@pytest.mark.spec("fleet:B6")
@pytest.mark.parametrize("name", ["explore", "Explore", "EXPLORE"])
def test_names_match_without_case(world: World, name: str) -> None:
    found = world.load().find(name)
    assert found is not None and (found.name, found.dialect) == ("Explore", "pi")


@pytest.mark.spec("codingcode:15")
@pytest.mark.parametrize(("name", "dialect"), [("explore", "codingcode"), ("plan", "codingcode"), ("Plan", "pi")])
def test_dispatch_has_its_own_builtins(world: World, name: str, dialect: str) -> None:
    found = world.load().find(name, "dispatch")
    assert found is not None and (found.name, found.dialect) == (name, dialect)


@pytest.mark.spec("codingcode:9")
@pytest.mark.parametrize("folder", [".codingcode/agents", ".pi/agents", "~/.codingcode/agents"])
def test_own_explore_wins_on_dispatch(world: World, folder: str) -> None:
    path = world.write(f"{folder}/e.md", agent("explore"))
    found = [world.load().find("explore", surface) for surface in ("dispatch", "fleet")]
    assert [item and item.path for item in found] == [str(path)] * 2


@pytest.mark.spec("devkit:14")
def test_pi_folder_goes_before_agents(world: World) -> None:
    world.write(".pi/agents/a.md", agent("one"))
    world.write(".agents/b.md", agent("two"))
    assert origins(world.load("deep/er")) == {"one": "project/pi"}


@pytest.mark.spec("devkit:13", "devkit:14")
def test_nearest_folder_is_the_only_one(world: World) -> None:
    world.write(".pi/agents/a.md", agent("far"))
    world.write("deep/.agents/b.md", agent("near"))
    assert [origins(world.load(below)) for below in ("deep/er", "other")] == [
        {"near": "project/pi"},
        {"far": "project/pi"},
    ]


def test_nothing_above_home_is_read(home: Path) -> None:
    world = World(home, home / "work" / "project")
    world.write("~/.agents/a.md", agent("home"))
    (home.parent / ".agents").mkdir()
    (home.parent / ".agents" / "b.md").write_text(agent("above"))
    assert origins(world.load()) == {}
    (home.parent / ".agents" / "b.md").unlink()
    (home.parent / ".agents").rmdir()


def test_nothing_outside_the_project_is_read(world: World) -> None:
    world.write(".pi/agents/a.md", agent("outer"))
    (world.project / "inner" / ".git").mkdir(parents=True)
    assert origins(world.load("inner")) == {}


@pytest.mark.spec("devkit:15", "codingcode:10")
def test_suffixes_and_depth_count(world: World) -> None:
    for name in ("a.md", "b.markdown", "c.txt", "d.MD", ".e.md", "sub/f.md"):
        world.write(f".pi/agents/{name}", agent(Path(name).name.strip(".")[0]))
        world.write(f".codingcode/agents/{name}", agent("c" + Path(name).name.strip(".")[0]))
    assert origins(world.load()) == {"a": "project/pi", "b": "project/pi", "ca": "project/codingcode"}


@pytest.mark.spec("fleet:B32", "devkit:16", "codingcode:10")
def test_broken_files_stop_nobody(world: World) -> None:
    world.write(".pi/agents/good.md", agent("good"))
    world.write(".pi/agents/README.md", "# Agents\n")
    world.write(".pi/agents/unclosed.md", "---\nname: x\n")
    world.write(".pi/agents/list.md", "---\ntools: [read, bash\n---\n")
    world.write(".pi/agents/empty.md", "")
    (world.project / ".pi/agents/dir.md").mkdir()
    (world.project / ".pi/agents/utf16.md").write_bytes(agent("u").encode("utf-16"))
    (world.project / ".pi/agents/latin.md").write_bytes(b"---\nname: a\ndescription: caf\xe9\n---\n")
    (world.project / ".pi/agents/nul.md").write_bytes(b"---\nname: a\0\n---\n")
    (world.project / ".pi/agents/huge.md").write_bytes(b"---\nname: huge\n---\n" + b"x" * 5_000_000)
    os.mkfifo(world.project / ".pi/agents/pipe.md")
    found = world.load()
    assert origins(found) == {"good": "project/pi"}
    assert codes(found) == [
        ("README.md", "no-frontmatter"),
        ("dir.md", "not-a-file"),
        ("empty.md", "no-frontmatter"),
        ("huge.md", "too-large"),
        ("latin.md", "encoding"),
        ("list.md", "yaml"),
        ("nul.md", "encoding"),
        ("pipe.md", "not-a-file"),
        ("unclosed.md", "unclosed"),
        ("utf16.md", "encoding"),
    ]


def test_links_are_followed_with_care(world: World) -> None:
    outside = world.write("~/notes.md", agent("outside"))
    world.write("shared/s.md", agent("inside"))
    folder = world.project / ".pi/agents"
    folder.mkdir(parents=True)
    (folder / "in.md").symlink_to("../../shared/s.md")
    (folder / "out.md").symlink_to(outside)
    (folder / "gone.md").symlink_to("nowhere")
    (folder / "loop.md").symlink_to("loop.md")
    found = world.load()
    assert origins(found) == {"inside": "project/pi"}
    assert codes(found) == [("gone.md", "link"), ("loop.md", "link"), ("out.md", "link")]


def test_file_in_place_of_folder(world: World) -> None:
    world.write(".codingcode/agents", "no folder")
    found = world.load()
    assert (origins(found), codes(found)) == ({}, [("agents", "unreadable")])


def test_messages_stay_on_one_line(world: World) -> None:
    world.write(".pi/agents/new\nline\x1b[31m.md", "")
    assert [item.message.split("/")[-1] for item in world.load().diagnostics] == [
        "new\\nline\\x1b[31m.md:1: the file is empty; expected frontmatter between two lines of ---"
    ]


@pytest.mark.attack("I2")
def test_user_links_lead_to_ones_own(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    targets = [world.write("~/.ssh/hidden.md", agent("hidden")), world.write("~/foreign.md", agent("foreign"))]
    (world.home / ".pi/agent/agents").mkdir(parents=True)
    for path in targets:
        (world.home / ".pi/agent/agents" / path.name).symlink_to(path)
    if os.geteuid() == 0:
        os.chown(targets[1], 12345, 12345)
    monkeypatch.setattr(os, "geteuid", lambda: 54321)
    found = DefinitionRegistry(replace(world.places(), hidden=(str(world.home / ".ssh"),)), trusted=True).read()
    assert (origins(found), codes(found)) == ({}, [("foreign.md", "link"), ("hidden.md", "link")])


@pytest.mark.attack("I2")
def test_swapped_agent_file_is_not_read(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    path, outside = world.write(".pi/agents/a.md", agent("a")), world.write("~/b.md", agent("b"))
    real_open = os.open

    def swap(name: str, flags: int) -> int:
        if name == str(path) and not path.is_symlink():
            path.unlink()
            path.symlink_to(outside)
        return real_open(name, flags)

    monkeypatch.setattr(os, "open", swap)
    found = world.load()
    assert (origins(found), codes(found)) == ({}, [("a.md", "link")])


def test_user_links_may_lead_anywhere(world: World) -> None:
    target = world.write("dotfiles/a.md", agent("kept"))
    (world.home / ".pi/agent/agents").mkdir(parents=True)
    (world.home / ".pi/agent/agents/a.md").symlink_to(target)
    assert origins(world.load()) == {"kept": "user/pi"}


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
@pytest.mark.parametrize("path", [".pi/agents/a.md", ".pi/agents"])
def test_unreadable_is_told(world: World, path: str) -> None:
    world.write(".pi/agents/a.md", agent("a"))
    (world.project / path).chmod(0)
    found = world.load()
    (world.project / path).chmod(0o755)
    assert (origins(found), [item.code for item in found.diagnostics]) == ({}, ["unreadable"])


def test_untrusted_project_is_not_opened(world: World) -> None:
    path = world.write(".pi/agents/explorer.md", agent("explorer", "tools: bash\n"))
    world.write(".codingcode/agents/a.md", agent("a"))
    past = time.time() - 1000
    os.utime(path, (past, past))
    found = world.load(trusted=False)
    assert (origins(found), codes(found)) == ({}, [("agents", "untrusted")] * 2)
    builtin = found.find("explorer")
    assert builtin is not None and builtin.source == "builtin" and path.stat().st_atime == past


def test_case_clash_is_told_and_exact(world: World) -> None:
    paths = [world.write(f".pi/agents/{name}.md", agent(name)) for name in ("Review", "review")]
    found = world.load()
    assert [item and item.path for item in map(found.find, ("Review", "review", "REVIEW"))] == [
        *map(str, paths),
        str(paths[0]),
    ]
    assert [item.code for item in found.diagnostics] == ["clash"]


@pytest.mark.parametrize("name", ["sсope", "sc0pe"])
def test_look_alikes_are_told(world: World, name: str) -> None:
    world.write(".pi/agents/a.md", agent("scope"))
    world.write(".pi/agents/b.md", agent(name))
    found = world.load()
    assert ([item.code for item in found.diagnostics], len(origins(found))) == (["clash"], 2)


def test_same_name_in_one_folder(world: World) -> None:
    first = world.write(".pi/agents/a.md", agent("same"))
    second = world.write(".pi/agents/b.md", agent("same"))
    found = world.load()
    assert found.diagnostics == (
        Diagnostic(
            f"{second}:2: this project agent 'same' is hidden by {first}", str(second), 2, "warning", "shadowed", "name"
        ),
    )


@pytest.mark.spec("fleet:B97")
def test_defaults_can_be_hidden(world: World) -> None:
    world.write(".pi/agents/Plan.md", agent("Plan"))
    names = {item.name for item in world.load(hide_defaults=True).list()}
    assert names == {*BUILTIN, "Plan"} - {"general-purpose", "Explore"}


@pytest.mark.spec("fleet:B8", "codingcode:7")
def test_disabled_agents_are_listed_apart(world: World) -> None:
    world.write(".pi/agents/Explore.md", agent("Explore", "enabled: false\n"))
    found = world.load()
    explore = found.find("Explore")
    assert explore is not None and not explore.enabled
    assert "Explore" not in [item.name for item in found.list(enabled_only=True)]


def test_reasons_of_absent_agents_are_found(world: World) -> None:
    world.write(".pi/agents/broken.md", "---\ntools: [\n---\n")
    assert [item.code for item in world.load().find_reasons("Broken")] == ["yaml"]


@pytest.mark.spec("fleet:B9")
def test_changes_are_seen_without_restart(world: World) -> None:
    registry = DefinitionRegistry(world.places(), trusted=True)
    steps = [registry.read()]
    path = world.write(".pi/agents/a.md", agent("a"))
    steps.append(registry.read())
    path.write_text(agent("a", "model: b\n"))
    steps.append(registry.read())
    path.write_text(agent("a", "model: c\n"))
    steps.append(registry.read())
    path.rename(path.with_name("z.txt"))
    steps.append(registry.read())
    models = [item.model if (item := found.find("a")) else "absent" for found in steps]
    assert models == ["absent", None, "b", "c", "absent"]


def test_nothing_changed_reads_nothing(world: World) -> None:
    path = world.write("~/.pi/agent/agents/a.md", agent("a"))
    past = time.time() - 10
    for item in (path, path.parent, path.parent.parent):
        os.utime(item, (past, past))
    registry = DefinitionRegistry(world.places(), trusted=True)
    assert registry.read() is registry.read()


def test_other_files_are_kept_as_read(world: World) -> None:
    past = time.time() - 10
    for name in ("a", "b"):
        os.utime(world.write(f".pi/agents/{name}.md", agent(name)), (past, past))
    registry = DefinitionRegistry(world.places(), trusted=True)
    before = registry.read().find("a")
    world.write(".pi/agents/b.md", agent("b", "model: x\n"))
    assert registry.read().find("a") is before and registry.read().find("b") != before
