import json

import pytest

from retinue.core.run import Status
from tests.surfaces.dispatch_world import World, call, dispatch, to

TOOLS = """
def register(api):
    for name, text in (("paint_wall", "Paint a wall in a colour"), ("paint_door", "Paint a door"), ("plain", "Plain")):
        @api.tool(name=name, description=text, effect="read", deferred=name != "plain")
        def run():
            return "painted"
"""
WRITER = """
    api.tool(name="paint_all", description="Paint all", effect="write", deferred=True)(lambda: "x")
"""
WRITER_ONLY = f"def register(api):{WRITER}"
DENYING = """
def register(api):
    api.tool(name="paint_wall", description="Paint", effect="read", deferred=True)(lambda: "x")
"""
HOOKS = """
def register(api):
    @api.hook(point="tool.approval.pre", priority=5)
    def guard(payload):
        if payload["toolName"] == "bash":
            return {"decision": "deny", "reason": f"no shell in {payload['sessionId']}"}

    @api.hook(point="agent.subagent.spawn.before")
    async def spawn(payload):
        raise ValueError("broken")
"""


@pytest.fixture
def world(home, tmp_path):
    world = World(home, tmp_path)
    world.agent()
    return world


def extend(world, text, name="painter"):
    folder = world.agent_dir / "extensions"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.py").write_text(text)


def offered(entries):
    """The tools each system message of a session declares."""
    text = json.dumps(entries)
    return {name for name in ("paint_wall", "paint_door", "plain", "tool_search") if f'"name": "{name}"' in text}


@pytest.mark.spec("codingcode:41")
async def test_found_tools_come_with_the_next_step(world):
    extend(world, TOOLS)
    replies = (
        to("^begin", calls=[call("paint_wall")]),
        to("^begin", calls=[call("tool_search", query="PAINT wall")]),
        to("^begin", calls=[call("paint_wall"), call("paint_door")]),
        to("^begin", text="done"),
    )
    early, found, later, other = await world.run(*replies)
    assert early.startswith("Tool 'paint_wall' not found")
    assert found == (
        "Loaded 1 tool(s). Their full schemas are now available next turn:\n- paint_wall: Paint a wall in a colour"
    )
    assert later == "painted" and other.startswith("Tool 'paint_door' not found")


@pytest.mark.spec("codingcode:41")
async def test_no_match_is_said(world):
    extend(world, TOOLS)
    (text,) = await world.run(
        to("^begin", calls=[call("tool_search", query="paint window")]), to("^begin", text="done")
    )
    assert text == 'No deferred tools matched "paint window".'


@pytest.mark.spec("codingcode:41")
async def test_found_tools_stay_for_the_session(world):
    extend(world, TOOLS)
    replies = (
        to("^begin", calls=[call("tool_search", query="wall")]),
        to("^begin", text="found"),
        to("^again", calls=[call("paint_wall")]),
        to("^again", text="used"),
    )
    async with world.open(*replies) as crew:
        await crew.prompt("begin")
        await crew.prompt("again")
        entries = [json.loads(line) for line in crew.session_file.read_text().splitlines()]
    assert world.results(entries)[1] == "painted"


@pytest.mark.spec("codingcode:41")
async def test_child_begins_with_none(world):
    extend(world, TOOLS)
    world.agent(fields="tools: [read_file, ext:painter]\n")
    replies = (
        to("^begin", calls=[call("tool_search", query="paint")]),
        to("^begin", calls=[dispatch()]),
        to("^begin", text="done"),
        to("^look", calls=[call("paint_wall")]),
        to("^look", calls=[call("tool_search", query="wall")]),
        to("^look", calls=[call("paint_wall")]),
        to("^look", text="done"),
    )
    await world.run(*replies)
    early, found, later = world.results(world.child())
    assert early.startswith("Tool 'paint_wall' not found") and found.startswith("Loaded 1 tool(s).")
    assert later == "painted"


@pytest.mark.spec("codingcode:15", "codingcode:41")
@pytest.mark.parametrize("agent", ["explore", "plan"])
async def test_builtin_agents_look_for_tools(world, agent):
    extend(world, TOOLS + WRITER)
    replies = (
        to("^look", calls=[call("tool_search", query="paint")]),
        to("^look", calls=[call("paint_wall"), call("paint_all"), call("plain")]),
        to("^look", text="done"),
    )
    assert await world.dispatch(*replies, agent=agent) == "done"
    found, wall, all_, plain = world.results(world.child())
    assert found.startswith("Loaded 2 tool(s).") and "paint_all" not in found
    assert (wall, all_.partition(".")[0], plain.partition(".")[0]) == (
        "painted",
        "Tool 'paint_all' not found",
        "Tool 'plain' not found",
    )


@pytest.mark.parametrize("text", ["", WRITER_ONLY, DENYING])
async def test_nothing_to_look_for_is_no_fault(world, text):
    extend(world, text or "def register(api):\n    pass\n")
    fields = "tools: [read_file, tool_search]\nreadonly: true\n"
    world.agent(fields=fields + ("disallowed_tools: [paint_wall]\n" if text == DENYING else ""))
    await world.dispatch(to("^look", calls=[call("tool_search", query="paint")]), to("^look", text="done"))
    assert world.results(world.child())[0].startswith("Tool 'tool_search' not found")
    assert [*world.warned, *world.said] == []


async def test_waiting_tools_are_not_in_the_prompt(world):
    extend(world, TOOLS)
    async with world.open({"text": "hi"}) as crew:
        await crew.prompt("hello")
        entries = [json.loads(line) for line in crew.session_file.read_text().splitlines()]
    assert offered(entries) == {"plain", "tool_search"}


async def test_extension_guards_calls(world):
    extend(world, HOOKS)
    (text,) = await world.run(to("^begin", calls=[call("bash", command="true")]), to("^begin", text="done"))
    assert text == '[Denied] Tool "bash" was denied: no shell in main-session'


@pytest.mark.attack("F8")
async def test_broken_extension_guard_denies(world):
    extend(world, HOOKS)
    text = await world.dispatch(to("^look", text="never"))
    assert "Subagent spawn denied: the hook 'painter:spawn' failed: ValueError: broken" in text
    assert world.children() == []


async def test_unknown_point_is_told(world):
    extend(world, "def register(api):\n    api.hook(lambda payload: None, point='tool.aproval.pre')\n")
    await world.run({"text": "hi"})
    assert world.outcome.status is Status.COMPLETED
    assert any(
        "there is no point 'tool.aproval.pre' (did you mean 'tool.approval.pre'?)" in line for line in world.said
    )
