import asyncio
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import get_args

import pytest

from retinue.core.tool import ToolContext
from retinue.tools.process_tree import TreeKind, TreeProbe
from retinue.tools.shell.bash import BashTool
from retinue.tools.shell.environment import add_gate

KINDS = [kind for kind in get_args(TreeKind) if kind != "plain"]
DAEMONS = (
    "sleep {0} & setsid sleep {0} & nohup sleep {0} >/dev/null 2>&1 & "
    "( ( setsid sleep {0} & ) & ) ; (trap '' TERM HUP; sleep {0}; sleep {0}) & disown -a; "
)
DRIVER = """
import asyncio, sys
from pathlib import Path
from retinue.core.tool import ToolContext
from retinue.tools.shell.bash import BashTool
from retinue.tools.shell.environment import add_gate
from retinue.tools.process_tree import TreeProbe

tool = BashTool(TreeProbe(kind=sys.argv[1]))
asyncio.run(tool.call({"command": sys.argv[2]}, ToolContext(Path("/"))))
"""


@pytest.fixture
def marker() -> str:
    return f"300.{random.SystemRandom().randrange(10**9):09}"


def find_marked(marker: str) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and b"sleep\0" + marker.encode() in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def as_plain_user() -> list[str]:
    """What runs a program without rights; nothing when we have none ourselves."""
    if os.getuid():
        return []
    user = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--"]
    reaches = subprocess.run([*user, sys.executable, "-c", "import retinue.tools.registry"], check=False)
    if reaches.returncode:
        pytest.skip("this Python is out of reach for other users")
    return user


def wait_marked(marker: str, count: int, limit_s: float) -> list[int]:
    deadline = time.monotonic() + limit_s
    found = find_marked(marker)
    while (len(found) < count if count else found) and time.monotonic() < deadline:
        time.sleep(0.02)
        found = find_marked(marker)
    return found


@pytest.mark.parametrize("kind", KINDS)
async def test_daemons_end_with_command(kind: TreeKind, marker: str, tmp_path: Path) -> None:
    tool = BashTool(TreeProbe(kind=kind))
    began = time.monotonic()
    result = await tool.call({"command": DAEMONS.format(marker) + "echo started"}, ToolContext(tmp_path))
    assert (result.content[0].text, result.is_error) == ("started\n", False)
    assert time.monotonic() - began < 2
    assert wait_marked(marker, 0, 20) == []


@pytest.mark.parametrize("kind", KINDS)
async def test_timeout_ends_whole_tree(kind: TreeKind, marker: str, tmp_path: Path) -> None:
    tool = BashTool(TreeProbe(kind=kind), grace_s=0.3)
    began = time.monotonic()
    command = DAEMONS.format(marker) + "trap '' TERM; echo up; kill -STOP $BASHPID"
    result = await tool.call({"command": command, "timeout": 0.5}, ToolContext(tmp_path))
    assert (result.content[0].text, result.is_error) == ("up\n\n\nCommand timed out after 0.5 seconds", True)
    assert time.monotonic() - began < 2.5
    assert wait_marked(marker, 0, 20) == []


@pytest.mark.parametrize("kind", KINDS)
async def test_timeout_lets_command_clean_up(kind: TreeKind, tmp_path: Path) -> None:
    command = "trap 'echo cleaned; exit 0' TERM; while :; do sleep 0.05; done"
    result = await BashTool(TreeProbe(kind=kind)).call({"command": command, "timeout": 0.3}, ToolContext(tmp_path))
    assert "cleaned\n" in result.content[0].text


@pytest.mark.parametrize("kind", KINDS)
async def test_cancel_returns_within_half_second(kind: TreeKind, marker: str, tmp_path: Path) -> None:
    tool = BashTool(TreeProbe(kind=kind))
    command = DAEMONS.format(marker) + f"trap '' TERM; sleep {marker}; sleep {marker}"
    call = asyncio.ensure_future(tool.call({"command": command}, ToolContext(tmp_path)))
    while not await asyncio.to_thread(wait_marked, marker, 6, 3):
        await asyncio.sleep(0.02)
    began = time.monotonic()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert time.monotonic() - began < 0.5
    assert wait_marked(marker, 0, 20) == []


@pytest.mark.parametrize("kind", KINDS)
def test_killed_parent_leaves_nobody(kind: TreeKind, marker: str) -> None:
    command = DAEMONS.format(marker) + f"trap '' TERM; sleep {marker}; sleep {marker}"
    driver = subprocess.Popen([sys.executable, "-c", DRIVER, kind, command])
    assert len(wait_marked(marker, 6, 20)) >= 6
    driver.send_signal(signal.SIGKILL)
    driver.wait()
    assert wait_marked(marker, 0, 20) == []


@pytest.mark.parametrize("kind", KINDS)
def test_unprivileged_parent_leaves_nobody(kind: TreeKind, marker: str) -> None:
    user = as_plain_user()
    command = DAEMONS.format(marker) + f"sleep {marker}"
    driver = subprocess.Popen([*user, sys.executable, "-c", DRIVER, kind, command])
    assert len(wait_marked(marker, 6, 20)) >= 6
    driver.send_signal(signal.SIGKILL)
    driver.wait()
    assert wait_marked(marker, 0, 20) == []


async def test_machine_with_bwrap_uses_namespace(tmp_path: Path) -> None:
    assert (await TreeProbe().find()).kind == "namespace"


async def test_broken_bwrap_falls_back(tmp_path: Path) -> None:
    fake = tmp_path / "bwrap"
    fake.write_text("#!/bin/sh\nexit 1\n")
    fake.chmod(0o755)
    assert (await TreeProbe(dirs=[str(tmp_path)]).find()).kind == "supervisor"


async def test_workspace_bwrap_is_ignored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = tmp_path / "bwrap"
    fake.write_text("#!/bin/sh\ntouch ran\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    await BashTool(TreeProbe()).call({"command": "true"}, ToolContext(tmp_path))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bwrap"]


@pytest.mark.parametrize("alive", [True, False])
def test_command_begins_only_while_owner_lives(alive: bool, tmp_path: Path) -> None:
    (tmp_path / "own.sh").write_text("echo own settings\n")
    read_end, write_end = os.pipe()
    if not alive:
        os.close(write_end)
    environment = add_gate({"PATH": os.environ["PATH"], "BASH_ENV": str(tmp_path / "own.sh")})
    done = subprocess.run(
        ["bash", "-c", "ls /proc/$$/fd | tail -n +1 | grep -x $FD; env | grep -c RETINUE_; touch began"],
        env={**environment, "RETINUE_LIFELINE": str(read_end), "FD": str(read_end)},
        pass_fds=[read_end],
        cwd=tmp_path,
        capture_output=True,
        check=False,
    )
    os.close(read_end)
    if alive:
        os.close(write_end)
    expected = (0, b"own settings\n0\n", True) if alive else (137, b"", False)
    assert (done.returncode, done.stdout, (tmp_path / "began").exists()) == expected
