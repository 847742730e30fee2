"""`retinue run` with a terminal for standard error: a line that moves while the agent works, and is gone at the end."""

import os
import pty
import re
import subprocess
import sys

import pytest

from retinue.testing import process

REPLIES = [
    {"calls": [{"name": "bash", "arguments": {"command": "sleep 1"}}], "usage": {"input": 900, "output": 100}},
    {"text": "Seen.", "delay_ms": 500, "usage": {"input": 1900, "output": 100}},
]
STATUS = re.compile(r"\r\x1b\[K")


def show(place, *arguments, replies=REPLIES):
    """Exit status, standard output, and what the terminal got."""
    leader, follower = pty.openpty()
    environment = {"PATH": os.environ["PATH"], "HOME": str(place.home), "RETINUE_NO_LOCAL": "1", "TERM": "xterm"}
    environment |= {"PI_CODING_AGENT_DIR": str(place.agent_dir), "NO_COLOR": "1"}
    command = [sys.executable, "-m", "retinue", "run", "--model", place.script(*replies), *arguments]
    with process.start(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=follower, cwd=place.work, env=environment
    ) as program:
        os.close(follower)
        shown = b""
        try:
            while piece := os.read(leader, 65536):
                shown += piece
        except OSError:
            pass  # the other end is closed
        finally:
            os.close(leader)
        output, _ = program.communicate(timeout=20)
    return program.returncode, output.decode(), shown.decode()


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_line_shows_turn_tool_and_tokens(place, options):
    status, output, shown = show(place, "general-purpose", "look", "--write", *options)
    assert (status, "Seen." in output) == (0, True)
    painted = STATUS.split(shown)
    assert any(re.match(r"\S bash · 1 turn · 1\.0k tokens · [\d.]+ s · scripted/", line) for line in painted), painted
    assert any(re.match(r"\S \w+ · 2 turns · ", line) for line in painted), painted


@pytest.mark.parametrize(("agent", "status"), [("general-purpose", 0), ("nobody", 2)])
def test_line_is_gone_at_the_end(place, agent, status):
    done, _, shown = show(place, agent, "look", "--write")
    assert done == status
    left = [line for line in STATUS.split(shown.replace("\r\n", "\n"))[-1].splitlines() if line.strip()]
    assert len(left) == 1 and left[0].startswith("retinue: Unknown agent" if status else "scripted/")
    assert status or re.search(r" · 2 turns · 3\.0k tokens · [\d.]+ s$", left[0])


def test_warning_has_a_row_of_its_own(place):
    full = {"kind": "overflow", "message": "maximum context length is 30000 tokens"}
    replies = [{"error": full, "delay_ms": 500}, {"text": "Done."}]
    _, _, shown = show(place, "general-purpose", "look", replies=replies)
    told = [line for line in shown.split("\r\n") if "retinue: " in line]
    assert told and all(STATUS.split(line)[-1].startswith("retinue: ") for line in told)


def test_pipe_gets_no_line(place):
    done = place.run("run", "general-purpose", "look", "--write", "--model", place.script(*REPLIES))
    assert (done.status, done.stdout, done.stderr) == (0, "Seen.\n", "")
