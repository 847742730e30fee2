import re

import pytest

from retinue.core.definition import Definition
from retinue.core.run import Status
from retinue.engine.admission import SpawnRefused
from retinue.engine.budget import Lease
from retinue.engine.request import RunRequest
from retinue.surfaces.fleet.agent import NOTICE
from retinue.surfaces.fleet.ports import FleetSettings, ScheduledCall
from retinue.testing.clock import FakeClock
from tests.surfaces.fleet_world import EXPLORE, GENERAL, HAIKU, Fleet, broken_worktree

SLOW = [{"text": "slow", "delay_ms": 5000}]
HANDLE = re.compile(r'"retry": "(retry-[0-9a-f]{8})"')


def define(name, **fields):
    return Definition(name=name, dialect="pi", source="project", path=f"{name}.md", **fields)


@pytest.mark.spec("fleet:B1")
async def test_call_returns_at_once_with_id(tmp_path):
    async with Fleet(tmp_path) as fleet:
        text = await fleet.call("Agent", prompt="look", description="a look")
        run = fleet.manager.list_runs()[0]
        assert text.split("\n") == [
            "Agent started in background.",
            f"Agent ID: {run.id}",
            "Type: Agent",
            "Description: a look",
            "",
            NOTICE,
        ]
        assert run.status is Status.QUEUED


@pytest.mark.spec("fleet:B3")
async def test_full_crew_queues_in_order(tmp_path):
    async with Fleet(tmp_path, {"Explore": SLOW}, max_concurrent=2) as fleet:
        runs = [await fleet.start("Explore") for _ in range(2)]
        result = await fleet.result("Agent", prompt="p", description="d", subagent_type="Explore")
        text = result.content[0].text
        assert (text.splitlines()[0], result.details["isQueued"]) == ("Agent queued in background.", True)
        assert "Position: queued (max 2 concurrent)" in text.splitlines()
        last = fleet.manager.list_runs()[0]
        await fleet.settle()
        assert [run.status for run in (*runs, last)] == [Status.RUNNING, Status.RUNNING, Status.QUEUED]
        await fleet.clock.advance(5)
        assert last.status is Status.RUNNING


@pytest.mark.spec("fleet:B4")
async def test_larger_limit_starts_waiting_agents(tmp_path):
    async with Fleet(tmp_path, {"Explore": SLOW}, max_concurrent=1) as fleet:
        runs = [await fleet.start("Explore") for _ in range(3)]
        fleet.manager.resize(3)
        await fleet.settle()
        assert [run.status for run in runs] == [Status.RUNNING] * 3


@pytest.mark.spec("fleet:B5")
@pytest.mark.parametrize("arguments", [{"description": "d"}, {"description": "d", "prompt": " \n"}, {}])
async def test_missing_prompt_starts_nothing(tmp_path, arguments):
    async with Fleet(tmp_path) as fleet:
        result = await fleet.result("Agent", **arguments)
        assert (result.content[0].text, result.is_error) == ("Missing required argument: prompt.", True)
        assert fleet.manager.list_runs() == []


async def test_missing_description_is_made(tmp_path):
    async with Fleet(tmp_path, {"Explore": SLOW}) as fleet:
        text = await fleet.call("Agent", prompt="Find all\n places where we write files", subagent_type="Explore")
        assert "Description: Find all places where we\n" in text


async def test_arguments_of_other_systems_are_ignored(tmp_path):
    async with Fleet(tmp_path, {"Explore": SLOW}) as fleet:
        foreign = {"run_in_background": False, "name": "scout", "team_name": "x", "mode": "plan"}
        blank = dict.fromkeys(("model", "thinking", "isolation", "resume", "retry", "max_turns"), "")
        result = await fleet.result("Agent", prompt="p", subagent_type="Explore", **foreign, **blank)
        names = "'run_in_background', 'name', 'team_name', 'mode'"
        assert result.content[-1].text == f"Ignored, since Agent has no such argument: {names}."
        assert (result.is_error, [run.agent for run in fleet.manager.list_runs()]) == (False, ["Explore"])


@pytest.mark.spec("fleet:B6")
@pytest.mark.parametrize("name", ["explore", "Explore", "EXPLORE", " Explore "])
async def test_type_matches_in_any_case(tmp_path, name):
    async with Fleet(tmp_path, {"Explore": SLOW}) as fleet:
        assert (await fleet.start(name)).agent == "Explore"


async def test_exact_spelling_beats_other_case(tmp_path):
    async with Fleet(tmp_path, {"explore": SLOW}, definitions=[EXPLORE, define("explore")]) as fleet:
        assert (await fleet.start("explore")).agent == "explore"


@pytest.mark.attack("E3")
@pytest.mark.spec("fleet:B7")
async def test_unknown_type_starts_nothing(tmp_path):
    async with Fleet(tmp_path) as fleet:
        text = await fleet.call("Agent", prompt="p", description="d", subagent_type="Nope")
        first, _, hint = text.partition("\n\n")
        assert first == 'Unknown agent type "Nope". Available types: general-purpose, Explore.'
        assert (HANDLE.search(hint) is not None, fleet.manager.list_runs()) == (True, [])


@pytest.mark.spec("fleet:B7")
async def test_fallback_agent_replaces_unknown_type(tmp_path):
    async with Fleet(tmp_path, settings=FleetSettings(fallback_agent="general-purpose")) as fleet:
        text = await fleet.call("Agent", prompt="p", description="d", subagent_type="Nope")
        assert 'Note: there is no agent type "Nope"; general-purpose was started instead.' in text.splitlines()
        assert fleet.manager.list_runs()[0].agent == "general-purpose"


@pytest.mark.spec("fleet:B8")
async def test_disabled_agent_cannot_be_started(tmp_path):
    definitions = [GENERAL, define("Plan", enabled=False)]
    settings = FleetSettings(fallback_agent="general-purpose")
    async with Fleet(tmp_path, definitions=definitions, settings=settings) as fleet:
        text = await fleet.call("Agent", prompt="p", description="d", subagent_type="plan")
        assert text.startswith('Agent type "plan" is disabled. Available types: general-purpose.\n')
        assert (fleet.manager.list_runs(), "Plan" in fleet.tools["Agent"].spec.description) == ([], False)


async def test_agent_outside_the_allowed_ones_is_refused(tmp_path):
    async with Fleet(tmp_path, ports={"caller": {"allowed_agents": ("explore",)}}) as fleet:
        text = await fleet.call("Agent", prompt="p", description="d")
        assert text.startswith('Agent type "general-purpose" is not open to this agent. Available types: Explore.')


async def test_no_agents_says_where_to_define_one(tmp_path):
    async with Fleet(tmp_path, definitions=[define("x", enabled=False)]) as fleet:
        text = await fleet.call("Agent", prompt="p", description="d")
        assert "Available types: (none — define one in .pi/agents/*.md)." in text


@pytest.mark.spec("fleet:B9")
async def test_new_definition_is_usable_at_once(tmp_path):
    async with Fleet(tmp_path, {"fresh": SLOW}) as fleet:
        assert "Unknown agent type" in await fleet.call("Agent", prompt="p", description="d", subagent_type="fresh")
        fleet.definitions.append(define("fresh"))
        assert (await fleet.start("fresh")).agent == "fresh"


@pytest.mark.spec("fleet:B10")
async def test_bad_model_of_caller_is_refused(tmp_path):
    async with Fleet(tmp_path) as fleet:
        text = await fleet.call("Agent", prompt="p", description="d", model="nope/nothing")
        assert text.split("\n")[:5] == [
            'Model not found: "nope/nothing".',
            "",
            "Available models:",
            "  anthropic/claude-haiku-4-5-20251001",
            "  anthropic/claude-sonnet-4-5",
        ]
        assert fleet.manager.list_runs() == []


@pytest.mark.spec("fleet:B10")
async def test_bad_model_of_file_is_the_parents(tmp_path):
    async with Fleet(tmp_path, {"odd": SLOW}, definitions=[define("odd", model="nope/nothing")]) as fleet:
        run = await fleet.start("odd", model="haiku")
        await fleet.settle()
        assert (fleet.requests[0].model, run.invocation) == (None, {"model": "anthropic/claude-sonnet-4-5"})


@pytest.mark.spec("fleet:B11")
async def test_retry_reuses_the_saved_prompt(tmp_path):
    async with Fleet(tmp_path) as fleet:
        text = await fleet.call("Agent", prompt="the long one", description="d", model="nope")
        handle = HANDLE.search(text)[1]
        again = await fleet.call("Agent", retry=handle, model="still nope")
        assert HANDLE.search(again)[1] == handle
        result = await fleet.result("Agent", retry=handle, model="haiku")
        await fleet.settle()
        assert (result.is_error, result.details["modelName"]) == (False, "haiku 4.5")
        assert (fleet.requests[0].task, fleet.requests[0].model) == ("the long one", HAIKU.ref)


@pytest.mark.spec("fleet:B12")
async def test_old_handle_has_expired(tmp_path):
    async with Fleet(tmp_path) as fleet:
        handle = HANDLE.search(await fleet.call("Agent", prompt="p", description="d", model="nope"))[1]
        await fleet.clock.advance(599)
        assert "not found or" not in await fleet.call("Agent", retry=handle, model="nope")
        await fleet.clock.advance(600)
        expired = f'Retry handle "{handle}" was not found or has expired.'
        assert await fleet.call("Agent", retry=handle, model="haiku") == expired
        assert await fleet.call("Agent", retry="x") == 'Retry handle "x" was not found or has expired.'


@pytest.mark.spec("fleet:B13")
async def test_retry_after_worktree_failure_runs_unisolated(tmp_path):
    ports = {"check_worktree": broken_worktree("not a git repository")}
    async with Fleet(tmp_path, ports=ports) as fleet:
        text = await fleet.call("Agent", prompt="p", description="d", isolation="worktree")
        assert text.startswith('Cannot run with isolation: "worktree": not a git repository\n')
        assert fleet.manager.list_runs() == []
        result = await fleet.result("Agent", retry=HANDLE.search(text)[1])
        await fleet.settle()
        assert (result.is_error, fleet.requests[0].isolation, fleet.requests[0].task) == (False, None, "p")


async def test_depth_limit_is_no_isolation_failure(tmp_path):
    async with Fleet(tmp_path, max_depth=0) as fleet:
        text = await fleet.call("Agent", prompt="p", description="d")
        assert text == "Cannot spawn agent: maximum recursive subagent depth is 0."


@pytest.mark.spec("fleet:B20", "fleet:B28")
async def test_file_locks_what_it_says(tmp_path):
    locked = define(
        "locked",
        model="haiku",
        thinking="low",
        max_turns=0,
        inherit_context=False,
        isolated=False,
        isolation="off",
    )
    asked = {"model": "sonnet", "thinking": "high", "max_turns": 3, "inherit_context": True, "isolated": True}
    async with Fleet(tmp_path, {"locked": SLOW}, definitions=[locked]) as fleet:
        await fleet.start("locked", isolation="worktree", **asked)
        await fleet.settle()
        request = fleet.requests[0]
        assert (request.model, request.thinking, request.limits.max_turns) == (HAIKU.ref, "low", None)
        assert (request.preface, request.isolated, request.isolation) == ("", False, None)


@pytest.mark.spec("fleet:B21")
async def test_call_decides_what_file_leaves_open(tmp_path):
    async with Fleet(tmp_path, settings=FleetSettings(default_max_turns=9)) as fleet:
        asked = {"model": "haiku", "thinking": "high", "max_turns": 3, "isolated": True, "isolation": "worktree"}
        result = await fleet.result("Agent", prompt="p", description="d", **asked)
        await fleet.start()
        await fleet.settle()
        request, plain = fleet.requests
        assert (request.model, request.thinking, request.limits.max_turns) == (HAIKU.ref, "high", 3)
        assert (request.isolated, request.isolation, plain.limits.max_turns) == (True, "worktree", 9)
        assert result.details["tags"] == ["thinking: high", "max turns: 3", "isolated", "worktree"]


@pytest.mark.parametrize(("model", "label"), [("haiku", " (haiku)"), ("nobody-has-this", "")])
async def test_only_a_wish_that_is_there_is_listed(tmp_path, model, label):
    wish = define("Explore", model=model, is_model_wish=True)
    async with Fleet(tmp_path, definitions=[wish]) as fleet:
        (line,) = [line for line in fleet.tools["Agent"].spec.description.splitlines() if line.startswith("- Explore:")]
        assert f"{label} (Tools:" in line and (model in line) is bool(label)


async def test_caller_beats_a_wish(tmp_path):
    wish = define("Explore", model="haiku", is_model_wish=True)
    async with Fleet(tmp_path, {"Explore": SLOW}, definitions=[wish]) as fleet:
        await fleet.start("Explore")
        await fleet.start("Explore", model="sonnet")
        await fleet.settle()
        assert [request.model for request in fleet.requests] == [HAIKU.ref, "anthropic/claude-sonnet-4-5"]


@pytest.mark.spec("fleet:B43")
async def test_inherited_context_is_put_before_the_task(tmp_path):
    asked = {"prompt": "go", "description": "d", "inherit_context": True}
    main = [{"calls": [{"name": "Agent", "arguments": asked}]}, {"text": "ok"}]
    async with Fleet(tmp_path, main=main) as fleet:
        await fleet.root.prompt("the question")
        await fleet.settle()
        preface = fleet.requests[0].preface
        assert "[User]: the question" in preface
        assert preface.endswith("# Your Task (below)\n\n")


@pytest.mark.attack("E6")
@pytest.mark.spec("fleet:B78")
async def test_spawn_below_the_deepest_is_refused(tmp_path):
    async with Fleet(tmp_path, {"general-purpose": SLOW}, max_depth=2) as fleet:
        request = RunRequest(agent="general-purpose", task="t", description="d", surface="fleet")
        child = await fleet.start()
        grandchild = fleet.manager.spawn(request, child.id)
        with pytest.raises(SpawnRefused, match="maximum recursive subagent depth is 2"):
            fleet.manager.spawn(request, grandchild.id)


@pytest.mark.spec("fleet:B95")
async def test_model_outside_the_scope_is_refused(tmp_path):
    settings = FleetSettings(model_scope=("ANTHROPIC/claude-haiku-4-5-20251001", "anthropic/*", "", "sonnet"))
    async with Fleet(tmp_path, {"pinned": SLOW}, settings=settings) as fleet:
        fleet.definitions.append(define("pinned", model="sonnet", display_name="Pin"))
        text = await fleet.call("Agent", prompt="p", description="d", model="sonnet")
        assert text.split("\n")[:4] == [
            'Model not in scope: "sonnet".',
            "",
            "Allowed models (from enabledModels):",
            "  anthropic/claude-haiku-4-5-20251001",
        ]
        assert (HANDLE.search(text) is not None, fleet.manager.list_runs()) == (True, [])
        await fleet.start("pinned")
        assert fleet.warnings() == ['Agent "Pin" using out-of-scope model "anthropic/claude-sonnet-4-5"']


@pytest.mark.spec("fleet:B95")
async def test_scope_without_known_models_checks_nothing(tmp_path):
    async with Fleet(tmp_path, settings=FleetSettings(model_scope=("anthropic/*",))) as fleet:
        await fleet.start(model="sonnet")
        assert fleet.warnings() == []


@pytest.mark.spec("fleet:B14")
async def test_resumed_agent_reports_anew(tmp_path):
    async with Fleet(tmp_path, {"general-purpose": [{"text": "first"}, {"text": "second"}]}) as fleet:
        run = await fleet.start()
        await fleet.settle(run)
        await fleet.clock.advance(1)
        text = await fleet.call("Agent", prompt="more", resume=run.id)
        again = fleet.manager.find(run.id)
        assert text.split("\n")[:4] == [
            "Agent resumed in background.",
            f"Agent ID: {run.id}",
            "Type: Agent",
            "Description: some work",
        ]
        await fleet.clock.advance(1)
        first, second = fleet.news()
        assert (again.text, "<result>first</result>" in first, "<result>second</result>" in second) == (
            "second",
            True,
            True,
        )


@pytest.mark.spec("fleet:B14", "fleet:B16")
async def test_unknown_or_working_agent_is_not_resumed(tmp_path):
    async with Fleet(tmp_path, {"Explore": SLOW}) as fleet:
        text = await fleet.call("Agent", prompt="p", resume="123")
        assert text == 'Agent not found: "123". It may have been cleaned up.'
        run = await fleet.start("Explore")
        await fleet.settle()
        assert f'Agent "{run.id}" is still running' in await fleet.call("Agent", prompt="p", resume=run.id)


async def test_run_of_another_run_is_not_resumed(tmp_path):
    async with Fleet(tmp_path) as fleet:
        parent = await fleet.start()
        await fleet.settle(parent)
        request = RunRequest(agent="general-purpose", task="t", description="d", surface="fleet")
        below = fleet.manager.spawn(request, parent.id)
        await fleet.settle(below)
        text = await fleet.call("Agent", prompt="p", resume=below.id)
        assert text == f'Agent "{below.id}" belongs to agent "{parent.id}": only that one can resume it.'


async def test_resume_without_its_session_is_refused(tmp_path):
    async with Fleet(tmp_path) as fleet:
        run = await fleet.start()
        await fleet.settle(run)
        (tmp_path / "sessions" / f"{run.id}.jsonl").unlink()
        text = await fleet.call("Agent", prompt="p", resume=run.id)
        assert text == f'Agent "{run.id}" has no active session to resume.'


@pytest.mark.spec("fleet:B15")
async def test_failed_resume_has_no_old_answer(tmp_path):
    script = [{"text": "first"}, {"error": {"message": "no more"}}]
    async with Fleet(tmp_path, {"general-purpose": script}) as fleet:
        run = await fleet.start()
        await fleet.settle(run)
        await fleet.call("Agent", prompt="more", resume=run.id)
        await fleet.clock.advance(60)
        text = await fleet.call("get_subagent_result", agent_id=run.id)
        assert ("Status: error" in text, "no more" in text, "first" in text) == (True, True, False)


async def test_retried_resume_stays_a_resume(tmp_path):
    async with Fleet(tmp_path, {"general-purpose": [{"text": "a"}, {"text": "b"}]}) as fleet:
        run = await fleet.start()
        await fleet.settle(run)
        text = await fleet.call("Agent", prompt="more", resume=run.id, model="nope")
        again = await fleet.call("Agent", retry=HANDLE.search(text)[1], model="haiku")
        assert again.startswith(f"Agent resumed in background.\nAgent ID: {run.id}\n")


@pytest.mark.spec("fleet:B80")
async def test_schedule_takes_the_merged_call(tmp_path):
    wishes = []

    def keep(schedule, **members):
        wishes.append((schedule, {name: value for name, value in members.items() if value is not None}))
        return ScheduledCall("job1", members["name"], "interval", "2030-01-01T00:00:00.000Z")

    async with Fleet(tmp_path, ports={"schedule": keep}) as fleet:
        text = await fleet.call("Agent", prompt="p", description="d", model="nope", schedule="5m")
        answer = await fleet.call("Agent", retry=HANDLE.search(text)[1], model="haiku")
        assert answer == (
            'Scheduled "d" (id: job1, type: interval). Next run: 2030-01-01T00:00:00.000Z. '
            "Manage via /agents → Scheduled jobs."
        )
        wish = "5m", {"name": "d", "subagent_type": "general-purpose", "prompt": "p", "model": "haiku"}
        assert (wishes, fleet.manager.list_runs()) == ([wish], [])


@pytest.mark.spec("fleet:B80")
@pytest.mark.parametrize("other", [{"resume": "x"}, {"inherit_context": True}])
async def test_schedule_that_cannot_be_is_refused(tmp_path, other):
    wishes = []
    async with Fleet(tmp_path, ports={"schedule": wishes.append}) as fleet:
        text = await fleet.call("Agent", prompt="p", description="d", schedule="5m", **other)
        assert (text.startswith(f"schedule and {next(iter(other))} do not go together"), wishes) == (True, [])


@pytest.mark.spec("fleet:B80")
async def test_switched_off_scheduling_has_no_parameter(tmp_path):
    async with Fleet(tmp_path, settings=FleetSettings(scheduling=False)) as fleet:
        spec = fleet.tools["Agent"].spec
        assert ("schedule" in spec.parameters["properties"], "6-field cron" in spec.description) == (False, False)
    async with Fleet(tmp_path / "two") as fleet:
        text = await fleet.call("Agent", prompt="p", description="d", schedule="5m")
        assert text.startswith("Scheduler is not active in this session yet")


async def test_limited_budget_is_told(tmp_path):
    async with Fleet(tmp_path, ports={"caller": {"lease": Lease(tokens=5000)}}) as fleet:
        text = await fleet.call("Agent", prompt="p", description="d")
        assert "Budget left: 5000 tokens" in text.splitlines()


async def test_details_describe_the_started_agent(tmp_path):
    async with Fleet(tmp_path, clock=FakeClock()) as fleet:
        result = await fleet.result("Agent", prompt="p", description="  two \n words ")
        assert result.details == {
            "displayName": "Agent",
            "description": "two words",
            "subagentType": "general-purpose",
            "tags": [],
            "status": "background",
            "agentId": fleet.manager.list_runs()[0].id,
        }
