import json
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import uuid4

import pytest

from retinue.core.definition import DeclaredTools, Definition
from retinue.core.errors import ModelError, UnknownAgent
from retinue.core.events import RunForgotten, Warned
from retinue.core.messages import Usage
from retinue.core.model import ModelInfo
from retinue.core.run import Status
from retinue.engine.backend import LocalBackend
from retinue.engine.budget import Lease
from retinue.engine.build import RunBuilder, RunHost
from retinue.engine.clock import SystemClock
from retinue.engine.limits import Bounds, Limits, choose_limits
from retinue.engine.manager import Manager
from retinue.engine.prompt import Place, build_sections, render_prompt
from retinue.engine.request import RunRequest
from retinue.engine.run_config import Policy, RunConfig
from retinue.engine.runner import LiveRun
from retinue.models.resolve import ModelChoice
from retinue.models.scripted import ScriptedModel, parse_script
from retinue.sessions.log import Session
from retinue.settings.run_config import build_surfaces
from retinue.settings.subagents import SubagentsConfig
from retinue.testing.clock import EventCollector
from retinue.tools.policy import Rights
from retinue.tools.registry import ToolOptions, build_tools
from tests.run_setup import build_setup

DONE = {"text": "done"}
SURFACES = build_surfaces(SubagentsConfig(), {})


def define(name="a", **fields):
    values = {"dialect": "pi", "source": "user", "path": f"/{name}.md", "prompt": "Do it.", **fields}
    return Definition(name=name, **values)


class Models:
    """Two models, one of them only for those who ask for it."""

    def resolve(self, query, *, is_choice=False):
        if query != "other":
            raise ModelError(f"unknown model {query!r}")
        return ModelChoice(ModelInfo(provider="scripted", id="other", api="scripted", reasoning=True), "high")

    def open(self, info):
        return ScriptedModel(parse_script([{"text": "from the other"}]), info)


class World:
    def __init__(self, tmp_path, definitions, replies=(DONE,), *, rights=None, directory=None, policy=None, lease=None):
        self.cwd, clock = tmp_path, SystemClock()
        self.definitions = {item.name: item for item in definitions}
        self.tools = build_tools(ToolOptions())
        session = Session.create(cwd=tmp_path, directory=directory, clock=clock, new_id=lambda: str(uuid4()))
        session.append_session_info("main")
        model = ScriptedModel(parse_script(list(replies)))
        sections = build_sections(cwd=str(tmp_path), tools={})
        self.root = LiveRun(build_setup("main", tmp_path, model, sections=sections), session, clock=clock)
        self.events = EventCollector()
        self.root.bus.listen(self.events, pieces=False)
        host, policy = RunHost(clock, Models(), self.survey), policy or Policy(surfaces=SURFACES)
        config = RunConfig(self.find, self.tools, policy=policy, lease=lease or Lease())
        rights = rights or Rights(allowed=tuple(self.tools))
        self.builder = RunBuilder(host, config, root=rights)
        self.setups = []
        self.on_look = lambda: None

    def find(self, name, surface):
        if name not in self.definitions:
            raise UnknownAgent(f"Unknown agent: {name}")
        return self.definitions[name]

    async def survey(self, cwd):
        return Place(str(cwd), "trunk", "linux")

    async def run(self, *agents, again=False, **fields):
        """Let each agent start the next; the setups they had."""
        async with LocalBackend() as backend:
            manager = Manager(
                self.root,
                self,
                backend,
                clock=SystemClock(),
                new_id=lambda: uuid4().hex[:17],
                bounds=Bounds(max_depth=9),
            )
            parent, runs = None, []
            for agent in agents:
                request = RunRequest(agent=agent, task="t", description="d", **{"surface": "fleet", **fields})
                run = manager.spawn(request, parent)
                await manager.wait(run.id, 5)
                parent = run.id
                runs.append(run)
            if again:
                runs = [manager.resume(runs[0].id, "again")]
                await manager.wait(runs[0].id, 5)
        return runs

    def find_grant(self, run_id):
        return self.builder.find_grant(run_id)

    @asynccontextmanager
    async def open(self, run, request, parent):
        async with self.builder.open(run, request, parent) as live:
            self.setups.append(live.setup)
            self.on_look()
            yield live


@pytest.mark.spec("codingcode:13")
async def test_run_gets_what_its_file_lists(tmp_path):
    world = World(tmp_path, [define(tools=DeclaredTools(("ls", "read")), thinking="high", max_turns=3)])
    (run,) = await world.run("a")
    assert (run.status, run.text, list(world.setups[0].tools)) == (Status.COMPLETED, "done", ["ls", "read"])
    assert world.setups[0].limits.max_turns == 3


@pytest.mark.attack("E1", "SEC-6")
async def test_rights_shrink_from_run_to_run(tmp_path):
    wide, narrow = define("wide"), define("narrow", readonly=True)
    world = World(tmp_path, [wide, narrow])
    await world.run("wide", "narrow", "wide")
    assert [sorted(setup.tools) for setup in world.setups] == [
        ["bash", "edit", "find", "grep", "ls", "read", "write"],
        ["find", "grep", "ls", "read"],
        ["find", "grep", "ls", "read"],
    ]


async def test_only_read_only_runs_try_the_sandbox(tmp_path):
    asked = []

    def judge():
        asked.append(len(world.setups))
        return True, ""

    tools = DeclaredTools(("read", "bash"))
    agents = [define("writer", tools=tools), define("reader", tools=tools, readonly=True)]
    world = World(tmp_path, agents, [DONE, DONE], policy=Policy(judge=judge, surfaces=SURFACES))
    await world.run("writer", "reader")
    assert (asked, [list(setup.tools) for setup in world.setups]) == ([1], [["read", "bash"]] * 2)


@pytest.mark.attack("E1")
async def test_changed_file_widens_no_resumed_run(tmp_path):
    world = World(tmp_path, [define(tools=DeclaredTools(("read",)))], [DONE, DONE])
    world.on_look = lambda: world.definitions.update(a=define())
    await world.run("a", again=True)
    assert [list(setup.tools) for setup in world.setups] == [["read"], ["read"]]


async def test_resumed_run_keeps_its_session(tmp_path):
    world = World(tmp_path, [define()], [DONE, {"text": "done again"}])
    (run,) = await world.run("a", again=True)
    assert (run.attempt, run.text) == (2, "done again")


async def test_session_lies_beside_the_parents(tmp_path):
    world = World(tmp_path, [define()], directory=tmp_path / "sessions")
    (run,) = await world.run("a")
    main = world.root.session.path
    path = Path(run.outcome.session_file)
    assert path == main.with_suffix("") / run.id / "session.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert (lines[0]["parentSession"], lines[1]["name"]) == (str(main), f"a#{run.id[:8]}")


@pytest.mark.spec("fleet:B37")
async def test_appended_prompt_begins_with_the_parents(tmp_path):
    world = World(tmp_path, [define(prompt_mode="append")])
    await world.run("a")
    assert render_prompt(world.setups[0].sections).startswith(render_prompt(world.root.setup.sections) + "\n\n")


@pytest.mark.spec("fleet:B38", "fleet:B39")
async def test_replaced_prompt_has_nothing_of_the_parent(tmp_path):
    world = World(tmp_path, [define()])
    runs = await world.run("a", "a")
    text, tag = render_prompt(world.setups[1].sections), world.setups[1].tag
    assert tag.startswith(f'<active_agent name="a" agent_id="{runs[1].id}" parent_agent_id="{runs[0].id}" depth="2"')
    assert "through retinue" not in text and "active_agent" not in text


@pytest.mark.parametrize(
    ("fields", "request_fields", "model", "thinking"),
    [
        ({}, {}, "script", "off"),
        ({"model": "other"}, {}, "other", "high"),
        ({"model": "other"}, {"thinking": "low"}, "other", "low"),
        ({"model": "none such", "is_model_wish": True}, {"surface": "subagent"}, "script", "off"),
        ({"model": "none such"}, {}, "script", "off"),
        ({}, {"model": "other"}, "other", "high"),
    ],
)
async def test_model_is_pinned_wished_or_inherited(tmp_path, fields, request_fields, model, thinking):
    world = World(tmp_path, [define(**fields)])
    await world.run("a", **request_fields)
    setup = world.setups[0]
    found = setup.model.info.id if setup.model.info.id == "other" else "script"
    assert (found, setup.thinking) == (model, thinking)


@pytest.mark.spec("fleet:B10")
@pytest.mark.parametrize(("fields", "asked"), [({"model": "none such"}, {"surface": "subagent"}), ({}, {"model": "x"})])
async def test_unknown_model_fails_the_run(tmp_path, fields, asked):
    world = World(tmp_path, [define(**fields)])
    (run,) = await world.run("a", **asked)
    assert (run.status, world.setups) == (Status.FAILED, [])
    assert run.outcome.error.startswith("agent 'a': unknown model")


async def test_unknown_agent_fails_alone(tmp_path):
    world = World(tmp_path, [])
    (run,) = await world.run("nobody")
    assert (run.status, run.outcome.error) == (Status.FAILED, "Unknown agent: nobody")


@pytest.mark.spec("fleet:B25")
async def test_unknown_tool_is_told(tmp_path):
    world = World(tmp_path, [define(tools=DeclaredTools(("read", "raed", "lsp")))])
    await world.run("a")
    told = [event.text for event in world.events.of(Warned)]
    assert told == ["agent 'a': there is no tool 'raed' here (did you mean 'read'?)"]


async def test_model_sees_the_files_names(tmp_path):
    (tmp_path / "x.txt").write_text("content")
    tools = DeclaredTools(("read_file",), aliases={"read_file": "read"})
    replies = [{"calls": [{"name": "read_file", "arguments": {"path": "x.txt"}}]}, DONE]
    world = World(tmp_path, [define(dialect="codingcode", tools=tools)], replies)
    (run,) = await world.run("a")
    assert (list(world.setups[0].tools), run.tool_uses) == (["read_file"], 1)
    assert world.setups[0].tools["read_file"].spec.name == "read_file"


@pytest.mark.parametrize(
    ("own", "asked", "default", "turns"),
    [(None, None, None, None), (None, None, 7, 7), (5, None, 7, 5), (0, None, 7, None), (5, 3, 7, 3)],
)
def test_limits_have_an_order(own, asked, default, turns):
    limits = choose_limits(define(max_turns=own), Limits(max_turns=asked), Limits(max_turns=default))
    assert limits.max_turns == turns


@pytest.mark.parametrize(("skips_queue", "status"), [(False, Status.STOPPED), (True, Status.COMPLETED)])
async def test_clock_starts_runs_on_their_own_budget(tmp_path, skips_queue, status):
    spent = Lease(tokens=50_000)
    spent.settle(0, 0, Usage(total_tokens=50_000))
    world = World(tmp_path, [define()], lease=spent)
    assert [run.status for run in await world.run("a", skips_queue=skips_queue)] == [status]


async def test_forgotten_run_leaves_nothing(tmp_path):
    world = World(tmp_path, [define()])
    (run,) = await world.run("a")
    tree = world.builder.tree
    tree.hear(RunForgotten(run_id=run.id))
    parts = (tree, tree.rights, tree.leases, tree.sessions)
    kept = [value for part in parts for value in vars(part).values() if isinstance(value, dict | set)]
    assert [run.id in store for store in kept] == [False] * len(kept)
