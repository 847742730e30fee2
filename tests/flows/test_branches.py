"""Going on from an earlier point of the same session, from Python: what the file says, and what becomes of runs."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from retinue import Retinue, Status
from retinue.core.errors import CompactionFailed, RetinueError, SessionError
from retinue.core.messages import BranchSummaryMessage, CustomMessage, UserMessage
from tests.flows.crew_world import SESSION, call, script, to

LOOK = call("Agent", subagent_type="Explore", prompt="look", description="a look")
HELLO = (to("^one", text="One."), to("^two", text="Two."), to("^three", text="Three."))


def read_entries(crew):
    return [json.loads(line) for line in Path(crew.history.file).read_text().splitlines()][1:]


def list_talk(crew):
    """What the model sees: the user's words and the replies."""
    shown = []
    for message in crew.history.list_messages():
        if isinstance(message, UserMessage):
            shown.append(message.content[0].text)
        elif hasattr(message, "text"):
            shown.append(message.text)
    return shown


def find_entry(crew, words):
    """The entry that says something."""
    for entry in reversed(crew.history.list_entries()):
        message = entry.get("message", {})
        if any(part.get("text") == words for part in message.get("content") or () if isinstance(part, dict)):
            return entry["id"]
    raise AssertionError(words)


async def say(crew, *prompts):
    for words in prompts:
        await crew.prompt(words)


async def test_next_words_hang_on_chosen_entry(tmp_path):
    async with Retinue(tmp_path, model=script(tmp_path, *HELLO)) as crew:
        await say(crew, "one", "two")
        file, before, chosen = crew.history.file, read_entries(crew), find_entry(crew, "One.")
        assert await crew.branching.go(chosen) == ""
        assert read_entries(crew) == before  # the leaf alone has moved
        await crew.prompt("three")
        said = [entry for entry in read_entries(crew) if entry["id"] == find_entry(crew, "three")]
        assert (crew.history.file, said[0]["parentId"]) == (file, chosen)
        assert list_talk(crew) == ["one", "One.", "three", "Three."]


async def test_own_words_are_said_again(tmp_path):
    async with Retinue(tmp_path, model=script(tmp_path, *HELLO)) as crew:
        await say(crew, "one", "two")
        assert await crew.branching.go(find_entry(crew, "two")) == "two"
        assert list_talk(crew) == ["one", "One."]
        assert await crew.branching.go(find_entry(crew, "one")) == "one"
        await crew.prompt("three")
        assert list_talk(crew) == ["three", "Three."]


async def test_other_branch_can_be_returned_to(tmp_path):
    async with Retinue(tmp_path, model=script(tmp_path, *HELLO)) as crew:
        await say(crew, "one", "two")
        await crew.branching.go(find_entry(crew, "One."))
        await crew.prompt("three")
        await crew.branching.go(find_entry(crew, "Two."))
        assert list_talk(crew) == ["one", "One.", "two", "Two."]


async def test_summary_begins_the_branch(tmp_path):
    summary = to("a branch that the user has left", text="## Goal\nTwo.", usage={"input": 7, "output": 3})
    async with Retinue(tmp_path, model=script(tmp_path, *HELLO, summary)) as crew:
        await say(crew, "one", "two")
        former, chosen = crew.history.leaf_id, find_entry(crew, "One.")
        await crew.branching.go(chosen, summarise=True, instructions="the tests")
        entry = read_entries(crew)[-1]
        assert {name: entry[name] for name in ("type", "parentId", "fromId", "details")} == {
            "type": "branch_summary",
            "parentId": chosen,
            "fromId": former,
            "details": {"readFiles": [], "modifiedFiles": []},
        }
        assert entry["summary"].endswith("## Goal\nTwo.") and entry["usage"]["output"] == 3
        assert "fromHook" not in entry
        await crew.prompt("three")
        assert [type(message) for message in crew.history.list_messages()].count(BranchSummaryMessage) == 1


async def test_failed_summary_changes_nothing(tmp_path):
    broken = to("a branch that the user has left", error="no such thing")
    async with Retinue(tmp_path, model=script(tmp_path, *HELLO, broken)) as crew:
        await say(crew, "one", "two")
        before = (crew.history.leaf_id, read_entries(crew))
        with pytest.raises(CompactionFailed):
            await crew.branching.go(find_entry(crew, "One."), summarise=True)
        assert (crew.history.leaf_id, read_entries(crew)) == before


async def test_summary_given_up_changes_nothing(tmp_path):
    slow = to("a branch that the user has left", text="notes", delay_ms=5000)
    async with Retinue(tmp_path, model=script(tmp_path, *HELLO, slow)) as crew:
        await say(crew, "one", "two")
        before = (crew.history.leaf_id, read_entries(crew))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await crew.branching.go(find_entry(crew, "One."), summarise=True)
        assert (crew.history.leaf_id, read_entries(crew)) == before


async def test_working_agent_keeps_its_branch(tmp_path):
    slow = to("^two", text="Two.", delay_ms=300)
    async with Retinue(tmp_path, model=script(tmp_path, HELLO[0], slow)) as crew, asyncio.TaskGroup() as group:
        await crew.prompt("one")
        work = group.create_task(crew.prompt("two"))
        await asyncio.sleep(0.05)
        with pytest.raises(RetinueError, match="stop it or wait"):
            await crew.branching.go(find_entry(crew, "One."))
        assert (await work).text == "Two."


async def test_unknown_entry_is_refused(tmp_path):
    async with Retinue(tmp_path, model=script(tmp_path, *HELLO)) as crew:
        await crew.prompt("one")
        with pytest.raises(SessionError, match="Entry not found"):
            await crew.branching.go("nowhere")


async def test_place_without_words_after_is_here(tmp_path):
    async with Retinue(tmp_path, model=script(tmp_path, *HELLO)) as crew:
        await say(crew, "one", "two")
        crew.history.label(find_entry(crew, "one"), "mark")
        asked = [find_entry(crew, words) for words in ("Two.", "two", "One.")]
        assert [crew.branching.is_here(entry_id) for entry_id in asked] == [True, False, False]


async def test_call_left_without_result_is_answered(tmp_path):
    replies = (to("^one", calls=[call("ls")]), to("^one", text="One."), HELLO[2])
    async with Retinue(tmp_path, model=script(tmp_path, *replies)) as crew:
        await crew.prompt("one")
        calling = next(
            entry["id"] for entry in crew.history.list_entries() if '"toolCall"' in json.dumps(entry.get("message"))
        )
        await crew.branching.go(calling)
        outcome = await crew.prompt("three")
        results = [message for message in crew.history.list_messages() if hasattr(message, "tool_call_id")]
    assert (outcome.text, [result.content[0].text for result in results]) == (
        "Three.",
        ["interrupted, effect unknown"],
    )


async def test_opening_again_takes_the_last_branch(tmp_path):
    model = script(tmp_path, *HELLO)
    async with Retinue(tmp_path, model=model, request=SESSION) as crew:
        await say(crew, "one", "two")
        await crew.branching.go(find_entry(crew, "One."))
        await crew.prompt("three")
    async with Retinue(tmp_path, model=model, request=SESSION) as crew:
        assert list_talk(crew) == ["one", "One.", "three", "Three."]


async def test_compaction_sums_up_the_branch_alone(tmp_path):
    long = "three " + "x" * 4000
    # A request that still had the other branch in it would find no answer.
    summary = to(r"(?s)\A(?!.*Two\.).*three.*Sum up the conversation", text="notes")
    async with Retinue(tmp_path, model=script(tmp_path, *HELLO, summary)) as crew:
        await say(crew, "one", "two")
        await crew.branching.go(find_entry(crew, "One."))
        await crew.prompt(long)
        assert await crew.compact()
        crew_entries = read_entries(crew)
        assert (crew_entries[-1]["type"], crew_entries[-1]["summary"]) == ("compaction", "notes")
        await crew.branching.go(find_entry(crew, "Two."))
        assert list_talk(crew) == ["one", "One.", "two", "Two."]


async def test_runs_go_on_and_report_once(tmp_path):
    replies = (
        HELLO[0],
        to("^begin", calls=[LOOK]),
        to("^begin", text="started"),
        to("^look", text="the report", delay_ms=300),
        to("task-notification", text="Told."),
        to("^three", text="Three."),
    )
    model = script(tmp_path, *replies)
    async with Retinue(tmp_path, model=model, request=SESSION) as crew:
        await say(crew, "one", "begin")
        await crew.branching.go(find_entry(crew, "One."))
        while (await crew.runs())[0].status is not Status.COMPLETED:
            await asyncio.sleep(0.02)
        await asyncio.sleep(0.5)
        assert (crew.is_busy, list_talk(crew)) == (False, ["one", "One."])
        await crew.prompt("three")
        reports = [message for message in crew.history.list_messages() if isinstance(message, CustomMessage)]
        assert len(reports) == 1
    async with Retinue(tmp_path, model=model, request=SESSION) as crew:
        run = (await crew.runs())[0]
        await crew.prompt("three")
        reports = [message for message in crew.history.list_messages() if isinstance(message, CustomMessage)]
        assert (run.status, len(reports)) == (Status.COMPLETED, 1)


async def test_report_told_on_a_left_branch_stays_there(tmp_path):
    replies = (
        HELLO[0],
        to("^begin", calls=[LOOK]),
        to("^begin", text="started"),
        to("^look", text="the report"),
        to("task-notification", text="Told."),
        to("^three", text="Three."),
    )
    model = script(tmp_path, *replies)
    async with Retinue(tmp_path, model=model, request=SESSION) as crew:
        await crew.prompt("one")
        await crew.prompt("begin", settle=True)
        await crew.branching.go(find_entry(crew, "One."))
        await crew.prompt("three")
        assert list_talk(crew) == ["one", "One.", "three", "Three."]
    async with Retinue(tmp_path, model=model, request=SESSION) as crew:
        await crew.prompt("three")
        assert not [message for message in crew.history.list_messages() if isinstance(message, CustomMessage)]
        assert len(await crew.runs()) == 1


KILLED = """
import asyncio, os, sys
from retinue import Request, Retinue, SessionWish
async def main():
    request = Request(session=SessionWish("exact", "my-session"))
    async with Retinue(sys.argv[1], model=sys.argv[2], request=request) as c:
        await c.prompt("one"); await c.prompt("two")
        entries = c.history.list_entries()
        chosen = next(e["id"] for e in entries if "One." in str(e.get("message")))
        await c.branching.go(chosen, summarise=sys.argv[3] == "summary")
        if sys.argv[3] == "said":
            await c.prompt("three")
        print("there", flush=True)
        await asyncio.sleep(60)
asyncio.run(main())
"""


@pytest.mark.parametrize(
    ("moment", "left"),
    [
        ("moved", ["one", "One.", "two", "Two."]),
        ("summary", ["one", "One."]),
        ("said", ["one", "One.", "three", "Three."]),
    ],
)
async def test_kill_leaves_what_the_last_entry_says(tmp_path, moment, left):
    model = script(tmp_path, *HELLO, to("a branch that the user has left", text="notes"))
    program = [sys.executable, "-c", textwrap.dedent(KILLED), str(tmp_path), model, moment]
    with subprocess.Popen(program, stdout=subprocess.PIPE, env={**os.environ}) as process:
        assert process.stdout.readline() == b"there\n"
        process.send_signal(signal.SIGKILL)
    async with Retinue(tmp_path, model=model, request=SESSION) as crew:
        summaries = [m for m in crew.history.list_messages() if isinstance(m, BranchSummaryMessage)]
        assert (list_talk(crew), len(summaries)) == (left, moment == "summary")
