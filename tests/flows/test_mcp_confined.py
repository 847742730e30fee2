"""A server that is started for a read-only run can do no more than the run."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from retinue import Retinue
from retinue.core.events import ToolFinished
from retinue.engine.clock import SystemClock
from retinue.features.mcp.connection import McpOpener, ServerContext
from retinue.features.mcp.pool import ServerPool
from retinue.features.sandbox import Boundaries
from retinue.sandbox.probe import Machine, Probe
from retinue.sandbox.status import Backend
from retinue.settings.request import Request, SessionWish
from retinue.settings.subagents import Sandbox
from retinue.testing.process import fresh_home
from tests.flows.mcp_world import PROGRAM, TREES, World, call, text_of, wait_gone
from tests.flows.sandbox_world import need_status

# Tells what it could do: write where it works, open a socket, see what its entry sets.
DEEDS = """
def call(message):
    done = []
    try:
        open("pwn", "w").close()
        done.append("wrote")
    except OSError:
        done.append("refused")
    try:
        __import__("socket").socket().close()
        done.append("socket")
    except OSError:
        done.append("no socket")
    say(message, " ".join([*done, os.environ.get("GIVEN", "")]))
"""
BOUND = "refused no socket yes"
FREE = "wrote socket yes"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = fresh_home(tmp_path)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("PI_CODING_AGENT_DIR")
    (home / ".pi" / "agent" / "agents").mkdir(parents=True)
    (tmp_path / "work").mkdir()
    (tmp_path / "raw.py").write_text(PROGRAM.replace("#EXTRA#", DEEDS))
    entry = {"command": sys.executable, "args": ["-I", "-S", str(tmp_path / "raw.py")], "env": {"GIVEN": "yes"}}
    servers = {"mcpServers": {"raw": {**entry, "readOnlyTools": ["hi"]}}}
    (home / ".pi" / "agent" / "mcp.json").write_text(json.dumps(servers))
    return tmp_path


def crew(place: Path, *replies: object, **options: object) -> Retinue:
    (place / "script.json").write_text(json.dumps({"replies": replies}))
    request = Request(session=SessionWish("none"), **options)  # type: ignore[arg-type]
    environment = {"HOME": str(place / "home"), "PATH": "/usr/bin:/bin", "RETINUE_NO_LOCAL": "1"}
    return Retinue(place / "work", model=f"scripted/{place}/script.json", request=request, environment=environment)


CALL = {"calls": [{"name": "mcp__raw__hi", "arguments": {}}]}


async def ask(place: Path, agent: str, **options: object) -> str:
    """What the server could do for a run of an agent."""
    path = place / "home" / ".pi" / "agent" / "agents" / "helper.md"
    path.write_text(f"---\nname: helper\ndescription: d\ntools: read, raw:hi\n{agent}\n---\n\nWork.\n")
    async with crew(place, CALL, {"text": "done"}, **options) as retinue:
        handle = await retinue.spawn("helper", "look")
        events = [event async for event in handle.events()]
    (found,) = [event.result for event in events if isinstance(event, ToolFinished)]
    return text_of(found)


@pytest.mark.attack("F7")
@pytest.mark.parametrize(("agent", "said"), [("readonly: true", BOUND), ("readonly: false", FREE)])
async def test_server_is_bound_as_its_run(place: Path, agent: str, said: str) -> None:
    need_status("bwrap")
    assert await ask(place, agent) == said


@pytest.mark.attack("F7")
async def test_readonly_parent_binds_the_server(place: Path) -> None:
    need_status("bwrap")
    assert await ask(place, "readonly: false", is_readonly=True) == BOUND


@pytest.mark.attack("F7")
async def test_readonly_run_does_not_borrow_a_server(place: Path) -> None:
    need_status("bwrap")
    path = place / "home" / ".pi" / "agent" / "agents" / "helper.md"
    path.write_text("---\nname: helper\ndescription: d\ntools: read, raw:hi\nreadonly: true\n---\n\nWork.\n")
    async with crew(place, CALL, {"text": "done"}) as retinue:
        await retinue.prompt("begin")
        (place / "work" / "pwn").unlink()
        outcome = await (await retinue.spawn("helper", "look")).wait()
    assert (outcome.text, outcome.tool_calls) == ("done", 1)
    assert list((place / "work").iterdir()) == []


@pytest.mark.parametrize("backend", ["bwrap", "landlock"])
async def test_each_backend_binds_servers(backend: Backend, home: Path, tmp_path: Path) -> None:
    need_status(backend)
    machine = Machine(Probe(backends=(backend,)))
    boundaries = Boundaries(Sandbox(), home=home, agent_dir=home / "a", find_machine=lambda: machine)
    world, boundary = World(tmp_path), boundaries.surround_place(tmp_path, readonly=True)
    server = world.add(extra=DEEDS + "\nTOOLS[0]['description'] = str(os.getpid())", env={"GIVEN": "yes"})
    around = ServerContext(tmp_path, world.environment, TREES, "1", world.told.append)
    confined = McpOpener(replace(around, confining=boundary))
    async with ServerPool(
        [server], McpOpener(around), SystemClock(), world.told.append, open_confined=confined
    ) as pool:
        pool.lease(["raw"], readonly=True)
        tools = await pool.list_tools(["raw"], readonly=True)
        assert (text_of(await call(tools["mcp__raw__hi"], tmp_path)), world.told) == (BOUND, [])
        await pool.close()
    boundary.close()
    machine.close()
    assert await wait_gone(_find_server(tmp_path))


def _find_server(root: Path) -> int:
    """A process that still runs the server's file; 0 when there is none."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if str(root / "raw.py").encode() in (entry / "cmdline").read_bytes():
                    return int(entry.name)
            except OSError:
                continue
    return 0


async def test_without_sandbox_no_server_starts(home: Path, tmp_path: Path) -> None:
    boundaries = Boundaries(Sandbox(mode="off"), home=home, agent_dir=home / "a")
    world, boundary = World(tmp_path), boundaries.surround_place(tmp_path, readonly=True)
    server = world.add(extra=DEEDS)
    around = ServerContext(tmp_path, world.environment, TREES, "1", world.told.append)
    confined = McpOpener(replace(around, confining=boundary))
    async with ServerPool(
        [server], McpOpener(around), SystemClock(), world.told.append, open_confined=confined
    ) as pool:
        assert await pool.list_tools(["raw"], readonly=True) == {}
    (told,) = world.told
    assert told.startswith("MCP server 'raw', started for read-only agents (no writing, no network): SANDBOX_UNAV")
