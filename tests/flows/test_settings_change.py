import asyncio
import json

import pytest
from msgspec.structs import replace

from retinue import Retinue
from retinue.core.events import ScheduleChanged
from retinue.core.run import Reason
from retinue.testing import EventCollector
from tests.flows.crew_world import SESSION, call, script, to

HEARER = """
def register(api):
    api.on("subagents:settings_changed", lambda data: heard.append(data))
    heard = []

    @api.command("heard")
    def show(text):
        return " ".join(f"{data['settings']['graceTurns']}:{data['persisted']}" for data in heard)
"""
APPROVED = replace(SESSION, approve=True)
LOOK = {"subagent_type": "Explore", "prompt": "look", "description": "a look"}


@pytest.fixture
def work(tmp_path):
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


def read(folder):
    return json.loads((folder / ".pi" / "subagents.json").read_text())


async def test_switched_off_schedule_does_not_fire(tmp_path, work):
    replies = [to("^later", calls=[call("Agent", schedule="+1s", **LOOK)]), to("^later", text="Noted")]
    seen = EventCollector()
    async with Retinue(work, model=script(tmp_path, *replies, to("^look", text="Seen")), request=APPROVED) as crew:
        crew.listen(seen)
        await crew.prompt("later")
        await crew.change_setting("schedulingEnabled", "off")
        await asyncio.sleep(1.5)
        assert await crew.runs() == []
        await crew.change_setting("schedulingEnabled", "on")
        async with asyncio.timeout(5):
            while not any(isinstance(event, ScheduleChanged) and event.change == "fired" for event in seen.events):
                await asyncio.sleep(0.02)


async def test_switched_on_schedule_takes_calls(tmp_path, work):
    replies = [to("^later", calls=[call("Agent", schedule="1h", **LOOK)]), to("^later", text="Noted")]
    model = script(tmp_path, *replies, *replies)
    seen = EventCollector()
    async with Retinue(work, model=model, request=APPROVED) as crew:
        await crew.change_setting("schedulingEnabled", "off")
        crew.listen(seen)
        await crew.prompt("later")
        await crew.change_setting("schedulingEnabled", "on")
        await crew.prompt("later")
    said = [event.result.content[0].text for event in seen.events if type(event).__name__ == "ToolFinished"]
    assert [text.split()[0:3] for text in said] == [["Scheduling", "is", "disabled"], ["Scheduled", '"a', 'look"']]


async def test_turn_limits_count_at_once(tmp_path, work):
    loop = [to("", calls=[call("ls", path=".")])] * 4
    async with Retinue(work, model=script(tmp_path, *loop), request=APPROVED) as crew:
        await crew.runs()  # the crew is there before the change
        await crew.change_setting("defaultMaxTurns", "1")
        await crew.change_setting("graceTurns", "1")
        outcome = await (await crew.spawn("Explore", "look")).wait(5)
    assert (outcome.reason, outcome.turns) == (Reason.TURN_LIMIT, 2)


async def test_approval_mode_counts_at_once(tmp_path, work):
    async with Retinue(work, model=script(tmp_path), request=APPROVED) as crew:
        assert (await crew.change_setting("approvals", "ask")).preference.acts_at_once
        assert crew.approvals == "ask"
        await crew.change_setting("approvals", None)
        assert crew.approvals == "never"


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("key", "text", "find"),
    [
        ("outputTranscript", "off", lambda said, request: "Output file:" not in said),
        ("defaultJoinMode", "group", lambda said, request: request["join"] == "group"),
        ("limits.idleSeconds", "44", lambda said, request: request["idle_s"] == 44),
        ("maxConcurrent", "1", lambda said, request: "Position: queued (max 1 concurrent)" in said),
        ("maxSpawnsPerTree", "1", lambda said, request: "maxSpawnsPerTree" in said),
    ],
)
async def test_setting_counts_for_the_next_call(tmp_path, work, key, text, find):
    replies = [to("^go", calls=[call("Agent", **LOOK)] * 2), to("^look", text="Seen"), to("", text="Done")]
    seen = EventCollector()
    async with Retinue(work, model=script(tmp_path, *replies, *replies[1:] * 2), request=APPROVED) as crew:
        crew.listen(seen)
        assert (await crew.change_setting(key, text)).preference.acts_at_once
        await crew.prompt("go", settle=True)
    said = [event.result.content[0].text for event in seen.events if type(event).__name__ == "ToolFinished"]
    request = next(event.request for event in seen.events if type(event).__name__ == "RunQueued")
    assert find("\n".join(said), request), (said, request)


@pytest.mark.spec("fleet:B96")
async def test_change_is_told_to_extensions(tmp_path, work, agent_dir):
    (agent_dir / "extensions").mkdir()
    (agent_dir / "extensions" / "hearer.py").write_text(HEARER)
    (work / ".pi").mkdir()
    (work / ".pi" / "subagents.json").mkdir()  # which cannot be written
    async with Retinue(work, model=script(tmp_path), request=APPROVED) as crew:
        lost = await crew.change_setting("graceTurns", "8")
        (work / ".pi" / "subagents.json").rmdir()
        kept = await crew.change_setting("graceTurns", "9")
        assert (lost.preference.value, bool(lost.problem), kept.preference.value, kept.problem) == (8, True, 9, "")
        assert await crew.commands.run("heard", "") == "8:False 9:True"
    assert read(work) == {"graceTurns": 9}


async def test_session_started_later_has_the_change(tmp_path, work):
    async with Retinue(work, model=script(tmp_path), request=APPROVED) as crew:
        await crew.change_setting("graceTurns", "9")
    async with Retinue(work, model=script(tmp_path), request=SESSION) as crew:
        assert crew.crew_settings.grace_turns == 9
    (work / ".pi" / "subagents.json").write_text('{"graceTurns": 1}')  # by somebody else
    async with Retinue(work, model=script(tmp_path), request=SESSION) as crew:
        assert crew.crew_settings.grace_turns == 5


async def test_jobs_of_another_session_are_not_ours(tmp_path, work):
    replies = [to("^later", calls=[call("Agent", schedule="1h", **LOOK)]), to("^later", text="Noted")]
    async with Retinue(work, model=script(tmp_path, *replies), request=APPROVED) as crew:
        await crew.prompt("later")
        (job,) = crew.list_jobs()[0]
        await crew.sessions.begin()
        assert (crew.list_jobs(), crew.cancel_job(job["id"])) == (([], []), False)
