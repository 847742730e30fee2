import os
from pathlib import Path
from uuid import uuid4

import pytest

from retinue.core.errors import UsageError
from retinue.core.messages import BashExecutionMessage
from retinue.engine.clock import SystemClock
from retinue.engine.runner import LiveRun
from retinue.engine.user_commands import Shell
from retinue.models.scripted import ScriptedModel, parse_script
from retinue.sessions.log import Session
from retinue.tools.registry import ToolOptions
from tests.run_setup import build_setup


def open_shell(cwd: Path) -> tuple[Shell, LiveRun]:
    clock = SystemClock()
    session = Session.create(cwd="/", directory=None, clock=clock, new_id=lambda: uuid4().hex)
    run = LiveRun(build_setup("r1", cwd, ScriptedModel(parse_script([])), tools={}), session, clock=clock)
    return Shell(lambda: run, ToolOptions, {"PATH": os.environ["PATH"]}, clock), run


async def test_command_of_the_user_is_run_and_noted(tmp_path: Path) -> None:
    shell, run = open_shell(tmp_path)
    heard: list[str] = []
    done = await shell.run("pwd; printf '\\033[1mx'; exit 3", heard.append)
    assert (done.output, done.exit_code, done.cancelled) == (f"{tmp_path}\nx", 3, False)
    noted = run.session.context().messages[-1]
    assert isinstance(noted, BashExecutionMessage)
    assert (noted.output, noted.exit_code, "".join(heard)) == (done.output, 3, done.output)


@pytest.mark.parametrize(("command", "reason"), [("a\0b", "NUL"), (" ", "empty"), ("x" * 200_000, "more than")])
async def test_command_that_cannot_be_run_is_refused(command: str, reason: str, tmp_path: Path) -> None:
    shell, run = open_shell(tmp_path)
    with pytest.raises(UsageError, match=reason):
        await shell.run(command)
    assert run.session.context().messages == []


async def test_missing_folder_is_told(tmp_path: Path) -> None:
    shell, _ = open_shell(tmp_path / "missing")
    with pytest.raises(UsageError, match=r"working directory .* does not exist"):
        await shell.run("pwd")
