"""Rights that are taken away while runs work: in every process, whoever has finished or been forgotten meanwhile."""

import asyncio
import json
import time
from pathlib import Path

import pytest

from retinue import Retinue, Status
from retinue.core.tool import Effect
from retinue.engine.rights import RevokedTools
from tests.flows.crew_world import SESSION, call, script, to

OUTSIDE = "---\nname: outside\ndescription: d\nrunner: process\ntools: read, bash\n---\n\nGo.\n"


@pytest.fixture
def work(tmp_path: Path, agent_dir: Path) -> Path:
    (agent_dir / "agents").mkdir()
    (agent_dir / "agents" / "outside.md").write_text(OUTSIDE)
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


@pytest.fixture
def trap() -> Path:
    """A file that whoever may write can write, wherever it works."""
    folder = Path.home() / ".cache"
    folder.mkdir()
    return folder / "pwn"


async def until(found, limit_s: float = 30):
    deadline = time.monotonic() + limit_s
    while not (result := found()):
        assert time.monotonic() < deadline, "it did not come"
        await asyncio.sleep(0.02)
    return result


def find_sleepers(seconds: str) -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if words[:2] == [b"sleep", seconds.encode()]:
            found.append(path.parent.name)
    return found


@pytest.mark.attack("E11", "E13")
@pytest.mark.parametrize("loss", [{"readonly": True}, {"tools": ("bash",)}])
async def test_lowering_stops_other_processes(tmp_path: Path, work: Path, loss: dict) -> None:
    seconds = f"61.{time.monotonic_ns() % 10**9}"
    command = f"touch begun; sleep {seconds}; touch pwn"
    replies = [to("^leaf", calls=[call("bash", command=command)]), to("^", text="done")]
    async with Retinue(work, model=script(tmp_path, *replies), request=SESSION) as crew:
        run = await crew.spawn("outside", "leaf")
        await until((work / "begun").exists)
        crew.restrict(*loss.get("tools", ()), readonly=loss.get("readonly", False))
        outcome = await run.wait(30)
        await until(lambda: not find_sleepers(seconds))
    assert (outcome.status, (work / "pwn").exists()) == (Status.INTERRUPTED, False)


@pytest.mark.attack("E11")
async def test_loss_elsewhere_stops_nobody_else(tmp_path: Path, work: Path) -> None:
    replies = [to("^leaf", calls=[call("bash", command="sleep 0.5; touch done")]), to("^", text="done")]
    async with Retinue(work, model=script(tmp_path, *replies), request=SESSION) as crew:
        run, other = await crew.spawn("outside", "leaf"), await crew.spawn("outside", "other")
        await other.wait(15)
        crew.restrict(readonly=True, run_id=other.id)
        outcome = await run.wait(15)
    assert (outcome.status, (work / "done").exists()) == (Status.COMPLETED, True)


@pytest.mark.attack("E11", "E13")
def test_forgotten_parent_passes_losses_on() -> None:
    revoked = RevokedTools()
    revoked.place("child", "main")
    revoked.place("grandchild", "child")
    revoked.lower("child", ["web_search"])
    revoked.forget("child")
    revoked.lower("main", readonly=True)
    judged = [
        revoked.judge("grandchild", tool, effect) != ""
        for tool, effect in (
            ("write", Effect.WRITE),
            ("web_search", Effect.READ),
            ("mcp__x__post", Effect.NETWORK),
            ("read", Effect.READ),
        )
    ]
    assert judged == [True, True, True, False]


READER = "---\nname: reader\ndescription: d\nreadonly: true\ntools: read, bash, write, edit, Agent\n---\n\nRead.\n"
WRITER = "---\nname: writer\ndescription: d\ntools: read, write, bash\n---\n\nWrite.\n"


@pytest.mark.attack("E1", "B23")
async def test_readonly_role_writes_nothing(tmp_path: Path, work: Path, agent_dir: Path, trap: Path) -> None:
    for name, text in (("reader", READER), ("writer", WRITER)):
        (agent_dir / "agents" / f"{name}.md").write_text(text)
    hurt = [
        call("write", path="pwn1", content="x"),
        call("bash", command=f"echo x >pwn2; echo x >$HOME/pwn3; echo x >{trap}; echo in $(pwd)"),
        call("edit", path="a.txt", edits=[{"oldText": "one", "newText": "two"}]),
    ]
    (work / "a.txt").write_text("one\n")
    replies = [to("^go", calls=hurt), to("^leaf", calls=hurt), to("^", text="done")]
    request = SESSION.__class__(session=SESSION.session, agent="reader")
    async with Retinue(work, model=script(tmp_path, *replies), request=request) as crew:
        outcome = await crew.prompt("go")
        child = await (await crew.spawn("writer", "leaf")).wait(15)
    left = sorted(path.name for path in (*work.glob("pwn*"), *Path.home().glob("pwn*")))
    assert (left, trap.exists(), (work / "a.txt").read_text()) == ([], False, "one\n")
    assert [each.sandbox.partition(",")[0] for each in (outcome, child)] == ["read-only", "read-only"]
    text = Path(outcome.session_file).read_text()
    assert f"in {work.resolve()}" in json.dumps(text)


def put(trap: Path) -> list[dict]:
    writes = [call("write", path=name, content="x") for name in ("pwn", str(trap))]
    return [*writes, call("bash", command=f"touch pwn {trap}")]


@pytest.mark.attack("E11", "E13")
@pytest.mark.parametrize("way", ["begin", "clone", "fork", "open"])
async def test_losses_outlive_a_session(tmp_path: Path, work: Path, agent_dir: Path, trap: Path, way: str) -> None:
    (agent_dir / "agents" / "writer.md").write_text(WRITER)
    replies = [to("^(go|leaf)", calls=put(trap)), to("^", text="done")]
    async with Retinue(work, model=script(tmp_path, *replies), request=SESSION) as crew:
        await crew.prompt("hello")
        first, entry = crew.history.file, crew.history.list_prompts()[0].entry_id
        if way == "open":
            await crew.sessions.begin()
        crew.restrict(readonly=True)
        argument = {"fork": (entry,), "open": (first,)}.get(way, ())
        await getattr(crew.sessions, way)(*argument)
        await crew.prompt("go")
        await (await crew.spawn("writer", "leaf")).wait(15)
    assert ((work / "pwn").exists(), trap.exists()) == (False, False)


@pytest.mark.attack("E11", "E13")
@pytest.mark.parametrize("switches", [False, True])
async def test_losses_reach_earlier_runs(
    tmp_path: Path, work: Path, agent_dir: Path, trap: Path, switches: bool
) -> None:
    (agent_dir / "agents" / "writer.md").write_text(WRITER)
    model = script(tmp_path, to("^leaf", calls=put(trap)), to("^", text="done"))
    async with Retinue(work, model=model, request=SESSION) as crew:
        run = await crew.spawn("writer", "hello")
        await run.wait(15)
        first = crew.history.file
        if switches:
            await crew.sessions.begin()
            await crew.sessions.open(first)
            crew.restrict(readonly=True)
            await (await crew.resume(run.id, "leaf")).wait(15)
    if not switches:
        async with Retinue(work, model=model, request=SESSION) as crew:
            crew.restrict(readonly=True)
            await (await crew.resume(run.id, "leaf")).wait(15)
    assert ((work / "pwn").exists(), trap.exists()) == (False, False)
