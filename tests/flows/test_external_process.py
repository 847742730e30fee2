import asyncio
import json
import os
import signal
from pathlib import Path

import pytest

from retinue import Request, Retinue, SessionWish
from retinue.core.run import Reason, Status
from retinue.testing import run_cli
from retinue.tools.process_tree import list_descendants
from tests.flows.crew_world import COPIER, call, git, repository, to, write

LOOKER = "---\nname: looker\ndescription: d\ntools: read, grep\n---\n\nLook around.\n"
PARENT = "---\nname: boss\ndescription: d\ntools: Agent, get_subagent_result\n---\n\nDelegate.\n"


class Processes:
    """A crew that starts this very program for each run, with a script for a model."""

    def __init__(self, root: Path, agent_dir: Path) -> None:
        self.root, self.agent_dir = root, agent_dir
        self.work = repository(root)
        (agent_dir / "agents").mkdir()
        (agent_dir / "agents" / "looker.md").write_text(LOOKER)
        self.configure(runner="process")

    def configure(self, **settings) -> None:
        (self.agent_dir / "subagents.json").write_text(json.dumps(settings))

    def script(self, *replies) -> str:
        path = self.root / "script.json"
        path.write_text(json.dumps({"replies": replies}))
        return f"scripted/{path}"

    def open(self, *replies, **options) -> Retinue:
        request = Request(session=SessionWish("exact", "my-session"))
        return Retinue(self.work, model=self.script(*replies), request=request, **options)


@pytest.fixture
def world(tmp_path, agent_dir):
    return Processes(tmp_path, agent_dir)


def read_entries(path: str) -> list[dict]:
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


def list_texts(path: str, role: str) -> list[str]:
    """The texts of one role, without the element that names the run."""
    messages = [entry["message"] for entry in read_entries(path) if entry["type"] == "message"]
    texts = [part["text"] for each in messages if each["role"] == role for part in each["content"] if "text" in part]
    return [text.partition("\n<active_agent ")[0] for text in texts if not text.startswith("<active_agent ")]


async def test_child_works_with_real_tools(world):
    (world.work / "a.txt").write_text("the needle\n")
    replies = [{"calls": [call("read", path="a.txt")]}, {"text": "It is in a.txt:1."}]
    async with world.open(*replies) as crew:
        handle = await crew.spawn("looker", "Where is the needle?")
        outcome = await handle.wait()
    assert (outcome.status, outcome.text, outcome.turns, outcome.tool_calls) == (
        *(Status.COMPLETED, "It is in a.txt:1.", 2, 1),
    )
    assert (handle.run.turns, handle.run.tool_uses) == (2, 1)
    assert list_texts(outcome.session_file, "toolResult") == ["the needle\n"]


@pytest.mark.parametrize("variable", ["RETINUE_DEBUG", "PYTHONFAULTHANDLER"])
async def test_crashed_child_shows_where_it_was(world, monkeypatch, variable):
    monkeypatch.delenv("PYTHONFAULTHANDLER")
    monkeypatch.setenv(variable, "1")
    async with world.open({"text": "never", "delay_ms": 30_000}) as crew:
        handle = await crew.spawn("looker", "Where?")
        while not (pids := [pid for pid in list_descendants(os.getpid()) if is_asking(pid)]):
            await asyncio.sleep(0.02)
        os.kill(pids[-1], signal.SIGSEGV)
        outcome = await handle.wait()
    assert (outcome.status, outcome.reason) == (Status.FAILED, Reason.CRASH)
    assert "Segmentation fault" in outcome.error and "asyncio" in outcome.error


def is_asking(pid: int) -> bool:
    """Whether a process is a child of ours that has opened its session."""
    try:
        is_child = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[1:4] == [b"-P", b"-m", b"retinue"]
        return is_child and any(os.readlink(file).endswith(".jsonl") for file in Path(f"/proc/{pid}/fd").iterdir())
    except OSError:
        return False


async def test_session_is_where_it_always_is(world):
    async with world.open({"text": "Here."}) as crew:
        outcome = await (await crew.spawn("looker", "Where?")).wait()
        expected = crew.session_file.with_suffix("") / outcome.session_file.split("/")[-2] / "session.jsonl"
    header = read_entries(outcome.session_file)[0]
    assert (outcome.session_file, header["type"], header["cwd"]) == (str(expected), "session", str(world.work))
    assert list_texts(outcome.session_file, "user") == ["Where?"]


def read_system(path: str) -> dict:
    messages = [entry["message"] for entry in read_entries(path) if entry["type"] == "message"]
    return next(message for message in messages if message["role"] == "system")


async def test_prompt_is_made_by_the_parent(world):
    (world.work / "AGENTS.md").write_text("The project's words.\n")
    async with world.open({"text": "Here."}) as crew:
        outcome = await (await crew.spawn("looker", "Where?")).wait()
    system = read_system(outcome.session_file)
    assert (list(system["sections"]), [tool["name"] for tool in system["toolsAdded"]]) == (
        *(["preamble", "cwd"], ["read", "grep"]),
    )
    assert "Look around." in system["sections"]["preamble"]


async def test_resumed_child_remembers(world):
    replies = [to("first", text="One."), to("second", text="Two.")]
    async with world.open(*replies) as crew:
        handle = await crew.spawn("looker", "the first")
        await handle.wait()
        outcome = await (await crew.resume(handle.id, "the second")).wait()
    assert (outcome.error, outcome.text) == ("", "Two.")
    assert list_texts(outcome.session_file, "user") == ["the first", "the second"]


async def test_changes_of_a_copy_are_kept(world):
    (world.agent_dir / "agents" / "copier.md").write_text(COPIER)
    async with world.open({"calls": write("new.txt")}, {"text": "Written."}) as crew:
        outcome = await (await crew.spawn("copier", "Write it.")).wait()
    assert (outcome.status, git(world.work, "show", f"{outcome.branch}:new.txt")) == (Status.COMPLETED, "new")
    assert not (world.work / "new.txt").exists()


async def test_resumed_copy_goes_on(world):
    (world.agent_dir / "agents" / "copier.md").write_text(COPIER)
    written = {"text": "Written."}
    replies = [to("one", calls=write("one.txt")), to("one", **written), to("two", calls=write("two.txt"))]
    async with world.open(*replies, to("two", **written)) as crew:
        handle = await crew.spawn("copier", "one")
        await handle.wait()
        outcome = await (await crew.resume(handle.id, "two")).wait()
    assert (outcome.error, git(world.work, "show", f"{outcome.branch}:two.txt")) == ("", "new")
    assert git(world.work, "show", f"{outcome.branch}:one.txt") == "new"


async def test_stopped_child_leaves_nothing_running(world):
    (world.agent_dir / "agents" / "runner.md").write_text("---\nname: runner\ndescription: d\ntools: bash\n---\nx\n")
    command = "while :; do echo >> beats; sleep 0.02; done"
    beats = world.work / "beats"
    async with world.open({"calls": [call("bash", command=command)]}) as crew:
        handle = await crew.spawn("runner", "go")
        while not beats.exists():
            await asyncio.sleep(0.05)
        await handle.stop()
        outcome = await handle.wait()
        size = beats.stat().st_size
        await asyncio.sleep(0.2)
    assert (outcome.status, outcome.reason, beats.stat().st_size) == (Status.STOPPED, Reason.USER, size)
    assert list_texts(outcome.session_file, "user") == ["go"]


@pytest.mark.attack("E6", "B23")
async def test_readonly_child_changes_nothing(world):
    text = "---\nname: careful\ndescription: d\nreadonly: true\ntools: bash\n---\nx\n"
    (world.agent_dir / "agents" / "careful.md").write_text(text)
    command = "echo x > new.txt; ls"
    async with world.open({"calls": [call("bash", command=command)]}, {"text": "Tried."}) as crew:
        outcome = await (await crew.spawn("careful", "go")).wait()
    assert (outcome.status, outcome.text) == (Status.COMPLETED, "Tried.")
    assert not (world.work / "new.txt").exists()


async def test_failing_model_is_a_failed_run(world):
    async with world.open({"error": "overflow of everything"}) as crew:
        outcome = await (await crew.spawn("looker", "Where?")).wait()
    assert (outcome.status, outcome.reason, outcome.exit_code) == (Status.FAILED, Reason.ERROR, 1)
    assert "overflow of everything" in outcome.error


async def test_child_may_delegate_when_told_to(world):
    (world.agent_dir / "agents" / "boss.md").write_text(PARENT)
    ask = call("Agent", subagent_type="looker", prompt="the remote_request", description="look")
    replies = [to("the remote_request", text="Found it."), to("the job", calls=[ask]), to("the job", text="Waiting.")]
    async with world.open(*replies, to("Found it", text="All done.")) as crew:
        outcome = await (await crew.spawn("boss", "the job")).wait()
    assert (outcome.error, outcome.text) == ("", "All done.")
    (below,) = Path(outcome.session_file).parent.glob("session/*/session.jsonl")
    assert list_texts(str(below), "user") == ["the remote_request"]


async def test_modules_of_the_workspace_are_not_imported(world):
    for name in ("json.py", "asyncio.py", "msgspec.py", "sitecustomize.py", "retinue.py"):
        (world.work / name).write_text("open('trapped', 'w')\n")
    async with world.open({"text": "Here."}) as crew:
        outcome = await (await crew.spawn("looker", "Where?")).wait()
    assert (outcome.text, (world.work / "trapped").exists()) == ("Here.", False)


async def test_settings_limit_its_turns_gracefully(world):
    calls = [{"calls": [call("grep", pattern="x")]}] * 2
    async with world.open(*calls, {"text": "Wrapped."}) as crew:
        outcome = await (await crew.spawn("looker", "Where?", max_turns=2)).wait()
    assert (outcome.status, outcome.text) == (Status.COMPLETED, "Wrapped.")


def run_child(world, *args, env=None, replies=({"text": "Hi."},)):
    marks = {"PI_SUBAGENT_CHILD": "1", "PI_CODING_AGENT_DIR": str(world.agent_dir), **(env or {})}
    return run_cli(["--mode", "json", "-p", "--model", world.script(*replies), *args], world.work, marks)


def list_tools(done, world) -> list[str]:
    (path,) = world.agent_dir.glob("sessions/*/*.jsonl")
    return [tool["name"] for tool in read_system(str(path))["toolsAdded"]]


@pytest.mark.spec("devkit:2")
def test_child_has_no_delegation_of_its_own(world):
    tools = list_tools(run_child(world, "hi"), world)
    assert tools[:7] == ["read", "bash", "edit", "write", "grep", "find", "ls"]
    assert {"Agent", "subagent", "dispatch_agent"}.isdisjoint(tools)


def test_child_leaves_out_unknown_tools(world):
    done = run_child(world, "--tools", "read,web_of_lies,subagent", "hi")
    assert (done.status, list_tools(done, world)) == (0, ["read"])
    assert "there is no tool 'web_of_lies' here; left out" in done.stderr


@pytest.mark.attack("E6")
def test_child_too_deep_cannot_delegate(world):
    ask = call("Agent", subagent_type="looker", prompt="x", description="x")
    depth = {"PI_SUBAGENT_DEPTH": "4", "PI_SUBAGENT_MAX_DEPTH": "4"}
    done = run_child(world, "--tools", "Agent", "hi", env=depth, replies=[{"calls": [ask]}, {"text": "No."}])
    (result,) = (r for r in done.lines if r["type"] == "tool_execution_end")
    assert "maximum recursive subagent depth" in json.dumps(result)


def test_model_is_inherited_by_marks(world):
    path = world.script({"text": "From the marks."}).removeprefix("scripted/")
    env = {"PI_PROVIDER": "scripted", "PI_MODEL": path, "PI_SUBAGENT_CHILD": "1"}
    env["PI_CODING_AGENT_DIR"] = str(world.agent_dir)
    assert run_cli(["-p", "hi"], world.work, env).stdout == "From the marks.\n"
