import json
import os
import sys

import pytest

from retinue.core.run import Status
from retinue.settings.consent import save_consent
from retinue.settings.entry_approval import EntryApproval
from retinue.settings.hooks import load_hooks
from retinue.settings.paths import find_paths
from tests.surfaces.dispatch_world import World, call, dispatch, to

SPAWN = "agent.subagent.spawn.before"


@pytest.fixture
def world(home, tmp_path):
    world = World(home, tmp_path)
    world.agent()
    return world


def look(**reply):
    return to("^look", **reply)


@pytest.mark.spec("codingcode:18")
async def test_denied_spawn_leaves_nothing(world):
    world.hooks(
        world.hook("guard", SPAWN, {"decision": "deny", "reason": "not today"}),
        world.hook("after", "agent.subagent.spawn.after", kind="observer"),
        world.hook("done", "agent.subagent.complete", kind="observer"),
    )
    text = await world.dispatch(look(text="never"))
    assert text == '[Denied] Tool "dispatch_agent" was denied: Subagent spawn denied: not today'
    assert (world.children(), world.seen("after"), world.seen("done")) == ([], [], [])
    assert not [entry for entry in world.entries if entry.get("customType") == "retinue.crew"]


@pytest.mark.spec("codingcode:19")
async def test_denial_without_reason_says_so(world):
    world.hooks(world.hook("guard", SPAWN, {"decision": "deny"}))
    text = await world.dispatch(look(text="never"))
    assert text.endswith("Subagent spawn denied: no reason provided")


@pytest.mark.spec("codingcode:20", "codingcode:37")
@pytest.mark.parametrize("answer", [{"decision": "ask"}, {"decision": "continue"}, {"decision": None}, "null", None])
async def test_other_answers_proceed(world, answer):
    said = None if answer == "null" else answer
    world.hooks(world.hook("guard", SPAWN, said, code="print('null')" if answer == "null" else ""))
    assert await world.dispatch(look(text="went on")) == "went on"


@pytest.mark.spec("codingcode:20")
@pytest.mark.parametrize("given", [{"prompt": "something else"}, "rubbish"])
async def test_spawn_is_not_changed(world, given):
    world.hooks(world.hook("guard", SPAWN, {"decision": "continue", "modifiedInput": given}))
    assert await world.dispatch(look(text="went on")) == "went on"


@pytest.mark.spec("codingcode:21")
async def test_hooks_fire_in_order(world):
    points = {"before": SPAWN, "after": "agent.subagent.spawn.after", "done": "agent.subagent.complete"}
    world.hooks(*(world.hook("all-" + name, point, kind="observer") for name, point in points.items()))
    await world.dispatch(look(text="hi"))
    (before,), (after,), (done,) = (world.seen("all-" + name) for name in points)
    child = world.child()[0]["id"]
    shared = {"projectPath": str(world.work), "sessionId": "main-session"}
    assert before.items() >= {**shared, "prompt": "look around", "parentSessionId": "main-session"}.items()
    assert after.items() >= {**shared, "childSessionId": child}.items()
    assert done.items() >= {**shared, "childSessionId": child, "status": "done"}.items()
    assert [each["profile"]["name"] for each in (before, after, done)] == ["helper"] * 3
    times = [os.stat(world.work / f".all-{name}.jsonl").st_mtime_ns for name in points]
    assert times == sorted(times)


@pytest.mark.spec("codingcode:29")
async def test_profile_hooks_live_with_the_run(world):
    hook = world.hook("own", "tool.execute.before", kind="observer")
    world.agent(fields=f"tools: [search_files]\nhooks: [{json.dumps(hook)}]\n")
    mine = [call("find", pattern="*")]
    replies = (
        to("^begin", calls=mine),
        to("^begin", calls=[dispatch()]),
        to("^begin", calls=mine),
        to("^begin", text="done"),
        look(calls=[call("search_files", pattern="*")]),
        look(text="hi"),
    )
    await world.run(*replies)
    (seen,) = world.seen("own")
    facts = {
        "toolName": "search_files",
        "args": {"pattern": "*"},
        "agent": "helper",
        "sessionId": world.child()[0]["id"],
    }
    assert seen.items() >= facts.items()


@pytest.mark.spec("codingcode:37")
@pytest.mark.parametrize("code", ["sys.exit(3)", "print('rubbish')", 'print(\'{"decision": "maybe"}\')'])
async def test_failing_hook_has_no_opinion(world, code):
    world.hooks(world.hook("stop", "agent.turn.stop", code=code))
    await world.run(to("^begin", text="one answer"))
    assert (world.outcome.status, world.outcome.text, world.outcome.turns) == (Status.COMPLETED, "one answer", 1)
    assert len(world.seen("stop")) == 1


@pytest.mark.attack("F8")
@pytest.mark.spec("codingcode:37")
@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("sys.exit(127)", "ended with status 127"),
        ("raise SystemExit('broken on purpose')", "broken on purpose"),
        ("print('rubbish')", "instead of a JSON object"),
        ("print('[1]')", "instead of an object with a decision"),
        ("sys.stdout.write('x' * 50_000_000)", "printed more than 262144 bytes"),
    ],
)
async def test_failing_guard_denies(world, code, reason):
    world.hooks(world.hook("guard", SPAWN, code=code))
    text = await world.dispatch(look(text="never"))
    assert "Subagent spawn denied: the hook 'guard' " in text and reason in text
    assert world.children() == []


@pytest.mark.attack("F8")
async def test_deleted_guard_denies(world):
    entry = {**world.hook("guard", SPAWN), "command": str(world.folder / "gone")}
    world.hooks(entry)
    assert "there is no program" in await world.dispatch(look(text="never"))


@pytest.mark.attack("F8")
async def test_misspelt_guard_denies(world):
    world.hooks({**world.hook("guard", SPAWN), "type": "decison"})
    assert "hooks[0].type: found 'decison'" in await world.dispatch(look(text="never"))
    assert any("hooks[0].type: found 'decison'; expected observer or decision" in line for line in world.said)


@pytest.mark.spec("codingcode:38")
async def test_first_opinion_wins(world):
    world.hooks(
        {**world.hook("low", SPAWN, {"decision": "deny", "reason": "low"}), "priority": 1},
        {**world.hook("high", SPAWN, {"decision": "continue"}), "priority": 9},
        {**world.hook("none", SPAWN), "priority": 20},
    )
    assert await world.dispatch(look(text="went on")) == "went on"
    assert [len(world.seen(name)) for name in ("none", "high", "low")] == [1, 1, 0]


@pytest.mark.spec("codingcode:38")
async def test_failure_does_not_block_the_next(world):
    world.hooks(
        {**world.hook("broken", "agent.turn.stop", code="sys.exit(1)"), "priority": 9},
        world.hook("next", "agent.turn.stop", {"decision": "continue", "injection": "say more"}),
    )
    await world.run(to("^begin", text="one"), to("say more", text="two"))
    assert len(world.seen("broken")) == len(world.seen("next")) == 3


@pytest.mark.spec("codingcode:39")
async def test_failing_observer_fails_nothing(world):
    entry = world.hook("watch", "tool.execute.before", kind="observer", code="sys.exit(1)")
    world.hooks(entry, {**entry, "name": "gone", "command": "/no/such/program"})
    replies = (to("^begin", calls=[call("ls")]), to("^begin", text="done"))
    (text,) = await world.run(*replies)
    assert (world.outcome.text, "not found" in text, len(world.seen("watch"))) == ("done", False, 1)


@pytest.mark.spec("codingcode:40")
async def test_stop_hook_continues_twice(world):
    world.hooks(world.hook("stop", "agent.turn.stop", {"decision": "continue"}))
    await world.run({"text": "one"}, {"text": "two"}, {"text": "three"})
    assert world.outcome.status is Status.FAILED
    assert world.outcome.error.startswith("[AGENT_LOOP_DETECTED] ")
    said = [e["message"]["content"][0]["text"] for e in world.entries if e.get("message", {}).get("role") == "user"]
    assert said == ["begin", "(continue)", "(continue)"]
    assert [each["content"] for each in world.seen("stop")] == ["one", "two", "three"]


@pytest.mark.spec("codingcode:44")
async def test_disabled_hooks_do_not_run(world):
    deny = {"decision": "deny"}
    world.hooks({**world.hook("off", SPAWN, deny), "enabled": False}, world.hook("switched", SPAWN, deny))
    world.put("config.yaml", "hooks:\n  disabledHooks:\n    switched: true\n")
    assert await world.dispatch(look(text="went on")) == "went on"
    assert (world.seen("off"), world.seen("switched")) == ([], [])


@pytest.mark.here("its worker has the same hooks here, and asks them as well")
async def test_every_point_is_told(world):
    from retinue.features.hooks.points import DECIDED, OBSERVED

    points = [*OBSERVED, *DECIDED]
    kinds = {point: "decision" if point in DECIDED else "observer" for point in points}
    world.hooks(*(world.hook(f"h{number}", point, kind=kinds[point]) for number, point in enumerate(points)))
    world.settings(approvalRules=[{"tool": "bash", "action": "deny"}])
    replies = (
        to("^begin", calls=[call("ls"), call("read", path="nothing"), call("bash", command="true"), dispatch()]),
        to("^begin", error={"kind": "auth", "message": "no key"}),
        look(text="hi"),
    )
    await world.run(*replies)
    told = {point: world.seen(f"h{number}") for number, point in enumerate(points)}
    assert [point for point, seen in told.items() if not seen] == []
    assert all(each["projectPath"] == str(world.work) and each["sessionId"] for seen in told.values() for each in seen)
    (denied,) = told["tool.execute.denied"]
    assert denied.items() >= {"toolName": "bash", "args": {"command": "true"}, "source": "rule"}.items()
    (failed,) = told["tool.execute.error"]
    assert failed["toolName"] == "read" and "nothing" in failed["error"]
    assert sorted(each["agent"] for each in told["llm.request.before"]) == ["", "", "helper"]
    ends = [each["status"] for each in told["agent.turn.end"]]
    assert ends == ["done", "error"]


@pytest.mark.attack("F9")
async def test_hook_input_is_only_data(world):
    evil = "$(touch pwned) `touch pwned`; touch pwned\n' \" --flag"
    world.hooks(world.hook("watch", "tool.execute.before", kind="observer"))
    (world.work / "a").mkdir()
    await world.run(to("^begin", calls=[call("read", path=evil)]), to("^begin", text="done"))
    (seen,) = world.seen("watch")
    assert seen["args"] == {"path": evil}
    assert not list(world.work.rglob("pwned")) and not list(world.folder.glob("pwned"))


@pytest.mark.attack("F8")
async def test_hook_gets_no_keys(world, monkeypatch):
    monkeypatch.setenv("ANTHROPIC_API_KEY", "secret")
    monkeypatch.setenv("MY_OWN", "thing")
    code = f"import os; open({str(world.folder / 'env')!r}, 'w').write(json.dumps(dict(os.environ)))"
    world.hooks({**world.hook("watch", "agent.turn.start", kind="observer", code=code), "env": {"MODE": "strict"}})
    await world.run(to("^begin", text="done"))
    seen = json.loads((world.folder / "env").read_text())
    assert (seen["MODE"], "PATH" in seen, "ANTHROPIC_API_KEY" in seen, "MY_OWN" in seen) == (
        "strict",
        True,
        False,
        False,
    )


@pytest.mark.attack("A1")
async def test_untrusted_project_hook_is_not_run(world):
    world.hooks(world.hook("evil", "agent.turn.start", kind="observer"), in_project=True)
    await world.run(to("^begin", text="done"), approve=None)
    assert world.seen("evil") == []
    assert any("is not trusted" in line and ".codingcode" in line for line in world.said)


@pytest.mark.attack("A1", "A12")
async def test_project_hook_needs_its_own_yes(world):
    world.hooks(world.hook("theirs", "agent.turn.start", kind="observer"), in_project=True)
    paths = find_paths(world.work, os.environ)
    await world.run(to("^begin", text="done"))
    assert world.seen("theirs") == []
    assert any("hook 'theirs' of this project is not approved: skipped" in line for line in world.said)
    save_consent(paths, "hooks", "theirs", load_hooks(paths, trusted=True).find("theirs").entry)
    await world.run(to("^begin", text="done"))
    assert len(world.seen("theirs")) == 1


@pytest.mark.attack("A12")
@pytest.mark.parametrize("change", [{"args": ["-c", "pass"]}, {"env": {"A": "b"}}, {"command": "/bin/true"}])
async def test_changed_project_hook_asks_again(world, change):
    entry = world.hook("theirs", "agent.turn.start", kind="observer")
    world.hooks(entry, in_project=True)
    paths = find_paths(world.work, os.environ)
    save_consent(paths, "hooks", "theirs", load_hooks(paths, trusted=True).find("theirs").entry)
    world.hooks({**entry, **change}, in_project=True)
    found = load_hooks(paths, trusted=True).find("theirs")
    assert (found.state, found.notice.startswith("hook 'theirs' of this project has changed")) == ("changed", True)


@pytest.mark.attack("A12")
def test_changed_script_asks_again(world):
    script = world.put("check.py", "print('{}')", in_project=True)
    entry = {
        "name": "own",
        "point": SPAWN,
        "type": "decision",
        "command": sys.executable,
        "args": [".codingcode/check.py"],
    }
    world.hooks(entry, in_project=True)
    paths = find_paths(world.work, os.environ)
    save_consent(paths, "hooks", "own", load_hooks(paths, trusted=True).find("own").entry)
    assert load_hooks(paths, trusted=True).find("own").state == "ready"
    script.write_text('print(\'{"decision": "allow"}\')')
    assert load_hooks(paths, trusted=True).find("own").state == "changed"


async def test_project_cannot_disarm_a_guard(world):
    deny = {"decision": "deny", "reason": "the user said no"}
    world.hooks(world.hook("guard", SPAWN, deny))
    world.hooks({**world.hook("other", SPAWN, {"decision": "continue"}), "name": "guard"}, in_project=True)
    world.put("config.yaml", "hooks:\n  disabledHooks:\n    guard: true\n", in_project=True)
    paths = find_paths(world.work, os.environ)
    save_consent(paths, "hooks", "guard", load_hooks(paths, trusted=True).find("guard").entry)
    assert "the user said no" in await world.dispatch(look(text="never"))
    assert any("a project cannot disable it" in line for line in world.said)


async def test_hooks_stay_when_the_model_changes(world):
    from retinue.models.scripted import ScriptedModel, parse_script

    world.hooks(world.hook("watch", "llm.request.before", kind="observer"))
    other = ScriptedModel(parse_script([{"text": "unused"}, {"text": "from the other"}]))
    async with world.open(to("^begin", calls=[call("ls")]), to("^begin", text="never")) as crew:
        main = crew._main
        crew.listen(lambda event: main.change(model=other) if type(event).__name__ == "ToolStarted" else None)
        outcome = await crew.prompt("begin")
    assert (outcome.text, outcome.error) == ("from the other", "")
    assert [each["step"] for each in world.seen("watch")] == [1, 2]


@pytest.mark.parametrize(("runner", "told"), [("pi", "hooks are set"), ("process", "its file has hooks")])
async def test_unguarded_runner_is_refused(world, runner, told):
    hook = world.hook("own", "tool.approval.pre")
    path = world.agent(fields=f"hooks: [{json.dumps(hook)}]\n")
    assert path.exists()
    world.settings(surfaces=["fleet"], runner=runner)
    async with world.open() as crew:
        run = await crew.spawn("helper", "look around")
        outcome = await run.wait(5)
    assert (outcome.status, told in outcome.error) == (Status.FAILED, True)


async def test_dispatched_agent_stays_here(world):
    world.settings(runner="process")
    world.hooks(world.hook("watch", "agent.turn.start", kind="observer"))
    assert await world.dispatch(look(calls=[call("write_file", path="a", content="")]), look(text="tried")) == "tried"
    assert world.results(world.child())[0].startswith('[Denied] Tool "write_file"')


@pytest.mark.spec("codingcode:40")
@pytest.mark.parametrize(("most", "turns"), [(0, 1), (1, 2)])
async def test_continuations_are_configured(world, most, turns):
    world.put("config.yaml", f"maxStopContinuations: {most}\n")
    world.hooks(world.hook("stop", "agent.turn.stop", {"decision": "continue"}))
    await world.run({"text": "one"}, {"text": "two"}, {"text": "three"})
    assert (world.outcome.turns, world.outcome.error) == (
        turns,
        f"[AGENT_LOOP_DETECTED] Stop hooks sent the run back more than {most} times",
    )


@pytest.mark.attack("A1", "A12")
async def test_hooks_of_project_agents_need_a_yes(world, monkeypatch, crew_runner):
    # At the face of a run elsewhere a project's hook can write nothing.
    keeps = crew_runner != "cluster"
    hook = world.hook("own", "tool.approval.pre", {"decision": "deny", "reason": "said theirs"}, keeps=keeps)
    world.agent("theirs", f"tools: [search_files]\nhooks: [{json.dumps(hook)}]\n", in_project=True)
    replies = (look(calls=[call("search_files", pattern="*")]), look(text="hi"))
    assert await world.dispatch(*replies, agent="theirs") == "hi"
    before = world.children()
    assert world.seen("own") == []
    assert any("hook 'theirs/own' of this project is not approved" in line for line in world.said)
    monkeypatch.chdir(world.work)
    EntryApproval("theirs/own", kind="hook", approve=True).decide(True)
    assert await world.dispatch(*replies, agent="theirs") == "hi"
    said = [world.results(world.read(path)) for path in (*before, *(set(world.children()) - {*before}))]
    assert ["was denied: said theirs" in text for (text,) in said] == [False, True]
    assert len(world.seen("own")) == keeps
