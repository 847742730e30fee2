import asyncio
import time

import pytest

from retinue.core.messages import CustomMessage, join_text
from retinue.core.run import Status
from retinue.engine.limits import Limits
from retinue.surfaces.fleet.ports import FleetSettings
from tests.surfaces.fleet_world import Fleet

SLOW = [{"text": "slow", "delay_ms": 5000}]
LATE = [{"text": "late", "delay_ms": 1000_000}]
READS = {"calls": [{"name": "list_models", "arguments": {}}]}


async def open_wait(fleet, run):
    """A call that waits, begun."""
    task = asyncio.create_task(fleet.call("get_subagent_result", agent_id=run.id, wait=True))
    await fleet.settle()
    return task


async def test_finished_run_is_shown_line_by_line(tmp_path):
    usage = {"input": 30_000, "output": 2000, "cacheRead": 9, "cacheWrite": 1800}
    script = [{"text": " the answer\n", "usage": usage}]
    async with Fleet(tmp_path, {"general-purpose": script}) as fleet:
        run = await fleet.start()
        await fleet.settle(run)
        assert (await fleet.call("get_subagent_result", agent_id=run.id)).split("\n") == [
            f"Agent: {run.id}",
            "Type: Agent | Status: completed | Tool uses: 0 | 33.8k token | Context: 17% | Duration: 0.0s",
            "Description: some work",
            "",
            "the answer",
        ]


async def test_unknown_agent_is_not_found(tmp_path):
    async with Fleet(tmp_path) as fleet:
        text = 'Agent not found: "12". It may have been cleaned up.'
        assert await fleet.call("get_subagent_result", agent_id="12") == text
        run = await fleet.start()
        assert "not found" in await fleet.call("get_subagent_result", agent_id=run.id[:8])


async def test_working_run_says_so(tmp_path):
    async with Fleet(tmp_path, {"Explore": SLOW}, max_concurrent=1) as fleet:
        runs = [await fleet.start("Explore") for _ in range(2)]
        await fleet.clock.advance(2)
        working, queued = [await fleet.call("get_subagent_result", agent_id=run.id) for run in runs]
        assert "Status: running | Tool uses: 0 | Duration: 2.0s (running)\n" in working
        assert "The agent is still running." in working
        assert "Status: queued | Tool uses: 0\n" in queued
        assert "waiting for a place in the queue" in queued


@pytest.mark.spec("fleet:B17")
async def test_result_is_the_last_reply(tmp_path):
    script = [{"text": "let me see", **READS}, {"text": "found it"}]
    async with Fleet(tmp_path, {"general-purpose": script}) as fleet:
        fleet.setups["general-purpose"] = {"list_models": fleet.tools["list_models"]}
        run = await fleet.start()
        await fleet.settle(run)
        text = await fleet.call("get_subagent_result", agent_id=run.id)
        assert text.endswith("\n\nfound it")
        assert "Tool uses: 1 " in text


@pytest.mark.spec("fleet:B18")
async def test_failed_run_keeps_its_partial_text(tmp_path):
    script = [{"text": "half of", **READS}, {"error": {"message": "the provider is gone"}}]
    async with Fleet(tmp_path, {"general-purpose": script}) as fleet:
        fleet.setups["general-purpose"] = {"list_models": fleet.tools["list_models"]}
        run = await fleet.start()
        await fleet.clock.advance(600)
        text = await fleet.call("get_subagent_result", agent_id=run.id)
        assert "Status: error |" in text
        assert text.split("\n\n", 1)[1] == (
            "Error: the provider is gone\n\nPartial output before the failure:\nhalf of"
        )


@pytest.mark.spec("fleet:B19")
@pytest.mark.parametrize(("text", "word"), [("", "error"), ("some", "completed")])
async def test_length_stop_needs_text(tmp_path, text, word):
    script = [{"thinking": "hm", "text": text, "stop": "length"}]
    async with Fleet(tmp_path, {"general-purpose": script}) as fleet:
        run = await fleet.start()
        await fleet.settle(run)
        assert f"Status: {word} |" in await fleet.call("get_subagent_result", agent_id=run.id)


async def test_silent_run_has_no_output(tmp_path):
    async with Fleet(tmp_path, {"general-purpose": [{"text": ""}, {"text": ""}]}) as fleet:
        run = await fleet.start()
        await fleet.settle(run)
        text = await fleet.call("get_subagent_result", agent_id=run.id)
        assert ("Status: completed |" in text, text.endswith("\n\nNo output.")) == (True, True)


@pytest.mark.spec("fleet:B45", "fleet:B46", "fleet:B51")
@pytest.mark.parametrize(
    ("replies", "word", "note"),
    [
        ([{"text": "done"}], "completed", " |"),
        ([READS, {"text": "wrapped"}], "steered", " (asked to wrap up at the turn limit; the output may be partial) |"),
        ([READS, READS, READS], "aborted", " (cut off at the turn limit; the output may be incomplete) |"),
    ],
)
async def test_turn_limit_has_its_words(tmp_path, replies, word, note):
    async with Fleet(tmp_path, {"general-purpose": replies}) as fleet:
        fleet.setups["general-purpose"] = {"list_models": fleet.tools["list_models"]}
        run = await fleet.start(max_turns=1)
        await fleet.settle(run)
        assert f"Status: {word}{note}" in await fleet.call("get_subagent_result", agent_id=run.id)


@pytest.mark.spec("fleet:B49", "fleet:B51")
async def test_stopped_run_says_who_stopped_it(tmp_path):
    async with Fleet(tmp_path, {"Explore": SLOW}) as fleet:
        run = await fleet.start("Explore")
        await fleet.settle()
        fleet.manager.stop(run.id)
        await fleet.clock.advance(10)
        text = await fleet.call("get_subagent_result", agent_id=run.id)
        assert "Status: stopped (STOPPED BY THE USER; the output is partial, the task is NOT finished) |" in text
        assert [text.count("<summary>") for text in fleet.news()] == [1]


@pytest.mark.spec("fleet:B66")
async def test_wait_ends_with_the_run(tmp_path):
    async with Fleet(tmp_path, {"Explore": SLOW}) as fleet:
        task = await open_wait(fleet, await fleet.start("Explore"))
        await fleet.clock.advance(4.9)
        assert not task.done()
        await fleet.clock.advance(0.1)
        assert (await task).endswith("\n\nslow")


@pytest.mark.spec("fleet:B59", "fleet:B66")
async def test_wait_ends_when_time_is_over(tmp_path):
    async with Fleet(tmp_path, {"Explore": LATE}, settings=FleetSettings(wait_timeout_s=30)) as fleet:
        run = await fleet.start("Explore")
        task = await open_wait(fleet, run)
        await fleet.clock.advance(29.5)
        assert not task.done()
        await fleet.clock.advance(0.5)
        assert "still running after 30 seconds" in await task
        assert (run.status, run.is_read) == (Status.RUNNING, False)
        await fleet.clock.advance(1000)
        assert len(fleet.news()) == 1


@pytest.mark.spec("fleet:B67")
async def test_wait_for_a_queued_run_waits(tmp_path):
    async with Fleet(tmp_path, {"Explore": SLOW}, max_concurrent=1) as fleet:
        await fleet.start("Explore")
        task = await open_wait(fleet, await fleet.start("Explore"))
        await fleet.clock.advance(9.9)
        assert not task.done()
        await fleet.clock.advance(0.1)
        assert (await task).endswith("slow")


@pytest.mark.spec("fleet:B59", "fleet:B66")
async def test_user_message_ends_the_wait(tmp_path):
    async with Fleet(tmp_path, {"Explore": LATE}) as fleet:
        run = await fleet.start("Explore")
        task = await open_wait(fleet, run)
        fleet.root.follow_up("later")
        await fleet.clock.advance(3)
        assert not task.done()
        fleet.root.steer("now")
        await fleet.clock.advance(1)
        assert "The user has said something" in await task
        assert (run.status, run.is_read) == (Status.RUNNING, False)


@pytest.mark.spec("fleet:B66")
async def test_report_of_another_run_does_not_end_the_wait(tmp_path):
    async with Fleet(tmp_path, {"Explore": LATE}) as fleet:
        task = await open_wait(fleet, await fleet.start("Explore"))
        await fleet.start()
        await fleet.clock.advance(3)
        assert (task.done(), len(fleet.news())) == (False, 1)
        task.cancel()


async def test_wait_is_shorter_than_the_callers_limits(tmp_path):
    async with Fleet(tmp_path, {"Explore": LATE}) as fleet:
        fleet.root.setup = fleet.root.setup.change(limits=Limits(idle_s=100, tool_s=200))
        task = await open_wait(fleet, await fleet.start("Explore"))
        await fleet.clock.advance(90)
        assert "still running after 90 seconds" in await task


async def test_cancelled_wait_leaves_the_run_alone(tmp_path):
    async with Fleet(tmp_path, {"Explore": SLOW}) as fleet:
        run = await fleet.start("Explore")
        task = await open_wait(fleet, run)
        task.cancel()
        await asyncio.wait([task])
        await fleet.clock.advance(6)
        assert (run.status, len(fleet.news())) == (Status.COMPLETED, 1)


@pytest.mark.spec("fleet:B58")
async def test_result_read_in_time_is_not_announced(tmp_path):
    async with Fleet(tmp_path) as fleet:
        run = await fleet.start()
        await fleet.settle(run)
        await fleet.clock.advance(0.1)
        await fleet.call("get_subagent_result", agent_id=run.id)
        await fleet.clock.advance(10)
        assert (run.is_read, fleet.news()) == (True, [])


@pytest.mark.spec("fleet:B59")
async def test_peek_does_not_count_as_reading(tmp_path):
    async with Fleet(tmp_path) as fleet:
        run = await fleet.start()
        await fleet.settle(run)
        await fleet.call("get_subagent_result", agent_id=run.id, peek={})
        await fleet.clock.advance(1)
        assert (run.is_read, len(fleet.news())) == (False, 1)


@pytest.mark.spec("fleet:B68")
async def test_long_result_is_cut(tmp_path):
    settings = FleetSettings(transcript_dir=str(tmp_path / ".pi" / "output"))
    async with Fleet(tmp_path, {"general-purpose": [{"text": "x" * 20_007}]}, settings=settings) as fleet:
        run = await fleet.start()
        await fleet.settle(run)
        body = (await fleet.call("get_subagent_result", agent_id=run.id)).split("\n\n", 1)[1]
        assert body == "x" * 20_000 + f"\n\n[7 characters left out. The whole of it is in {run.output_file}]"


@pytest.mark.spec("fleet:B69")
async def test_peek_shows_the_last_lines(tmp_path):
    lines = "\n\n".join(f"line {number}" for number in range(1, 51))
    async with Fleet(tmp_path, {"general-purpose": [{"text": lines}]}) as fleet:
        run = await fleet.start()
        await fleet.settle(run)
        head, *shown = (await fleet.call("get_subagent_result", agent_id=run.id, peek={})).split("\n")
        assert head == "Showing 20 last 20 lines of 50 total (result). Line numbers index the full source."
        assert (shown[0], shown[-1], len(shown)) == ("[31] line 31", "[50] line 50", 20)
        filtered = await fleet.call("get_subagent_result", agent_id=run.id, peek={"regex": "e [12]?5$", "lines": 2})
        assert filtered.split("\n") == [
            "Showing 2 last 2 lines, filtered by regex /e [12]?5$/, of 50 total (result). "
            "Line numbers index the full source.",
            "[15] line 15",
            "[25] line 25",
        ]
        after = await fleet.call("get_subagent_result", agent_id=run.id, peek={"after": 48})
        assert after.split("\n")[1:] == ["[49] line 49", "[50] line 50"]


@pytest.mark.spec("fleet:B70")
async def test_peek_takes_a_bad_regex_literally(tmp_path):
    async with Fleet(tmp_path, {"general-purpose": [{"text": "a(b\nab"}]}) as fleet:
        run = await fleet.start()
        await fleet.settle(run)
        text = await fleet.call("get_subagent_result", agent_id=run.id, peek={"regex": "a(b"})
        assert text.split("\n")[1:] == ["[1] a(b"]


@pytest.mark.attack("D12")
async def test_peek_survives_a_greedy_regex(tmp_path):
    async with Fleet(tmp_path, {"general-purpose": [{"text": "a" * 1900 + "!"}]}) as fleet:
        run = await fleet.start()
        await fleet.settle(run)
        began_s = time.monotonic()
        await fleet.call("get_subagent_result", agent_id=run.id, peek={"regex": "(a+)+(a+)+$"})
        assert time.monotonic() - began_s < 20


@pytest.mark.spec("fleet:B69")
async def test_peek_at_a_working_run_reads_its_transcript(tmp_path):
    settings = FleetSettings(transcript_dir=str(tmp_path / ".pi" / "output"))
    script = [{"text": "looking\naround", **READS}, {"text": "end", "delay_ms": 5000}]
    async with Fleet(tmp_path, {"general-purpose": script}, settings=settings) as fleet:
        fleet.setups["general-purpose"] = {"list_models": fleet.tools["list_models"]}
        run = await fleet.start(prompt="find it")
        await fleet.clock.advance(1)
        text = await fleet.call("get_subagent_result", agent_id=run.id, peek={"lines": 10})
        head, *shown = text.split("\n")
        assert "(live output file)" in head
        assert shown[:4] == ["[1] find it", "[2] looking", "[3] around", "[4] Tool: list_models"]


async def test_peek_without_output_says_so(tmp_path):
    async with Fleet(tmp_path, {"Explore": SLOW}) as fleet:
        run = await fleet.start("Explore")
        await fleet.settle()
        text = await fleet.call("get_subagent_result", agent_id=run.id, peek={})
        assert text == "No output yet for this agent."


@pytest.mark.spec("fleet:B71")
async def test_verbose_adds_the_conversation(tmp_path):
    script = [{"text": "looking", **READS}, {"text": "found"}]
    async with Fleet(tmp_path, {"general-purpose": script}) as fleet:
        fleet.setups["general-purpose"] = {"list_models": fleet.tools["list_models"]}
        run = await fleet.start(prompt="find it")
        await fleet.settle(run)
        text = await fleet.call("get_subagent_result", agent_id=run.id, verbose=True)
        parts = text.split("--- Agent Conversation ---\n")[1].split("\n\n")
        models = await fleet.call("list_models")
        assert parts == [
            "[User]: find it",
            "[Assistant]: looking",
            "[Tool Calls]:\n  Tool: list_models",
            f"[Tool Result (list_models)]: {models[:200]}{'...' if len(models) > 200 else ''}",
            "[Assistant]: found",
        ]


@pytest.mark.spec("fleet:B47")
async def test_steering_reaches_the_run_before_its_first_reply(tmp_path):
    async with Fleet(tmp_path, {"general-purpose": [{"text": "ok"}, {"text": "ok"}]}) as fleet:
        run = await fleet.start()
        text = await fleet.call("steer_subagent", agent_id=run.id, message="only tests")
        assert text == (
            f"Steering message queued for agent {run.id}. It will be delivered once the session initializes."
        )
        await fleet.settle(run)
        conversation = await fleet.call("get_subagent_result", agent_id=run.id, verbose=True)
        assert "[User]: do it\n\n[User]: only tests\n\n[Assistant]: ok" in conversation


async def test_steering_a_working_run_tells_its_state(tmp_path):
    first = {"text": "looking", **READS, "usage": {"input": 19_000, "output": 1000}}
    script = [first, {"text": "end", "delay_ms": 5000}, {"text": "steered"}]
    async with Fleet(tmp_path, {"general-purpose": script}) as fleet:
        fleet.setups["general-purpose"] = {"list_models": fleet.tools["list_models"]}
        run = await fleet.start()
        await fleet.clock.advance(1)
        text = await fleet.call("steer_subagent", agent_id=run.id, message="hurry")
        assert text.split("\n")[0].startswith(f"Steering message sent to agent {run.id}.")
        assert text.split("\n")[1] == "Current state: 20.0k token · 1 tool use · context 10% full"
        await fleet.clock.advance(5)
        assert run.text == "steered"


@pytest.mark.spec("fleet:B48")
async def test_finished_run_cannot_be_steered(tmp_path):
    async with Fleet(tmp_path) as fleet:
        run = await fleet.start()
        await fleet.settle(run)
        text = await fleet.call("steer_subagent", agent_id=run.id, message="x")
        assert text == f'Agent "{run.id}" is not running (status: completed). Cannot steer a non-running agent.'
        assert "not found" in await fleet.call("steer_subagent", agent_id="x", message="x")


@pytest.mark.spec("fleet:B50")
async def test_stopped_queued_run_never_runs(tmp_path):
    async with Fleet(tmp_path, {"Explore": SLOW}, max_concurrent=1) as fleet:
        await fleet.start("Explore")
        queued = await fleet.start("Explore")
        fleet.manager.stop(queued.id)
        await fleet.clock.advance(20)
        assert (len(fleet.requests), queued.status) == (1, Status.STOPPED)


async def test_main_agent_reacts_to_a_notification(tmp_path):
    main = [
        {"calls": [{"name": "Agent", "arguments": {"prompt": "go", "description": "d"}}]},
        {"text": "waiting"},
        {"text": "reacted"},
    ]
    async with Fleet(tmp_path, {"general-purpose": SLOW}, main=main) as fleet:

        async def prompt():
            outcome = await fleet.root.prompt("start")
            return await fleet.manager.stay("main", fleet.root, outcome)

        task = asyncio.create_task(prompt())
        await fleet.clock.advance(6)
        assert (await task).text == "reacted"
        entries = [entry for entry in fleet.root.session.entries() if entry.type == "custom_message"]
        messages = fleet.root.session.context().messages
        told = [join_text(message.content) for message in messages if isinstance(message, CustomMessage)]
        assert [(entry.custom_type, entry.details["status"]) for entry in entries] == [
            ("subagent-notification", "completed")
        ]
        assert "<result>slow</result>" in told[0]
