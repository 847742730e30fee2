import json
import os
import subprocess
import tempfile
from pathlib import Path

import pytest

from retinue import Request, Retinue, SessionWish
from retinue.core.events import RunFinished
from retinue.testing import make_repo
from tests.flows.sandbox_world import need_status

AGENT = "---\nname: {name}\ndescription: d\ntools: read, bash, write\n{more}---\n\nDo it.\n"


@pytest.fixture
def work(tmp_path: Path) -> Path:
    need_status("bwrap")
    return make_repo(tmp_path / "work", {"a.txt": "one\n"})


@pytest.fixture
def model(tmp_path: Path):
    """A model that runs one command and answers."""

    def write(command: str) -> str:
        replies = [{"calls": [{"name": "bash", "arguments": {"command": command}}]}, {"text": "done"}]
        path = tmp_path / "script.json"
        path.write_text(json.dumps({"replies": replies}))
        return f"scripted/{path}"

    return write


def settle(agent_dir: Path, **sandbox: object) -> None:
    agent_dir.mkdir(parents=True, exist_ok=True)
    (agent_dir / "subagents.json").write_text(json.dumps({"sandbox": sandbox}))


def define(agent_dir: Path, name: str, more: str = "") -> None:
    (agent_dir / "agents").mkdir(parents=True, exist_ok=True)
    (agent_dir / "agents" / f"{name}.md").write_text(AGENT.format(name=name, more=more))


def read_output(session: str) -> str:
    entries = [json.loads(line) for line in Path(session).read_text().splitlines()]
    messages = [entry["message"] for entry in entries if entry["type"] == "message"]
    return next(message["content"][0]["text"] for message in messages if message["role"] == "toolResult")


@pytest.mark.attack("B12")
async def test_main_agent_keeps_to_workspace(work: Path, home: Path, model) -> None:
    command = "echo x >new && echo y >$HOME/.bashrc; cat $HOME/.bashrc; echo z >.git/hooks/post-commit; mkdir .pi"
    async with Retinue(work, model=model(command)) as crew:
        outcome = await crew.prompt("go")
    assert ((work / "new").read_text(), list(home.glob(".bashrc"))) == ("x\n", [])
    assert not (work / ".git" / "hooks" / "post-commit").exists()
    assert not (work / ".pi").exists()
    assert outcome.sandbox == "workspace, network, bwrap"


async def test_main_agent_commits(work: Path, model) -> None:
    command = "echo x >new && git add new && git -c user.name=a -c user.email=a@b commit -qm new && git log --oneline"
    async with Retinue(work, model=model(command)) as crew:
        outcome = await crew.prompt("go")
    log = subprocess.run(["git", "log", "--format=%s", "-1"], cwd=work, capture_output=True, text=True, check=True)
    assert (log.stdout, outcome.text) == ("new\n", "done"), outcome


@pytest.mark.attack("B1", "SEC-1")
async def test_readonly_run_changes_nothing(work: Path, agent_dir: Path, model) -> None:
    define(agent_dir, "looker", "readonly: true\n")
    command = "echo x >new; touch a.txt; rm a.txt; git status --short; echo private >/tmp/x && cat /tmp/x"
    before = (work / "a.txt").stat()
    async with Retinue(work, model=model(command)) as crew:
        outcome = await (await crew.spawn("looker", "go")).wait(20)
    assert sorted(path.name for path in work.iterdir()) == [".git", "a.txt"]
    assert (work / "a.txt").stat().st_mtime_ns == before.st_mtime_ns
    assert outcome.sandbox == "read-only, bwrap"
    assert read_output(outcome.session_file).count("Read-only file system") == 3


async def test_readonly_agents_have_bash(work: Path, model) -> None:
    async with Retinue(work, model=model("cat a.txt")) as crew:
        outcome = await (await crew.spawn("Explore", "go")).wait(20)
    assert (read_output(outcome.session_file), outcome.sandbox) == ("one\n", "read-only, bwrap")


@pytest.mark.attack("F1")
async def test_commands_see_no_keys(work: Path, monkeypatch: pytest.MonkeyPatch, model) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "CANARY")
    monkeypatch.setenv("MY_DATABASE_PASSWORD", "CANARY")
    async with Retinue(work, model=model("env; cat /proc/[0-9]*/environ 2>/dev/null; echo end")) as crew:
        outcome = await crew.prompt("go")
    output = read_output(outcome.session_file)
    assert ("CANARY" in output, "PI_SESSION_ID=" in output) == (False, True)


async def test_named_variables_are_passed(work: Path, agent_dir: Path, monkeypatch, model) -> None:
    settle(agent_dir, environment=["MY_*"])
    monkeypatch.setenv("MY_NAME", "me")
    async with Retinue(work, model=model("echo $MY_NAME")) as crew:
        outcome = await crew.prompt("go")
    assert read_output(outcome.session_file) == "me\n"


async def test_switched_off_is_on_record(work: Path, home: Path, agent_dir: Path, model) -> None:
    settle(agent_dir, mode="off")
    finished = []
    async with Retinue(work, model=model("echo y >$HOME/mine")) as crew:
        crew.listen(lambda event: finished.append(event) if isinstance(event, RunFinished) else None)
        outcome = await crew.prompt("go")
    assert ((home / "mine").read_text(), finished[-1].outcome.sandbox) == ("y\n", "off (sandbox.mode)")
    assert (
        json.loads(Path(outcome.session_file).read_text().splitlines()[-1])["data"]["sandbox"] == "off (sandbox.mode)"
    )


@pytest.mark.attack("B18", "SEC-4")
async def test_switched_off_gives_readers_nothing(work: Path, agent_dir: Path, model) -> None:
    settle(agent_dir, mode="off")
    define(agent_dir, "looker", "readonly: true\n")
    async with Retinue(work, model=model("touch new")) as crew:
        outcome = await (await crew.spawn("looker", "go")).wait(20)
    assert not (work / "new").exists()
    assert "bash" in read_output(outcome.session_file)


@pytest.mark.attack("A4")
async def test_project_cannot_switch_off(work: Path, home: Path, model) -> None:
    (work / ".pi").mkdir()
    (work / ".pi" / "subagents.json").write_text(json.dumps({"sandbox": {"mode": "off", "writable": ["/"]}}))
    said: list[str] = []
    request = Request(approve=True, session=SessionWish())
    async with Retinue(work, model=model("echo y >$HOME/mine"), request=request, say=said.append) as crew:
        outcome = await crew.prompt("go")
    assert (list(home.glob("mine")), outcome.sandbox) == ([], "workspace, network, bwrap")
    assert [text for text in said if "sandbox.mode" in text]


async def test_copy_commits_and_keeps_hooks(work: Path, agent_dir: Path, model) -> None:
    define(agent_dir, "writer", "isolation: worktree\n")
    identity = "-c user.name=a -c user.email=a@b"
    hook = "$(git rev-parse --git-common-dir)/hooks/post-commit"
    command = f"echo x >new; git add new; git {identity} commit -qm inside; echo evil >{hook}; git config x.y z; true"
    async with Retinue(work, model=model(command)) as crew:
        outcome = await (await crew.spawn("writer", "go")).wait(25)
    assert outcome.sandbox == "workspace, network, bwrap"
    log = subprocess.run(["git", "log", "--format=%s", outcome.branch], cwd=work, capture_output=True, text=True)
    assert "inside" in log.stdout, read_output(outcome.session_file)
    assert not (work / ".git" / "hooks" / "post-commit").exists()
    assert "x.y" not in (work / ".git" / "config").read_text()


async def test_network_follows_settings(work: Path, agent_dir: Path, model) -> None:
    settle(agent_dir, network=False)
    command = (
        "python3 -c \"import socket; socket.create_connection(('127.0.0.1', 9), 1)\" 2>&1 | tail -1; ls /sys/class/net"
    )
    async with Retinue(work, model=model(command)) as crew:
        outcome = await crew.prompt("go")
    assert (outcome.sandbox, "ConnectionRefused" in read_output(outcome.session_file)) == (
        "workspace, no network, bwrap",
        True,
    )


async def test_private_directory_lasts_a_prompt(work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = [{"calls": [{"name": "bash", "arguments": {"command": text}}]} for text in ("echo x >/tmp/k", "cat /tmp/k")]
    (tmp_path / "script.json").write_text(json.dumps({"replies": [*calls, {"text": "done"}]}))
    (tmp_path / "t").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "t"))
    async with Retinue(work, model=f"scripted/{tmp_path}/script.json") as crew:
        outcome = await crew.prompt("go")
    outputs = [line for line in Path(outcome.session_file).read_text().splitlines() if '"toolResult"' in line]
    assert '"text":"x\\n"' in outputs[-1].replace(": ", ":")
    assert os.listdir(tmp_path / "t") == []
