import asyncio
import json
import re
import time
from pathlib import Path

import pytest

from retinue import Reason, Retinue, Status
from retinue.core.model import ModelInfo, Reply
from retinue.engine.clock import make_run_id
from retinue.engine.limits import WRAP_UP_TEXT
from retinue.testing import EventCollector
from tests.flows.crew_world import SESSION, call, script, to


class Reader:
    """A model that keeps the system prompts it was given."""

    info = ModelInfo("acme", "reader", "own", "Reader", context_window=200_000)

    def __init__(self):
        self.prompts = []

    async def reply(self, request, draft):
        self.prompts.append(request.system)
        draft.add(draft.open_text(), "Read")
        return Reply(draft.finish("stop"))


def define(agent_dir, name, **fields):
    (agent_dir / "agents").mkdir(exist_ok=True)
    lines = "".join(f"{key}: {value}\n" for key, value in fields.items())
    (agent_dir / "agents" / f"{name}.md").write_text(f"---\ndescription: d\n{lines}---\n\nWork.\n")


def schedule(**arguments):
    return call("Agent", subagent_type="Explore", prompt="look", description="nightly", schedule="5m", **arguments)


@pytest.mark.spec("fleet:B2")
async def test_ids_are_unique_and_seventeen_long(tmp_path):
    replies = [to("^look", text="Seen") for _ in range(40)]
    async with Retinue(tmp_path, model=script(tmp_path, *replies)) as crew:
        ids = [(await crew.spawn("Explore", "look")).id for _ in range(40)]
    drawn = {make_run_id() for _ in range(100_000)}
    assert (len(set(ids)), len(drawn)) == (40, 100_000)
    assert [id for id in (*ids, *drawn) if not re.fullmatch("[0-9a-f]{17}", id)] == []


@pytest.mark.spec("fleet:B42")
async def test_context_files_do_not_reach_a_replaced_prompt(tmp_path, agent_dir):
    (tmp_path / "AGENTS.md").write_text("Speak French.")
    (agent_dir / "CLAUDE.md").write_text("Speak softly.")
    define(agent_dir, "replacing", prompt_mode="replace")
    define(agent_dir, "appending", prompt_mode="append")
    model = Reader()
    async with Retinue(tmp_path, model="acme/reader", models=[model]) as crew:
        await crew.prompt("hi")
        for name in ("appending", "replacing"):
            assert (await (await crew.spawn(name, "look")).wait(5)).text == "Read"
    found = [[word in prompt for word in ("Work.", "French", "softly")] for prompt in model.prompts]
    assert found == [[False, True, True], [True, True, True], [True, False, False]]


@pytest.mark.spec("fleet:B44")
async def test_wrap_up_is_asked_once(tmp_path, agent_dir):
    define(agent_dir, "reader", max_turns=2, tools="read")
    (tmp_path / "a.txt").write_text("one\n")
    replies = [to("^look", calls=[call("read", path="a.txt")]), to("", calls=[call("read", path="a.txt")])] * 9
    async with Retinue(tmp_path, model=script(tmp_path, to("^hi", text="Hi"), *replies), request=SESSION) as crew:
        await crew.prompt("hi")
        run = await crew.spawn("reader", "look")
        outcome = await run.wait(10)
    entries = [json.loads(line) for line in Path(outcome.session_file).read_text().splitlines()]
    messages = [entry["message"] for entry in entries if entry["type"] == "message"]
    told = [at for at, message in enumerate(messages) if message["role"] == "user" and WRAP_UP_TEXT in str(message)]
    before = [message["role"] for message in messages[: told[0]]]
    assert (len(told), before.count("assistant"), outcome.reason) == (1, 2, Reason.TURN_LIMIT)
    assert [message["role"] for message in messages].count("assistant") > 3


@pytest.mark.spec("fleet:B52")
async def test_end_of_a_session_stops_at_once_and_says_nothing(tmp_path):
    look = call("Agent", subagent_type="Explore", prompt="look", description="a look")
    replies = [to("^begin", calls=[look, look]), to("^begin", text="Begun"), to("task-notification", text="Too late")]
    slow = [to("^look", text="late", delay_ms=60_000)] * 2
    seen = EventCollector()
    async with Retinue(tmp_path, model=script(tmp_path, *replies, *slow), request=SESSION) as crew:
        crew.listen(seen)
        await crew.prompt("begin")
        runs = await crew.runs()
        while {run.status for run in runs} != {Status.RUNNING}:
            await asyncio.sleep(0.01)
        file, begin = crew.session_file, time.monotonic()
    took_s = time.monotonic() - begin
    assert ([run.status for run in runs], took_s < 20) == ([Status.STOPPED] * 2, True)
    texts = [str(json.loads(line)) for line in Path(file).read_text().splitlines()]
    assert [text for text in texts if "task-notification" in text or "Too late" in text] == []
    assert [event for event in seen.events if "task-notification" in str(event)] == []


@pytest.mark.spec("fleet:B82")
async def test_second_schedule_of_a_name_is_refused(tmp_path):
    work = tmp_path / "work"
    work.mkdir()
    seen = EventCollector()
    replies = [to("^later", calls=[schedule(), schedule(model="")]), to("^later", text="Noted")]
    async with Retinue(work, model=script(tmp_path, *replies), request=SESSION) as crew:
        crew.listen(seen)
        await crew.prompt("later")
    texts = [event.result.content[0].text for event in seen.events if type(event).__name__ == "ToolFinished"]
    assert (texts[0].startswith('Scheduled "nightly"'), texts[1:]) == (
        True,
        ['A scheduled job named "nightly" already exists.'],
    )
    (stored,) = json.loads((work / ".pi/subagent-schedules/my-session.json").read_text())["jobs"]
    assert stored["name"] == "nightly"
