import asyncio
import json
import time
from pathlib import Path

import pytest

from retinue import Retinue
from retinue.core.events import ToolFinished, ToolStarted
from retinue.core.messages import TextContent, ToolResultMessage
from retinue.engine.clock import SystemClock
from retinue.features.activity import ActivityLog, ActivityRecorder, find_log

AGENT = {"subagent_type": "Explore", "prompt": "look", "description": "a look"}


def to(words: str, **reply) -> dict:
    return {"match": {"last_user": words}, **reply}


def script(tmp_path: Path, *replies: dict) -> str:
    path = tmp_path / "script.json"
    path.write_text(json.dumps({"replies": replies}))
    return f"scripted/{path}"


@pytest.fixture
def work(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "a.txt").write_text("secret-of-the-file\n")
    return folder


def read_log(home: Path, work: Path) -> list:
    return find_log(home / ".pi" / "agent" / "retinue", work).read()


@pytest.mark.parametrize("runner", ["inprocess", "process"])
async def test_each_call_is_kept_once(tmp_path, work, home, agent_dir, runner):
    (agent_dir / "subagents.json").write_text(json.dumps({"runner": runner}))
    read = {"name": "read", "arguments": {"path": "a.txt"}}
    replies = [
        to("^begin", calls=[{"name": "Agent", "arguments": AGENT}, {"name": "nothing", "arguments": {"x": "12345"}}]),
        to("^begin", text="started"),
        to("^look", calls=[read]),
        to("^look", text="seen"),
        to("seen", text="done"),
    ]
    async with Retinue(work, model=script(tmp_path, *replies)) as crew:
        await crew.prompt("begin", settle=True)
    kept = read_log(home, work)
    assert sorted((each.tool, each.agent, each.status, each.asked_chars > 0) for each in kept) == [
        ("Agent", "", "success", True),
        ("nothing", "", "error", True),
        ("read", "Explore", "success", True),
    ]
    (reading,) = [each for each in kept if each.tool == "read"]
    assert (reading.asked_chars, reading.answered_chars > 10, reading.started_ms <= reading.at_ms) == (5, True, True)


async def test_log_has_no_contents(tmp_path, work, home):
    calls = [{"name": "read", "arguments": {"path": "a.txt"}}, {"name": "sk-live-key 5$", "arguments": {"k": "hidden"}}]
    async with Retinue(work, model=script(tmp_path, {"calls": calls}, {"text": "done"})) as crew:
        await crew.prompt("begin")
    (path,) = (home / ".pi" / "agent" / "retinue" / "activity").iterdir()
    text = path.read_text()
    assert [word for word in ("secret", "a.txt", "sk-live", "hidden") if word in text] == []
    assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)


async def test_calls_are_written_together(tmp_path):
    log = ActivityLog(tmp_path / "log")
    bus = Bus()
    recorder = ActivityRecorder(log, SystemClock())
    recorder.listen(bus)
    for number in range(10):
        bus.finish(number)
    assert log.read() == []
    recorder.flush()
    assert len(log.read()) == 10


async def test_waiting_calls_are_written_soon(tmp_path, monkeypatch):
    monkeypatch.setattr("retinue.features.activity.FLUSH_S", 0.02)
    log, bus = ActivityLog(tmp_path / "log"), Bus()
    ActivityRecorder(log, SystemClock()).listen(bus)
    bus.finish(1)
    async with asyncio.timeout(2):
        while not log.read():
            await asyncio.sleep(0.01)


async def test_hundred_agents_do_not_notice(tmp_path):
    recorder = ActivityRecorder(ActivityLog(tmp_path / "log"), SystemClock())
    runs = [Bus() for _ in range(100)]
    for run in runs:
        recorder.listen(run, "Explore")
    begun_s = time.process_time()
    for number in range(20):
        for run in runs:
            run.finish(number)
    recorder.flush()
    # Two thousand calls: some microseconds each.
    assert time.process_time() - begun_s < 0.3


class Bus:
    """A run as the recorder sees it."""

    def __init__(self) -> None:
        self.bus = self

    def listen(self, listener, *, pieces, kinds):
        assert not pieces and kinds == (ToolStarted, ToolFinished)
        self.listener = listener
        return lambda: None

    def finish(self, number: int) -> None:
        call = f"c{number}"
        self.listener(ToolStarted(run_id="r", call_id=call, name="read", arguments={"path": "a" * 40}))
        result = ToolResultMessage(call, "read", [TextContent("x" * 1000)], False, 5, details={})
        self.listener(ToolFinished(run_id="r", result=result, duration_ms=3))
