import json
import os
import signal
import subprocess
import time

import pytest

from retinue.testing.process import open_cli

pytestmark = pytest.mark.fresh

HANGS = [
    {"text": "Working", "calls": [{"name": "bash", "arguments": {"command": "trap '' TERM INT HUP; sleep 47"}}]},
    {"text": "done"},
]


def start(place, *args):
    model = ["--model", place.script(*HANGS)]
    return open_cli([*model, "--mode", "json", "-p", "go", *args], place.work, home=place.home)


def read_until(process, kind):
    for line in process.stdout:
        record = json.loads(line)
        if record["type"] == kind:
            return record
    raise AssertionError(f"no {kind}")


def find_sleepers():
    listed = subprocess.run(["ps", "-eo", "pid=,args="], capture_output=True, text=True).stdout
    return [line for line in listed.splitlines() if line.endswith("sleep 47")]


def wait_for_no_sleepers():
    deadline = time.monotonic() + 2
    while find_sleepers() and time.monotonic() < deadline:
        time.sleep(0.02)
    return find_sleepers()


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGKILL, -9)]
)
def test_signal_ends_the_run_and_its_commands(place, number, status):
    with start(place) as process:
        read_until(process, "tool_execution_start")
        time.sleep(0.3)
        process.send_signal(number)
        _, stderr = process.communicate(timeout=5)
    assert (process.returncode, b"Traceback" in stderr) == (status, False)
    assert wait_for_no_sleepers() == []


def test_crash_shows_where_it_was(place):
    off = {"PYTHONFAULTHANDLER": ""}
    for environment, is_told in ((off, False), ({**off, "RETINUE_DEBUG": "1"}, True)):
        words = ["--model", place.script(*HANGS), "--mode", "json", "-p", "go"]
        with open_cli(words, place.work, environment, home=place.home) as process:
            read_until(process, "tool_execution_start")
            process.send_signal(signal.SIGSEGV)
            _, stderr = process.communicate(timeout=5)
        assert (process.returncode, b"Segmentation fault" in stderr, b"asyncio" in stderr) == (-11, is_told, is_told)
    assert wait_for_no_sleepers() == []


def test_session_is_intact_after_a_signal(place):
    with start(place) as process:
        read_until(process, "tool_execution_start")
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=5)
    kinds = [entry.get("message", {}).get("role") or entry["type"] for entry in place.entries()]
    assert kinds[-3:] == ["assistant", "toolResult", "custom"]
    again = place.run("-c", "-p", "once more", replies=[*HANGS[:1], {"text": "fine"}])
    assert (again.status, again.stdout) == (0, "fine\n")


def test_killed_run_can_be_continued(place):
    with start(place) as process:
        read_until(process, "tool_execution_start")
        process.kill()
        process.communicate(timeout=5)
    again = place.run("-c", "--mode", "json", "-p", "once more", replies=[*HANGS[:1], {"text": "fine"}])
    assert again.status == 0
    results = [e["message"] for e in place.entries() if e.get("message", {}).get("role") == "toolResult"]
    assert all("interrupted" in result["content"][0]["text"] for result in results)


def test_closed_pipe_ends_quietly(place):
    with start(place) as process:
        process.stdout.readline()
        process.stdout.close()
        process.stdout = None
        _, stderr = process.communicate(timeout=40)
    assert stderr == b"" and wait_for_no_sleepers() == []


def test_reader_that_stalls_does_not_hold_up_the_end(place):
    reply = {"text": "x" * 300_000, "chunk_chars": 1000}
    model = ["--model", place.script(reply)]
    with open_cli([*model, "--mode", "json", "-p", "go"], place.work, home=place.home) as process:
        process.stdout.readline()
        time.sleep(1.0)
        begun = time.monotonic()
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=5) == 143
        assert time.monotonic() - begun < 2
    assert os.path.getsize(place.sessions()[0]) > 300_000
