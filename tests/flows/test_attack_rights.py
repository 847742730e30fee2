"""Attacks on what agents may do: more rights by a file, a call, a schedule, a resumption, a restart."""

import asyncio
import json
import random
from pathlib import Path

import pytest

from retinue import Request, Retinue, SessionWish, Status
from retinue.core.events import RunStarted, ScheduleChanged, ToolFinished
from retinue.core.tool import Effect
from retinue.engine.request import RunRequest
from retinue.engine.rights import RevokedTools
from retinue.testing import EventCollector
from tests.flows.crew_world import SESSION, call, script, to

LATER = Request(session=SessionWish("exact", "my-session"))
READER = "---\nname: reader\ndescription: d\nreadonly: true\ntools: read, ls, Agent\n---\n\nRead.\n"
WRITER = "---\nname: writer\ndescription: d\ntools: read, write, ls, Agent\n---\n\nWrite.\n"


@pytest.fixture
def work(tmp_path, agent_dir):
    (agent_dir / "agents").mkdir()
    for name, text in (("reader", READER), ("writer", WRITER)):
        (agent_dir / "agents" / f"{name}.md").write_text(text)
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


def start(agent, prompt, **more):
    return call("Agent", subagent_type=agent, prompt=prompt, description="d", **more)


def grants(seen):
    return [event.grant for event in seen.events if isinstance(event, RunStarted) and event.grant is not None]


@pytest.fixture
def trap():
    """A file that whoever may write can write, wherever it works."""
    folder = Path.home() / ".cache"
    folder.mkdir()
    return folder / "pwn"


def fall_into(trap):
    return [call("write", path=name, content="x") for name in ("pwn", str(trap))]


async def until(found):
    for _ in range(1500):
        if result := found():
            return result
        await asyncio.sleep(0.02)
    raise AssertionError("it did not come")


@pytest.mark.attack("E1", "B23")
async def test_readonly_agent_starts_no_writer(tmp_path, work, trap, crew_runner):
    replies = [
        to("^go", calls=[start("reader", "middle")]),
        to("^middle", calls=[start("writer", "leaf")]),
        to("^leaf", calls=fall_into(trap)),
        to("^", text="done"),
    ]
    seen = EventCollector()
    known = 1 if crew_runner == "cluster" else 2  # what a worker's run starts is seen there
    async with Retinue(work, model=script(tmp_path, *replies), request=SESSION) as crew:
        crew.listen(seen)
        await crew.prompt("go", settle=True)
        await until(lambda: len(grants(seen)) == known)
    assert [(grant.readonly, "write" in grant.tools) for grant in grants(seen)] == [(True, False)] * known
    assert ((work / "pwn").exists(), trap.exists()) == (False, False)


async def test_writer_below_a_writer_writes(tmp_path, work, trap):
    replies = [
        to("^go", calls=[start("writer", "middle")]),
        to("^middle", calls=[start("writer", "leaf")]),
        to("^leaf", calls=fall_into(trap)),
        to("^", text="done"),
    ]
    async with Retinue(work, model=script(tmp_path, *replies), request=SESSION) as crew:
        await crew.prompt("go", settle=True)
        await until(trap.exists)


@pytest.mark.here("schedules belong to the session at home; a run on a worker makes none")
@pytest.mark.attack("E14", "B23", "E6")
async def test_schedule_has_its_makers_rights(tmp_path, work):
    replies = [
        to("^go", calls=[start("reader", "middle")]),
        to("^middle", calls=[start("writer", "leaf", schedule="+1s")]),
        to("^leaf", calls=[call("write", path="pwn", content="x")]),
        to("^", text="done"),
    ]
    seen = EventCollector()

    def fired():
        return [event for event in seen.events if isinstance(event, ScheduleChanged) and event.change == "fired"]

    async with Retinue(work, model=script(tmp_path, *replies), request=SESSION) as crew:
        crew.listen(seen)
        await crew.prompt("go", settle=True)
        (job,) = json.loads((work / ".pi/subagent-schedules/my-session.json").read_text())["jobs"]
        assert (job["retinueGrant"]["readonly"], job["retinueDepth"]) == (True, 1)
        event = (await until(fired))[0]
        run = next(run for run in await crew.runs() if run.id == event.agent_id)
        await run.wait(15)
    assert not (work / "pwn").exists()
    assert [(grant.readonly, "write" in grant.tools) for grant in grants(seen)] == [(True, False)] * 2


@pytest.mark.here("schedules belong to the session at home; a run on a worker makes none")
@pytest.mark.attack("E6")
async def test_clock_starts_nobody_deeper(tmp_path, work):
    replies = [
        to("^go", calls=[start("writer", "one")]),
        to("^one", calls=[start("writer", "two")]),
        to("^two", calls=[start("writer", "three")]),
        to("^three", calls=[start("writer", "four", schedule="+1s")]),
        to("^four", calls=[start("writer", "five")]),
        to("^", text="done"),
    ]
    seen = EventCollector()
    async with Retinue(work, model=script(tmp_path, *replies), request=SESSION) as crew:
        crew.listen(seen)
        await crew.prompt("go", settle=True)
        await until(lambda: len(grants(seen)) == 4)
        await crew.prompt("rest", settle=True)
    assert ["Agent" in grant.tools for grant in grants(seen)] == [True, True, True, False]


@pytest.mark.attack("E1")
async def test_restart_widens_no_resumed_run(tmp_path, work):
    one = to("^first", text="done")
    narrow = Request(session=LATER.session, tools=("read", "Agent"))
    async with Retinue(work, model=script(tmp_path, one), request=narrow) as crew:
        run = await crew.spawn("writer", "first")
        await run.wait(15)
        await crew.prompt("first")
    again = [to("^again", calls=[call("write", path="pwn", content="x")]), to("^again", text="done")]
    seen = EventCollector()
    async with Retinue(work, model=script(tmp_path, *again), request=LATER) as crew:
        crew.listen(seen)
        resumed = await crew.resume(run.id, "again")
        assert (await resumed.wait(15)).status is Status.COMPLETED
    assert (["write" in grant.tools for grant in grants(seen)], (work / "pwn").exists()) == ([False], False)


@pytest.mark.attack("E13")
async def test_denied_tool_is_nobodys(tmp_path, work, agent_dir, trap, crew_runner):
    (agent_dir / "subagents.json").write_text(json.dumps({"denyTools": ["Write", "bash"]}))
    replies = [
        to("^go", calls=[start("writer", "middle"), call("write", path="pwn", content="x")]),
        to("^middle", calls=[start("general-purpose", "leaf"), call("write", path="pwn", content="x")]),
        to("^leaf", calls=[call("bash", command=f"touch pwn {trap}"), *fall_into(trap)]),
        to("^", text="done"),
    ]
    seen = EventCollector()
    async with Retinue(work, model=script(tmp_path, *replies), request=SESSION) as crew:
        crew.listen(seen)
        await crew.prompt("go", settle=True)
        for run in await crew.runs():
            await run.wait(15)
    known = 1 if crew_runner == "cluster" else 2
    assert [set(grant.tools) & {"bash", "write"} for grant in grants(seen)] == [set()] * known
    assert ((work / "pwn").exists(), trap.exists()) == (False, False)


async def list_folder(tmp_path, work, words):
    """Whether `ls` is refused, and whether somebody was told."""
    said = []
    replies = [to("^go", calls=[call("ls", path=".")]), to("^go", text="done")]
    seen = EventCollector()
    async with Retinue(work, model=script(tmp_path, *replies), request=SESSION, say=said.append) as crew:
        crew.listen(seen)
        await crew.prompt("go")
    (result,) = [event.result for event in seen.events if isinstance(event, ToolFinished)]
    return result.is_error, any(words in text for text in said)


@pytest.mark.attack("E13")
@pytest.mark.parametrize(
    "text",
    [
        *(json.dumps({"denyTools": value}) for value in ({"bash": True}, 5, ["bash", 5], [""])),
        *('{"denyTools": ["bash"],}', '{"denyTools": ["bash"]', "{denyTools: ['bash']}", '[{"denyTools": ["bash"]}]'),
        *('{"approvals": "ask",}', '{"approvalRules": [],}', '{"sandbox": {"network": false},}'),
        '{"denyTools": ["bash"]}'.encode("utf-16").decode("latin-1"),
    ],
)
async def test_unreadable_denial_denies_everything(tmp_path, work, agent_dir, text):
    (agent_dir / "subagents.json").write_text(text, encoding="latin-1")
    assert await list_folder(tmp_path, work, "every tool is denied") == (True, True)


@pytest.mark.parametrize("text", ['{"maxConcurrent": 3,}', "{", '{"fleetView": tru}'])
async def test_broken_file_without_denials_denies_nothing(tmp_path, work, agent_dir, text):
    (agent_dir / "subagents.json").write_text(text)
    assert await list_folder(tmp_path, work, "subagents.json:1:") == (False, True)


@pytest.mark.attack("E13", "A4")
async def test_project_denies_and_allows_nothing(tmp_path, work, agent_dir):
    (agent_dir / "subagents.json").write_text(json.dumps({"denyTools": ["write"]}))
    (work / ".pi").mkdir()
    (work / ".pi" / "subagents.json").write_text(json.dumps({"denyTools": []}))
    replies = [to("^go", calls=[call("write", path="pwn", content="x")]), to("^go", text="done")]
    said = []
    request = Request(approve=True)
    async with Retinue(work, model=script(tmp_path, *replies), request=request, say=said.append) as crew:
        await crew.prompt("go")
    assert (not (work / "pwn").exists(), any("denyTools" in text for text in said)) == (True, True)


@pytest.mark.attack("E11", "SEC-6")
async def test_lowered_parent_lowers_its_children(tmp_path, work):
    replies = [
        to("^go", calls=[start("writer", "leaf")]),
        to("^leaf", calls=[call("write", path="first", content="x")]),
        to("^leaf", calls=[call("write", path="second", content="x")], delay_ms=2000),
        to("^", text="done"),
    ]
    seen, refused = EventCollector(), []
    async with Retinue(work, model=script(tmp_path, *replies), request=SESSION) as crew:
        crew.listen(seen)
        run = await crew.spawn("writer", "leaf")
        async for event in run.events():
            if isinstance(event, ToolFinished):
                refused.append(event.result.is_error)
                crew.restrict(readonly=True)
        await run.wait()
        again = await crew.spawn("writer", "leaf")
        await again.wait()
    assert (refused, (work / "second").exists()) == ([False, True], False)
    assert [grant.readonly for grant in grants(seen)] == [False, True]


@pytest.mark.attack("E1", "SEC-6")
def test_restraint_is_never_given_back():
    revoked = RevokedTools()
    revoked.place("child", "parent")
    revoked.place("grandchild", "child")
    revoked.lower("parent", ["bash"])
    revoked.lower("parent", readonly=False)
    judged = [revoked.judge(run, "bash", Effect.EXECUTE) != "" for run in ("parent", "grandchild", "other")]
    assert (judged, revoked.judge("child", "write", Effect.WRITE)) == ([True, True, False], "")


@pytest.mark.attack("E2", "B19")
@pytest.mark.parametrize(
    "more",
    (
        {"mode": "auto"},
        {"cwd": "/"},
        {"tools": ["bash"]},
        {"sandbox": False},
        {"isolated": "no"},
        {"max_turns": -1},
        {"readonly": False},
        {"model": "no/such-model"},
        {"allow_write": True},
    ),
)
async def test_arguments_give_no_rights(tmp_path, work, trap, more):
    replies = [
        to("^go", calls=[start("reader", "leaf", **more)]),
        to("^leaf", calls=fall_into(trap)),
        to("^", text="done"),
    ]
    seen = EventCollector()
    async with Retinue(work, model=script(tmp_path, *replies), request=SESSION) as crew:
        crew.listen(seen)
        await crew.prompt("go", settle=True)
        for run in await crew.runs():
            await run.wait(15)
    assert [grant for grant in grants(seen) if not grant.readonly] == []
    assert ((work / "pwn").exists(), trap.exists()) == (False, False)


@pytest.mark.attack("B19")
@pytest.mark.parametrize(
    "more", ({"sandbox": False}, {"dangerouslyDisableSandbox": True}, {"cwd": "/"}, {"env": {"X": "1"}}, {"timeout": 0})
)
async def test_odd_bash_arguments_change_nothing(tmp_path, work, more):
    replies = [to("^go", calls=[call("bash", command="pwd; echo x${X}x", **more)]), to("^go", text="done")]
    seen = EventCollector()
    async with Retinue(work, model=script(tmp_path, *replies)) as crew:
        crew.listen(seen)
        await crew.prompt("go")
    (result,) = [event.result for event in seen.events if isinstance(event, ToolFinished)]
    text = result.content[0].text
    assert result.is_error or text.split()[:2] == [str(work.resolve()), "xx"]


@pytest.mark.attack("SEC-6", "E1", "E5")
async def test_sampled_trees_never_widen(tmp_path, work, agent_dir, measure, crew_runner):
    seed = 20261115
    trees, least = (8, 16) if crew_runner == "cluster" else (90, 200)
    print("seed", seed)
    dice, tools = random.Random(seed), ["read", "bash", "edit", "write", "grep", "find", "ls"]
    for number in range(40):
        chosen = ", ".join([*dice.sample(tools, dice.randint(0, 7)), "Agent"])
        denied = ", ".join(dice.sample(tools, dice.randint(0, 2)))
        readonly = dice.choice(("true", "false", "yes", "tru"))
        text = f"---\nname: a{number}\ndescription: d\nreadonly: {readonly}\ntools: [{chosen}]\n"
        (agent_dir / "agents" / f"a{number}.md").write_text(f"{text}disallowed_tools: [{denied}]\n---\n\nGo.\n")
    seen = EventCollector()
    replies = [to("^", text="done")] * 900
    parents = {}
    async with Retinue(work, model=script(tmp_path, *replies), request=SESSION) as crew:
        crew.listen(seen)
        manager = (await crew._here.need_subagents()).manager
        manager.admission.bounds = type(manager.admission.bounds)(8, 4, 10_000)
        for _ in range(trees):
            above = None
            for _ in range(dice.randint(1, 4)):
                agent = f"a{dice.randrange(40)}"
                request = RunRequest(agent=agent, task="d1", description="d", surface="fleet")
                run = manager.spawn(request, above)
                await manager.wait(run.id, 15)
                parents[run.id] = above
                above = run.id
    grant = {event.run_id: event.grant for event in seen.events if isinstance(event, RunStarted) and event.grant}
    wider = [
        run
        for run, above in parents.items()
        if above and (set(grant[run].tools) - set(grant[above].tools) or grant[above].readonly > grant[run].readonly)
    ]
    measure("SEC-6", "runs", wider=len(wider), runs=len(parents))
    assert (wider, len(parents) >= least) == ([], True)


@pytest.mark.attack("E13")
async def test_denied_delegation_is_served_to_nobody(tmp_path, work, agent_dir):
    (agent_dir / "subagents.json").write_text(json.dumps({"denyTools": ["Agent"]}))
    async with Retinue(work, model=script(tmp_path), request=SESSION) as crew:
        delegation = await crew.open_delegation()
        assert ("Agent" in delegation.tools, "list_subagents" in delegation.tools) == (False, True)
