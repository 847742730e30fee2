import json

import pytest

from retinue import Retinue, Status
from retinue.core.errors import RetinueError, UsageError
from retinue.core.run import Reason
from tests.flows.crew_world import script, to


def put(agent_dir, **settings):
    agent_dir.mkdir(parents=True, exist_ok=True)
    (agent_dir / "subagents.json").write_text(json.dumps(settings))


async def test_settings_win_over_files(tmp_path, agent_dir):
    put(agent_dir, maxConcurrent=1)
    model = script(tmp_path, to("^look", text="Seen", delay_ms=300))
    async with Retinue(tmp_path, model=model, max_concurrent=3) as crew:
        runs = [await crew.spawn("Explore", f"look {number}") for number in range(3)]
        async for _ in runs[0].events():
            break
        assert [run.status for run in runs] == [Status.RUNNING] * 3
        await crew.change_setting("graceTurns", "2")
        assert crew.crew_settings.max_concurrent == 3


async def test_limits_of_a_program_hold(tmp_path):
    model = script(tmp_path, to("^look", text="Seen"))
    async with Retinue(tmp_path, model=model, max_spawns_per_tree=1) as crew:
        await crew.spawn("Explore", "look")
        with pytest.raises(RetinueError, match="maxSpawnsPerTree"):
            await crew.spawn("Explore", "look again")


@pytest.mark.parametrize(("limit", "reason"), [("wall", Reason.WALL_TIMEOUT), ("idle", Reason.IDLE_TIMEOUT)])
async def test_time_of_a_spawned_run_is_limited(tmp_path, limit, reason):
    model = script(tmp_path, to("^look", text="Seen", delay_ms=1500))
    async with Retinue(tmp_path, model=model, limits={f"{limit}_seconds": 0.3}) as crew:
        outcome = await (await crew.spawn("Explore", "look")).wait()
        patient = await (await crew.spawn("Explore", "look", wall_s=60, idle_s=60)).wait()
    assert (outcome.reason, patient.text) == (reason, "Seen")


async def test_budget_of_a_program_holds(tmp_path):
    async with Retinue(tmp_path, model=script(tmp_path, {"text": "Hi"}), budget={"tokens": 10}) as crew:
        assert (await crew.prompt("hi")).status is Status.STOPPED


async def test_settings_of_pi_are_known_too(tmp_path):
    model = script(tmp_path, {"text": "Hi"})
    async with Retinue(tmp_path, model=model, default_tools=["read"], session_dir=tmp_path / "kept") as crew:
        outcome = await crew.prompt("hi")
    assert outcome.session_file.startswith(str(tmp_path / "kept"))


async def test_denied_tool_is_nobodys(tmp_path):
    async with Retinue(tmp_path, model=script(tmp_path, {"text": "Hi"}), deny_tools=["bash"]) as crew:
        tools = crew._here.main.setup.tools
    assert ("bash" in tools, "read" in tools) == (False, True)


def test_unknown_setting_is_refused(tmp_path):
    with pytest.raises(UsageError, match="unknown setting 'max_concurent'"):
        Retinue(tmp_path, max_concurent=3)


async def test_guarded_run_stays_in_this_process(tmp_path):
    model = script(tmp_path, to("^look", text="Seen"))
    said = []
    settings = {"runner": "process", "sandbox": {"network": False}}
    async with Retinue(tmp_path, model=model, say=said.append, **settings) as crew:
        outcome = await (await crew.spawn("Explore", "look")).wait(5)
    assert (outcome.text, outcome.exit_code) == ("Seen", None)
