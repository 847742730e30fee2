import os
import subprocess
from pathlib import Path

import pytest

from retinue.sandbox.status import Backend
from retinue.sandbox.stubs import is_stub
from tests.flows.sandbox_world import BACKENDS, Box, Who, list_users, open_box

# Ways to leave something behind that somebody else would run, or to reach beyond the workspace.
ATTACKS = [
    "echo x >.git/hooks/pre-commit",
    "echo x >>.git/config",
    "git config core.fsmonitor ./prog",
    "mv .git g; mkdir -p .git/hooks; echo x >.git/hooks/pre-commit; echo x >.git/config",
    "rm -rf .git; mkdir .git; echo x >.git/config",
    "mkdir -p .pi/agents; echo x >.pi/agents/evil.md",
    "echo '{}' >.mcp.json",
    "ln -s /etc .vscode",
    "rmdir .pi; mkdir .pi; echo x >.pi/x",
    "mv .pi other; echo x >.pi",
    "mkdir -p evil; echo x >evil/config; echo ../evil >.git/commondir",
    "mv .git/hooks .git/old; mkdir .git/hooks; echo x >.git/hooks/pre-commit",
    "echo x >.git/config.worktree",
    "echo x >>$H/.bashrc",
    "mkdir -p $H/.config/autostart; echo x >$H/.config/autostart/x.desktop",
    "echo x >$H/.ssh/authorized_keys",
    "chmod 777 $H",
    "mount -o remount,rw,bind /; echo x >$H/x",
    "ln -s $H out; echo x >out/x",
    "umount .git/hooks; echo x >.git/hooks/x",
]

LOOPBACK = "import socket as s; a = s.create_server(('127.0.0.1', 0)); s.create_connection(a.getsockname())"


def list_dangers(box: Box) -> dict[str, object]:
    """Everything that must be as it was."""
    work = box.world.workspace
    names = [
        ".pi",
        ".mcp.json",
        ".vscode",
        ".agents",
        ".git/commondir",
        ".git/config.worktree",
        ".git/hooks/pre-commit",
    ]
    outside = {name: value for name, value in box.world.digest().items() if name == "h" or name.startswith("h/")}
    config = (work / ".git" / "config").read_text() if (work / ".git" / "config").exists() else ""
    made = [name for name in names if os.path.lexists(work / name) and not is_stub(str(work / name))]
    return {"made": made, "config": config, "outside": outside}


@pytest.mark.attack("C8", "B12")
@pytest.mark.parametrize("who", list_users())
@pytest.mark.parametrize("backend", BACKENDS)
def test_writing_run_leaves_no_trap(backend: Backend, who: Who) -> None:
    # Without mounts nothing in the workspace itself is protected, and modes are not, as its notes say.
    kinds = ("made", "config", "outside") if backend == "bwrap" else ("outside",)
    attacks = [command for command in ATTACKS if backend == "bwrap" or not command.startswith("chmod")]
    with open_box(backend, who, writing=True) as box:
        before = list_dangers(box)
        results = {command: (box.run(command), list_dangers(box))[1] for command in attacks}
        assert {command for command, found in results.items() for kind in kinds if found[kind] != before[kind]} == set()


@pytest.mark.attack("C8")
def test_attacks_are_live_outside() -> None:
    from tests.flows.sandbox_world import World, copy_world

    with open_box("bwrap", list_users()[0], writing=True) as box:
        live = []
        for command in ATTACKS[:16]:
            with copy_world(box.world) as copy:
                before = copy.digest()
                World.run_bare(copy, command)
                live.append(copy.digest() != before)
    assert all(live), [command for command, is_live in zip(ATTACKS, live, strict=False) if not is_live]


@pytest.mark.parametrize("who", list_users())
def test_writing_run_works(who: Who) -> None:
    commands = [
        *(
            "echo x >new",
            "mkdir -p src/a && mv new src/a/",
            "chmod +x src/a/new",
            "rm -r src",
            "touch -d 2001-01-01 a.txt",
        ),
        *(
            "echo y >>a.txt; git add -A && git commit -qm more",
            "git checkout -q -b side && git checkout -q -",
            "git stash list",
        ),
        f'python3 -c "{LOOPBACK}"',
        *("echo x >/tmp/x && cat /tmp/x", "test -e /tmp/x"),
    ]
    with open_box("bwrap", who, writing=True) as box:
        box.confinement._open_tmp()  # type: ignore[attr-defined]
        results = [(command, *box.run(command)) for command in commands]
        box.confinement.close()
        left = [path.name for path in box.world.workspace.iterdir() if is_stub(str(path))]
    assert ([result for result in results if result[1]], left) == ([], [])


def test_cover_is_no_file_for_git() -> None:
    with open_box("bwrap", list_users()[0], writing=True) as box:
        assert box.run("git status --short; git add -A; git status --short") == (0, "")


def test_leftover_cover_is_removed() -> None:
    with open_box("bwrap", list_users()[0], writing=True) as box:
        argv = ["/bin/sleep", "20"]
        launch = box.confinement.wrap(argv, box.world.environment, str(box.world.workspace))
        with subprocess.Popen(launch.argv, env=launch.env, pass_fds=launch.pass_fds) as process:
            assert (box.world.workspace / ".pi").exists()
            assert box.run("mkdir .pi/agents")[0] != 0
            assert (box.world.workspace / ".pi").exists()
            process.kill()
        launch.release()
        box.confinement.close()
        assert not (box.world.workspace / ".pi").exists()


def test_link_in_place_is_told(tmp_path: Path) -> None:
    with open_box("bwrap", list_users()[0], writing=True) as box:
        (box.world.workspace / ".pi").symlink_to(tmp_path)
        assert [note for note in box.confinement.notes if ".pi" in note and "is a link" in note]


STEERED = {
    "core.hooksPath .githooks": "mkdir -p .githooks; echo x >.githooks/pre-commit",
    "core.hooksPath .husky/_": "mkdir -p .husky; echo x >.husky/pre-commit",
    "include.path ../.more": "echo x >.more",
    "includeIf.gitdir:/.path ../.more": "mv .more .old; echo x >.more",
}


def read_steering(work: Path) -> dict[Path, bytes]:
    found = [path for name in (".githooks", ".husky", ".more") for path in (work / name, *(work / name).rglob("*"))]
    return {path: path.read_bytes() for path in found if path.is_file()}


@pytest.mark.sample(4)
@pytest.mark.attack("C8", "B12")
@pytest.mark.parametrize("exists", [True, False])
@pytest.mark.parametrize("setting", STEERED)
def test_hooks_put_elsewhere_are_protected(setting: str, exists: bool) -> None:
    key, value = setting.split()
    with open_box("bwrap", list_users()[0]) as plain:
        work = plain.world.workspace
        subprocess.run(["git", "config", "--file", ".git/config", key, value], cwd=work, check=True)
        for name in (".githooks", ".husky/_") if exists else ():
            (work / name).mkdir(parents=True)
        if exists:
            (work / ".more").write_text("[core]\n")
        box = Box(plain.world, plain.status, writing=True)
        before = {
            path: path.read_bytes() for path in work.glob(".*/**/*") if path.is_file() and path.parts[-2] != ".git"
        }
        more = (work / ".more").read_bytes() if exists else None
        box.run(STEERED[setting])
        box.close()
        after = {
            path: path.read_bytes() for path in work.glob(".*/**/*") if path.is_file() and path.parts[-2] != ".git"
        }
        found = (work / ".more").read_bytes() if (work / ".more").exists() else None
        is_steered = key.startswith("include")
        assert (after == before, found == more if is_steered else True) == (True, True)
        assert box.run("git status --short && echo y >new")[0] == 0


@pytest.mark.attack("C8", "C3")
def test_link_above_is_not_followed() -> None:
    with open_box("bwrap", list_users()[0], writing=True) as box:
        work, home = box.world.workspace, box.world.home
        (work / ".git" / "modules").mkdir()
        (work / ".git" / "modules" / "x").symlink_to(home / ".ssh")
        again = Box(box.world, box.status, writing=True)
        assert again.run("true")[0] == 0
        assert sorted(path.name for path in (home / ".ssh").iterdir()) == ["id"]
        again.close()
