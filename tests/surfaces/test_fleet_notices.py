import re

import pytest
from msgspec.structs import replace

from retinue.core.run import Status
from retinue.engine.request import RunRequest
from retinue.surfaces.fleet.ports import FleetSettings
from tests.surfaces.fleet_world import EXPLORE, GENERAL, Fleet

IDS = re.compile(r"<task-id>(\w+)</task-id>")
SMART, GROUP = FleetSettings(default_join="smart"), FleetSettings(default_join="group")


def after(seconds, text="x"):
    return [{"text": text, "delay_ms": seconds * 1000}]


def make_fleet(folder, settings, **seconds):
    """Agents named after how long they take."""
    definitions = [GENERAL, EXPLORE, *(replace(EXPLORE, name=name) for name in seconds)]
    scripts = {name: after(delay, name) for name, delay in seconds.items()}
    return Fleet(folder, scripts, definitions=definitions, settings=settings)


def told(fleet):
    """Which runs each message is about, and whether it is partial."""
    return [(IDS.findall(text), "partial — others" in text) for text in fleet.news()]


@pytest.mark.spec("fleet:B56")
async def test_notification_has_its_elements_in_order(tmp_path):
    settings = FleetSettings(transcript_dir=str(tmp_path / ".pi" / "output"))
    usage = {"input": 30_000, "output": 2000, "cacheRead": 9, "cacheWrite": 1800}
    script = [{"text": "1 < 2 & 3 > 2", "usage": usage, "delay_ms": 1500}]
    async with Fleet(tmp_path, {"general-purpose": script}, settings=settings) as fleet:
        run = await fleet.start(description="a <b> look")
        await fleet.clock.advance(2)
        path = tmp_path / ".pi" / "output" / f"agent-{run.id}.jsonl"
        assert fleet.news() == [
            "<task-notification>\n"
            f"<task-id>{run.id}</task-id>\n"
            "<tool-use-id>call_1</tool-use-id>\n"
            f"<output-file>{path}</output-file>\n"
            "<status>Done</status>\n"
            '<summary>Agent "a &lt;b&gt; look" completed</summary>\n'
            "<result>1 &lt; 2 &amp; 3 &gt; 2</result>\n"
            f"<full-output>get_subagent_result with agent_id {run.id}</full-output>\n"
            "<usage><total_tokens>33800</total_tokens><tool_uses>0</tool_uses><context_percent>17</context_percent>"
            "<duration_ms>1500</duration_ms></usage>\n"
            "</task-notification>\n"
            f"Full transcript available at: {path}"
        ]


async def test_failed_run_tells_its_error_as_status(tmp_path):
    async with Fleet(tmp_path, {"general-purpose": [{"error": {"message": "no <key>"}}]}) as fleet:
        await fleet.start()
        await fleet.clock.advance(60)
        (text,) = fleet.news()
        assert "<status>Error: no &lt;key&gt;</status>" in text
        assert '<summary>Agent "some work" error</summary>\n<result>No output.</result>' in text


async def test_notification_carries_details_for_the_screen(tmp_path):
    async with Fleet(tmp_path, {"general-purpose": after(1, "report")}) as fleet:
        run = await fleet.start(max_turns=7)
        await fleet.clock.advance(2)
        (message,) = fleet.root.inbox.take_steering()
        assert message.details == {
            "id": run.id,
            "attempt": 1,
            "description": "some work",
            "status": "completed",
            "toolUses": 0,
            "turnCount": 1,
            "maxTurns": 7,
            "totalTokens": 11,
            "durationMs": 1000,
            "resultPreview": "report",
        }


@pytest.mark.spec("fleet:B57")
async def test_long_result_is_previewed(tmp_path):
    async with Fleet(tmp_path, {"general-purpose": after(1, "y" * 600)}, settings=SMART) as fleet:
        await fleet.start()
        await fleet.clock.advance(2)
        assert f"<result>{'y' * 500}\n[cut here; 100 more characters]</result>" in fleet.news()[0]
        await fleet.start()
        await fleet.start()
        await fleet.clock.advance(2)
        assert fleet.news()[0].count(f"<result>{'y' * 300}\n[cut here; 300 more characters]</result>") == 2


@pytest.mark.spec("fleet:B60")
async def test_async_runs_are_told_one_by_one(tmp_path):
    async with Fleet(tmp_path) as fleet:
        one, two = await fleet.start(), await fleet.start()
        await fleet.clock.advance(1)
        assert told(fleet) == [([one.id], False), ([two.id], False)]


@pytest.mark.spec("fleet:B61")
async def test_smart_runs_of_one_go_are_told_together(tmp_path):
    async with make_fleet(tmp_path, SMART, fast=1, slow=5) as fleet:
        slow, fast = await fleet.start("slow"), await fleet.start("fast")
        await fleet.clock.advance(4)
        assert told(fleet) == []
        await fleet.clock.advance(2)
        (text,) = fleet.news()
        assert text.startswith("Background agent group completed: 2 agent(s) finished\n\n<task-notification>")
        assert (IDS.findall(text), text.count("\n\n<task-notification>")) == ([fast.id, slow.id], 2)


@pytest.mark.spec("fleet:B61")
async def test_smart_run_alone_is_told_alone(tmp_path):
    async with make_fleet(tmp_path, SMART, fast=1, slow=5) as fleet:
        slow = await fleet.start("slow")
        await fleet.clock.advance(0.2)
        fast = await fleet.start("fast")
        await fleet.clock.advance(9)
        first, second = fleet.news()
        assert (IDS.findall(first), IDS.findall(second)) == ([fast.id], [slow.id])
        assert (first.startswith("<task-not"), second.startswith("<task-not")) == (True, True)


@pytest.mark.spec("fleet:B61")
async def test_batch_slides_with_each_start(tmp_path):
    async with make_fleet(tmp_path, SMART, slow=5) as fleet:
        runs = []
        for _ in range(4):
            runs.append(await fleet.start("slow"))
            await fleet.clock.advance(0.09)
        await fleet.clock.advance(9)
        assert told(fleet) == [([run.id for run in runs], False)]


@pytest.mark.spec("fleet:B62")
async def test_late_members_are_told_as_stragglers(tmp_path):
    async with make_fleet(tmp_path, SMART, a=1, b=2, c=40, d=50, e=100) as fleet:
        ids = {name: (await fleet.start(name)).id for name in "abcde"}
        await fleet.clock.advance(31)
        assert told(fleet) == []
        await fleet.clock.advance(0.5)
        assert told(fleet) == [([ids["a"], ids["b"]], True)]
        await fleet.clock.advance(23.4)  # 54.9 s: c came at 40, so its 15 s are not over
        assert told(fleet) == []
        await fleet.clock.advance(0.5)
        assert told(fleet) == [([ids["c"], ids["d"]], True)]
        await fleet.clock.advance(50)
        assert told(fleet) == [([ids["e"]], False)]


@pytest.mark.spec("fleet:B63")
async def test_run_finished_inside_its_batch_is_told_once(tmp_path):
    async with make_fleet(tmp_path, SMART, quick=0.01, slow=5) as fleet:
        quick = await fleet.start("quick")
        await fleet.clock.advance(0.05)
        assert quick.status is Status.COMPLETED
        slow = await fleet.start("slow")
        await fleet.clock.advance(3)
        assert told(fleet) == []
        await fleet.clock.advance(3)
        assert told(fleet) == [([quick.id, slow.id], False)]


@pytest.mark.spec("fleet:B63")
async def test_batch_finished_inside_its_window_is_one_message(tmp_path):
    async with make_fleet(tmp_path, SMART, quick=0.01) as fleet:
        runs = [await fleet.start("quick") for _ in range(3)]
        await fleet.clock.advance(1)
        assert told(fleet) == [([run.id for run in runs], False)]


@pytest.mark.spec("fleet:B64")
async def test_read_members_are_left_out_of_the_group(tmp_path):
    async with make_fleet(tmp_path, SMART, a=1, b=2, c=3) as fleet:
        a, b, c = [await fleet.start(name) for name in "abc"]
        await fleet.clock.advance(1.5)
        await fleet.call("get_subagent_result", agent_id=a.id)
        await fleet.clock.advance(3)
        assert told(fleet) == [([b.id, c.id], False)]


@pytest.mark.spec("fleet:B64")
async def test_group_that_was_read_is_not_told(tmp_path):
    async with make_fleet(tmp_path, SMART, a=1, b=1) as fleet:
        runs = [await fleet.start(name) for name in "ab"]
        await fleet.clock.advance(1.1)
        for run in runs:
            await fleet.call("get_subagent_result", agent_id=run.id)
        await fleet.clock.advance(60)
        assert (told(fleet), fleet.notifier.expects("main")) == ([], False)


@pytest.mark.spec("fleet:B61")
async def test_group_joins_all_that_are_at_work(tmp_path):
    async with make_fleet(tmp_path, GROUP, a=5, b=1) as fleet:
        a = await fleet.start("a")
        await fleet.clock.advance(3)
        b = await fleet.start("b")
        await fleet.clock.advance(1.5)
        assert told(fleet) == []
        await fleet.clock.advance(2)
        assert told(fleet) == [([b.id, a.id], False)]
        alone = await fleet.start("b")
        await fleet.clock.advance(1.3)
        assert told(fleet) == [([alone.id], False)]


async def test_stopped_members_complete_the_group(tmp_path):
    async with make_fleet(tmp_path, GROUP, a=1, b=500) as fleet:
        a, b = await fleet.start("a"), await fleet.start("b")
        await fleet.clock.advance(2)
        fleet.manager.stop(b.id)
        await fleet.clock.advance(1)
        assert told(fleet) == [([a.id, b.id], False)]


async def test_resumed_run_is_told_once_per_attempt(tmp_path):
    async with Fleet(tmp_path, {"general-purpose": [{"text": "first"}, {"text": "second"}]}) as fleet:
        run = await fleet.start()
        await fleet.settle(run)
        await fleet.call("Agent", prompt="more", resume=run.id)
        await fleet.clock.advance(5)
        results = [re.search("<result>(.*)</result>", text)[1] for text in fleet.news()]
        assert results == ["first", "second"]


@pytest.mark.spec("fleet:B65")
async def test_broken_listener_changes_no_status(tmp_path):
    async with Fleet(tmp_path) as fleet:

        def fail(event):
            raise RuntimeError("receiver")

        fleet.root.bus.listen(fail, pieces=False)
        run = await fleet.start()
        await fleet.clock.advance(1)
        assert (run.status, len(fleet.news())) == (Status.COMPLETED, 1)


async def test_gone_parent_gets_its_news_when_resumed(tmp_path):
    scripts = {"general-purpose": [{"text": "p1"}, {"text": "p2"}, {"text": "p3"}], "Explore": after(1)}
    async with Fleet(tmp_path, scripts) as fleet:
        parent = await fleet.start()
        await fleet.settle(parent)
        request = RunRequest(agent="Explore", task="t", description="orphan", surface="fleet")
        child = fleet.manager.spawn(request, parent.id)
        await fleet.clock.advance(2)
        assert child.status is Status.COMPLETED
        await fleet.call("Agent", prompt="go on", resume=parent.id)
        await fleet.clock.advance(2)
        text = await fleet.call("get_subagent_result", agent_id=parent.id, verbose=True)
        assert f"<task-id>{child.id}</task-id>" in text


async def test_nested_report_goes_to_whoever_started_it(tmp_path):
    asked = {"prompt": "below", "description": "nested", "subagent_type": "Explore"}
    lead = [{"calls": [{"name": "Agent", "arguments": asked}]}, {"text": "waiting"}, {"text": "merged"}]
    async with Fleet(tmp_path, {"general-purpose": lead, "Explore": after(5, "found")}) as fleet:
        fleet.setups["general-purpose"] = dict(fleet.tools)
        run = await fleet.start()
        await fleet.clock.advance(10)
        below = fleet.manager.children(run.id)[0]
        assert (run.text, below.depth, below.text, below.call_id) == ("merged", 2, "found", "call_0_0")
        assert told(fleet) == [([run.id], False)]
        assert [record["parentAgentId"] for record in fleet.records if record["id"] == below.id] == [run.id] * 3
