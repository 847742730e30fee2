import asyncio
import json
import os

import pytest

from retinue import Request, Retinue
from retinue.testing import EventCollector, make_repo


def call(name, **arguments):
    return {"calls": [{"name": name, "arguments": arguments}]}


@pytest.fixture
def work(tmp_path):
    folder = tmp_path / "work"
    folder.mkdir()
    make_repo(folder, {"a.txt": "one\n"})
    (folder / "slow").mkdir()
    return folder


class Slow:
    """A checkpoint that is not ready before `release`: git waits for ignore rules that come from a pipe."""

    def __init__(self, work):
        self.pipe = work / "slow" / ".gitignore"
        os.mkfifo(self.pipe)

    def release(self):
        writer = os.open(self.pipe, os.O_RDWR)
        self.pipe.unlink()
        os.close(writer)


def open_crew(work, home, *replies, **request):
    script = work.parent / "script.json"
    script.write_text(json.dumps({"replies": replies}))
    environment = {"HOME": str(home), "PI_CODING_AGENT_DIR": str(home / ".pi" / "agent")}
    return Retinue(work, model=f"scripted/{script}", environment=environment, request=Request(**request))


async def wait_for(holds):
    async with asyncio.timeout(20):
        while not holds():
            await asyncio.sleep(0.01)


def read_log(home):
    (log,) = (home / ".pi" / "agent" / "retinue" / "checkpoints").glob("*/log.jsonl")
    return [json.loads(line) for line in log.read_text().splitlines()]


WRITE = call("write", path="a.txt", content="two\n")
SHELL = call("bash", command="echo two > a.txt")


@pytest.mark.parametrize("change", [WRITE, SHELL])
async def test_only_changes_wait_for_the_checkpoint(work, home, change):
    slow, events = Slow(work), EventCollector()
    async with open_crew(work, home, call("read", path="a.txt"), change, {"text": "Done."}) as crew:
        crew.listen(events)
        prompt = asyncio.create_task(crew.prompt("go"))

        def count(kind):
            return sum(type(event).__name__ == kind for event in events.events)

        await wait_for(lambda: count("ToolStarted") == 2)
        assert (count("ToolFinished"), (work / "a.txt").read_text()) == (1, "one\n")
        slow.release()
        await prompt
        assert (work / "a.txt").read_text() == "two\n"
        [point] = crew.rewinds.list()
        done = await crew.rewinds.go(point)
    assert (done.paths, (work / "a.txt").read_text()) == (["a.txt"], "one\n")


async def test_quick_answer_still_gets_its_checkpoint(work, home):
    async with open_crew(work, home, {"text": "Hello."}) as crew:
        await crew.prompt("go")
        (work / "a.txt").write_text("mine\n")
        [point] = crew.rewinds.list()
        assert (await crew.rewinds.go(point)).paths == ["a.txt"]


async def test_stopped_prompt_does_not_wait_for_it(work, home):
    slow, events = Slow(work), EventCollector()
    async with open_crew(work, home, WRITE, {"text": "Done."}) as crew:
        crew.listen(events)
        prompt = asyncio.create_task(crew.prompt("go"))
        await wait_for(lambda: any(type(event).__name__ == "ToolStarted" for event in events.events))
        begun_s = asyncio.get_running_loop().time()
        crew.abort()
        await prompt
        assert asyncio.get_running_loop().time() - begun_s < 3
        slow.release()
    assert (work / "a.txt").read_text() == "one\n"
    assert [record["kind"] for record in read_log(home) if record["type"] == "checkpoint"] == ["end"]


async def test_failed_checkpoint_does_not_fail_the_prompt(work, home):
    (home / ".pi" / "agent" / "retinue").mkdir(parents=True)
    (home / ".pi" / "agent" / "retinue" / "checkpoints").write_text("in the way")
    events = EventCollector()
    async with open_crew(work, home, WRITE, {"text": "Done."}) as crew:
        crew.listen(events)
        outcome = await crew.prompt("go")
    assert (outcome.text, (work / "a.txt").read_text()) == ("Done.", "two\n")
    told = [event.text for event in events.events if type(event).__name__ == "Warned"]
    assert [text for text in told if "no further checkpoints are taken" in text], told


async def test_hooks_wait_for_the_checkpoint(work, home):
    """A hook of the user that changes files before the first request."""
    script = work.parent / "hook.sh"
    script.write_text(f"#!/bin/sh\necho hooked > {work}/hooked.txt\n")
    script.chmod(0o755)
    hook = {"name": "h", "point": "agent.turn.start", "type": "observer", "command": str(script), "enabled": True}
    (home / ".codingcode").mkdir()
    (home / ".codingcode" / "hooks.yaml").write_text(json.dumps({"hooks": [hook]}))
    async with open_crew(work, home, {"text": "Done."}) as crew:
        await crew.prompt("go")
        assert (work / "hooked.txt").exists()
        [point] = crew.rewinds.list()
        await crew.rewinds.go(point)
    assert not (work / "hooked.txt").exists()
