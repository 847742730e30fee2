"""A main agent with the fleet's tools and a real crew around it; every agent plays a script."""

from contextlib import asynccontextmanager
from pathlib import Path

from retinue.core.definition import Definition
from retinue.core.errors import RetinueError
from retinue.core.messages import join_text
from retinue.core.model import ModelInfo
from retinue.core.schema import fit_arguments
from retinue.core.tool import ToolContext
from retinue.engine.clock import make_run_id, make_uuid
from retinue.engine.limits import Bounds, Limits
from retinue.engine.manager import Manager
from retinue.engine.runner import LiveRun
from retinue.features.transcript import Transcripts
from retinue.models.resolve import Names, resolve_model
from retinue.models.scripted import ScriptedModel, parse_script
from retinue.sessions.log import Session
from retinue.surfaces.base import Caller, ChildTools
from retinue.surfaces.fleet.delivery import open_notifier
from retinue.surfaces.fleet.notification import render_notification
from retinue.surfaces.fleet.ports import FleetPorts, FleetSettings, map_fleet_tools
from retinue.surfaces.fleet.records import LifecycleRecords
from retinue.testing.clock import EventCollector, FakeClock
from tests.run_setup import build_setup
from tests.runners import make_backend

SONNET = ModelInfo("anthropic", "claude-sonnet-4-5", "scripted", "Claude Sonnet 4.5", context_window=200_000)
HAIKU = ModelInfo("anthropic", "claude-haiku-4-5-20251001", "scripted", "Claude Haiku 4.5", reasoning=True)
MODELS = (SONNET, HAIKU)
GENERAL = Definition(
    name="general-purpose", dialect="pi", source="builtin", path="g.md", description="Anything.", display_name="Agent"
)
EXPLORE = Definition(name="Explore", dialect="pi", source="builtin", path="e.md", description="Looks. Fast.")


def resolve(query, *, is_choice=False):
    return resolve_model(query, Names(MODELS, {}), anywhere=True)


class Fleet:
    def __init__(
        self, folder, scripts=None, *, main=(), settings=None, clock=None, definitions=None, ports=None, **bounds
    ):
        self.folder = Path(folder)
        self.clock = clock or FakeClock()
        self.scripts = {"general-purpose": [{"text": "done"}], **(scripts or {})}
        self.definitions = list(definitions or (GENERAL, EXPLORE))
        self.settings = settings or FleetSettings()
        self.events, self.requests, self.setups = EventCollector(), [], {}
        self.records, self.life = [], LifecycleRecords()
        caller = Caller(
            find_manager=lambda: self.manager,
            run_id="main",
            definitions=lambda: self.definitions,
            resolve_model=resolve,
            list_models=lambda: MODELS,
            clock=self.clock,
            **(ports or {}).pop("caller", {}),
        )
        self.ports = FleetPorts(caller, lambda: self.settings, **(ports or {}))
        self.tools = map_fleet_tools(self.ports)
        self.root = self.open_run("main", list(main) or [{"text": "main"}], tools=self.tools)
        self.root.bus.listen(self.events, pieces=False)
        self.root.bus.listen(self._follow, pieces=False)
        self.backend = make_backend(self.root, self.find_file, at_once=True)
        self.new_id = make_run_id
        self.manager = Manager(
            self.root,
            self,
            self.backend,
            clock=self.clock,
            new_id=lambda: self.new_id(),
            bounds=Bounds(**bounds),
            watchers=[Transcripts(clock=self.clock, warn=caller.warn).watch],
            open_notifier=lambda manager: open_notifier(manager, self.backend, self._render_notification, self.clock),
        )
        self.notifier = self.manager.notifier

    def _render_notification(self, runs, **options):
        return render_notification(runs, self.ports.measure, now_ms=self.clock.now_ms(), **options)

    def caller(self, setup):
        """The ports of a child."""
        above = self.ports.caller
        return FleetPorts(
            Caller(
                lambda: self.manager,
                setup.run_id,
                above.definitions,
                above.resolve_model,
                above.list_models,
                self.clock,
            ),
            lambda: self.settings,
            self.ports.retries,
        )

    def find_file(self, run_id):
        return self.folder / "sessions" / f"{run_id}.jsonl"

    def open_run(self, run_id, script, *, model=SONNET, tools=None, limits=None):
        path = self.find_file(run_id)
        if path.exists():
            session = Session.open(path, clock=self.clock, new_id=make_uuid)
        else:
            session = Session.create(cwd=self.folder, directory=None, path=path, clock=self.clock, new_id=make_uuid)
        player = ScriptedModel(parse_script(script), model, sleep=self.clock.sleep)
        features = [] if run_id == "main" else [ChildTools(lambda setup: map_fleet_tools(self.caller(setup)))]
        setup = build_setup(
            run_id, self.folder, player, tools=tools or {}, limits=limits or Limits(), features=features
        )
        return LiveRun(setup, session, clock=self.clock)

    def find_grant(self, run_id):
        return None

    @asynccontextmanager
    async def open(self, run, request, parent):
        self.requests.append(request)
        script = self.scripts[request.agent]
        if isinstance(script, Exception):
            raise script
        limits = Limits(max_turns=request.limits.max_turns, grace_turns=1)
        model = MODELS[[each.ref for each in MODELS].index(request.model)] if request.model else parent.setup.model.info
        live = self.open_run(run.id, script, model=model, tools=self.setups.get(request.agent), limits=limits)
        try:
            yield live
        finally:
            live.session.close()

    async def __aenter__(self):
        await self.backend.__aenter__()
        return self

    async def __aexit__(self, *error):
        self.notifier.close()
        self.manager.stop_all()
        await self.backend.__aexit__(None, None, None)
        self.root.session.close()

    async def result(self, name, /, **arguments):
        tool = self.tools[name]
        fitted, problems = fit_arguments(arguments, tool.spec.parameters)
        assert problems == []
        return await tool.call(fitted, ToolContext(self.folder, run_id="main", call_id="call_1"))

    async def call(self, name, **arguments):
        """The text of a tool's result."""
        return (await self.result(name, **arguments)).content[0].text

    async def start(self, agent="general-purpose", prompt="do it", **arguments):
        """Start an agent through the tool; returns its run."""
        arguments = {"description": "some work", **arguments}
        result = await self.result("Agent", subagent_type=agent, prompt=prompt, **arguments)
        assert not result.is_error, result.content[0].text
        return self.manager.find(result.details["agentId"])

    async def settle(self, *runs):
        """Let everything happen that needs no time."""
        await self.clock.advance(0)
        for run in runs:
            assert run.status.is_final, run.status

    def news(self):
        """What the main agent was told since the last look, as texts."""
        told = []
        while taken := self.root.inbox.take_steering():
            told += [join_text(message.content) for message in taken]
        return told

    def warnings(self):
        return [event.text for event in self.events.events if type(event).__name__ == "Warned"]

    def _follow(self, event):
        record = self.life(event)
        if record is not None:
            self.records.append(record)


def broken_worktree(text):
    async def check(cwd):
        raise RetinueError(text)

    return check
