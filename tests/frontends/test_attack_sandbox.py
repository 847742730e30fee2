"""Attacks on the sandbox as such: machines that lack one part of it, or all, and a program that must not care."""

import json
import os
import platform
import shutil
import struct
import subprocess
import sys

import pytest

from tests.needs import explain_lack, need_backend
from tests.terminal import open_terminal

# The system calls by which namespaces are made, and those of Landlock, which have the same numbers everywhere.
CLONE, UNSHARE = {"x86_64": (56, 272), "aarch64": (220, 97)}.get(platform.machine(), (0, 0))
CLONE3, LANDLOCK = 435, (444, 445, 446)
NEW_NAMESPACES = 0x7E020000
ALLOW, REFUSE, MISSING = 0x7FFF0000, 0x00050001, 0x00050026
LAUNCHER = """
import ctypes, os, struct, sys
program = bytes.fromhex(sys.argv[1])
code = ctypes.create_string_buffer(program, len(program))
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0
header = struct.pack("@HP", len(program) // 8, ctypes.addressof(code))
assert libc.prctl(22, 2, ctypes.c_char_p(header), 0, 0) == 0, ctypes.get_errno()
os.execv(sys.argv[2], sys.argv[2:])
"""
AGENT = "---\nname: looker\ndescription: d\nreadonly: true\ntools: read, bash\n---\nLook.\n"
COMMAND = 'touch pwn; touch "$HOME/pwn"; echo x >>a.txt; echo "in $(pwd)"'


def instruct(code, value, yes=0, no=0):
    return struct.pack("=HBBI", code, yes, no, value)


def build_filter(*, namespaces, landlock):
    """A program for the kernel: what a container forbids, or an old kernel does not know."""
    lines = [instruct(0x20, 0)]
    if not landlock:
        for number in LANDLOCK:
            lines += [instruct(0x15, number, 0, 1), instruct(0x06, MISSING)]
    if not namespaces:
        lines += [instruct(0x15, CLONE3, 0, 1), instruct(0x06, MISSING)]
        lines += [instruct(0x15, UNSHARE, 0, 1), instruct(0x06, REFUSE)]
        lines += [instruct(0x15, CLONE, 0, 3), instruct(0x20, 16), instruct(0x45, NEW_NAMESPACES, 0, 1)]
        lines += [instruct(0x06, REFUSE)]
    return b"".join([*lines, instruct(0x06, ALLOW)])


def hide_bwrap():
    if explain_lack("bwrap"):
        return []  # nobody would find one that works
    program = os.path.realpath(shutil.which("bwrap") or "/usr/bin/bwrap")
    return ["bwrap", "--dev-bind", "/", "/", "--ro-bind", "/dev/null", program, "--"]


def lack(**parts):
    return [sys.executable, "-c", LAUNCHER, build_filter(**parts).hex()]


MACHINES = {
    "bwrap hidden": (hide_bwrap, "read-only, landlock"),
    "no namespaces": (lambda: lack(namespaces=False, landlock=True), "read-only, landlock"),
    "no Landlock": (lambda: lack(namespaces=True, landlock=False), "read-only, bwrap"),
    "nothing": (lambda: lack(namespaces=False, landlock=False), ""),
    "switched off": (list, ""),
}


@pytest.fixture
def looked(place):
    (place.agent_dir / "agents").mkdir()
    (place.agent_dir / "agents" / "looker.md").write_text(AGENT)
    (place.work / "a.txt").write_text("one\n")
    return place


def run(place, before):
    """The record of one read-only run on such a machine."""
    start = {"subagent_type": "looker", "prompt": "leaf", "description": "d"}
    replies = [
        {"match": {"last_user": "^go"}, "calls": [{"name": "Agent", "arguments": start}]},
        {"match": {"last_user": "^leaf"}, "calls": [{"name": "bash", "arguments": {"command": COMMAND}}]},
        {"match": {"last_user": "^"}, "text": "done"},
    ]
    environment = {"PATH": os.environ["PATH"], "HOME": str(place.home), "RETINUE_NO_LOCAL": "1"}
    words = ["-P", "-m", "retinue", "--model", place.script(*replies), "-p", "go"]
    command = [*before, sys.executable, *words]
    done = subprocess.run(
        command, cwd=place.work, env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    (record,) = place.agent_dir.rglob("session.jsonl")
    assert done.returncode == 0, done.stderr
    return record.read_text()


@pytest.mark.attack("B18", "SEC-4")
@pytest.mark.parametrize("name", MACHINES)
def test_lack_of_sandbox_runs_nothing_bare(looked, measure, name):
    before, summary = MACHINES[name]
    if summary:
        need_backend(summary.split()[-1])
    if name == "switched off":
        (looked.agent_dir / "subagents.json").write_text(json.dumps({"sandbox": {"mode": "off"}}))
    text = run(looked, before())
    left = sorted(str(path.name) for folder in (looked.work, looked.home) for path in folder.glob("pwn"))
    has_run, has_changed = f"in {looked.work}" in text, (looked.work / "a.txt").read_text() != "one\n"
    measure("SEC-4", name, ran=int(bool(left or has_changed or (has_run and not summary))), machines=1)
    assert (left, has_changed, has_run) == ([], False, bool(summary))
    assert summary in text if summary else "SANDBOX_UNAVAILABLE" in text


NOTICE = "there is no sandbox on this machine"
BASH = {"calls": [{"name": "bash", "arguments": {"command": "echo twice; echo said >said.txt"}}]}
PROMPT = json.dumps({"type": "prompt", "message": "go"}) + "\n"
WRITER = "---\nname: writer\ndescription: d\ntools: read, write, bash\n---\nWrite.\n"
FACES = {
    "-p": (["-p", "go", "again"], ""),
    "-p --mode json": (["-p", "--mode", "json", "go"], ""),
    "--mode rpc": (["--mode", "rpc"], PROMPT),
    "run": (["run", "--write", "writer", "go"], ""),
    "process": (["run", "--write", "alone", "go"], ""),
}


def speak(place, name, before, replies):
    """What a face says on standard error."""
    (place.agent_dir / "agents" / "writer.md").write_text(WRITER)
    alone = WRITER.replace("name: writer", "name: alone\nrunner: process")
    (place.agent_dir / "agents" / "alone.md").write_text(alone)
    words, stdin = FACES[name]
    environment = {"PATH": os.environ["PATH"], "HOME": str(place.home), "RETINUE_NO_LOCAL": "1"}
    command = [*before, sys.executable, "-P", "-m", "retinue", *words, "--model", place.script(*replies)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, cwd=place.work, env=environment, text=True, **pipes) as process:
        if stdin:
            process.stdin.write(stdin)
            process.stdin.flush()
            next(line for line in process.stdout if '"agent_end"' in line)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    return [line for line in errors.splitlines() if NOTICE in line]


@pytest.mark.attack("I11")
@pytest.mark.parametrize("name", FACES)
def test_lack_of_sandbox_is_said_once(looked, name):
    replies = [BASH, BASH, {"text": "done"}, BASH, {"text": "done"}]
    said = speak(looked, name, lack(namespaces=False, landlock=False), replies)
    assert (len(said), (looked.work / "said.txt").exists()) == (1, True)
    assert said[0].startswith("retinue: ") and "retinue doctor" in said[0]


@pytest.mark.attack("I11")
def test_lack_of_sandbox_is_said_without_a_command(looked):
    before = lack(namespaces=False, landlock=False)
    assert len(speak(looked, "-p", before, [{"text": "done"}, {"text": "done"}])) == 1


@pytest.mark.parametrize("name", ["no namespaces", "no Landlock", "switched off"])
def test_nothing_is_said_of_a_sandbox_that_works(looked, name):
    if name == "switched off":
        (looked.agent_dir / "subagents.json").write_text(json.dumps({"sandbox": {"mode": "off"}}))
    assert speak(looked, "-p", MACHINES[name][0](), [BASH, {"text": "done"}, {"text": "done"}]) == []


@pytest.mark.attack("I11")
def test_lack_of_sandbox_is_shown_on_the_screen(looked):
    words = [*lack(namespaces=False, landlock=False), sys.executable, "-P", "-m", "retinue", "--no-approve"]
    environment = {"PATH": os.environ["PATH"], "HOME": str(looked.home), "RETINUE_NO_LOCAL": "1", "TERM": "xterm"}
    words += ["--model", looked.script(BASH, {"text": "THEEND"})]
    with open_terminal(words, looked.work, environment, columns=100, rows=40) as terminal:
        terminal.wait_for("scripted")
        terminal.type("go\r")
        terminal.wait_for("THEEND")
        terminal.wait_for(NOTICE)


def test_calls_at_once_leave_nothing_behind(place):
    need_backend("bwrap")
    calls = [{"name": "bash", "arguments": {"command": f"echo {number}"}} for number in range(3)]
    before = set(os.listdir(place.work))
    assert place.run("-p", "go", replies=[{"calls": calls}, {"text": "done"}]).status == 0
    assert set(os.listdir(place.work)) == before
