import asyncio
import json

import pytest

from retinue.core.events import RunStarted
from retinue.core.run import Reason, Status
from tests.surfaces.dispatch_world import World, call, dispatch, to


@pytest.fixture
def world(home, tmp_path):
    return World(home, tmp_path)


def look(**reply):
    return to("^look", **reply)


@pytest.mark.spec("codingcode:1", "codingcode:24")
async def test_answer_is_the_result(world):
    world.agent()
    assert await world.dispatch(look(text="Here it is")) == "Here it is"
    said = [entry["message"] for entry in world.child() if entry.get("message", {}).get("role") == "user"]
    assert [message["content"][0]["text"] for message in said] == ["look around"]


@pytest.mark.spec("codingcode:2")
async def test_empty_prompt_is_refused_first(world):
    world.put("config.yaml", "subagent:\n  enabled: true\n")
    (text, blank) = await world.run(
        to("^begin", calls=[dispatch(prompt=""), dispatch("explore", "  ")]), to("^begin", text="ok")
    )
    assert (text, world.children()) == ("dispatch_agent was not run: 'prompt' must not be empty", [])
    assert blank == "[Error: TOOL_EXECUTION_FAILED] prompt: expected a task, found nothing"


@pytest.mark.attack("E3")
@pytest.mark.spec("codingcode:5")
async def test_unknown_agent_is_named(world):
    assert await world.dispatch(agent="nobody") == "[Error: TOOL_EXECUTION_FAILED] Unknown subagent: nobody"


@pytest.mark.spec("codingcode:3")
async def test_switch_takes_the_tool_away(world):
    world.put("config.yaml", "subagent:\n  enabled: false\n")
    (text,) = await world.run(to("^begin", calls=[dispatch("explore")]), to("^begin", text="done"))
    assert text.startswith("Tool 'dispatch_agent' not found")
    assert "Available Subagents" not in json.dumps(world.entries)


@pytest.mark.spec("codingcode:3")
async def test_switch_refuses_a_later_call(world):
    world.put("config.yaml", "subagent:\n  enabled: true\n")
    async with world.open(to("^begin", calls=[dispatch("explore")]), to("^begin", text="done")) as crew:
        world.put("config.yaml", "subagent:\n  enabled: false\n")
        await crew.prompt("begin")
        entries = [json.loads(line) for line in crew.session_file.read_text().splitlines()]
    text = "[Error: TOOL_EXECUTION_FAILED] Subagent dispatch is disabled in global settings"
    assert world.results(entries) == [text]


@pytest.mark.spec("codingcode:4")
@pytest.mark.parametrize(("user", "project", "offered"), [("false", "true", True), ("true", "false", False)])
async def test_project_switch_beats_the_user(world, user, project, offered):
    world.put("config.yaml", f"subagent:\n  enabled: {user}\n")
    world.put("config.yaml", f"subagent:\n  enabled: {project}\n", in_project=True)
    async with world.open() as crew:
        assert ("dispatch_agent" in crew._main.setup.tools) is offered


@pytest.mark.spec("codingcode:6")
async def test_single_agents_are_switched(world):
    world.agent()
    world.put("config.yaml", "subagent:\n  disabledAgents:\n    helper: true\n")
    assert await world.dispatch() == "[Error: TOOL_EXECUTION_FAILED] Subagent 'helper' is disabled"
    assert "### helper" not in json.dumps(world.entries)
    world.put("config.yaml", "subagent:\n  disabledAgents:\n    helper: false\n", in_project=True)
    assert await world.dispatch(look(text="on again")) == "on again"


@pytest.mark.spec("codingcode:7")
async def test_disabled_profile_is_not_dispatched(world):
    world.agent(fields="disabled: true\n")
    assert await world.dispatch() == "[Error: TOOL_EXECUTION_FAILED] Subagent 'helper' is disabled"
    assert "### helper" not in json.dumps(world.entries)


@pytest.mark.spec("codingcode:8", "codingcode:9")
async def test_project_profile_replaces_others(world):
    world.agent("explore", in_project=True)
    world.agent("helper")
    world.put("agents/helper.md", "---\nname: helper\ndescription: d\n---\nYou are ours.\n", in_project=True)
    assert await world.dispatch(look(text="hi"), agent="explore") == "hi"
    prompts = json.dumps(world.child())
    assert "You are explore." in prompts


@pytest.mark.spec("codingcode:16")
async def test_profile_model_is_used(world):
    other = world.folder / "other.json"
    other.write_text(json.dumps({"replies": [{"text": "from the other model"}]}))
    world.agent(fields=f"model: scripted/{other}\n")
    assert await world.dispatch(look(text="from the main model")) == "from the other model"


@pytest.mark.spec("codingcode:17")
async def test_unknown_model_leaves_no_session(world):
    world.agent(fields="model: nothing-of-the-kind\n")
    text = '[Error: TOOL_EXECUTION_FAILED] Subagent profile "helper" specifies unknown model: nothing-of-the-kind'
    assert await world.dispatch() == text
    assert world.children() == []


@pytest.mark.parametrize("name", ["claude-sonnet-4-5@ANTHROPIC_API_KEY", "anthropic/claude-sonnet-4-5"])
async def test_missing_key_is_told(world, name):
    world.agent(fields=f"model: {name}\n")
    text = await world.dispatch()
    assert text.startswith("[Error: CONFIG_MISSING] ") and "ANTHROPIC_API_KEY" in text
    assert world.children() == []


@pytest.mark.spec("codingcode:22")
async def test_failing_child_is_told(world):
    world.agent()
    world.hooks(world.hook("done", "agent.subagent.complete", kind="observer"))
    text = await world.dispatch(look(error={"kind": "auth", "message": "no key"}))
    assert text.startswith("[Error: TOOL_EXECUTION_FAILED] Subagent failed: [LLM_FAILED] ") and "no key" in text
    (told,) = world.seen("done")
    assert (told["status"], "no key" in told["error"]) == ("error", True)


@pytest.mark.parametrize("reply", [{}, {"error": {"kind": "auth", "message": "no key"}}])
async def test_long_answer_is_cut(world, reply):
    world.agent()
    answer = "\n".join(f"line {number}" for number in range(6000))
    text = await world.dispatch(look(text=answer, **reply))
    assert "[TRUNCATED: showing first 5000 of 6000 lines, " in text
    assert ("line 4999" in text, "line 5000" in text) == (True, False)
    (path,) = world.children()
    assert text.endswith(f"[The rest is in the agent's session, {path}. Dispatch it again for the part you need.]")
    assert "line 5999" in path.read_text()


@pytest.mark.parametrize(
    ("replies", "code", "words"),
    [
        ([{"text": "no call"}], "NOT_FINALIZED", "the agent ended 3 times without a valid call of subagent_finalize"),
        (
            [{"calls": [call("subagent_finalize", status="ERROR", error="No such file.")]}],
            "AGENT_REPORTED_ERROR",
            "No such file.",
        ),
        ([{"error": {"kind": "auth", "message": "no key"}}], "LLM_FAILED", "no key"),
    ],
)
async def test_finalising_agent_has_own_codes(world, replies, code, words):
    reminders = [to("^You ended without", text="still no call")] * 2
    text = await world.dispatch(*(look(**reply) for reply in replies), *reminders, agent="scout")
    assert text.startswith(f"[Error: TOOL_EXECUTION_FAILED] Subagent failed: [{code}] ") and words in text


async def test_spent_budget_has_its_code(world):
    file = world.agent_dir / "agents" / "helper.md"
    file.parent.mkdir()
    file.write_text("---\ndescription: d\nmax_tokens_total: 10\n---\nHelp.\n")
    (world.work / "a.txt").write_text("a")
    usage = {"input": 20, "output": 1}
    text = await world.dispatch(look(calls=[call("read", path="a.txt")], usage=usage), look(text="on"))
    assert text.startswith("[Error: TOOL_EXECUTION_FAILED] Subagent failed: [BUDGET_EXCEEDED] ")


@pytest.mark.spec("codingcode:23")
async def test_child_session_lies_below(world):
    world.agent()
    await world.dispatch(look(text="hi"))
    (path,) = world.children()
    main = path.parent.parent
    assert main.with_suffix(".jsonl").is_file() and main.name.endswith("main-session")
    (meta,) = [entry["data"] for entry in world.child() if entry.get("customType") == "retinue.dispatched"]
    assert meta == {"parentSessionId": "main-session", "agentName": "helper"}


@pytest.mark.spec("codingcode:25")
async def test_child_prompt_has_rules(world):
    world.agent()
    world.put("rules.md", "Never guess.\n")
    (world.work / "AGENTS.md").write_text("Use tabs.\n")
    await world.dispatch(look(text="hi"))
    prompt = json.dumps(world.child())
    for part in (
        "You are helper.",
        "## Environment",
        str(world.work),
        "## User-defined Rules",
        "Never guess",
        "Use tabs",
    ):
        assert part in prompt
    assert "Available Subagents" not in prompt


@pytest.mark.spec("codingcode:26")
async def test_child_never_dispatches(world):
    world.agent(fields="tools: [read_file, dispatch_agent]\n")
    nested = look(calls=[dispatch("explore", "deeper")])
    assert await world.dispatch(nested, look(text="alone")) == "alone"
    assert world.results(world.child())[0].startswith("Tool 'dispatch_agent' not found")


@pytest.mark.spec("codingcode:13", "codingcode:14")
async def test_read_only_profile_cannot_write(world):
    world.agent(fields="tools: [read_file, write_file]\nreadonly: true\n")
    (world.work / "a.txt").write_text("one\n")
    calls = [call("write_file", path="a.txt", content="two\n"), call("ls")]
    assert await world.dispatch(look(calls=calls), look(text="could not")) == "could not"
    assert (world.work / "a.txt").read_text() == "one\n"
    heads = [text.partition(".")[0] for text in world.results(world.child())]
    assert heads == ["Tool 'write_file' not found", "Tool 'ls' not found"]


@pytest.mark.spec("codingcode:32")
async def test_step_limit_keeps_partial_text(world):
    world.agent(fields="maxSteps: 2\n")
    steps = [look(text=f"step {n}", calls=[call("search_files", pattern="*")]) for n in range(2)]
    wrap = to("maximum number of turns|wrap up|limit", text="partial answer")
    text = await world.dispatch(*steps, wrap)
    assert text.startswith("[Error: TOOL_EXECUTION_FAILED] Subagent failed: [MAX_STEPS_REACHED] Max steps (2) reached")
    assert "What it had said by then:\npartial answer" in text


@pytest.mark.spec("codingcode:33")
@pytest.mark.parametrize(("config", "steps"), [("", 200), ("maxSteps: 7\n", 7)])
async def test_main_limit_counts_otherwise(world, config, steps):
    world.agent()
    world.put("config.yaml", config)
    await world.dispatch(look(text="hi"))
    (queued,) = [
        entry["data"]
        for entry in world.entries
        if entry.get("customType") == "retinue.crew" and entry["data"].get("type") == "RunQueued"
    ]
    assert queued["request"]["max_turns"] == steps


@pytest.mark.spec("codingcode:34")
async def test_empty_answer_has_its_words(world):
    world.agent()
    answers = (look(text=""), to("last reply was empty", text=""))
    assert await world.dispatch(*answers) == "(subagent completed without output)"


@pytest.mark.spec("codingcode:32", "codingcode:34")
@pytest.mark.parametrize(("answer", "result"), [("", "(subagent completed without output)"), ("hi", "hi")])
async def test_empty_reply_exceeds_no_limit(world, answer, result):
    world.agent(fields="maxSteps: 1\n")
    assert await world.dispatch(look(text=""), to("last reply was empty", text=answer)) == result


@pytest.mark.spec("codingcode:35")
async def test_two_calls_run_side_by_side(world):
    world.agent()
    calls = [dispatch(prompt="look here"), dispatch(prompt="look there")]
    replies = (
        to("^begin", calls=calls),
        to("^begin", text="done"),
        to("look here", text="here", delay_ms=1000),
        to("look there", text="there", delay_ms=1000),
    )
    async with world.open(*replies) as crew:
        await crew.prompt("begin")
        runs = [handle.run for handle in await crew.runs()]
        entries = [json.loads(line) for line in crew.session_file.read_text().splitlines()]
    assert world.results(entries) == ["here", "there"]
    assert max(run.started_ms for run in runs) < min(run.finished_ms for run in runs)


@pytest.mark.spec("codingcode:36")
async def test_abort_reaches_the_child(world):
    world.agent()
    world.hooks(world.hook("done", "agent.subagent.complete", kind="observer"))
    begun = asyncio.Event()
    async with world.open(to("^begin", calls=[dispatch()]), look(text="late", delay_ms=60_000)) as crew:
        crew.listen(
            lambda event: begun.set() if isinstance(event, RunStarted) and event.run_id != crew.run_id else None
        )
        async with asyncio.timeout(30), asyncio.TaskGroup() as group:
            work = group.create_task(crew.prompt("begin"))
            await begun.wait()
            await asyncio.sleep(0.05)
            crew.abort()
        (run,) = [handle.run for handle in await crew.runs()]
    assert (work.result().status, work.result().reason) == (Status.STOPPED, Reason.USER)
    assert run.status in (Status.STOPPED, Status.INTERRUPTED)
    (told,) = world.seen("done")
    assert told["status"] == "error"


@pytest.mark.spec("codingcode:42")
async def test_prompt_lists_the_profiles(world):
    world.agent(fields="tools: [read_file, search_code]\n")
    async with world.open() as crew:
        section = crew._main.setup.sections["subagents"]
    assert section.startswith("<subagents>\n## Available Subagents\n\n")
    assert "### helper\nDoes helper\nTools: read_file, search_code\n" in section
    assert "### explore\n" in section and "### plan\n" in section and "dispatch_agent" in section


@pytest.mark.spec("codingcode:12")
async def test_profile_without_list_has_all(world):
    world.agent()
    async with world.open() as crew:
        section = crew._main.setup.sections["subagents"]
    names = "read_file, write_file, edit_file, execute_command, search_code, search_files, fetch_url, web_search"
    assert f"### helper\nDoes helper\nTools: {names}, todo_write\n" in section


@pytest.mark.spec("codingcode:42")
async def test_no_profiles_no_section(world):
    off = "".join(f"    {name}: true\n" for name in ("explore", "plan", "general-purpose", "Explore", "Plan"))
    off += "".join(
        f"    {name}: true\n" for name in ("explorer", "implementer", "researcher", "reviewer", "tester", "scout")
    )
    world.put("config.yaml", f"subagent:\n  disabledAgents:\n{off}")
    async with world.open() as crew:
        assert "subagents" not in crew._main.setup.sections


@pytest.mark.spec("codingcode:43")
async def test_child_sessions_are_not_listed(world):
    from retinue.sessions.search import list_sessions

    world.agent()
    await world.dispatch(look(text="hi"))
    (path,) = world.children()
    listed = [each.id for each in list_sessions([path.parent.parent.parent])]
    assert listed == ["main-session"]


@pytest.mark.spec("codingcode:43")
async def test_child_sessions_go_with_parent(world):
    from retinue.core.errors import SessionLocked
    from retinue.sessions.tree import delete_session

    world.agent()
    await world.dispatch(look(text="hi"))
    main = world.children()[0].parent.parent.with_suffix(".jsonl")
    async with world.open({"text": "hello"}) as crew:
        await crew.prompt("hi")
        with pytest.raises(SessionLocked):
            delete_session(crew.session_file)
    delete_session(main)
    assert world.children() == [] and not main.exists() and not main.with_suffix("").exists()
