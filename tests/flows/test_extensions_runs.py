import asyncio
import re
from pathlib import Path
from uuid import uuid4

import pytest

from retinue.core.events import ToolFinished
from retinue.core.model import ModelInfo
from retinue.core.run import Reason, Status
from retinue.engine.clock import SystemClock
from retinue.engine.runner import LiveRun
from retinue.models.scripted import ScriptedModel, parse_script
from retinue.sessions.log import Session
from retinue.testing.clock import EventCollector
from retinue.tools.registry import ToolOptions, build_tools
from tests.flows.extension_world import OpenHandlers, World
from tests.run_setup import build_setup

GUIDE = Path(__file__).parent.parent.parent / "docs" / "guides" / "extensions.md"


@pytest.fixture
def world(tmp_path):
    return World(tmp_path)


class Trial:
    """One run with what extensions bring along."""

    def __init__(self, loaded, cwd, replies):
        clock = SystemClock()
        session = Session.create(cwd=cwd, directory=None, clock=clock, new_id=lambda: uuid4().hex)
        models = loaded.collect("models")
        setup = build_setup(
            "r1",
            Path(cwd),
            models[0] if models else ScriptedModel(parse_script(replies)),
            tools={**build_tools(ToolOptions()), **loaded.tools},
            hooks=loaded.collect("hooks"),
            features=loaded.make_features(),
        )
        self.run = LiveRun(setup, session, clock=clock)
        self.events = EventCollector()
        self.run.bus.listen(self.events)
        self.handlers = OpenHandlers(loaded.collect("handlers"))

    async def prompt(self):
        async with self.handlers:
            self.run.bus.listen(self.handlers, pieces=self.handlers.wants_pieces)
            return await self.run.prompt("Go.")

    def results(self):
        finished = [event.result for event in self.events.of(ToolFinished)]
        return [(result.content[0].text, result.is_error) for result in finished]


async def try_out(world, text, *calls):
    world.put(world.user / "ext.py", text)
    loaded = await world.load()
    assert loaded.diagnostics == ()
    called = [{"name": name, "arguments": arguments} for name, arguments in calls]
    trial = Trial(loaded, world.project, [*([{"calls": called}] if called else []), {"text": "done"}])
    outcome = await trial.prompt()
    return outcome, trial


async def test_guide_extension_works(world, caplog):
    caplog.set_level("INFO", "retinue.extension")
    text = re.search(r"^```python\n(.*?)^```$", GUIDE.read_text(), re.MULTILINE | re.DOTALL)[1]
    world.put(world.project / "src" / "a.py", "x = 1  # TODO: name it\n\n# FIXME\n")
    push = ("bash", {"command": "git push origin main"})
    outcome, trial = await try_out(
        world, text, ("list_notes", {"folder": "src"}), push, ("bash", {"command": "echo a"})
    )
    assert outcome.status is Status.COMPLETED
    assert sorted(trial.results()) == [
        ("Pushing is left to people here.", True),
        ("a\n", False),
        ("src/a.py:1: TODO: name it\nsrc/a.py:3: FIXME", False),
    ]
    assert caplog.messages == ["1 runs finished, the last one completed"]
    [command] = (await world.load()).collect("commands")
    assert await command.run(" .pi") == "There are none."


async def test_exiting_tool_ends_nothing(world):
    text = """
    def register(api):
        @api.tool(name="leave", description="Leaves.")
        async def leave():
            raise SystemExit(1)
    """
    outcome, trial = await try_out(world, text, ("leave", {}))
    assert outcome.status is Status.COMPLETED
    place = f"{world.user / 'ext.py'}:5"
    assert trial.results() == [(f"leave failed: SystemExit: 1 (extension 'ext', {place})", True)]


async def test_arguments_are_checked_first(world):
    text = """
    def register(api):
        @api.tool(name="half", description="Halves.", parameters={"properties": {"n": {"type": "integer"}}})
        def half(n=0):
            return n // 2
    """
    _, trial = await try_out(world, text, ("half", {"n": 8}), ("half", {"n": "many"}))
    assert trial.results()[::-1] == [("4", False), ("half was not run: 'n' must be an integer, not 'many'", True)]


async def test_aborted_tool_holds_up_nothing(world):
    text = """
    import time
    def register(api):
        @api.tool(name="wait", description="Waits.")
        def wait():
            time.sleep(1.5)
    """
    world.put(world.user / "ext.py", text)
    trial = Trial(await world.load(), world.project, [{"calls": [{"name": "wait"}]}])
    async with asyncio.TaskGroup() as group:
        running = group.create_task(trial.prompt())
        await asyncio.sleep(0.1)
        begun_s = asyncio.get_running_loop().time()
        trial.run.abort()
        outcome = await running
    assert (outcome.reason, asyncio.get_running_loop().time() - begun_s < 0.5) == (Reason.USER, True)


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("raise ValueError('lost')", "ls was not run: a hook failed: ValueError: lost (extension 'ext', {file}:5)"),
        ("return True", "ls was not run: a hook of extension 'ext' returned no result"),
        ("import sys; sys.exit()", "ls was not run: a hook failed: SystemExit (extension 'ext', {file}:5)"),
    ],
)
async def test_failing_guard_denies(world, body, told):
    text = f"""
    def register(api):
        class Guard:
            async def before(self, call, tool):
                {body}
        api.hook(Guard())
    """
    _, trial = await try_out(world, text, ("ls", {}))
    assert trial.results() == [(told.format(file=world.user / "ext.py"), True)]


async def test_observer_sees_and_changes_results(world, caplog):
    text = """
    from dataclasses import replace
    from retinue.core.tool import ToolResult
    class Stamp:
        async def after(self, call, tool, result):
            return ToolResult.of("seen: " + tool.spec.name)
    class Broken:
        async def after(self, call):
            pass
    def register(api):
        api.hook(Stamp())
        api.hook(Broken())
    """
    _, trial = await try_out(world, text, ("ls", {}))
    assert trial.results() == [("seen: ls", False)]
    assert "a hook failed after ls: TypeError" in caplog.text


FEATURE = """
from dataclasses import replace
import msgspec
class Notes:
    name = "notes"
    async def enter(self, setup):
        {enter}
        return setup.change(sections={{**setup.sections, "notes": "Be brief."}})
    async def leave(self, outcome):
        {leave}
        return msgspec.structs.replace(outcome, notes="left")
def register(api):
    api.feature(Notes)
"""


async def test_feature_surrounds_a_run(world):
    outcome, trial = await try_out(world, FEATURE.format(enter="", leave=""))
    assert (outcome.status, outcome.notes) == (Status.COMPLETED, "left")
    assert "Be brief." in str(trial.run.session.context().sections)


@pytest.mark.parametrize(("step", "line"), [("enter", 6), ("leave", 9)])
async def test_exiting_feature_fails_its_run(world, step, line):
    text = FEATURE.format(**{"enter": "", "leave": "", step: "raise SystemExit(2)"})
    outcome, _ = await try_out(world, text)
    place = f"{world.user / 'ext.py'}:{line + 1}"
    assert (outcome.status, outcome.error) == (
        Status.FAILED,
        f"extension ext: SystemExit: 2 (extension 'ext', {place})",
    )


async def test_raising_model_fails_its_reply(world):
    text = """
    from retinue.core.model import ModelInfo
    class Echo:
        info = ModelInfo("house", "echo", "echo")
        async def reply(self, request, draft):
            draft.add(draft.open_text(), "so far")
            raise ValueError("no answer")
    def register(api):
        api.model(Echo())
    """
    outcome, trial = await try_out(world, text)
    assert trial.run.setup.model.info == ModelInfo("house", "echo", "echo")
    assert (outcome.status, outcome.text) == (Status.FAILED, "so far")
    assert f"house/echo: ValueError: no answer (extension 'ext', {world.user / 'ext.py'}:7)" in outcome.error
