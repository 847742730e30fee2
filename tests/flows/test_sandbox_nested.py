import os
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from retinue.core.errors import ToolFailed
from retinue.core.tool import ToolContext
from retinue.features.sandbox import Boundaries
from retinue.sandbox import survey
from retinue.sandbox.survey import Survey
from retinue.settings.subagents import Sandbox
from retinue.tools.registry import ToolOptions, build_tools
from tests.flows.sandbox_world import PATH, Box, World, copy_world, list_users, open_box
from tests.flows.test_sandbox_feature import enter

Reach = Callable[[], ToolContext]

# What a person has below the workspace and the cache, and how an agent would change it.
ATTACKS = {
    "hook": "echo x >a/b/repo/.git/hooks/pre-commit",
    "config": "git -C a/b/repo config core.fsmonitor ./prog",
    "hook folder": "mkdir a/b/bald/.git/hooks; echo x >a/b/bald/.git/hooks/pre-commit",
    "moved": "mv a/b/repo/.git a/b/repo/old; cp -r a/b/repo/old a/b/repo/.git; echo x >>a/b/repo/.git/config",
    "moved above": "mv a c; cp -r c a; echo x >>a/b/repo/.git/config",
    "removed": "rm -rf a; mkdir -p a/b/repo/.git; echo x >a/b/repo/.git/config",
    "pointer": "mkdir -p evil; echo x >evil/config; echo ../../../../evil >a/b/repo/.git/commondir",
    "hooks elsewhere": "echo x >a/b/repo/.husky/pre-commit",
    "bare": "echo x >>store.git/config; echo x >store.git/hooks/post-receive",
    "submodule": "echo x >>.git/modules/lib/config; echo x >.git/modules/lib/hooks/pre-commit",
    "submodule's pointer": "echo 'gitdir: ../evil' >lib/.git",
    "other checkout": "echo ../../../evil >.git/worktrees/other/commondir",
    "editor": "echo x >node_modules/pkg/.vscode/tasks.json",
    "agents": "echo x >a/.claude/settings.json; mkdir a/.pi/agents; echo x >a/.pi/agents/evil.md",
    "servers": "echo x >a/.mcp.json",
    "own part of the configuration": "echo x >a/b/own/.git/config.worktree",
    "that of another checkout": "echo x >a/b/own/.git/worktrees/beside/config.worktree",
    "hooks of another checkout": "echo x >inside/.gh/pre-commit",
    "pointer of another checkout": "echo /x/.git >a/b/own/.git/worktrees/inside/gitdir",
    "linked objects": "echo x >>linked/store/config; echo x >linked/store/hooks/pre-commit",
    "continued line": "echo x >a/b/included/config",
    "cache": "echo x >>$H/.cache/tool/repo/.git/config; echo x >$H/.cache/tool/repo/.git/hooks/pre-commit",
}


def git(*words: str, cwd: Path) -> None:
    who = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "protocol.file.allow=always"]
    subprocess.run(["git", *who, *words], cwd=cwd, check=True, env={"PATH": PATH, "HOME": "/"}, capture_output=True)


def fill(world: World) -> None:
    work = world.workspace
    for place in (work / "a" / "b" / "repo", work / "a" / "b" / "bald", world.home / ".cache" / "tool" / "repo"):
        place.mkdir(parents=True)
        git("init", "-q", cwd=place)
    subprocess.run(["rm", "-r", str(work / "a" / "b" / "bald" / ".git" / "hooks")], check=True)
    git("config", "core.hooksPath", ".husky", cwd=work / "a" / "b" / "repo")
    own, linked = work / "a" / "b" / "own", work / "linked"
    for place in (own, linked, work / "a" / "b" / "included"):
        place.mkdir()
    git("init", "-q", cwd=own)
    git("commit", "-q", "--allow-empty", "-m", "x", cwd=own)
    git("config", "extensions.worktreeConfig", "true", cwd=own)
    git("worktree", "add", "-q", "--detach", str(world.root / "beside"), cwd=own)
    git("worktree", "add", "-q", "--detach", str(work / "inside"), cwd=own)
    (work / "inside" / ".gh").mkdir()
    git("config", "core.hooksPath", ".gh", cwd=own)
    git("init", "-q", "--bare", "store", cwd=linked)
    (linked / "store" / "objects").rename(linked / "objects")
    (linked / "store" / "objects").symlink_to("../objects")
    with (work / "a" / "b" / "repo" / ".git" / "config").open("a") as file:
        file.write("[include]\n\tpath = \\\n../../included/config\n")
    (work / "a" / "b" / "included" / "config").write_text("[core]\n")
    git("init", "-q", "--bare", "store.git", cwd=work)
    git("submodule", "add", "-q", str(work / ".git"), "lib", cwd=work)
    git("worktree", "add", "-q", "--detach", str(world.root / "other"), cwd=work)
    for folder in ("a/.claude", "a/.pi", "node_modules/pkg/.vscode", "a/b/repo/.husky"):
        (work / folder).mkdir(parents=True)
    (work / "a" / ".mcp.json").write_text("{}\n")


def digest(world: World) -> dict[str, object]:
    """What nobody may have changed: everything in and below the places, and where they are."""
    found: dict[str, object] = {}
    for top in (world.workspace, world.home / ".cache"):
        for folder, _, files in os.walk(top):
            for name in files:
                path = os.path.join(folder, name)
                parts = {*path.split("/")}
                is_kept = parts & {
                    "hooks",
                    ".claude",
                    ".pi",
                    ".vscode",
                    ".husky",
                    ".gh",
                    "gitdir",
                    "commondir",
                    "config",
                    "config.worktree",
                    ".mcp.json",
                }
                if (is_kept or name == ".git") and not parts & {"evil", "c", "old"}:
                    found[path] = Path(path).read_bytes()
    # What stands in for one that is missing while agents work is empty.
    return {path: data for path, data in found.items() if data or not path.endswith("/config.worktree")}


@contextmanager
def open_nested(**given: object) -> Iterator[Box]:
    with open_box("bwrap", list_users()[0]) as plain:
        fill(plain.world)
        box = Box(plain.world, plain.status, writing=True, **given)  # type: ignore[arg-type]
        yield box
        box.close()


@pytest.mark.attack("I7", "C8", "B12")
def test_nested_places_stay_as_they_are() -> None:
    with open_nested() as box:
        before = digest(box.world)
        results = {name: (box.run(command), digest(box.world))[1] for name, command in ATTACKS.items()}
        assert {name for name, found in results.items() if found != before} == set()
        assert box.run(
            "cd a/b/repo && echo y >f && git add f && git -c user.name=a -c user.email=a@b commit -qm f"
        ) == (
            0,
            "",
        )


@pytest.mark.attack("I7")
def test_nested_attacks_are_live_outside() -> None:
    dead = set()
    with open_nested() as box:
        for name, command in ATTACKS.items():
            with copy_world(box.world) as copy:
                before = digest(copy)
                copy.run_bare(command)
                dead |= {name} if digest(copy) == before else set()
    assert dead == set()


@pytest.mark.attack("I7")
def test_writable_home_keeps_repositories() -> None:
    with open_nested(extra=("~",)) as box:
        (box.world.home / "src" / "p").mkdir(parents=True)
        git("init", "-q", cwd=box.world.home / "src" / "p")
        before = digest(box.world)
        assert box.run("echo x >>$H/src/p/.git/config")[0] != 0
        assert box.run("echo x >$H/src/p/f && echo x >$H/.cache/f")[0] == 0
        assert box.run(ATTACKS["cache"])[0] != 0
        assert digest(box.world) == before


@pytest.mark.attack("I7")
@pytest.mark.parametrize(
    "trick",
    [
        "touch a/HEAD; mkdir a/objects a/refs",
        "mkdir -p z/$(seq -s / 60)",
        "chmod 0 a",
        "chmod 0 a/b/included; chmod 0 a/b/own/.git a/b/repo/.git",
    ],
)
def test_hidden_place_does_not_become_own(trick: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(survey, "MOST_FOLDERS", 150)
    with open_nested() as box:
        before = digest(box.world)
        again = Box(box.world, box.status, writing=True)
        for each in (box, again):
            for command in (trick, ATTACKS["hook"], "rm -rf z a/HEAD a/objects a/refs; chmod 755 a", *ATTACKS.values()):
                each.run(command)
        again.close()
        for path in ("a", "a/b/included", "a/b/own/.git", "a/b/repo/.git"):
            os.chmod(box.world.workspace / path, 0o755)
        assert digest(box.world) == before


@pytest.mark.attack("I7")
def test_own_repository_stays_writable() -> None:
    with open_nested() as box:
        made = "git init -q new && mkdir -p new/.vscode && git init -q --bare $H/.cache/new.git"
        assert box.run(made) == (0, "")
        again = Box(box.world, box.status, writing=True)
        changes = "git -C new config a.b c && echo x >new/.vscode/t && echo x >new/.git/hooks/h && rm -r new/.git/hooks"
        assert box.run(f"{changes} && git -C $H/.cache/new.git config a.b c") == (0, "")
        # A process that has not seen it made takes it for a person's.
        assert again.run("git -C new config a.b d")[0] != 0
        again.close()


@pytest.mark.attack("I7")
@pytest.mark.parametrize("few", [1000, 0])
def test_place_that_appears_between_is_protected(monkeypatch: pytest.MonkeyPatch, few: int) -> None:
    monkeypatch.setattr(survey, "_FEW", few)
    monkeypatch.setattr(survey, "_PAUSE_S", 1.0 if few else 20.0)
    with open_nested() as box:
        assert box.run("true")[0] == 0
        (box.world.workspace / "late").mkdir()
        git("init", "-q", cwd=box.world.workspace / "late")
        time.sleep(0 if few else 2.0)  # until the next look
        assert box.run("echo x >>late/.git/config")[0] != 0
        assert box.run("echo x >late/f")[0] == 0


@pytest.mark.attack("I7")
def test_folder_too_large_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(survey, "MOST_FOLDERS", 40)
    with open_nested() as box:
        for number in range(60):
            (box.world.workspace / "wide" / str(number)).mkdir(parents=True)
        code, text = box.run("echo x >wide/1/f")
        assert (code != 0, "too large to scan" in box.confinement.explain(text)) == (True, True)
        assert box.run("echo x >f")[0] == 0


@pytest.mark.attack("I7")
def test_crowd_of_places_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(survey, "MOST_PATHS", 8)
    with open_nested() as box:
        before = digest(box.world)
        for command in ATTACKS.values():
            box.run(command)
        assert digest(box.world) == before
        assert box.run("echo x >f; mkdir d; echo x >d/f; git add f && git commit -qm f") == (0, "")


@pytest.mark.attack("I7")
def test_folder_nobody_can_look_into_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a" / "shut").mkdir(parents=True)
    plain = os.scandir

    def scan(path: str) -> object:
        if os.path.basename(path) == "shut":
            raise PermissionError
        return plain(path)

    monkeypatch.setattr(os, "scandir", scan)
    assert Survey().begin((str(tmp_path),), "").protected == (str(tmp_path / "a" / "shut"),)


def test_unchanged_folders_are_not_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(30):
        (tmp_path / str(number)).mkdir()
    time.sleep(survey._FRESH_NS / 1e9)
    listed: list[str] = []
    plain = survey._list

    def watch(folder: str, changed_ns: int) -> object:
        listed.append(folder)
        return plain(folder, changed_ns)

    monkeypatch.setattr(survey, "_list", watch)
    known = Survey()
    known.look([str(tmp_path)])
    listed.clear()
    (tmp_path / "7" / ".vscode").mkdir()
    assert known.begin((str(tmp_path),), "").protected == (str(tmp_path / "7" / ".vscode"),)
    assert listed == [str(tmp_path / "7")]


@pytest.fixture
async def reach(home: Path) -> AsyncIterator[Reach]:
    boundaries = Boundaries(Sandbox(), home=home, agent_dir=home / ".pi" / "agent")
    work = home / "w"
    work.mkdir()
    git("init", "-q", cwd=work)
    for place in ("a/repo", "a/b"):
        (work / place).mkdir(parents=True)
    git("init", "-q", cwd=work / "a" / "repo")
    git("config", "core.hooksPath", ".husky", cwd=work / "a" / "repo")
    git("init", "-q", "--bare", "store.git", cwd=work)
    for name in ("one", "two"):
        git("init", "-q", name, cwd=work)
    git("config", "core.hooksPath", "../shared", cwd=work / "one")
    git("config", "include.path", "../../team.cfg", cwd=work / "one")
    git("config", "include.path", "../top.cfg", cwd=work)
    (work / "two" / ".git" / "HEAD").rename(work / "two" / "head")
    (work / "two" / ".git" / "HEAD").symlink_to("../head")
    (work / "a" / ".vscode").mkdir()
    (work / "a" / ".mcp.json").write_text("{}\n")
    (work / "a" / "b" / ".git").write_text("gitdir: ../repo/.git\n")
    feature = boundaries.surround(readonly=False)
    await enter(feature, work)
    yield lambda: ToolContext(work, run_id="r", run_name="a", find_territory=feature.find_territory)
    feature.close()
    boundaries.machine.close()


NESTED = [
    *("a/repo/.git/hooks/pre-commit", "a/repo/.git/config", "a/repo/.git/commondir", "a/repo/.GIT/config"),
    *("a/repo/.husky/pre-commit", "a/b/.git", "a/.vscode/tasks.json", "a/.mcp.json"),
    *("store.git/config", "store.git/hooks/post-receive", "link/config"),
    *("shared/pre-commit", "team.cfg", "top.cfg", "two/.git/config"),
]


async def list_changed(reach: Reach, tool: str, places: Mapping[str, dict[str, object]]) -> list[str]:
    """The places that a tool does not refuse to change as protected, with the arguments for each."""
    changed = []
    for path, arguments in places.items():
        try:
            await build_tools(ToolOptions())[tool].call({"path": path, **arguments}, reach())
            changed.append(path)
        except ToolFailed as error:
            if "is protected" not in str(error):
                changed.append(f"{path}: {error}")
    return changed


# One world for all places: making it takes longer than asking for each of them.
@pytest.mark.attack("I7", "C8")
async def test_write_leaves_nested_places(reach: Reach) -> None:
    os.symlink("a/repo/.git", reach().cwd / "link")
    (reach().cwd / "a" / "repo" / ".GIT").mkdir()
    assert await list_changed(reach, "write", {path: {"content": "x"} for path in NESTED}) == []


@pytest.mark.attack("I7", "C8")
async def test_edit_leaves_nested_places(reach: Reach) -> None:
    paths = ["a/repo/.git/config", "a/b/.git", "a/.mcp.json", "store.git/config"]
    texts = {path: (reach().cwd / path).read_text() for path in paths}
    edits = {path: {"edits": [{"oldText": text, "newText": "x"}]} for path, text in texts.items()}
    assert await list_changed(reach, "edit", edits) == []
    assert {path: (reach().cwd / path).read_text() for path in paths} == texts


async def test_write_makes_its_own_places(reach: Reach) -> None:
    for path in ("new/.vscode/tasks.json", "a/repo/f", "a/repo/src/hooks/config", "a/config", "config"):
        for text in ("one", "two"):
            await build_tools(ToolOptions())["write"].call({"path": path, "content": text}, reach())
        assert (reach().cwd / path).read_text() == "two"
