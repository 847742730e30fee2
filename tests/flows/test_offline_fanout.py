import asyncio
import json
import re

import pytest

from retinue import Retinue, Status
from retinue.core.events import RunFinished, RunQueued, RunStarted, ToolStarted
from retinue.testing import EventCollector, make_repo
from retinue.testing.process import fresh_home, run_cli

FILES = {
    "larder/shelf.py": '''\
"""Shelves and what lies on them."""
from larder.store import save_items


class Shelf:
    """Holds items up to a limit."""

    def put(self, item):
        self.items.append(item)
        save_items(self.items)
''',
    "larder/store.py": '''\
import json


class StoreUnsaved(Exception):
    """Raised when a save failed: the file is as before."""


def save_items(items, path="pantry.json"):
    """Write the items to disk."""
    try:
        with open(path, "w") as file:
            json.dump(items, file)
    except OSError as error:
        raise StoreUnsaved(path) from error
''',
}
QUESTION = "Where is the class Shelf defined, and what happens when a save fails?"
SIMPLE = "Where is the class Shelf defined?"


@pytest.fixture
def larder(tmp_path):
    return make_repo(tmp_path / "work", FILES)


async def ask(folder, *questions):
    events = EventCollector()
    async with Retinue(folder, model="offline/rules") as crew:
        crew.listen(events, pieces=False)
        outcomes = [await crew.prompt(question, settle=True) for question in questions]
    return outcomes, events


async def test_parts_run_side_by_side(larder):
    _, events = await ask(larder, QUESTION)

    queued = events.of(RunQueued)
    ids = {each.run_id for each in queued}
    life = [type(each) for each in events.events if isinstance(each, RunStarted | RunFinished) and each.run_id in ids]
    assert [each.run.agent for each in queued] == ["Explore", "Explore"]
    assert life == [RunStarted, RunStarted, RunFinished, RunFinished]


async def test_answer_has_evidence_of_both_parts(larder):
    [outcome], _ = await ask(larder, QUESTION)

    first, second = re.split(r"^### .*\n", outcome.text, flags=re.MULTILINE)[1:]
    assert outcome.status is Status.COMPLETED
    assert "`larder/shelf.py:5`" in first
    assert "`larder/store.py:" in second and "StoreUnsaved" in second


async def test_agents_look_and_ask_nobody(larder):
    _, events = await ask(larder, QUESTION)

    logs = [path.read_text() for path in larder.glob(".pi/output/agent-*.jsonl")]
    assert {call.name for call in events.of(ToolStarted)} == {"Agent", "get_subagent_result"}
    assert [set(re.findall(r'"toolName":"(\w+)"', log)) for log in logs] == [{"grep", "find", "ls", "read"}] * 2


async def test_second_question_is_answered_alone(larder):
    [_, outcome], events = await ask(larder, QUESTION, SIMPLE)

    assert outcome.text.startswith("`Shelf` is a class defined in `larder/shelf.py:5`.")
    assert len(events.of(RunQueued)) == 2


async def test_disabled_agent_is_not_asked(larder, agent_dir):
    (agent_dir / "agents").mkdir()
    (agent_dir / "agents" / "Explore.md").write_text("---\nname: Explore\nenabled: false\n---\nx")

    [outcome], events = await ask(larder, QUESTION)

    assert (events.of(RunQueued), outcome.text.count("### ")) == ([], 2)


def started(larder, tmp_path, *args):
    home = fresh_home(tmp_path)
    result = run_cli(["-p", "--mode", "json", "--model", "offline/rules", *args], larder, home=home)
    kinds = [json.loads(line)["type"] for line in result.stdout.splitlines()]
    return result.status, kinds.count("subagents:started"), kinds.count("subagents:completed")


def test_command_asks_two_agents(larder, tmp_path):
    assert started(larder, tmp_path, QUESTION) == (0, 2, 2)


def test_simple_question_starts_no_run(larder, tmp_path):
    assert started(larder, tmp_path, SIMPLE) == (0, 0, 0)


def test_without_the_tools_nobody_is_asked(larder, tmp_path):
    assert started(larder, tmp_path, "--tools", "read,grep,find,ls", QUESTION) == (0, 0, 0)


@pytest.mark.parametrize("mode", ["async", "smart", "group"])
async def test_every_join_mode_ends_in_one_answer(larder, agent_dir, mode):
    (agent_dir / "subagents.json").write_text(json.dumps({"defaultJoinMode": mode}))

    [outcome], events = await ask(larder, QUESTION)

    fetched = [call for call in events.of(ToolStarted) if call.name == "get_subagent_result"]
    assert ([each.run.join for each in events.of(RunQueued)], len(fetched)) == ([mode, mode], 2)
    assert "2 `Explore` agents searched in parallel." in outcome.text


async def test_stopped_agent_is_named_in_the_answer(larder):
    async with Retinue(larder, model="offline/rules") as crew, asyncio.TaskGroup() as group:
        prompt = group.create_task(crew.prompt(QUESTION, settle=True))
        while len(runs := await crew.runs()) < 2:
            await asyncio.sleep(0)
        await runs[-1].stop()
        outcome = await prompt

    assert "There is no complete report: stopped (STOPPED BY THE USER" in outcome.text
    assert "Not answered: Where is the class Shelf defined?\n" in outcome.text
