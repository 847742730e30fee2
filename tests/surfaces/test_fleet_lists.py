import asyncio
import json
import os
import stat
from pathlib import Path

import pytest
from msgspec.structs import replace

from retinue.core.events import Compacted, RunPlaced, RunStarted
from retinue.core.run import Status
from retinue.engine.request import RunRequest
from retinue.features.transcript import HOLD_S, read_messages
from retinue.surfaces.base import ChildTools
from retinue.surfaces.fleet.ports import FleetSettings, map_fleet_tools
from retinue.surfaces.fleet.records import LifecycleRecords
from tests.surfaces.fleet_world import EXPLORE, GENERAL, Fleet

SLOW = [{"text": "slow", "delay_ms": 5000}]
FAILS = [{"error": {"message": "broken"}}]
ASK = RunRequest(agent="general-purpose", task="t", description="below", surface="fleet")


async def fill(fleet):
    """Five agents: three done, one failed, one at work; each a second after the other."""
    runs = []
    for agent in ("general-purpose", "general-purpose", "general-purpose", "fails", "Explore"):
        runs.append(await fleet.start(agent))
        await fleet.clock.advance(1)
    return runs


def make_fleet(folder):
    definitions = [GENERAL, EXPLORE, replace(EXPLORE, name="fails")]
    scripts = {"Explore": [{"text": "x", "delay_ms": 10_000_000}], "fails": FAILS}
    return Fleet(folder, scripts, definitions=definitions)


async def test_list_shows_what_matters_first(tmp_path):
    async with make_fleet(tmp_path) as fleet:
        first, second, third, failed, working = await fill(fleet)
        assert (await fleet.call("list_subagents")).split("\n") == [
            "4 visible of 5 retained subagents.",
            f"{working.id} | Explore | running | some work",
            f"{failed.id} | fails | error | some work",
            f"{third.id} | general | completed | some work",
            f"{second.id} | general | completed | some work",
            "1 done agent is hidden; all: true shows them.",
        ]
        everything = (await fleet.call("list_subagents", all=True)).split("\n")
        assert (everything[0], first.id in everything[-1]) == ("5 visible of 5 retained subagents.", True)


@pytest.mark.spec("fleet:B100")
async def test_clear_drops_old_successes(tmp_path):
    async with make_fleet(tmp_path) as fleet:
        first, *_, failed, working = await fill(fleet)
        await fleet.clock.advance(297.5)
        assert (await fleet.call("clear_subagents")).split("\n") == [
            "Cleared 3 subagent record(s).",
            f"Kept 1 (running or queued): {working.id[:8]}",
            f"Kept 1 (done for less than 5 minutes): {failed.id[:8]}",
        ]
        await fleet.clock.advance(10)
        text = await fleet.call("clear_subagents")
        assert text.split("\n")[2] == f"Kept 1 (failed or stopped; include_errors: true clears them): {failed.id[:8]}"
        await fleet.call("clear_subagents", include_errors=True)
        assert fleet.manager.list_runs() == [working]
        assert "not found" in await fleet.call("get_subagent_result", agent_id=first.id)


@pytest.mark.spec("fleet:B100")
async def test_clear_takes_unique_prefixes(tmp_path):
    async with make_fleet(tmp_path) as fleet:
        ids = iter(["aaaa0000000000001", "aaaa0000000000002", "bbbb0000000000003", "cccc0000000000004"])
        fleet.new_id = lambda: next(ids)
        for agent in ("general-purpose", "general-purpose", "general-purpose", "Explore"):
            await fleet.start(agent)
        await fleet.settle()
        text = await fleet.call("clear_subagents", agent_ids=["aaaa", "b", "cccc0000000000004", "nope"])
        assert text.split("\n") == [
            "Cleared 1 subagent record(s).",
            "Errors:",
            "  aaaa matched multiple agents: aaaa0000, aaaa0000",
            "  cccc0000000000004 matched running agent cccc0000000000004",
            "  nope not found",
        ]
        assert len(fleet.manager.list_runs()) == 3


@pytest.mark.spec("fleet:B100")
async def test_clear_keeps_parents_of_working_runs(tmp_path):
    async with Fleet(tmp_path, {"Explore": SLOW}) as fleet:
        parent = await fleet.start()
        await fleet.settle(parent)
        child = fleet.manager.spawn(replace(ASK, agent="Explore"), parent.id)
        assert await fleet.call("clear_subagents", agent_ids=[parent.id]) == "Cleared 0 subagent record(s)."
        await fleet.clock.advance(9)
        await fleet.call("clear_subagents", agent_ids=[parent.id, child.id])
        assert fleet.manager.list_runs() == []


async def test_models_are_listed_sorted(tmp_path):
    async with Fleet(tmp_path) as fleet:
        assert (await fleet.call("list_models")).split("\n") == [
            "2 models available — * = active:",
            "  anthropic/claude-haiku-4-5-20251001 (Claude Haiku 4.5) · ctx 128k · reasoning",
            "* anthropic/claude-sonnet-4-5 (Claude Sonnet 4.5) · ctx 200k",
        ]
        listed = await fleet.call("list_models", provider="Anthropic")
        assert listed.startswith('2 models available for provider "Anthropic" — * = active:\n')
        text = 'No models available for provider "x". Available providers: anthropic.'
        assert await fleet.call("list_models", provider="x") == text


@pytest.mark.spec("fleet:B99")
async def test_transcript_begins_with_the_task(tmp_path):
    settings = FleetSettings(transcript_dir=str(tmp_path / ".pi" / "output"))
    async with Fleet(tmp_path, {"general-purpose": [{"text": "a"}, {"text": "b"}]}, settings=settings) as fleet:
        run = await fleet.start(prompt="the task", inherit_context=True)
        await fleet.settle(run)
        await fleet.call("Agent", prompt="more", resume=run.id)
        await fleet.settle(fleet.manager.find(run.id))
        path = tmp_path / ".pi" / "output" / f"agent-{run.id}.jsonl"
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        assert lines[0] == {
            "isSidechain": True,
            "agentId": run.id,
            "type": "user",
            "message": {"role": "user", "content": "the task"},
            "timestamp": "2023-11-14T22:13:20.000Z",
            "cwd": str(tmp_path),
        }
        assert [line["type"] for line in lines] == ["user", "assistant", "user", "assistant"]
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert (path.parent / ".gitignore").read_text().splitlines()[-1] == "*"
        assert len(list(read_messages(path))) == 4


@pytest.mark.parametrize("is_stopped", [True, False])
async def test_task_is_transcribed_without_an_answer(tmp_path, is_stopped):
    settings = FleetSettings(transcript_dir=str(tmp_path / ".pi" / "output"))
    async with Fleet(tmp_path, {"general-purpose": [{"text": "a", "delay_ms": 9000}]}, settings=settings) as fleet:
        run = await fleet.start(prompt="the task")
        await fleet.settle()
        path = Path(run.output_file)
        assert not path.exists()
        if is_stopped:
            fleet.manager.stop(run.id)
            await fleet.settle(run)
        else:
            await asyncio.sleep(HOLD_S * 2)
        assert next(read_messages(path)).content == "the task"


@pytest.mark.attack("I8")
@pytest.mark.parametrize("part", [".pi", ".pi/output"])
async def test_transcript_follows_no_later_link(tmp_path, part):
    settings = FleetSettings(transcript_dir=str(tmp_path / ".pi" / "output"))
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "output").mkdir(parents=True)
    async with Fleet(tmp_path, {"general-purpose": [{"text": "a"}, {"text": "b"}]}, settings=settings) as fleet:
        run = await fleet.start(prompt="the task")
        await fleet.settle(run)
        (tmp_path / part).rename(tmp_path / "before")
        (tmp_path / part).symlink_to(elsewhere)
        planted = Path(os.path.realpath(run.output_file))
        await fleet.call("Agent", prompt="more", resume=run.id)
        await fleet.settle(fleet.manager.find(run.id))
        assert planted.is_relative_to(elsewhere) and not planted.exists()
        planted.write_text('{"message":{"role":"user","content":"canary"}}\n')
        assert list(read_messages(Path(run.output_file))) == []


@pytest.mark.spec("fleet:B99")
async def test_transcript_leaves_inherited_words_out(tmp_path):
    settings = FleetSettings(transcript_dir=str(tmp_path / ".pi" / "output"))
    asked = {"prompt": "go", "description": "d", "inherit_context": True}
    main = [{"calls": [{"name": "Agent", "arguments": asked}]}, {"text": "ok"}]
    async with Fleet(tmp_path, main=main, settings=settings) as fleet:
        await fleet.root.prompt("the question")
        await fleet.settle()
        text = next((tmp_path / ".pi" / "output").glob("*.jsonl")).read_text()
        assert ("the question" in text, text.count('"type":"user"')) == (False, 1)


async def test_definition_decides_about_its_transcript(tmp_path):
    settings = FleetSettings(transcript_dir=str(tmp_path / ".pi" / "output"))
    quiet = replace(GENERAL, output_transcript=False)
    async with Fleet(tmp_path, settings=settings, definitions=[quiet]) as fleet:
        run = await fleet.start()
        await fleet.settle(run)
        assert (run.output_file, (tmp_path / ".pi").exists()) == ("", False)


@pytest.mark.attack("C12")
@pytest.mark.parametrize("linked", [".pi", ".pi/output"])
async def test_linked_folder_gets_no_transcript(tmp_path, linked):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    place = tmp_path / "project" / linked
    place.parent.mkdir(parents=True)
    place.symlink_to(elsewhere)
    settings = FleetSettings(transcript_dir=str(tmp_path / "project" / ".pi" / "output"))
    async with Fleet(tmp_path / "project", settings=settings) as fleet:
        runs = [await fleet.start(), await fleet.start()]
        await fleet.settle(*runs)
        assert ([run.status for run in runs], list(elsewhere.iterdir())) == ([Status.COMPLETED] * 2, [])
        assert [text.startswith("no transcript in ") for text in fleet.warnings()] == [True]


@pytest.mark.attack("C12")
async def test_linked_file_is_not_followed(tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("")
    output = tmp_path / ".pi" / "output"
    output.mkdir(parents=True)
    async with Fleet(tmp_path, settings=FleetSettings(transcript_dir=str(output))) as fleet:
        fleet.new_id = lambda: "a" * 17
        (output / f"agent-{'a' * 17}.jsonl").symlink_to(victim)
        await fleet.settle(await fleet.start())
        assert (victim.read_text(), len(fleet.warnings())) == ("", 1)


@pytest.mark.spec("fleet:B72", "fleet:B74")
async def test_life_is_told_in_flat_records(tmp_path):
    usage = {"input": 100, "output": 20, "cacheRead": 5000, "cacheWrite": 7}
    async with Fleet(tmp_path, {"general-purpose": [{"text": "done", "usage": usage, "delay_ms": 2000}]}) as fleet:
        run = await fleet.start()
        await fleet.settle()
        await fleet.call("steer_subagent", agent_id=run.id, message="left")
        fleet.manager.stop(run.id)
        await fleet.settle()
        run = await fleet.start()
        begun = fleet.clock.now_ms()
        await fleet.clock.advance(3)
        same = {"id": run.id, "agentType": "general-purpose", "description": "some work", "depth": 1}
        asked = {"toolUses": 0, "invocation": {"displayName": "Agent", "model": "anthropic/claude-sonnet-4-5"}}
        kinds = ["created", "started", "steered", "failed", "created", "started", "completed"]
        assert [record["type"] for record in fleet.records] == [f"subagents:{kind}" for kind in kinds]
        assert fleet.records[2] == {"type": "subagents:steered", "id": fleet.records[0]["id"], "message": "left"}
        assert ("tokens" in fleet.records[3], fleet.records[3]["status"]) == (False, "stopped")
        assert fleet.records[4:] == [
            {
                **same,
                **asked,
                "type": "subagents:created",
                "isBackground": True,
                "status": "queued",
                "startedAt": begun,
            },
            {**same, **asked, "type": "subagents:started", "status": "running", "startedAt": begun},
            {
                **same,
                **asked,
                "type": "subagents:completed",
                "result": "done",
                "verification": "not verified",
                "receipts": {"commands": [], "files": [], "verification": [], "commit": None, "notes": []},
                "status": "completed",
                "startedAt": begun,
                "completedAt": begun + 2000,
                "durationMs": 2000,
                "tokens": {"input": 100, "output": 20, "total": 127},
            },
        ]


async def test_resumed_run_is_not_created_again(tmp_path):
    async with Fleet(tmp_path, {"general-purpose": [{"text": "a"}, {"text": "b"}]}) as fleet:
        run = await fleet.start()
        await fleet.settle(run)
        await fleet.call("Agent", prompt="more", resume=run.id)
        await fleet.settle()
        names = [record["type"].removeprefix("subagents:") for record in fleet.records]
        assert names == ["created", "started", "completed", "started", "completed"]


async def test_child_sees_only_what_it_started(tmp_path):
    async with Fleet(tmp_path, {"general-purpose": SLOW}) as fleet:
        child, other = await fleet.start(), await fleet.start()
        await fleet.settle()
        setup = replace_tools(fleet, child)
        given = await ChildTools(lambda setup: map_fleet_tools(fleet.caller(setup))).enter(setup)
        own = fleet.manager.spawn(ASK, child.id)
        tool = given.tools["list_subagents"]
        text = (await tool.call({}, None)).content[0].text
        assert text.split("\n") == ["1 visible of 1 retained subagents.", f"{own.id} | general | queued | below"]
        steer = given.tools["steer_subagent"]
        refused = await steer.call({"agent_id": other.id, "message": "x"}, None)
        assert (refused.is_error, "not found" in refused.content[0].text) == (True, True)


def replace_tools(fleet, run):

    return fleet.manager.live(run.id).setup.change(tools=dict(fleet.tools))


@pytest.mark.spec("fleet:B72")
async def test_usage_rolls_up_to_the_parent(tmp_path):
    usage = {"input": 1000, "output": 0}
    scripts = {"general-purpose": [{"text": "p", "usage": usage}]}
    async with Fleet(tmp_path, scripts, settings=FleetSettings(rollup_usage=True)) as fleet:
        parent = await fleet.start()
        await fleet.settle(parent)
        fleet.manager.spawn(ASK, parent.id)
        await fleet.settle()
        assert "| 2.0k token |" in await fleet.call("get_subagent_result", agent_id=parent.id)


@pytest.mark.spec("fleet:B73")
async def test_compaction_of_a_child_is_told(tmp_path):
    async with Fleet(tmp_path, {"general-purpose": SLOW}) as fleet:
        run = await fleet.start()
        await fleet.settle()
        bus = fleet.manager.live(run.id).bus
        bus.publish(Compacted(run_id=run.id, reason="overflow", aborted=True))
        bus.publish(Compacted(run_id=run.id, reason="threshold", result={"tokensBefore": 9000}))
        assert [record for record in fleet.records if record["type"] == "subagents:compacted"] == [
            {
                "type": "subagents:compacted",
                "id": run.id,
                "agentType": "general-purpose",
                "description": "some work",
                "depth": 1,
                "reason": "threshold",
                "tokensBefore": 9000,
                "compactionCount": 1,
            }
        ]
        assert "| Compactions: 1 |" in await fleet.call("get_subagent_result", agent_id=run.id)


async def test_details_name_the_worker(tmp_path):
    async with make_fleet(tmp_path) as fleet:
        run = await fleet.start("Explore")
        run.worker = "box-1"
        listed = await fleet.result("list_subagents")
        got = await fleet.result("get_subagent_result", agent_id=run.id)
        assert (listed.details["workers"], got.details["worker"]) == ({run.id: "box-1"}, "box-1")
        assert "box-1" not in listed.content[0].text + got.content[0].text


async def test_life_tells_the_worker(tmp_path):
    async with make_fleet(tmp_path) as fleet:
        run = await fleet.start("Explore")
        run.worker = "box-1"
        tell = LifecycleRecords(lambda run_id: run)
        placed, started = tell(RunPlaced(run_id=run.id, worker="box-1")), tell(RunStarted(run_id=run.id))
    who = {"id": run.id, "agentType": "Explore", "description": "some work", "depth": 1}
    assert placed == {"type": "subagents:placed", **who, "worker": "box-1"}
    assert started["worker"] == "box-1"
