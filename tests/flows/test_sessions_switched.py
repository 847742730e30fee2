"""One Retinue in several sessions, from Python."""

import json
from pathlib import Path

import pytest

from retinue import Retinue
from retinue.app import Request
from retinue.core.errors import SessionError
from retinue.core.events import MessageFinished, ModelChanged, ThinkingChanged
from retinue.models.scripted import ScriptedModel, load_script
from retinue.testing import fresh_home


@pytest.fixture
def open_crew(tmp_path):
    home, work, script = fresh_home(tmp_path), tmp_path / "work", tmp_path / "script.json"
    work.mkdir()
    script.write_text(json.dumps({"replies": [{"text": "One."}, {"text": "Two."}, {"text": "Three."}]}))
    environment = {"HOME": str(home), "PI_CODING_AGENT_DIR": str(home / ".pi" / "agent"), "RETINUE_NO_LOCAL": "1"}

    def open_it(**options):
        return Retinue(
            work,
            model=ScriptedModel(load_script(str(script))),
            request=Request(tools=()),
            environment=environment,
            **options,
        )

    return open_it


async def test_listeners_go_along(open_crew):
    heard = []
    async with open_crew() as crew:
        crew.listen(lambda event: isinstance(event, MessageFinished) and heard.append(crew.history.id), pieces=False)
        await crew.prompt("hi")
        await crew.sessions.begin()
        await crew.prompt("hi again")
    assert len(heard) == 6
    assert len(set(heard)) == 2


async def test_fork_and_original_are_two(open_crew):
    async with open_crew() as crew:
        await crew.prompt("first")
        await crew.prompt("second")
        original, last = crew.history.file, crew.history.list_prompts()[-1]
        assert await crew.sessions.fork(last.entry_id) == "second"
        outcome = await crew.prompt("instead")
        forked = crew.history.file
    said = [[json.loads(line) for line in Path(path).read_text().splitlines()] for path in (original, forked)]
    users = [
        [e["message"]["content"][0]["text"] for e in s if e.get("message", {}).get("role") == "user"] for s in said
    ]
    assert (outcome.text, users) == ("Two.", [["first", "second"], ["first", "instead"]])


@pytest.mark.parametrize("way", ["fork", "clone"])
async def test_fork_leaves_the_runs_behind(open_crew, way):
    async with open_crew() as crew:
        await crew.prompt("first")
        await (await crew.spawn("Explore", "look")).wait()
        await crew.prompt("second")
        original, last = crew.history.file, crew.history.list_prompts()[-1]
        await (crew.sessions.clone() if way == "clone" else crew.sessions.fork(last.entry_id))
        copied, known = crew.history.file, await crew.runs()
    async with open_crew() as crew:
        await crew.sessions.open(copied)
        known += await crew.runs()
        await crew.sessions.open(original)
        (run,) = [handle.run for handle in await crew.runs()]
    kinds = [
        {
            entry["customType"]
            for line in Path(path).read_text().splitlines()
            if "customType" in (entry := json.loads(line))
        }
        for path in (original, copied)
    ]
    own = "retinue.run_finished"
    assert (run.agent, known, kinds) == ("Explore", [], [{own, "retinue.crew", "subagents:record"}, {own}])


async def test_former_session_can_be_opened_by_others(open_crew):
    async with open_crew() as crew:
        await crew.prompt("hi")
        first = crew.history.file
        await crew.sessions.begin()
        async with open_crew() as other:
            await other.sessions.open(first)
            with pytest.raises(SessionError):
                await crew.sessions.open(first)
            assert (len(crew.history.list_messages()), len(other.history.list_messages())) == (0, 3)


async def test_choices_are_told(open_crew):
    told = []
    async with open_crew() as crew:
        crew.listen(told.append, pieces=False)
        crew.selection.select("offline", "rules")
        kinds = [type(event) for event in told]
        assert (kinds, crew.model.ref) == ([ModelChanged], "offline/rules")
        assert crew.selection.think("high") == "off"
    assert not any(isinstance(event, ThinkingChanged) for event in told)
