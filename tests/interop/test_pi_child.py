"""A real pi as the child of retinue: started, listened to, stopped, resumed."""

import asyncio
import json
import os
from pathlib import Path

import pytest

from retinue import Request, Retinue, SessionWish
from retinue.core.run import Outcome, Reason, Status
from retinue.testing import MockServer
from tests.interop.programs import Program

pytestmark = [pytest.mark.interop, pytest.mark.timeout(150)]

LOOKER = "---\nname: looker\ndescription: d\ntools: {tools}\n---\n\nLook around.\n"


def to(words: str, **reply: object) -> dict[str, object]:
    return {"match": {"last_user": words}, **reply}


def call(name: str, **arguments: object) -> list[dict[str, object]]:
    return [{"name": name, "arguments": arguments}]


class PiCrew:
    """A home whose children are a real pi, and a server that answers for their model."""

    def __init__(self, root: Path, agent_dir: Path, pi: Program, server: MockServer) -> None:
        self.agent_dir, self.work, self._pi = agent_dir, root / "work", pi
        self.work.mkdir()
        (agent_dir / "agents").mkdir()
        (agent_dir / "models.json").write_text(json.dumps(server.models_json()))
        settings = {"runner": "pi", "piCommand": pi.command[0]}
        (agent_dir / "subagents.json").write_text(json.dumps(settings))
        self.write_agent()

    def write_agent(self, tools: str = "read, bash") -> None:
        (self.agent_dir / "agents" / "looker.md").write_text(LOOKER.format(tools=tools))

    def open(self) -> Retinue:
        path = f"{self._pi.path}{os.pathsep}{os.environ['PATH']}"
        environment = {**os.environ, "PATH": path, "PI_OFFLINE": "1", "PI_TELEMETRY": "0"}
        request = Request(session=SessionWish("exact", "my-session"))
        return Retinue(self.work, model="mock/mock-1", request=request, environment=environment)

    async def run(self, task: str) -> Outcome:
        async with self.open() as crew:
            return await (await crew.spawn("looker", task)).wait()


def list_texts(path: str, role: str) -> list[str]:
    entries = [json.loads(line) for line in Path(path).read_text().splitlines()]
    messages = [entry["message"] for entry in entries if entry["type"] == "message"]
    return [part["text"] for each in messages if each["role"] == role for part in each["content"] if "text" in part]


async def test_pi_works_as_our_child(pi, tmp_path, agent_dir):
    replies = [to("needle", calls=call("read", path="a.txt")), to("needle", text="It is in a.txt:1.")]
    async with MockServer(replies) as server:
        crew = PiCrew(tmp_path, agent_dir, pi, server)
        (crew.work / "a.txt").write_text("the needle\n")
        outcome = await crew.run("Where is the needle?")
        request = json.loads(server.requests[0].body)
    assert (outcome.status, outcome.error, outcome.text) == (Status.COMPLETED, "", "It is in a.txt:1.")
    assert (outcome.turns, outcome.tool_calls, outcome.usage.total_tokens > 0) == (2, 1, True)
    assert list_texts(outcome.session_file, "toolResult") == ["the needle\n"]
    assert [tool["function"]["name"] for tool in request["tools"]] == ["read", "bash"]
    assert "Look around." in json.dumps(request["messages"][0])


async def test_pi_without_tools_has_none(pi, tmp_path, agent_dir):
    async with MockServer([{"text": "None."}]) as server:
        crew = PiCrew(tmp_path, agent_dir, pi, server)
        crew.write_agent("[]")
        outcome = await crew.run("Go")
        request = json.loads(server.requests[0].body)
    assert (outcome.text, request.get("tools")) == ("None.", None)


async def test_pi_resumes_its_session(pi, tmp_path, agent_dir):
    async with MockServer([to("first", text="One."), to("second", text="Two.")]) as server:
        place = PiCrew(tmp_path, agent_dir, pi, server)
        async with place.open() as crew:
            handle = await crew.spawn("looker", "the first")
            await handle.wait()
            outcome = await (await crew.resume(handle.id, "the second")).wait()
    assert (outcome.error, outcome.text) == ("", "Two.")
    first, second = list_texts(outcome.session_file, "user")
    assert (first.partition("\n<active_agent ")[0], second) == ("the first", "the second")


async def test_long_task_reaches_pi(pi, tmp_path, agent_dir):
    task = "word " * 2_000
    async with MockServer([{"text": "Read."}]) as server:
        outcome = await PiCrew(tmp_path, agent_dir, pi, server).run(task)
    assert outcome.text == "Read."
    assert task in list_texts(outcome.session_file, "user")[0]


async def test_stopped_pi_takes_its_commands_along(pi, tmp_path, agent_dir):
    command = "while :; do echo >> beats; sleep 0.02; done"
    async with MockServer([{"calls": call("bash", command=command)}]) as server:
        place = PiCrew(tmp_path, agent_dir, pi, server)
        beats = place.work / "beats"
        async with place.open() as crew:
            handle = await crew.spawn("looker", "go")
            while not beats.exists():
                await asyncio.sleep(0.05)
            await handle.stop()
            outcome = await handle.wait()
            size = beats.stat().st_size
            await asyncio.sleep(0.2)
    assert (outcome.status, outcome.reason, beats.stat().st_size) == (Status.STOPPED, Reason.USER, size)


async def test_pi_with_a_failing_model_fails(pi, tmp_path, agent_dir):
    (agent_dir / "settings.json").write_text('{"retry": {"enabled": false}}')
    async with MockServer([{"fault": {"kind": "status", "code": 400}}]) as server:
        outcome = await PiCrew(tmp_path, agent_dir, pi, server).run("Go")
    assert (outcome.status, outcome.reason, "400" in outcome.error) == (Status.FAILED, Reason.ERROR, True)
