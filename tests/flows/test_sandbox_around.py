"""What lies around a workspace, or around what may be written: the nearest word about a place counts."""

from pathlib import Path

import pytest

from retinue.core.errors import ToolFailed
from retinue.core.tool import ToolContext
from retinue.features.sandbox import Boundaries
from retinue.sandbox.probe import Machine, Probe
from retinue.settings.subagents import Sandbox
from retinue.tools.registry import ToolOptions, build_tools
from tests.flows.sandbox_world import need_status
from tests.flows.test_sandbox_feature import enter

KEYS = (".ssh/id", ".pi/agent/auth.json", ".pi/agent/sessions/s", ".pi/agent/subagents.json")
PLACES = {"home": "", "project": "src/mine", "copy": ".pi/agent/retinue/worktrees/mine"}
"""Where a run may work."""


class Ground:
    """A home with keys in it, and a run that may write all of it."""

    def __init__(self, home: Path, place: str, backend: str, **options: object) -> None:
        need_status(backend)
        self.home, self.work = home, home / place
        for name in KEYS:
            (home / name).parent.mkdir(parents=True, exist_ok=True)
            (home / name).write_text("PRIVATE")
        (self.work / "sub").mkdir(parents=True, exist_ok=True)
        self.machine = Machine(Probe(backends=(backend,)))
        settings, agent = Sandbox(writable=("~",)), home / ".pi" / "agent"
        find = lambda: self.machine  # noqa: E731
        self.boundaries = Boundaries(settings, home=home, agent_dir=agent, find_machine=find, **options)
        self.feature = self.boundaries.surround(readonly=False)

    async def run(self, command: str) -> str:
        context = await enter(self.feature, self.work)
        return await self._use("bash", context, command=command)

    async def read(self, path: str) -> str:
        return await self._use("read", await self._reach(), path=path)

    async def write(self, path: str) -> bool:
        try:
            await self._use("write", await self._reach(), path=path, content="x")
        except ToolFailed:
            return False
        return True

    async def _reach(self) -> ToolContext:
        await enter(self.feature, self.work)
        return ToolContext(self.work, run_id="r", run_name="a", find_territory=self.feature.find_territory)

    async def _use(self, tool: str, context: ToolContext, **arguments: str) -> str:
        result = await build_tools(ToolOptions())[tool].call(arguments, context)
        return result.content[0].text  # type: ignore[union-attr]

    def close(self) -> None:
        self.feature.close()
        self.machine.close()


@pytest.fixture(params=PLACES)
def ground(request, home):
    opened = Ground(home, PLACES[request.param], "bwrap")
    yield opened
    opened.close()


@pytest.mark.sample(3)
@pytest.mark.attack("C7")
@pytest.mark.parametrize("backend", ["bwrap", "landlock"])
@pytest.mark.parametrize("place", PLACES)
async def test_keys_in_writable_home_stay_hidden(home, place, backend):
    ground = Ground(home, PLACES[place], backend)
    said = await ground.run("; ".join(f"cat {home / name}" for name in KEYS))
    ground.close()
    assert "PRIVATE" not in said


@pytest.mark.attack("C8")
async def test_home_is_written_but_for_protected(ground):
    names = ("f", "src/f", ".bashrc", ".pi/agent/f", ".pi/agent/agents/f", ".pi/agent/retinue/f", ".ssh/f")
    await ground.run(f"mkdir -p ~/src; for name in {' '.join(names)}; do echo x >{ground.home}/$name; done; touch mine")
    made = [name for name in names if (ground.home / name).is_file()]
    assert (made, (ground.work / "mine").exists()) == (["f", "src/f"], True)


@pytest.mark.attack("C8")
async def test_protected_files_of_workspace_stay(ground):
    await ground.run("mkdir -p .vscode .agents; touch .vscode/x .agents/x sub/x")
    found = sorted(str(path.relative_to(ground.work)) for path in ground.work.rglob("x"))
    assert found == ["sub/x"]


async def test_file_tools_go_as_far(ground):
    paths = ("mine", "sub/mine", ".vscode/x", f"{ground.home}/.pi/agent/x", f"{ground.home}/top", "~/.bashrc")
    assert [await ground.write(path) for path in paths] == [True, True, False, False, True, False]


async def test_git_works_in_writable_home(ground):
    said = await ground.run("git config --global --list && echo fine")
    assert "fine" in said, said
