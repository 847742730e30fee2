"""A crew with MCP servers: who starts them, who shares them, when they end."""

import asyncio
import json
import sys

import pytest

from retinue import Retinue
from retinue.core.events import ToolFinished
from retinue.core.run import Status
from retinue.settings.request import Request, SessionWish
from retinue.testing.process import fresh_home
from tests.flows.mcp_world import PROGRAM, wait_gone

CHILD = "---\nname: helper\ndescription: d\ntools: [read_file]\nmcpServers: [raw]\n---\n\nWork.\n"


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A home with servers and an agent that uses one of them: that of the workers, too."""
    home = fresh_home(tmp_path)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("PI_CODING_AGENT_DIR")
    (home / ".codingcode" / "agents").mkdir(parents=True)
    (home / ".codingcode" / "agents" / "helper.md").write_text(CHILD)
    (tmp_path / "work").mkdir()
    mark = 'open(os.path.join(os.path.dirname(__file__), "pids"), "a").write(f"{os.getppid()} {os.getpid()}\\n")\n'
    (tmp_path / "raw.py").write_text(PROGRAM.replace("#EXTRA#", mark))
    entry = {"command": sys.executable, "args": ["-I", "-S", str(tmp_path / "raw.py")]}
    (home / ".pi" / "agent" / "mcp.json").write_text(json.dumps({"mcpServers": {"raw": entry}}))
    return tmp_path


@pytest.fixture
def sides(crew_runner):
    """How often a run's server is started: a worker does that as well as whoever has to know its tools here."""
    return 2 if crew_runner == "cluster" else 1


def starts(place):
    path = place / "pids"
    return path.read_text().splitlines() if path.exists() else []


def crew(place, *replies, **options):
    script = place / "script.json"
    script.write_text(json.dumps({"replies": list(replies)}))
    request = Request(session=SessionWish("none"), **options)
    environment = {"HOME": str(place / "home"), "PATH": "/usr/bin:/bin", "RETINUE_NO_LOCAL": "1"}
    told = []
    found = Retinue(
        place / "work", model=f"scripted/{script}", request=request, environment=environment, say=told.append
    )
    return found, told


CALL = {"calls": [{"name": "mcp__raw__hi", "arguments": {}}]}


async def ask(place, agent, call="mcp__raw__hi", folder=".pi/agent/agents", **options):
    """What the call of a child gets for an answer."""
    path = place / "home" / folder / "helper.md"
    path.parent.mkdir(exist_ok=True, parents=True)
    path.write_text(f"---\nname: helper\ndescription: d\n{agent}\n---\n\nWork.\n")
    retinue, _ = crew(place, {"calls": [{"name": call, "arguments": {}}]}, {"text": "done"}, **options)
    async with retinue:
        handle = await retinue.spawn("helper", "look")
        events = [event async for event in handle.events()]
    (found,) = [event.result for event in events if isinstance(event, ToolFinished)]
    return found.content[0].text


async def wait_disconnected(retinue):
    pool = retinue._here.parts.extensions.servers._pool
    for _ in range(150):
        if not pool.connected:
            return True
        await asyncio.sleep(0.02)
    return False


@pytest.mark.spec("codingcode:30")
async def test_run_holds_its_server_until_its_end(place, sides):
    retinue, told = crew(place, CALL, {"text": "one"})
    async with retinue:
        before = starts(place)
        first = await (await retinue.spawn("helper", "look")).wait()
        assert await wait_disconnected(retinue)
        second = await (await retinue.spawn("helper", "look")).wait()
    assert (before, first.text, second.text, told) == ([], "one", "one", [])
    assert (len(starts(place)), first.tool_calls, second.tool_calls) == (2 * sides, 1, 1)


@pytest.mark.here("a run on a worker shares no connection with others")
@pytest.mark.spec("codingcode:30")
async def test_runs_share_one_connection(place):
    retinue, _ = crew(place, *[CALL] * 4, *[{"text": "done"}] * 4)
    async with retinue:
        handles = [await retinue.spawn("helper", "look") for _ in range(4)]
        outcomes = [await handle.wait() for handle in handles]
    assert [outcome.status for outcome in outcomes] == [Status.COMPLETED] * 4
    assert len(starts(place)) == 1


async def test_main_agent_keeps_its_servers(place, sides):
    retinue, _ = crew(place, CALL, {"text": "one"}, CALL, {"text": "two"})
    async with retinue:
        await retinue.prompt("begin")
        await (await retinue.spawn("helper", "look")).wait()
        outcome = await retinue.prompt("again")
    assert (outcome.text, len(starts(place))) == ("two", sides)


@pytest.mark.here("a worker makes a copy also where there is no repository")
async def test_failed_start_gives_its_lease_back(place):
    agents = place / "home" / ".pi" / "agent" / "agents"
    agents.mkdir()
    (agents / "helper.md").write_text("---\ndescription: d\ntools: read, raw:hi\nisolation: worktree\n---\n\nWork.\n")
    retinue, _ = crew(place)
    async with retinue:
        outcome = await (await retinue.spawn("helper", "look")).wait()
        assert outcome.status is Status.FAILED and "worktree" in outcome.error
        assert await wait_disconnected(retinue)
    assert len(starts(place)) == 1


async def test_opening_starts_no_server(place):
    retinue, _ = crew(place)
    async with retinue:
        await asyncio.sleep(0.2)
    assert starts(place) == []


async def test_fifty_servers_do_not_hold_up_the_start(place):
    entry = json.loads((place / "home/.pi/agent/mcp.json").read_text())["mcpServers"]["raw"]
    servers = {f"s{number}": entry for number in range(50)}
    (place / "home/.pi/agent/mcp.json").write_text(json.dumps({"mcpServers": servers}))
    retinue, told = crew(place, {"calls": [{"name": "mcp__s49__hi", "arguments": {}}]}, {"text": "done"})
    loop = asyncio.get_running_loop()
    begun = loop.time()
    async with retinue:
        usable = loop.time() - begun
        outcome = await retinue.prompt("begin")
        ending = loop.time()
    assert (usable < 1, loop.time() - ending < 2) == (True, True)
    assert (outcome.text, outcome.tool_calls, told, len(starts(place))) == ("done", 1, [], 50)


async def test_abort_leaves_a_hung_call(place):
    path = place / "raw.py"
    path.write_text(path.read_text().replace("TOOLS = [", "def call(message):\n    pass\n\nTOOLS = [", 1))
    text = path.read_text()
    path.write_text(text.replace('def call(message):\n    say(message, "hello")\n', "", 1))
    retinue, _ = crew(place, CALL, {"text": "done"})
    async with retinue:
        task = asyncio.ensure_future(retinue.prompt("begin"))
        while not retinue._here.parts.extensions.servers._pool.connected:
            await asyncio.sleep(0.02)
        await asyncio.sleep(0.2)
        begun = asyncio.get_running_loop().time()
        retinue.abort()
        outcome = await task
        assert asyncio.get_running_loop().time() - begun < 0.5
    assert outcome.status is Status.STOPPED


async def test_everything_is_gone_after_close(place):
    retinue, _ = crew(place, CALL, {"text": "done"})
    async with retinue:
        await retinue.prompt("begin")
        program = retinue._here.parts.extensions.servers._pool._links["raw"]
        assert program.is_connected
    assert not program.is_connected
    assert all([await wait_gone(int(pid)) for line in starts(place) for pid in line.split() if int(pid) > 100])


def add_server(place, name):
    path = place / "home/.pi/agent/mcp.json"
    servers = json.loads(path.read_text())["mcpServers"]
    path.write_text(json.dumps({"mcpServers": {**servers, name: servers["raw"]}}))


@pytest.mark.spec("codingcode:31")
async def test_other_servers_stay_out(place, sides):
    add_server(place, "other")
    agent = "tools: [read_file]\nmcpServers: [raw]"
    text = await ask(place, agent, "mcp__other__hi", ".codingcode/agents")
    assert text.startswith("Tool 'mcp__other__hi' not found.") and text.endswith("Available: read_file, mcp__raw__hi")
    assert len(starts(place)) == sides


@pytest.mark.sample(3)
@pytest.mark.parametrize("tools", ["read, raw:hi", "read, ext:mcp/hi", "read, ext:mcp", "read, mcp__raw__hi", "read"])
async def test_files_name_tools_of_servers(place, tools):
    assert await ask(place, f"tools: {tools}") == "hello"


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    "agent",
    ["isolated: true", "extensions: false", "exclude_extensions: mcp", "tools: read, ext:other", "readonly: true"],
)
async def test_shut_out_server_is_not_started(place, agent):
    text = await ask(place, agent)
    assert (text[:30], starts(place)) == ("Tool 'mcp__raw__hi' not found.", [])


async def test_denied_tool_is_not_given(place):
    assert "not found" in await ask(place, "disallowed_tools: raw:hi")


@pytest.mark.attack("E1")
async def test_child_has_no_more_than_main(place):
    text = await ask(place, "tools: read, raw:hi", tools=("read", "Agent"))
    assert (text[:30], starts(place)) == ("Tool 'mcp__raw__hi' not found.", [])


async def test_role_gets_its_servers(place):
    path = place / "home/.pi/agent/agents/helper.md"
    path.parent.mkdir()
    path.write_text("---\ndescription: d\ntools: read, raw:hi\n---\n\nWork.\n")
    retinue, _ = crew(place, CALL, {"text": "done"}, agent="helper")
    async with retinue:
        outcome = await retinue.prompt("begin")
    assert (outcome.text, outcome.tool_calls, len(starts(place))) == ("done", 1, 1)


@pytest.mark.spec("codingcode:30")
@pytest.mark.parametrize(
    ("name", "reason"), [("off", "is disabled"), ("rew", "is not configured (did you mean 'raw'?)")]
)
async def test_missing_server_does_not_stop_the_run(place, name, reason):
    path = place / "home/.pi/agent/mcp.json"
    servers = json.loads(path.read_text())["mcpServers"]
    path.write_text(json.dumps({"mcpServers": {**servers, "off": {**servers["raw"], "enabled": False}}}))
    agents = place / "home/.codingcode/agents/helper.md"
    agents.write_text(CHILD.replace("[raw]", f"[{name}]"))
    retinue, told = crew(place, {"text": "done"})
    async with retinue:
        outcome = await (await retinue.spawn("helper", "look")).wait()
    assert (outcome.text, starts(place)) == ("done", [])
    assert told == [f"agent 'helper': MCP server '{name}' {reason}; it continues without it"]


@pytest.mark.attack("E6")
async def test_server_counts_as_a_level(place, crew_runner):
    path = place / "raw.py"
    tell = 'def call(message):\n    say(message, os.environ["PI_SUBAGENT_DEPTH"])\n'
    path.write_text(path.read_text().replace("for line in sys.stdin", f"{tell}\nfor line in sys.stdin"))
    # On a worker it is the run's own, and below it.
    assert await ask(place, "tools: read, raw:hi") == ("2" if crew_runner == "cluster" else "1")
