import asyncio

import pytest

from retinue.settings.layers import LoadedSettings
from retinue.settings.paths import Paths
from retinue.settings.roster import Roster
from retinue.settings.schema import Settings
from retinue.settings.subagents import SubagentsConfig
from retinue.settings.trust import Trust


@pytest.fixture
def roster(tmp_path):
    paths = Paths(tmp_path, tmp_path, tmp_path / "agent", tmp_path)
    return Roster(paths, LoadedSettings(Settings(), Trust(False, "a test"), (), ()), SubagentsConfig())


def write(roster, name):
    folder = roster.paths.agent_dir / "agents"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.md").write_text(f"---\nname: {name}\ndescription: d\n---\nDo it.\n")


async def test_glance_lasts_two_turns(roster):
    before = roster.glance()
    write(roster, "new")
    assert roster.glance() is before
    assert roster.read().find("new") is not None
    await asyncio.sleep(0)
    assert roster.glance() is before
    await asyncio.sleep(0)
    assert roster.glance().find("new") is not None


def test_glance_without_loop_is_fresh(roster):
    roster.glance()
    write(roster, "new")
    assert roster.glance().find("new") is not None
