import os
from pathlib import Path

import pytest

from retinue.core.errors import ToolFailed
from retinue.core.run import Outcome, Reason, Status
from retinue.core.tool import ToolContext
from retinue.features.sandbox import Boundaries, Confined, find_workspace
from retinue.sandbox.probe import Machine, Probe
from retinue.sandbox.status import Backend
from retinue.settings.subagents import Sandbox
from retinue.tools.process_tree import TreeProbe
from retinue.tools.shell.bash import BashTool
from tests.flows.sandbox_world import need_status
from tests.run_setup import build_setup

DONE = Outcome(Status.COMPLETED, Reason.DONE)


def build(home: Path, *backends: Backend, **settings: object) -> tuple[Boundaries, Machine]:
    machine = Machine(Probe(backends=backends))
    own = Sandbox(**settings)  # type: ignore[arg-type]
    return Boundaries(own, home=home, agent_dir=home / ".pi" / "agent", find_machine=lambda: machine), machine


async def enter(feature: Confined, work: Path) -> ToolContext:
    setup = await feature.enter(build_setup("r", work))
    return ToolContext(work, confinement=setup.confinement)


@pytest.mark.attack("B18", "SEC-4")
async def test_reader_without_backend_runs_nothing(home: Path, tmp_path: Path) -> None:
    boundaries, machine = build(home)
    feature = boundaries.surround(readonly=True)
    context = await enter(feature, tmp_path)
    with pytest.raises(ToolFailed, match="SANDBOX_UNAVAILABLE"):
        await BashTool(TreeProbe()).call({"command": "touch pwn"}, context)
    outcome = await feature.leave(DONE)
    assert (list(tmp_path.iterdir()), outcome.sandbox.partition(":")[0]) == ([], "unavailable")
    assert boundaries.judge() == (False, "there is no sandbox for this system")
    machine.close()


async def test_writer_without_backend_is_on_record(home: Path, tmp_path: Path) -> None:
    boundaries, machine = build(home)
    feature = boundaries.surround(readonly=False)
    context = await enter(feature, tmp_path)
    await BashTool(TreeProbe()).call({"command": "touch new"}, context)
    outcome = await feature.leave(DONE)
    assert outcome.sandbox == "none: unavailable: there is no sandbox for this system"
    assert (tmp_path / "new").exists()
    machine.close()


@pytest.mark.parametrize("readonly", [True, False])
async def test_fallback_confines_too(readonly: bool, home: Path, tmp_path: Path) -> None:
    need_status("landlock")
    boundaries, machine = build(home, "landlock")
    feature = boundaries.surround(readonly=readonly)
    context = await enter(feature, tmp_path)
    await BashTool(TreeProbe()).call({"command": f"touch new; echo x >{home}/out"}, context)
    outcome = await feature.leave(DONE)
    assert ((tmp_path / "new").exists(), list(home.glob("out"))) == (not readonly, [])
    assert outcome.sandbox.startswith("read-only, landlock" if readonly else "workspace, network, landlock (partial); ")
    machine.close()


async def test_run_without_command_says_so(home: Path, tmp_path: Path) -> None:
    boundaries, _ = build(home, "bwrap")
    feature = boundaries.surround(readonly=True)
    await enter(feature, tmp_path)
    assert (await feature.leave(DONE)).sandbox == "no command was run"


@pytest.mark.attack("E11", "C7")
def test_off_hides_keys_from_readers(home: Path, tmp_path: Path) -> None:
    boundaries, _ = build(home, "bwrap", mode="off")
    found = [boundaries.find_territory(tmp_path, readonly=readonly) for readonly in (True, False)]
    assert [str(home / ".ssh") in territory.hidden for territory in found] == [True, False]


def test_off_leaves_readers_without(home: Path) -> None:
    boundaries, _ = build(home, "bwrap", mode="off")
    assert boundaries.judge() == (False, "sandbox.mode is off in the user's settings")


def test_workspace_is_the_checkout(tmp_path: Path) -> None:
    (tmp_path / "repo" / ".git").mkdir(parents=True)
    (tmp_path / "repo" / "a" / "b").mkdir(parents=True)
    home = tmp_path / "home"
    (home / ".git").mkdir(parents=True)
    (home / "plain").mkdir()
    found = [find_workspace(folder, home) for folder in (tmp_path / "repo" / "a" / "b", home / "plain", home)]
    assert found == [tmp_path / "repo", home / "plain", home]


async def test_repository_is_made_where_named(home: Path, tmp_path: Path) -> None:
    need_status("bwrap")
    found = []
    for writable in ((), (str(tmp_path / ".git"),)):
        boundaries, machine = build(home, "bwrap", writable=writable)
        feature = boundaries.surround(readonly=False)
        context = await enter(feature, tmp_path)
        result = await BashTool(TreeProbe()).call({"command": "git init -q"}, context)
        await feature.leave(DONE)
        found.append((result.is_error, "sandbox: " in result.content[0].text, (tmp_path / ".git").exists()))  # type: ignore[union-attr]
        machine.close()
    assert found == [(True, True, False), (False, False, True)]


async def test_named_part_of_protected_is_writable(home: Path, tmp_path: Path) -> None:
    need_status("bwrap")
    (tmp_path / ".pi" / "notes").mkdir(parents=True)
    boundaries, machine = build(home, "bwrap", writable=(str(tmp_path / ".pi" / "notes"), str(tmp_path)))
    feature = boundaries.surround(readonly=False)
    context = await enter(feature, tmp_path)
    await BashTool(TreeProbe()).call({"command": "touch .pi/notes/a .pi/b .idea/c"}, context)
    territory = feature.find_territory()
    await feature.leave(DONE)
    machine.close()
    assert sorted(path.name for path in (tmp_path / ".pi").rglob("*")) == ["a", "notes"]
    assert (territory.granted, str(tmp_path / ".pi") in territory.protected) == ((str(tmp_path / ".pi/notes"),), True)


@pytest.mark.attack("A5")
@pytest.mark.skipif(os.geteuid() != 0, reason="needs another user")
def test_foreign_checkout_above_is_no_workspace(home: Path, tmp_path: Path) -> None:
    work = tmp_path / "shared" / "mine"
    work.mkdir(parents=True)
    (tmp_path / "shared" / ".git").mkdir()
    assert find_workspace(work, home) == tmp_path.resolve() / "shared"
    os.chown(tmp_path / "shared" / ".git", 61201, 61201)
    assert find_workspace(work, home) == work.resolve()
    assert find_workspace(tmp_path / "shared", home) == tmp_path.resolve() / "shared"
