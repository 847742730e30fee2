import json
from dataclasses import dataclass, field

import msgspec
import pytest

from retinue import Reason, Status
from retinue.core.errors import UsageError
from retinue.core.tool import ToolContext
from tests.surfaces.subagent_world import World, ask, finalize, to

SCHEMA = {
    "type": "object",
    "properties": {"verdict": {"enum": ["good", "bad"]}, "lines": {"type": "array", "items": {"type": "integer"}}},
    "required": ["verdict"],
    "additionalProperties": False,
}
JUDGE = "---\nname: judge\ndescription: d\ntools: read\noutput_schema: {schema}\n---\n\nJudge it.\n"
CLERK = "---\nname: clerk\ndescription: d\noutput_schema: {schema}\n---\n\nFile it.\n"
GOOD = {"verdict": "good", "lines": [1, 2]}
INVALID = "SUBAGENT_INVALID_RESULT"
RUNNERS = ["inprocess", "durable", "process"]


def submit(**arguments):
    return {"calls": ask("submit_result", **arguments)}


@pytest.fixture
def world(tmp_path, home):
    made = World(tmp_path, home)
    made.add(JUDGE.format(schema=json.dumps(SCHEMA)))
    return made


@dataclass
class Review:
    verdict: str
    lines: list[int] = field(default_factory=list)


class Notes(msgspec.Struct):
    items: list[str]


@pytest.mark.everywhere
@pytest.mark.parametrize("runner", RUNNERS)
async def test_matching_result_is_structured(world, runner):
    world.set(runner=runner)
    result = await world.call("judge", "look", submit(**GOOD))
    entry = result["details"]["results"][0]
    assert (entry["structured"], json.loads(entry["output"]), "error" in result["details"]) == (GOOD, GOOD, False)
    assert json.loads(result["content"][0]["text"]) == GOOD


@pytest.mark.everywhere
@pytest.mark.parametrize("runner", RUNNERS)
async def test_wrong_result_is_corrected_twice(world, runner):
    world.set(runner=runner)
    wrong = [submit(verdict="odd"), submit(verdict="good", lines="none")]
    result = await world.call("judge", "look", *wrong, submit(**GOOD))
    assert result["details"]["results"][0]["structured"] == GOOD
    failed = await world.call("judge", "look", *wrong, submit(), submit(**GOOD))
    details = failed["details"]
    assert (details["error"]["code"], "structured" in details["results"][0]) == (INVALID, False)
    assert "'verdict' is a required property" in details["error"]["message"]
    assert details["results"][0]["exitCode"] == 1


@pytest.mark.parametrize("runner", RUNNERS)
async def test_text_is_corrected_and_kept(world, runner):
    world.set(runner=runner)
    replies = [{"text": f"It is fine, {number}."} for number in (1, 2, 3, 4)]
    result = await world.call("judge", "look", *replies)
    assert result["details"]["error"]["code"] == INVALID
    assert "It is fine, 3." in result["details"]["results"][0]["output"]
    result = await world.call("judge", "look", replies[0], to("You ended without a valid call", **submit(**GOOD)))
    assert result["details"]["results"][0]["structured"] == GOOD


async def test_text_that_is_the_result_counts(world):
    result = await world.call("judge", "look", {"text": f"```json\n{json.dumps(GOOD)}\n```"})
    assert result["details"]["results"][0]["structured"] == GOOD


@pytest.mark.everywhere
@pytest.mark.parametrize("runner", RUNNERS)
async def test_finalised_result_must_match(world, runner):
    world.set(runner=runner)
    world.add(CLERK.format(schema=json.dumps(SCHEMA)), "subagents")
    wrong = finalize(status="SUCCESS", result={"verdict": "odd"})
    done = await world.call("clerk", "look", wrong, finalize(status="SUCCESS", result=GOOD))
    details = done["details"]
    assert (details["results"][0]["structured"], json.loads(details["finalized"]["result"])) == (GOOD, GOOD)
    text = await world.call("clerk", "look", finalize(status="SUCCESS", result=json.dumps(GOOD)))
    assert text["details"]["results"][0]["structured"] == GOOD
    failed = await world.call("clerk", "look", wrong, wrong, wrong, finalize(status="SUCCESS", result=GOOD))
    assert (failed["details"]["error"]["code"], "finalized" in failed["details"]) == (INVALID, False)
    error = await world.call("clerk", "look", finalize(status="ERROR", error="no file"))
    assert (error["details"]["finalized"]["error"], "structured" in error["details"]["results"][0]) == (
        "no file",
        False,
    )


async def test_calls_of_all_surfaces_take_a_schema(world):
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    world.set(surfaces=["fleet", "subagent", "dispatch"])
    world.add("---\nname: plain\ndescription: d\ntools: read\n---\n\nDo.\n")
    calls = {
        "Agent": {"subagent_type": "plain", "prompt": "one", "description": "d"},
        "subagent": {"agent": "plain", "task": "two"},
        "dispatch_agent": {"agent": "plain", "prompt": "three"},
    }
    replies = [to("^go", calls=ask(name, **given, output_schema=schema)) for name, given in calls.items()]
    words = zip(("one", "two", "three"), (1, 2, 3), strict=True)
    children = [to(f"^(Task: )?{word}\\b", **submit(n=number)) for word, number in words]
    async with world.open(*replies, to("^go", text="done"), *children, to("task-notification", text="ok")) as crew:
        crew.listen(world.events)
        await crew.prompt("go", settle=True)
        records = [record for event in world.events.events if (record := crew.describe_life()(event))]
    results = [each.result for each in world.events.events if type(each).__name__ == "ToolFinished"]
    assert results[1].details["results"][0]["structured"] == {"n": 2}
    assert (results[2].details["structured"], json.loads(results[2].content[0].text)) == ({"n": 3}, {"n": 3})
    done = [record["structured"] for record in records if record["type"] == "subagents:completed"]
    assert sorted(each["n"] for each in done) == [1, 2, 3]


async def test_read_result_has_the_data(world):
    world.set(surfaces=["fleet"])
    async with world.open(to("^look", **submit(**GOOD)), to("^read", text="ok")) as crew:
        run = await crew.spawn("judge", "look")
        assert (await run.wait()).structured == GOOD
        tool = (await crew.open_delegation()).tools["get_subagent_result"]
        result = await tool.call({"agent_id": run.id}, ToolContext(cwd=world.work))
    assert result.details["structured"] == GOOD


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"type": "objekt"}, "not a valid JSON Schema"),
        ({"$ref": "http://127.0.0.1/x"}, "only references inside"),
        ("nothing.json", "there is no file"),
        ("../../../etc/passwd", "there is no file"),
        ({"type": "string", "pattern": "(a+)+$"}, "in agent files only"),
    ],
)
async def test_bad_schema_of_a_call_is_refused(world, schema, words):
    result = await world.ask("judge", "look", output_schema=schema)
    assert (result.details["error"]["code"], words in result.details["error"]["message"]) == ("INVALID_INPUT", True)


@pytest.mark.parametrize("kind", [Review, SCHEMA])
async def test_python_gets_its_type(world, kind):
    world.add("---\nname: plain\ndescription: d\ntools: read\n---\n\nDo.\n")
    async with world.open(to("^look", **submit(**GOOD)), *[to("bad", **submit(lines=["x"]))] * 3) as crew:
        outcome = await crew.run("plain", "look", output=kind)
        assert outcome.output == (Review("good", [1, 2]) if kind is Review else GOOD)
        assert (outcome.structured, outcome.status) == (GOOD, Status.COMPLETED)
        failed = await crew.run("plain", "bad", output=kind)
        assert (failed.status, failed.reason, failed.output) == (Status.FAILED, Reason.INVALID_RESULT, None)
        assert failed.error.startswith(f"[{INVALID}] ")
        with pytest.raises(UsageError, match="expected a dataclass"):
            await crew.run("plain", "look", output=object())


async def test_python_takes_structs_and_models(world):
    pydantic = pytest.importorskip("pydantic")
    model = pydantic.create_model("Model", n=(int, ...))
    world.add("---\nname: plain\ndescription: d\ntools: read\n---\n\nDo.\n")
    replies = [to("^a", **submit(items=["x"])), to("^b", **submit(n=4)), to("^c", **submit(result=[1, 2]))]
    async with world.open(*replies) as crew:
        outputs = [
            (await crew.run("plain", word, output=kind)).output
            for word, kind in (("a", Notes), ("b", model), ("c", list[int]))
        ]
        plain = await crew.run("plain", "a", output=None)
    assert outputs == [Notes(["x"]), model(n=4), [1, 2]]
    assert (plain.output, plain.structured) == (None, None)


async def test_resumed_run_keeps_its_schema(world):
    async with world.open(to("^look", **submit(**GOOD)), to("^again", **submit(verdict="bad"))) as crew:
        run = await crew.spawn("judge", "look")
        first = await run.wait()
        again = await (await crew.resume(run.id, "again")).wait()
    assert (first.structured, again.structured) == (GOOD, {"verdict": "bad"})
