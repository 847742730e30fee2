"""Many commands at once in one workspace: what stands in for missing files is shared by them, also across processes."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from msgspec import structs

from retinue.core.errors import ToolFailed
from retinue.core.tool import ToolContext
from retinue.features.sandbox import Boundaries, find_workspace
from retinue.sandbox import bwrap
from retinue.sandbox.confinement import open_sandbox
from retinue.sandbox.probe import Machine, Probe
from retinue.sandbox.profile import PROTECTED_DIRS, PROTECTED_FILES, Profile, SandboxSettings, build_writing
from retinue.sandbox.stubs import Stubs, is_stub
from retinue.settings.subagents import Sandbox
from retinue.tools.process_tree import TreeProbe
from retinue.tools.shell.bash import BashTool
from tests.flows.sandbox_world import need_status

IDENTITY = ("-c", "user.name=a", "-c", "user.email=a@example.org")
COMMIT = f"echo @ >@.txt && git add -A && git {' '.join(IDENTITY)} commit -qm @"
PROTECTED = (*PROTECTED_DIRS, *PROTECTED_FILES)
# Whatever is not covered when a command looks at it could be made by that command.
MAKE = f"for name in {' '.join(PROTECTED)}; do mkdir $name/x 2>/dev/null && exit 9; done; echo @ >@.txt"


async def work(folders: Sequence[Path], home: Path, times: int, command: str) -> list[str]:
    """What went wrong when a run in each folder ran a command so many times, all at once."""
    machine = Machine(Probe(backends=("bwrap",)))
    boundaries = Boundaries(Sandbox(), home=home, agent_dir=home / ".pi" / "agent", find_machine=lambda: machine)
    wrong: list[str] = []

    async def run(number: int, folder: Path) -> None:
        feature = boundaries.surround(readonly=False)
        feature._cwd = folder
        for index in range(times):
            arguments = {"command": command.replace("@", f"{os.getpid()}-{number}-{index}")}
            try:
                result = await BashTool(TreeProbe()).call(arguments, ToolContext(folder, confinement=feature))
            except ToolFailed as error:
                wrong.append(str(error))
            else:
                wrong.extend(block.text for block in result.content if result.is_error)  # type: ignore[union-attr]
        feature.close()

    async with asyncio.TaskGroup() as group:
        for number, folder in enumerate(folders):
            group.create_task(run(number, folder))
    machine.close()
    return wrong


def make_repository(folder: Path) -> Path:
    folder.mkdir()
    (folder / "a.txt").write_text("a\n")
    # Without a template there are no hooks either, so their folder needs a stand-in.
    for words in (("init", "-q", "--template="), ("add", "-A"), (*IDENTITY, "commit", "-qm", "begin")):
        subprocess.run(["git", *words], cwd=folder, check=True)
    return folder


def run_processes(folder: Path, home: Path, runs: int, times: int) -> str:
    """What two processes at once complain of."""
    argv = [sys.executable, "-m", "tests.flows.test_sandbox_parallel", str(folder), str(home), str(runs), str(times)]
    top = Path(__file__).resolve().parents[2]
    both = [
        subprocess.Popen(argv, cwd=top, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) for _ in range(2)
    ]
    return "".join(process.communicate()[0] for process in both)


@pytest.mark.parametrize("is_repository", [True, False])
@pytest.mark.parametrize(
    ("runs", "times"), [(5, 4), pytest.param(20, 20, marks=[pytest.mark.slow, pytest.mark.timeout(300)])]
)
def test_two_processes_share_one_workspace(
    is_repository: bool, runs: int, times: int, home: Path, tmp_path: Path
) -> None:
    need_status("bwrap")
    folder = make_repository(tmp_path / "w") if is_repository else tmp_path / "w"
    folder.mkdir(exist_ok=True)
    assert run_processes(folder, home, runs, times) == ""
    left = [path.name for path in folder.iterdir() if path.suffix != ".txt" and path.name != "a.txt"]
    assert (left, len(list(folder.glob("*-*.txt")))) == ([".git"] if is_repository else [], 2 * runs * times)


@pytest.mark.parametrize(
    ("copies", "times"), [(5, 4), pytest.param(20, 20, marks=[pytest.mark.slow, pytest.mark.timeout(300)])]
)
async def test_copies_commit_side_by_side(copies: int, times: int, home: Path, tmp_path: Path) -> None:
    need_status("bwrap")
    source = make_repository(tmp_path / "w")
    folders = [tmp_path / f"copy-{number}" for number in range(copies)]
    for folder in folders:
        subprocess.run(["git", "worktree", "add", "-q", "--detach", folder], cwd=source, check=True)
    assert await work(folders, home, times, COMMIT) == []
    counts = [subprocess.check_output(["git", "rev-list", "--count", "HEAD"], cwd=folder) for folder in folders]
    assert [int(count) for count in counts] == [times + 1] * copies


def test_folder_that_goes_away_refuses_no_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    passing, sort = tmp_path / "passing", bwrap.sort_protected
    passing.mkdir()

    def sort_before_it_goes(profile: Profile) -> bwrap.CoveredPaths:
        covers = sort(profile)
        if passing.exists():
            passing.rmdir()
        return covers

    monkeypatch.setattr(bwrap, "sort_protected", sort_before_it_goes)
    profile = structs.replace(build_writing(tmp_path, SandboxSettings()), protected=(str(passing / "config"),))
    boundary = open_sandbox(need_status("bwrap"), profile)
    passing.mkdir(exist_ok=True)
    with boundary.wrap(["true"], {}, str(tmp_path)) as launch:
        assert str(passing) in launch.argv
    boundary.close()


def test_stand_in_makes_no_checkout(home: Path, tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    stubs = Stubs()
    stubs.hold([], [str(tmp_path / ".git")])
    assert is_stub(str(tmp_path / ".git"))
    assert find_workspace(tmp_path / "sub", home) == tmp_path / "sub"
    stubs.release()


if __name__ == "__main__":
    place, own, many, often = sys.argv[1:]
    print("\n".join(asyncio.run(work([Path(place)] * int(many), Path(own), int(often), MAKE))), end="")
