import asyncio
import json
import re
from pathlib import Path

import pytest

from retinue.core.events import ToolProgress
from tests.surfaces.subagent_world import WRITER, Flaky, World, ask, read_messages, to

BUSY = {"error": {"kind": "overloaded", "message": "overloaded"}}


@pytest.fixture
def world(tmp_path, home):
    return World(tmp_path, home)


async def list_tools(world, **options):
    async with world.open({"text": "ok"}, **options) as crew:
        await crew.prompt("go")
        return {tool["name"]: tool for tool in read_messages(crew.session_file)[0]["toolsAdded"]}


@pytest.mark.spec("devkit:1", "sticky:1")
async def test_main_agent_has_the_tool(world):
    tools = await list_tools(world)
    schema = tools["subagent"]["parameters"]
    assert (schema["required"], schema["additionalProperties"]) == (["agent", "task"], False)
    assert {name: field.get("minLength") for name, field in schema["properties"].items()} == {
        "agent": 1,
        "task": 1,
        "sessionId": None,
        "output_schema": None,
        "verify": None,
    }
    assert "- explorer (read-only): " in tools["subagent"]["description"]
    assert {"Agent", "subagent_finalize"} & set(tools) == set()


@pytest.mark.spec("devkit:2", "devkit:3", "devkit:4", "sticky:2")
@pytest.mark.parametrize(
    ("settings", "environment"),
    [
        ({}, {"PI_SUBAGENT_CHILD": "1"}),
        ({"subagents": {"enabled": False}}, {}),
        ({"enabled": False}, {}),
        ({"surfaces": []}, {}),
    ],
)
async def test_tool_can_be_absent(world, settings, environment):
    world.set(**{"surfaces": ["subagent"], **settings})
    assert "subagent" not in await list_tools(world, environment=environment)


@pytest.mark.parametrize("depth", [1, 2])
async def test_nesting_needs_list_and_depth(world, depth):
    world.set(surfaces=["subagent"], subagents={"maxDepth": depth, "allowWrite": True})
    world.add(WRITER.replace("read, write, bash", "read, subagent"))
    inner = [to("^outer", calls=ask("subagent", agent="explorer", task="inner")), to("^outer", text="outer done")]
    result = await world.ask("writer", "outer", *inner, to("^inner", text="inner done"))
    said = read_messages(result.details["results"][0]["sessionFile"])
    (answer,) = [message["content"][0]["text"] for message in said if message["role"] == "toolResult"]
    assert answer == "inner done" if depth == 2 else "Tool 'subagent' not found" in answer


@pytest.mark.everywhere
async def test_file_names_the_agents_it_may_start(world):
    world.set(surfaces=["subagent"], subagents={"maxDepth": 2, "allowWrite": True})
    world.add(WRITER.replace("read, write, bash", "read, subagent\nallowed_subagents: explorer"))
    calls = [ask("subagent", agent=name, task="inner")[0] for name in ("tester", "EXPLORER")]
    replies = [to("^outer", calls=calls), to("^outer", text="outer done"), to("^inner", text="inner done")]
    result = await world.ask("writer", "outer", *replies)
    said = read_messages(result.details["results"][0]["sessionFile"])
    listed = next(tool for tool in said[0]["toolsAdded"] if tool["name"] == "subagent")["description"]
    assert ("- explorer" in listed, "- tester" in listed) == (True, False)
    assert [message["content"][0]["text"] for message in said if message["role"] == "toolResult"] == [
        "Agent 'tester' is not open to this agent (allowed_subagents)",
        "inner done",
    ]


@pytest.mark.parametrize("runner", [{}, {"runner": "process"}])
async def test_fleet_obeys_the_same_list(world, runner):
    world.set(surfaces=["fleet"], **runner)
    world.add(WRITER.replace("read, write, bash", "read, Agent\nallowed_subagents: Explore"))
    call = ask("Agent", subagent_type="general-purpose", prompt="inner", description="d")
    async with world.open(to("^outer", calls=call), to("^outer", text="done")) as crew:
        run = await crew.spawn("writer", "outer")
        outcome = await run.wait(20)
        runs = await crew.runs()
    (answer,) = [item for item in read_messages(outcome.session_file) if item["role"] == "toolResult"]
    assert (len(runs), 'Agent type "general-purpose" is not open' in answer["content"][0]["text"]) == (1, True)


async def test_named_tools_are_exact(world):
    world.set()
    assert set(await list_tools(world, tools=["read", "subagent"])) == {"read", "subagent"}


async def test_surfaces_stand_side_by_side(world):
    world.set(surfaces=["fleet", "subagent"])
    assert {"Agent", "list_subagents", "subagent"} <= set(await list_tools(world))


@pytest.mark.spec("devkit:30", "devkit:55")
async def test_tool_gives_the_result(world):
    result = await world.ask("explorer", "look", to("^look", text="Found."))
    details = result.details
    assert (result.is_error, result.content[0].text) == (False, "Found.")
    assert (set(details), details["mode"]) == ({"mode", "runId", "results"}, "single")
    assert re.fullmatch("[0-9a-f]{8}", details["runId"])
    said = read_messages(details["results"][0].pop("sessionFile"))
    assert [message["role"] for message in said] == ["system", "user", "assistant"]
    assert said[1]["content"] == [{"type": "text", "text": "look"}]


@pytest.mark.spec("devkit:29")
async def test_session_lies_beside_its_parent(world):
    call = ask("subagent", agent="explorer", task="look")
    async with world.open(to("^go", calls=call), to("^go", text="thanks"), to("^look", text="Found.")) as crew:
        await crew.prompt("go")
        main = Path(crew.session_file)
    (child,) = main.with_suffix("").iterdir()
    result = next(message for message in read_messages(main) if message["role"] == "toolResult")
    assert result["details"]["results"][0]["sessionFile"] == str(child / "session.jsonl")
    assert child.name.startswith(result["details"]["runId"])


@pytest.mark.parametrize("writes", [True, False])
async def test_agents_that_can_only_read_are_marked(world, writes):
    world.set(surfaces=["subagent"], subagents={"allowWrite": writes})
    world.add()
    world.add(WRITER.replace("writer", "reader").replace(", write, bash", ""))
    text = (await list_tools(world))["subagent"]["description"]
    marked = [" (read-only)" in line for line in text.splitlines() if line[2:8] in ("writer", "reader")]
    assert sorted(marked) == [not writes, True]


@pytest.mark.spec("devkit:8")
async def test_case_of_a_name_is_free(world):
    result = await world.call("EXPLORER", "look", {"text": "Found."})
    assert result["details"]["results"][0]["agent"] == "explorer"


@pytest.mark.spec("devkit:11")
async def test_environment_sets_the_depth(world):
    world.set(subagents={"maxDepth": 0})
    result = await world.call("explorer", "look", {"text": "Found."}, environment={"PI_SUBAGENT_MAX_DEPTH": "1"})
    assert "error" not in result["details"]


@pytest.mark.spec("devkit:9")
@pytest.mark.parametrize("depth", ["1", " 2 ", "9" * 20, "9" * 9000])
async def test_any_number_is_a_depth(world, depth):
    result = await world.call("explorer", "look", {"text": "Found."}, environment={"PI_SUBAGENT_DEPTH": depth})
    assert result["details"]["error"]["code"] == "SUBAGENT_DEPTH_EXCEEDED"


@pytest.mark.spec("devkit:9")
@pytest.mark.parametrize("depth", ["x", "", "-1", "1.5"])
async def test_unreadable_depth_never_blocks(world, depth):
    result = await world.call("explorer", "look", {"text": "Found."}, environment={"PI_SUBAGENT_DEPTH": depth})
    assert "error" not in result["details"]


@pytest.mark.spec("devkit:31", "devkit:34")
async def test_answer_is_the_last_text(world):
    replies = [
        {"text": "I will look.", "calls": ask("ls"), "usage": {"input": 10, "output": 1}},
        {"text": "  Found.\n", "usage": {"input": 20, "output": 2, "cacheRead": 3, "cacheWrite": 4}},
    ]
    one = (await world.call("explorer", "look", *replies))["details"]["results"][0]
    assert (one["output"], one["displayItems"]) == (
        "Found.",
        [
            {"type": "text", "text": "I will look."},
            {"type": "toolCall", "name": "ls", "args": {}},
            {"type": "text", "text": "  Found.\n"},
        ],
    )
    assert one["usage"] == {"input": 20, "output": 2, "cacheRead": 3, "cacheWrite": 4, "cost": 0, "turns": 2}


@pytest.mark.spec("devkit:34")
async def test_unknown_usage_is_zeros(world):
    result = await world.call("explorer", "look", {"error": {"kind": "auth", "message": "bad key"}})
    usage = result["details"]["results"][0]["usage"]
    assert {key: value for key, value in usage.items() if key != "turns"} == dict.fromkeys(
        ("input", "output", "cacheRead", "cacheWrite", "cost"), 0
    )


@pytest.mark.spec("devkit:32")
async def test_silence_is_described(world):
    result = await world.call("explorer", "look", {"calls": ask("ls")}, {"text": ""}, {"text": ""})
    text = result["content"][0]["text"]
    assert text.startswith("(no answer: the last event was turn_end, the last stop reason was stop, and 1 tool")
    assert "error" not in result["details"]


@pytest.mark.spec("devkit:52")
async def test_updates_have_their_shape(world):
    replies = [to("^look", calls=ask("ls"), usage={"input": 1}), to("^look", text="Found.", usage={"input": 2})]
    await world.ask("explorer", "look", *replies)
    updates = [event for event in world.events.of(ToolProgress) if event.name == "subagent"]
    call = {"type": "toolCall", "name": "ls", "args": {}}

    def shape(text, items, amount, turns):
        usage = {"input": amount, "output": 0, "cacheRead": 0, "cacheWrite": 0, "cost": 0, "turns": turns}
        streaming = {"displayItems": items, "usage": usage, "turnCount": turns}
        return text, {"mode": "single", "results": [], "streaming": streaming}

    for update in updates:
        update.details["streaming"]["usage"]["output"] = 0
    assert [(update.content[0].text, update.details) for update in updates] == [
        shape("(running...)", [call], 1, 1),
        shape("(running...)", [call], 1, 1),
        shape("Found.", [call, {"type": "text", "text": "Found."}], 3, 2),
    ]


@pytest.mark.here("its model exists in one process only")
@pytest.mark.spec("devkit:43")
async def test_passing_failure_is_retried(world):
    result = await world.call("explorer", "look", model=Flaky({"text": "At last."}))
    one = result["details"]["results"][0]
    assert ("error" in result["details"], one["output"]) == (False, "At last.")
    path = Path(one["sessionFile"])
    assert sorted(file.name for file in path.parent.glob("*.jsonl")) == ["session-attempt-2.jsonl", "session.jsonl"]
    assert (path.name, path.parent.name[:8]) == ("session-attempt-2.jsonl", result["details"]["runId"])


@pytest.mark.spec("devkit:45")
async def test_report_counts_attempts(world):
    world.set(subagents={"retry": {"maxAttempts": 3}})
    result = await world.call("explorer", "look", BUSY)
    text = result["details"]["error"]["message"]
    assert text.startswith("Subagent failed with exit code 1.\n\nAttempts: 3.\n\nError:\n")
    assert text.endswith("/session-attempt-3.jsonl")


@pytest.mark.spec("devkit:44")
@pytest.mark.parametrize(
    ("setting", "kind"), [({"enabled": False}, "overloaded"), ({"maxAttempts": 1}, "overloaded"), ({}, "auth")]
)
async def test_other_failures_are_final(world, setting, kind):
    world.set(subagents={"retry": setting})
    result = await world.call("explorer", "look", {"error": {"kind": kind, "message": kind}})
    assert "Attempts:" not in result["content"][0]["text"]
    assert Path(result["details"]["results"][0]["sessionFile"]).name == "session.jsonl"


@pytest.mark.spec("devkit:37", "devkit:40", "devkit:42")
async def test_time_limit_beats_activity(world):
    world.set(subagents={"timeoutMs": 1200, "idleTimeoutMs": 1000})
    replies = [{"calls": ask("ls"), "delay_ms": 100} for _ in range(20)]
    result = await world.call("explorer", "look", *replies)
    details, one = result["details"], result["details"]["results"][0]
    assert (details["error"]["code"], one["exitCode"], one["timeoutReason"]) == ("SUBAGENT_TIMEOUT", 124, "runtime")
    assert "Error:\nSubagent exceeded maximum runtime after 1200ms.\n" in one["error"]
    assert (Path(one["sessionFile"]).name, "Attempts" in one["error"]) == ("session.jsonl", False)


@pytest.mark.spec("devkit:38", "devkit:42")
async def test_silent_agent_is_ended(world):
    world.add()
    world.set(subagents={"idleTimeoutMs": 1000})
    replies = [{"text": "I sleep.", "calls": ask("bash", command="sleep 20")}]
    result = await world.call("writer", "look", *replies, write=True)
    one = result["details"]["results"][0]
    assert (result["details"]["error"]["code"], one["exitCode"], one["timeoutReason"]) == (
        "SUBAGENT_TIMEOUT",
        124,
        "idle",
    )
    assert "Error:\nSubagent timed out after 1000ms without activity.\n\nPartial output:\nI sleep." in one["error"]


@pytest.mark.spec("devkit:35")
async def test_failure_without_words_is_described(world):
    result = await world.call("explorer", "look", {"calls": ask("ls")}, {"error": "INTERNAL_ERROR of a gateway"})
    described = "Last captured output:\n(no answer: the last event was turn_end, the last stop reason was error, "
    text = result["content"][0]["text"]
    assert f"Attempts: 2.\n\nError:\nINTERNAL_ERROR of a gateway\n\n{described}" in text
    assert "and 1 tool executions were completed)\n\nSession file:\n" in text


@pytest.mark.spec("devkit:38", "devkit:39")
@pytest.mark.parametrize("reply", [{"delay_ms": 20_000}, {"chunk_ms": 50, "chunk_chars": 1}], ids=["mute", "pieces"])
async def test_unfinished_reply_is_silence(world, reply):
    world.set(subagents={"idleTimeoutMs": 300, "timeoutMs": 15_000})
    result = await world.call("explorer", "look", {"text": "word " * 100, **reply})
    assert result["details"]["results"][0]["timeoutReason"] == "idle"


@pytest.mark.spec("devkit:39")
async def test_activity_keeps_it_alive(world):
    world.add()
    world.set(subagents={"idleTimeoutMs": 900})
    replies = [*({"calls": ask("bash", command="sleep 0.4")} for _ in range(3)), {"text": "Done."}]
    result = await world.call("writer", "look", *replies, write=True)
    assert (result["content"][0]["text"], "error" in result["details"]) == ("Done.", False)


@pytest.mark.spec("devkit:53")
@pytest.mark.everywhere
async def test_stopped_run_says_so(world):
    async with world.open({"text": "late", "delay_ms": 20_000}) as crew, asyncio.timeout(20):
        call = asyncio.ensure_future(crew.call_subagent("explorer", "look"))
        while not (runs := await crew.runs()) or runs[0].status != "running":
            await asyncio.sleep(0.01)
        await runs[0].stop()
        result = await call
    one = result["details"]["results"][0]
    assert (result["details"]["error"]["code"], one["exitCode"]) == ("SUBAGENT_FAILED", 130)
    assert "Subagent execution was cancelled by user." in one["error"]
    assert "Attempts" not in one["error"]


@pytest.mark.spec("devkit:53")
async def test_aborted_main_agent_stops_it(world):
    call = ask("subagent", agent="explorer", task="look")
    replies = [to("^go", calls=call), to("^look", text="late", delay_ms=20_000)]
    async with world.open(*replies) as crew, asyncio.timeout(20), asyncio.TaskGroup() as group:
        group.create_task(crew.prompt("go"))
        while not (runs := await crew.runs()) or runs[0].status != "running":
            await asyncio.sleep(0.01)
        crew.abort()
        await runs[0].wait()
        assert runs[0].status == "stopped"


@pytest.mark.spec("devkit:25")
async def test_file_chooses_the_model(world, tmp_path):
    own = tmp_path / "own.json"
    own.write_text(json.dumps({"replies": [{"text": "mine"}]}))
    world.add(WRITER.replace("tools", f"model: scripted/{own}\ntools"))
    assert (await world.ask("writer", "look")).content[0].text == "mine"


@pytest.mark.spec("devkit:22", "devkit:23")
@pytest.mark.parametrize("setting", [{"allowWrite": False}, {"readonlyBash": False}])
async def test_writing_tools_are_dropped(world, setting):
    world.add()
    world.set(subagents=setting)
    result = await world.call("writer", "look", {"text": "ok"})
    system = read_messages(result["details"]["results"][0]["sessionFile"])[0]
    assert [tool["name"] for tool in system["toolsAdded"]] == ["read"]


@pytest.mark.spec("devkit:56")
async def test_policy_stands_once_in_the_prompt(world):
    async with world.open({"text": "a"}, {"text": "b"}) as crew:
        await crew.prompt("one")
        await crew.prompt("two")
        text = Path(crew.session_file).read_text()
    assert (text.count("## Subagent Delegation Policy"), text.count("## Delegation Examples")) == (1, 1)


@pytest.mark.spec("devkit:56")
@pytest.mark.parametrize(
    ("settings", "environment", "tools"),
    [
        ({"subagents": {"injectDelegationPolicy": False}}, {}, None),
        ({}, {"PI_SUBAGENT_CHILD": "1"}, None),
        ({}, {}, ["read"]),
        ({"surfaces": ["fleet"]}, {}, None),
    ],
)
async def test_policy_needs_the_tool(world, settings, environment, tools):
    world.set(**{"surfaces": ["subagent"], **settings})
    async with world.open({"text": "a"}, environment=environment, tools=tools) as crew:
        await crew.prompt("one")
        assert "Delegation Policy" not in Path(crew.session_file).read_text()


@pytest.mark.spec("devkit:56")
async def test_child_gets_no_policy(world):
    result = await world.ask("explorer", "look", to("^look", text="Found."))
    assert "Delegation Policy" not in Path(result.details["results"][0]["sessionFile"]).read_text()


async def test_unusable_session_folder_is_told(world):
    (world.agent_dir / "sessions").write_text("in the way")
    result = await world.call("explorer", "look", {"text": "x"})
    error = result["details"]["error"]
    assert (error["code"], result["details"]["results"]) == ("SUBAGENT_FAILED", [])
    assert error["message"].startswith("Failed to create session directory: ")


async def test_fallback_is_noted(world):
    world.set(surfaces=["subagent"], fallbackSubagent="explorer")
    result = await world.ask("nobody", "look", to("^look", text="Found."))
    note = 'Note: there is no agent "nobody"; explorer was used instead (fallbackSubagent).'
    assert (result.content[0].text, result.details["results"][0]["output"]) == (f"Found.\n\n{note}", "Found.")


async def test_calls_run_side_by_side(world):
    calls = [*ask("subagent", agent="explorer", task="look 1"), *ask("subagent", agent="explorer", task="look 2")]
    replies = [to("^go", calls=calls), to("^go", text="thanks"), to("^look", text="Found.", delay_ms=300)]
    async with world.open(*replies) as crew:
        await crew.prompt("go")
        starts, ends = zip(*((run.run.started_ms, run.run.finished_ms) for run in await crew.runs()), strict=True)
    assert max(starts) < min(ends)


async def call_tool(world, arguments, **options):
    """What the main agent gets for a call that starts nothing."""
    replies = [to("^go", calls=ask("subagent", **arguments)), to("^go", text="sorry")]
    async with world.open(*replies, **options) as crew:
        crew.listen(world.events)
        await crew.prompt("go")
        assert await crew.runs() == []
    return next(event.result for event in world.events.events if type(event).__name__ == "ToolFinished")


@pytest.mark.sample(9)
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"agent": "explorer"}, "Missing required parameter: task"),
        ({"task": "x"}, "Missing required parameter: agent"),
        ({}, "Missing required parameter: agent"),
        ({"agent": None, "task": "x"}, "Missing required parameter: agent"),
        ({"agent": 5, "task": "x"}, "'agent' must be a string"),
        ({"agent": ["explorer"], "task": "x"}, "'agent' must be a string"),
        ({"agent": "explorer", "task": {"a": 1}}, "'task' must be a string"),
        ({"agent": "explorer", "task": True}, "'task' must be a string"),
        ({"agent": "", "task": "x"}, "Missing required parameter: agent"),
        ({"agent": "explorer", "task": ""}, "Missing required parameter: task"),
        ({"agent": "explorer", "task": "  "}, "Missing required parameter: task"),
        ({"agent": " ", "task": "x"}, "Missing required parameter: agent"),
        ({"agent": "explorer", "task": "x", "chain": []}, "'chain' is not an argument"),
        ({"agent": "explorer", "task": "x", "model": "y"}, "'model' is not an argument"),
        ({"agent": "explorer", "task": "x", "sessionId": 7}, "'sessionId' must be a string"),
        ({"agent": "explorr", "task": "x"}, "did you mean 'explorer'?"),
        ({"agent": "exp\0lorer\n", "task": "x"}, "Unknown agent: exp\\x00lorer\\n"),
        ({"agent": "e" * 100_000, "task": "x"}, "Unknown agent: eeee"),
    ],
)
@pytest.mark.spec("devkit:5", "devkit:6")
async def test_bad_arguments_start_nothing(world, arguments, words):
    result = await call_tool(world, arguments)
    assert (result.is_error, words in result.content[0].text) == (True, True)
    assert len(result.content[0].text) < 2_000
    code = "UNKNOWN_AGENT" if "Unknown agent" in words or "did you" in words else "INVALID_INPUT"
    error = {"code": code, "message": result.content[0].text}
    assert result.details == {"mode": "single", "results": [], "error": error}


@pytest.mark.spec("devkit:9")
async def test_depth_comes_before_arguments(world):
    result = await call_tool(world, {}, environment={"PI_SUBAGENT_DEPTH": "1"})
    assert result.content[0].text.startswith("Subagent depth exceeded (1/1).")


@pytest.mark.parametrize("task", ["x" * 500_000, "a\0b", "lone \ud800 half", "-rf", "@/etc/passwd", "日本語 🎉"])
async def test_odd_tasks_arrive_whole(world, task):
    result = await world.call("explorer", task, {"text": "ok"})
    one = result["details"]["results"][0]
    assert (one["task"], one["exitCode"]) == (task, 0)
    said = read_messages(one["sessionFile"])[1]["content"][0]["text"]
    assert said == task.replace("\ud800", "\ufffd")


async def test_half_a_character_is_no_name(world):
    result = await world.call("\ud800", "look")
    assert result["content"][0]["text"].startswith("Unknown agent: \\ud800. Available agents: ")


@pytest.mark.parametrize("blank", ["", "  ", "\n"])
async def test_empty_session_id_means_none(world, blank):
    result = await world.ask("explorer", "look", to("^look", text="found"), sessionId=blank)
    assert (result.is_error, result.content[0].text, "sessionId" in result.details) == (False, "found", False)
