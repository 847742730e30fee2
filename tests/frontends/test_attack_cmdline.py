"""Attacks on command lines, which every program of a machine can read: no secret stays on ours."""

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.frontends.test_attack_sandbox import AGENT, lack

# How often it sees the key, and the flag before it; in a way that does not find itself.
LOOK = (
    "cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' '\\n' >$TMPDIR/all; "
    "echo seen $(grep -c '[c]nry-{}' $TMPDIR/all) of $(grep -c '^--api[-]key' $TMPDIR/all)."
)
PROGRAMS = {
    "module": [sys.executable, "-P", "-m", "retinue"],
    "script": [str(Path(sys.executable).with_name("retinue"))],
}
pytestmark = [pytest.mark.fresh, pytest.mark.skipif(sys.platform != "linux", reason="nobody reads them there")]


@pytest.fixture
def key():
    """Of this test only: others run beside it."""
    return f"cnry-{os.urandom(8).hex()}"


def run_looker(place, program, key, *flags):
    """What a read-only agent sees of all command lines, where only Landlock holds it."""
    (place.agent_dir / "agents").mkdir()
    (place.agent_dir / "agents" / "looker.md").write_text(AGENT)
    look = LOOK.format(key.removeprefix("cnry-"))
    start = {"subagent_type": "looker", "prompt": "leaf", "description": "d"}
    replies = [
        {"match": {"last_user": "^go"}, "calls": [{"name": "Agent", "arguments": start}]},
        {"match": {"last_user": "^leaf"}, "calls": [{"name": "bash", "arguments": {"command": look}}]},
        {"match": {"last_user": "^"}, "text": "done"},
    ]
    before = lack(namespaces=False, landlock=True)
    done = subprocess.run(
        [*before, *PROGRAMS[program], *flags, "--model", place.script(*replies), "-p", "go"],
        cwd=place.work,
        env={"PATH": os.environ["PATH"], "HOME": str(place.home), "RETINUE_NO_LOCAL": "1"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (record,) = place.agent_dir.rglob("session.jsonl")
    text = record.read_text()
    assert "read-only, landlock" in text
    return [int(number) for number in re.findall(r"seen (\d+) of (\d+)\.", text)[-1]]


@pytest.mark.attack("I9")
@pytest.mark.parametrize("form", ["--api-key {}", "--api-key={}"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_key_is_on_no_command_line(place, program, key, form):
    seen, looked = run_looker(place, program, key, *form.format(key).split())
    assert (seen, looked >= 1) == (0, True)


@pytest.mark.attack("I9")
@pytest.mark.parametrize("command", [["worker"], ["cluster", "status"]])
def test_password_of_database_is_taken_away(place, key, command):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"postgresql://me:{key}@127.0.0.1:{silent.getsockname()[1]}/db"
        environment = {"PATH": os.environ["PATH"], "HOME": str(place.home)}
        with subprocess.Popen(
            [*PROGRAMS["module"], *command, "--database", address],
            cwd=place.work,
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        ) as process:
            silent.settimeout(20)
            asked, _ = silent.accept()  # it has begun: whatever it starts, it starts later
            shown = Path(f"/proc/{process.pid}/cmdline").read_bytes().split(b"\0")
            process.kill()
            asked.close()
    assert (key.encode() in b" ".join(shown), b"--database" in shown) == (False, True), shown
