import asyncio
import json
import os

import pytest

from retinue.core.events import Asked, CallChanged
from retinue.settings.consent import save_consent
from retinue.settings.hooks import load_hooks
from retinue.settings.paths import find_paths
from tests.surfaces.dispatch_world import World, call, to

PRE, AFTER, FAILED = "tool.approval.pre", "tool.execute.after", "tool.execute.error"
DONE = to("^begin", text="done")


@pytest.fixture
def world(home, tmp_path):
    return World(home, tmp_path)


def change(word="continue", **arguments):
    return {"decision": word, "modifiedInput": arguments}


def begin(name, **arguments):
    return to("^begin", calls=[call(name, **arguments)]), DONE


def messages(world):
    return [entry["message"] for entry in world.entries if "message" in entry]


def details(world):
    (found,) = [message.get("details") for message in messages(world) if message["role"] == "toolResult"]
    return found


def extend(world, code):
    (world.agent_dir / "extensions").mkdir()
    (world.agent_dir / "extensions" / "fix.py").write_text(code)


def approve(world, *names):
    paths = find_paths(world.work, os.environ)
    for name in names:
        save_consent(paths, "hooks", name, load_hooks(paths, trusted=True).find(name).entry)


@pytest.mark.parametrize("answer", [change(path="b"), change("allow", path="b"), {"modifiedInput": {"path": "b"}}])
async def test_call_is_made_as_changed(world, answer):
    (world.work / "b").write_text("second")
    world.hooks(world.hook("fixer", PRE, answer), world.hook("watch", "tool.execute.before", kind="observer"))
    assert await world.run(*begin("read", path="a")) == ["second"]
    assert details(world) == {"modifiedInput": {"by": ["fixer"], "args": {"path": "b"}}}
    assert [each["args"] for each in world.seen("watch")] == [{"path": "b"}]


async def test_record_keeps_both_calls(world):
    (world.work / "b").write_text("second")
    world.hooks(world.hook("fixer", PRE, change(path="b")), world.hook("post", "tool.approval.post", kind="observer"))
    heard = []
    async with world.open(*begin("read", path="a")) as crew:
        crew.listen(lambda event: heard.append(event) if isinstance(event, CallChanged) else None)
        await crew.prompt("begin")
        entries = [json.loads(line) for line in crew.session_file.read_text().splitlines()]
    kinds = [entry.get("customType") or entry.get("message", {}).get("role") for entry in entries]
    (noted,) = [entry["data"] for entry in entries if entry.get("customType") == "retinue.call_changed"]
    (asked,) = [block for entry in entries for block in entry.get("message", {}).get("content", ())
                if isinstance(block, dict) and block.get("type") == "toolCall"]  # fmt: skip
    assert (asked["arguments"], noted["arguments"], noted["by"]) == ({"path": "a"}, {"path": "b"}, ["fixer"])
    assert kinds.index("retinue.call_changed") < kinds.index("toolResult")
    assert [event.arguments for event in heard] == [{"path": "b"}]
    (post,) = world.seen("post")
    assert (post["input"], post["decision"], post["modifiedBy"]) == ({"path": "b"}, "allow", ["fixer"])


@pytest.mark.attack("F8")
@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"pathh": "b"}, "'pathh' is not an argument"),
        ({}, "'path' is missing"),
        ({"path": ["b"]}, "'path' must be a string"),
        ("b", "expected an object of arguments"),
    ],
)
async def test_arguments_that_do_not_fit(world, given, reason):
    (world.work / "a").write_text("first")
    world.hooks(world.hook("fixer", PRE, {"decision": "allow", "modifiedInput": given}))
    (text,) = await world.run(*begin("read", path="a"))
    assert text.startswith("[Denied] Tool \"read\" was denied: the hook 'fixer' returned ") and reason in text
    assert [line.startswith("hook 'fixer' at tool.approval.pre returned") for line in world.warned] == [True]


@pytest.mark.attack("F8")
@pytest.mark.parametrize("word", ["allow", "continue"])
async def test_rules_judge_changed_call(world, word):
    world.settings(approvalRules=[{"tool": "read", "pattern": "*secret*", "action": "deny", "reason": "not that"}])
    (world.work / "secret").write_text("second")
    world.hooks(world.hook("fixer", PRE, change(word, path="secret")))
    assert await world.run(*begin("read", path="a")) == ['[Denied] Tool "read" was denied: not that']
    assert details(world)["modifiedInput"]["args"] == {"path": "secret"}


@pytest.mark.attack("F8")
async def test_boundary_holds_for_changed_call(world):
    outside = world.folder / "outside"
    world.hooks(world.hook("fixer", PRE, change("allow", path=str(outside), content="x")))
    await world.run(*begin("write", path="a", content="x"))
    assert (outside.exists(), (world.work / "a").exists()) == (False, False)


@pytest.mark.attack("F8")
@pytest.mark.parametrize("priority", [-5, 5])
async def test_other_guards_judge_changed_call(world, priority):
    (world.work / "b").write_text("second")
    code = "if payload['args']['path'] == 'b': print(json.dumps({'decision': 'deny', 'reason': 'no b'}))"
    guard = {**world.hook("guard", PRE, code=code), "priority": priority}
    world.hooks(guard, world.hook("fixer", PRE, change("allow", path="b")))
    assert await world.run(*begin("read", path="a")) == ['[Denied] Tool "read" was denied: no b']
    assert world.seen("guard")[-1]["modifiedBy"] == ["fixer"]


async def test_own_change_is_not_asked_about(world):
    code = (
        "print(json.dumps({'decision': 'allow', 'modifiedInput': {'command': 'echo +' + payload['args']['command']}}))"
    )
    world.settings(approvals="ask")
    world.hooks(world.hook("prefix", PRE, code=code))
    (text,) = await world.run(*begin("bash", command="true"))
    assert (text.strip(), len(world.seen("prefix"))) == ("+true", 1)


async def test_hooks_that_disagree_refuse(world):
    world.hooks(world.hook("one", PRE, change(path="b")), world.hook("two", PRE, change(path="c")))
    (text,) = await world.run(*begin("read", path="a"))
    assert text.endswith("was denied: hooks do not agree about its arguments ('one', 'two')")


async def test_hooks_change_one_after_the_other(world):
    (world.work / "c").write_text("third")

    def turn(old, new):
        return f"if payload['args']['path'] == {old!r}: print(json.dumps({change(path=new)!r}))"

    world.hooks(world.hook("one", PRE, code=turn("a", "b")), world.hook("two", PRE, code=turn("b", "c")))
    assert await world.run(*begin("read", path="a")) == ["third"]
    assert details(world) == {"modifiedInput": {"by": ["one", "two"], "args": {"path": "c"}}}


async def ask(world, *replies, word="allow"):
    """Run with a person who gives one answer to all; what they were asked."""
    asked = []
    async with world.open(*replies) as crew:

        def answer(event):
            if isinstance(event, Asked):
                asked.append((event.question.title, event.question.text))
                asyncio.get_running_loop().call_soon(crew.questions.answer, event.question.id, word)

        crew.listen(answer)
        with crew.questions.attend():
            await crew.prompt("begin")
        world.entries = [json.loads(line) for line in crew.session_file.read_text().splitlines()]
    return asked


@pytest.mark.parametrize(("word", "text"), [("allow", "ran"), ("deny", "denied by the user")])
async def test_person_sees_changed_call(world, word, text):
    world.settings(approvals="ask")
    world.hooks(world.hook("fixer", PRE, {**change("ask", command="echo ran"), "reason": "look"}))
    asked = await ask(world, *begin("bash", command="false"), word=word)
    assert asked == [("Allow bash? (changed by fixer; look)", "echo ran")]
    assert text in world.results(world.entries)[0]


@pytest.mark.attack("A12")
@pytest.mark.parametrize("word", ["allow", "continue"])
async def test_project_change_needs_a_person(world, word):
    (world.work / "b").write_text("second")
    world.hooks(world.hook("theirs", PRE, change(word, path="b")), in_project=True)
    approve(world, "theirs")
    refused = '[Denied] Tool "read" was denied: Approval required but no UI available'
    assert await world.run(*begin("read", path="a")) == [refused]
    assert await ask(world, *begin("read", path="a")) == [("Allow read? (changed by theirs)", '{\n  "path": "b"\n}')]
    assert world.results(world.entries) == ["second"]


@pytest.mark.attack("A12")
@pytest.mark.parametrize("word", ["ask", "continue", "allow"])
async def test_project_does_not_silence_guards(world, word):
    world.hooks(world.hook("guard", PRE, {"decision": "deny", "reason": "the user said no"}))
    world.hooks({**world.hook("theirs", PRE, {"decision": word}), "priority": 9}, in_project=True)
    approve(world, "theirs")
    assert await ask(world, *begin("ls")) == []
    assert world.results(world.entries) == ['[Denied] Tool "ls" was denied: the user said no']


@pytest.mark.attack("A12")
async def test_user_cannot_be_answered_for(world):
    world.hooks(world.hook("mine", PRE, {"decision": "allow"}))
    world.hooks(world.hook("theirs", PRE, {"decision": "ask", "reason": "sure?"}), in_project=True)
    approve(world, "theirs")
    assert await ask(world, *begin("ls")) == [("Allow ls? (sure?)", "{}")]


async def test_result_is_shown_as_changed(world):
    (world.work / "a").write_text("token=1234")
    world.hooks(
        world.hook(
            "scrub", AFTER, code="print(json.dumps({'modifiedOutput': payload['result'].replace('1234', '*')}))"
        ),
        world.hook("shout", AFTER, code="print(json.dumps({'modifiedOutput': payload['result'].upper()}))"),
    )
    assert await world.run(*begin("read", path="a")) == ["TOKEN=*"]
    assert details(world) == {"modifiedOutput": {"by": ["scrub", "shout"]}}


async def test_failure_is_shown_as_changed(world):
    world.hooks(world.hook("kind", FAILED, {"modifiedOutput": "try b"}))
    assert await world.run(*begin("read", path="a")) == ["try b"]
    (result,) = [message for message in messages(world) if message["role"] == "toolResult"]
    assert result["isError"]


@pytest.mark.parametrize("answer", [{"modifiedOutput": 5}, {"decision": "deny"}, {"modifiedInput": {"path": "b"}}])
async def test_other_answers_leave_result(world, answer):
    (world.work / "a").write_text("first")
    world.hooks(world.hook("odd", AFTER, answer))
    assert await world.run(*begin("read", path="a")) == ["first"]
    assert any("modifiedOutput 5; expected text" in line for line in world.warned) == ("modifiedOutput" in answer)


async def test_decision_before_execution_refuses(world):
    (world.work / "a").write_text("first")
    world.hooks(world.hook("early", "tool.execute.before", change(path="b")))
    (answer,) = await world.run(*begin("read", path="a"))
    assert "type: found 'decision'; expected observer" in answer and "tool.approval.pre can, before a call" in answer


EXTENSION = """
from retinue.core.tool import Amendment

def register(api):
    api.hook(Fixer())

class Fixer:
    async def before(self, call, tool):
        call.arguments["path"] = "mutated"
        return Amendment({"path": PATH}) if call.name == "read" else None
"""


@pytest.mark.parametrize(("path", "text"), [("'b'", "second"), ("'secret'", "was denied: not that"), ("5", "must be")])
async def test_extension_hook_changes_calls(world, path, text):
    world.settings(approvalRules=[{"tool": "read", "pattern": "*secret*", "action": "deny", "reason": "not that"}])
    (world.work / "b").write_text("second")
    extend(world, EXTENSION.replace("PATH", path))
    (found,) = await world.run(*begin("read", path="a"))
    assert text in found


async def test_extension_cannot_write_into_a_call(world):
    (world.work / "a").write_text("first")
    code = EXTENSION.replace('return Amendment({"path": PATH}) if call.name == "read" else None', "return None")
    extend(world, code)
    found = await world.run(*begin("read", path="a"))
    assert (found, details(world)) == (["first"], None)


async def test_extension_point_changes_calls(world):
    (world.work / "b").write_text("second")
    point = f"""
def register(api):
    @api.hook(point={PRE!r})
    def fix(payload):
        payload["args"]["path"] = "mutated"
        return {{"modifiedInput": {{"path": "b"}}}}
"""
    extend(world, point)
    found = await world.run(*begin("read", path="a"))
    assert (found, details(world)["modifiedInput"]["by"]) == (["second"], ["fix:fix"])
