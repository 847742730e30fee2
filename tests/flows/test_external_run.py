import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from retinue import Request, Retinue, SessionWish
from retinue.core.messages import Cost, Usage
from retinue.core.run import Finalized, Outcome, Reason, Status
from retinue.core.tool import ToolContext
from tests.fake_child import reply
from tests.flows.external_world import LOOKER, ExternalWorld, find_flag

ONE = Usage(10, 2, 0, 0, 12, Cost(total=0.5))
NONE = "none: its commands are started by a pi"
END = {"record": {"type": "turn_end", "message": reply("Here.")["record"]["message"], "toolResults": []}}


@pytest.fixture
def world(tmp_path, agent_dir):
    return ExternalWorld(tmp_path, agent_dir)


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split(") ")[1][0] not in "ZX"
    except OSError:
        return False


async def wait_for_start(world):
    while not world.child.starts:
        await asyncio.sleep(0.02)
    return world.child.starts[-1]


async def wait_for_reply(handle):
    """The kinds of messages in its conversation, when an answer is among them."""
    while "AssistantMessage" not in (kinds := list_kinds(handle)):
        await asyncio.sleep(0.02)
    return kinds


def list_kinds(handle):
    live = handle._manager.live(handle.id)
    return [] if live is None else [type(message).__name__ for message in live.session.context().messages]


@pytest.mark.spec("devkit:31")
async def test_last_answer_is_the_outcome(world):
    calls = [{"name": "read", "arguments": {"path": "a"}}]
    world.child.plan([reply("Let me look.", stop="toolUse", calls=calls), reply("Here."), END, reply(stop="toolUse")])
    outcome = await world.run()
    path = outcome.session_file
    assert outcome == Outcome(
        Status.COMPLETED,
        Reason.DONE,
        "Here.",
        usage=ONE + ONE + ONE,
        turns=1,
        session_file=path,
        exit_code=0,
        sandbox=NONE,
    )
    assert path.startswith(str(world.agent_dir / "sessions")) and path.endswith("/session.jsonl")


async def test_usage_is_that_of_all_replies(world):
    world.child.plan([reply("a", stop="toolUse"), reply("Here.", usage=None), reply("Here.")])
    assert (await world.run()).usage == ONE + ONE


@pytest.mark.spec("devkit:32")
async def test_only_calls_give_a_diagnosis(world):
    calls = [{"name": "read", "arguments": {"path": "secret-path"}}]
    world.child.plan([reply(stop="toolUse", calls=calls), {"record": {"type": "tool_execution_end"}}])
    text = (await world.run()).text
    assert text == (
        "(the child gave no final answer: its last event was tool_execution_end, "
        "the last stop reason was toolUse, and 1 tool executions were completed)"
    )


@pytest.mark.spec("devkit:33")
async def test_plain_output_is_the_answer(world):
    world.child.plan([{"text": "\n one\ntwo \n"}])
    outcome = await world.run()
    assert (outcome.status, outcome.text) == (Status.COMPLETED, "one\ntwo")


async def test_answer_may_talk_of_timeouts(world):
    world.child.plan([reply("An earlier word."), reply("It is the timeout in a.py:3.")])
    assert (await world.run()).text == "It is the timeout in a.py:3."


@pytest.mark.spec("devkit:35")
async def test_bad_exit_is_a_failure(world):
    world.child.plan([reply("Half of", stop="toolUse"), {"error": "no such file\n"}, {"exit": 3}])
    outcome = await world.run()
    assert (outcome.status, outcome.reason, outcome.exit_code) == (Status.FAILED, Reason.ERROR, 3)
    assert (outcome.text, outcome.error) == ("Half of", "no such file")


async def test_provider_error_is_a_failure(world):
    world.child.plan([reply(stop="error", errorMessage="429 rate limit")])
    outcome = await world.run()
    assert (outcome.status, outcome.error, outcome.text) == (Status.FAILED, "429 rate limit", "")


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGKILL, signal.SIGTERM])
async def test_crash_is_one_failed_run(world, number):
    world.speak("Main.")
    world.child.plan([reply("Half of", stop="toolUse"), {"signal": number}], [reply("Fine.")])
    async with world.open() as crew:
        broken = await crew.spawn("looker", "one")
        outcome = await broken.wait()
        whole = await (await crew.spawn("looker", "two")).wait()
        answer = await crew.prompt("hello")
    assert (outcome.status, outcome.reason, outcome.text) == (Status.FAILED, Reason.CRASH, "Half of")
    assert outcome.error == f"its process was killed by {signal.Signals(number).name}"
    assert (whole.text, answer.text) == ("Fine.", "Main.")


@pytest.mark.spec("devkit:36")
async def test_missing_program_fails_to_spawn(world):
    world.configure(runner="pi", piCommand=str(world.work / "nothing"))
    outcome = await world.run()
    assert (outcome.status, outcome.reason, outcome.exit_code) == (Status.FAILED, Reason.ERROR, None)
    assert outcome.error.startswith("Failed to spawn pi: piCommand '/")


async def test_no_pi_is_said_plainly(world, monkeypatch):
    world.configure(runner="pi")
    monkeypatch.setenv("PATH", "/nonexistent")
    outcome = await world.run()
    assert outcome.error.startswith("Failed to spawn pi: there is no program 'pi' in the absolute directories of PATH")


@pytest.mark.spec("devkit:37", "devkit:40")
async def test_wall_limit_ends_an_active_child(world):
    world.child.plan([{"record": reply("x", stop="toolUse")["record"]}, *([reply("x"), {"sleep_s": 0.05}] * 100)])
    outcome = await world.run(wall_s=0.6, idle_s=5.0)
    assert (outcome.status, outcome.reason) == (Status.STOPPED, Reason.WALL_TIMEOUT)
    assert not is_alive(world.child.starts[0]["pid"])


@pytest.mark.spec("devkit:38", "devkit:39")
async def test_plain_lines_are_no_activity(world):
    chatter = [{"text": "still here\n"}, {"record": {"type": "agent_start"}}, {"error": "."}, {"sleep_s": 0.05}]
    world.child.plan([reply("Half of", stop="toolUse"), *(chatter * 200)])
    outcome = await world.run(idle_s=0.6)
    assert (outcome.reason, outcome.text) == (Reason.IDLE_TIMEOUT, "Half of")


@pytest.mark.spec("devkit:39")
@pytest.mark.parametrize("kind", ["message_end", "tool_result_end", "turn_end"])
async def test_structured_records_are_activity(world, kind):
    world.child.plan([*([{"record": {"type": kind}}, {"sleep_s": 0.3}] * 5), reply("Here.")])
    assert (await world.run(idle_s=0.9)).text == "Here."


@pytest.mark.spec("devkit:41")
async def test_stubborn_child_is_killed(world, monkeypatch):
    monkeypatch.setattr("retinue.engine.external.run.GRACE_S", 0.5)
    world.child.plan([{"ignore": signal.SIGTERM}, {"sleep_s": 60}])
    begun = time.monotonic()
    outcome = await world.run(wall_s=3)
    assert (outcome.reason, is_alive(world.child.starts[0]["pid"])) == (Reason.WALL_TIMEOUT, False)
    assert 3.5 <= time.monotonic() - begun < 30


@pytest.mark.spec("devkit:42")
async def test_timeout_starts_nothing_again(world):
    world.child.plan([{"sleep_s": 60}])
    await world.run(wall_s=0.5)
    assert len(world.child.starts) < 2  # none, when it was too slow to say so


@pytest.mark.spec("devkit:46")
async def test_too_many_records_stop_it(world):
    world.child.plan([reply("Half of", stop="toolUse"), {"record": {"type": "x"}, "times": 10_001}, {"sleep_s": 60}])
    outcome = await world.run()
    assert (outcome.status, outcome.reason, outcome.text) == (Status.FAILED, Reason.OUTPUT_LIMIT, "Half of")
    assert outcome.error == (
        "Subagent child output exceeded persisted JSONL line hard limit (10000 lines) and was stopped."
    )


@pytest.mark.spec("devkit:47")
async def test_too_long_stderr_stops_it(world):
    world.child.plan([{"error": "x" * 1024, "times": 1025}, {"sleep_s": 60}])
    assert (await world.run()).error == (
        "Subagent child output exceeded stderr hard limit (1048576 bytes) and was stopped."
    )


@pytest.mark.parametrize(
    ("step", "limit"),
    [
        ({"text": "x" * 65536, "times": 129}, "stdout hard limit (8388608 bytes)"),
        ({"record": {"type": "x", "y": "z" * 65536}, "times": 129}, "stdout hard limit (8388608 bytes)"),
        ({"record": {"type": "queue_update"}, "times": 100_001}, "transient JSONL line hard limit (100000 lines)"),
    ],
)
async def test_other_caps_stop_it_too(world, step, limit):
    world.child.plan([step, {"sleep_s": 60}])
    assert (await world.run()).error == f"Subagent child output exceeded {limit} and was stopped."


@pytest.mark.spec("devkit:48")
async def test_pieces_do_not_count_as_records(world):
    world.child.plan([{"record": {"type": "message_update", "x": "y" * 500}, "times": 30_000}, reply("Here.")])
    assert (await world.run()).text == "Here."


@pytest.mark.spec("devkit:53")
async def test_stop_kills_the_whole_tree(world):
    world.child.plan([reply("Half of", stop="toolUse"), {"sleep_s": 60}])
    async with world.open() as crew:
        handle = await crew.spawn("looker", "one")
        start = await wait_for_start(world)
        await wait_for_reply(handle)
        begun = time.monotonic()
        await handle.stop()
        outcome = await handle.wait()
    assert (outcome.status, outcome.reason, outcome.text) == (Status.STOPPED, Reason.USER, "Half of")
    assert (time.monotonic() - begun < 20, is_alive(start["pid"]), len(world.child.starts)) == (True, False, 1)


async def test_closing_ends_the_child(world):
    world.child.plan([{"sleep_s": 60}])
    async with world.open() as crew:
        await crew.spawn("looker", "one")
        start = await wait_for_start(world)
    assert not is_alive(start["pid"])


async def test_steering_goes_into_the_task(world):
    world.configure(runner="pi", piCommand=str(world.child.path), maxConcurrent=1)
    world.child.plan([reply("One."), {"sleep_s": 0.3}], [reply("Two.")])
    async with world.open() as crew:
        await crew.spawn("looker", "one")
        second = await crew.spawn("looker", "two")
        taken = await second.steer("and the tests")
        await second.wait()
    said = [line for line in world.child.starts[1]["argv"][-1].splitlines() if not line.startswith("<active_agent ")]
    assert (taken, said) == (True, ["two", "", "and the tests"])


async def test_working_child_hears_nothing(world):
    world.child.plan([{"sleep_s": 0.5}, reply("Here.")])
    async with world.open() as crew:
        handle = await crew.spawn("looker", "one")
        await wait_for_start(world)
        taken = await handle.steer("and the tests")
        outcome = await handle.wait()
    assert (taken, outcome.text) == (False, "Here.")


async def test_model_is_told_that_it_hears_nothing(world):
    world.child.plan([{"sleep_s": 0.5}, reply("Here.")])
    async with world.open() as crew:
        handle = await crew.spawn("looker", "one")
        await wait_for_start(world)
        tool = crew._here.subagents.tools.make(crew.run_id)["steer_subagent"]
        result = await tool.call({"agent_id": handle.id, "message": "and the tests"}, ToolContext(world.work))
        await handle.wait()
    assert (result.is_error, result.content[0].text) == (
        True,
        f'Agent "{handle.id}" works in a process of its own, which accepts no messages. '
        "Wait for its result, then resume it with your message.",
    )


async def test_resumed_run_has_its_session(world):
    world.child.plan([reply("One.")], [reply("Two.")])
    async with world.open() as crew:
        handle = await crew.spawn("looker", "one")
        await handle.wait()
        again = await (await crew.resume(handle.id, "and now?")).wait()
    first, second = world.child.starts
    assert (again.text, second["argv"][-1]) == ("Two.", "and now?")
    assert find_flag(first, "--session") == find_flag(second, "--session") == again.session_file


async def test_run_without_a_session_works_once(world):
    world.write_agent(LOOKER.replace("tools:", "persist_session: false\ntools:"))
    world.child.plan([reply("One.")], [reply("Two.")])
    async with world.open() as crew:
        handle = await crew.spawn("looker", "one", surface="fleet")
        first = await handle.wait()
        again = await (await crew.resume(handle.id, "and now?")).wait()
    assert (first.text, first.session_file, "--no-session" in world.child.starts[0]["argv"]) == ("One.", "", True)
    assert (again.status, len(world.child.starts)) == (Status.FAILED, 1)
    assert again.error.endswith("cannot be resumed: its process stored no session")


async def test_pi_is_refused_under_a_budget(world):
    world.child.plan([reply("a")])
    outcome = await world.run(tokens=10_000)
    text = "runner pi cannot enforce the budget (10000 tokens); use the runner process, or set budget.allowPi"
    assert (outcome.status, text in outcome.error, world.child.starts) == (Status.FAILED, True, [])


async def test_spent_budget_stops_an_allowed_pi(world):
    world.configure(runner="pi", piCommand=str(world.child.path), budget={"allowPi": True})
    world.child.plan([reply("a", stop="toolUse"), {"sleep_s": 60}])
    outcome = await world.run(tokens=10)
    assert (outcome.status, outcome.reason, outcome.text) == (Status.STOPPED, Reason.BUDGET, "a")


async def test_turn_limit_holds_for_it_too(world):
    world.configure(runner="pi", piCommand=str(world.child.path), graceTurns=1)
    works = reply("a", stop="toolUse")
    world.child.plan([works, works, works, works, {"sleep_s": 60}], [works, works, reply("b")])
    outcomes = [await world.run(max_turns=2) for _ in range(2)]
    assert [(each.reason, each.text) for each in outcomes] == [(Reason.TURN_LIMIT, "a"), (Reason.DONE, "b")]


async def test_events_tell_what_it_does(world):
    result = {"content": [{"type": "text", "text": "seen"}]}
    calls = [{"name": "read", "arguments": {"path": "a"}}]
    call = {"toolCallId": "c0", "toolName": "read"}
    world.child.plan(
        [
            {"record": {"type": "turn_start"}},
            reply("Let me look.", stop="toolUse", calls=calls),
            {"record": {"type": "tool_execution_start", **call, "args": {"path": "a"}}},
            {"record": {"type": "tool_execution_end", **call, "result": result, "isError": False}},
            {"record": {"type": "turn_start"}},
            reply("Here."),
        ]
    )
    async with world.open() as crew:
        handle = await crew.spawn("looker", "one")
        kinds = [type(event).__name__ async for event in handle.events()]
        run = handle.run
    assert [kind for kind in kinds if kind.startswith(("Turn", "Tool"))] == [
        *("TurnStarted", "ToolStarted", "ToolFinished", "TurnStarted")
    ]
    assert (run.turns, run.tool_uses, run.usage) == (2, 1, ONE + ONE)


async def test_finalized_answer_is_read(world):
    bad = {"name": "subagent_finalize", "arguments": {"status": "SUCCESS", "result": " "}}
    good = {"name": "subagent_finalize", "arguments": {"status": "SUCCESS", "result": "Found."}}
    world.child.plan([reply("a", stop="toolUse", calls=[good, bad]), {"exit": 1}])
    outcome = await world.run()
    assert (outcome.status, outcome.finalized) == (Status.COMPLETED, Finalized("SUCCESS", "Found."))


async def test_definition_beats_the_setting(world):
    world.speak("Main.")
    world.write_agent("---\nname: here\ndescription: d\nrunner: inprocess\n---\nx\n", "here.md")
    assert (await world.run(agent="here")).text == "Main."
    assert world.child.starts == []


async def test_conversation_can_be_read_meanwhile(world):
    world.child.plan([reply("Half of", stop="toolUse"), {"sleep_s": 60}, reply("Here.")])
    async with world.open() as crew:
        handle = await crew.spawn("looker", "one")
        assert await wait_for_reply(handle) == ["UserMessage", "AssistantMessage"]
        await handle.stop()


def test_child_dies_with_its_parent(world):
    world.child.plan([{"sleep_s": 60}])
    code = (
        "import asyncio, sys\nfrom retinue import Retinue\n"
        f"async def main():\n  async with Retinue({str(world.work)!r}, model={world.model!r}) as crew:\n"
        "    await (await crew.spawn('looker', 'one')).wait()\nasyncio.run(main())\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], env={**os.environ, "TMPDIR": str(world.work)}) as parent:
        deadline = time.monotonic() + 30
        while not world.child.starts and time.monotonic() < deadline:
            time.sleep(0.05)
        parent.kill()
    (start,) = world.child.starts
    deadline = time.monotonic() + 30
    while is_alive(start["pid"]) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not is_alive(start["pid"])


@pytest.mark.attack("A4")
async def test_project_cannot_choose_pi(world):
    world.configure(piCommand=str(world.child.path))
    folder = world.work / ".pi" / "agents"
    folder.mkdir(parents=True)
    (folder / "guest.md").write_text("---\nname: guest\ndescription: d\ntools: read\nrunner: pi\n---\nLook.\n")
    (world.work / ".pi" / "subagents.json").write_text('{"runner": "pi"}')
    notes = []
    request = Request(session=SessionWish("none"), approve=True)
    async with Retinue(world.work, model=world.model, request=request, say=notes.append) as crew:
        crew.listen(lambda event: notes.append(getattr(event, "text", "")))
        await (await crew.spawn("guest", "go")).wait()
    assert world.child.starts == []
    told = "\n".join(notes)
    assert "runner: ignored, only the user's own settings file can choose 'pi'" in told
    assert "runner pi is not available to it; using runner process" in told


@pytest.mark.parametrize(("attended", "told"), [(True, True), (False, False)])
async def test_run_stays_where_it_can_ask(world, attended, told):
    world.configure(runner="process", approvals="ask")
    notes = []
    async with world.open() as crew:
        crew.listen(lambda event: notes.append(getattr(event, "text", "")))
        with crew.questions.attend() if attended else contextlib.nullcontext():
            await (await crew.spawn("looker", "go")).wait()
    stays = "agent 'looker': runner process is not available to it; using runner inprocess"
    assert (stays in notes) is told
