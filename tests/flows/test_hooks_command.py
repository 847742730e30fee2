import asyncio
import os
import sys
import time
from pathlib import Path

import pytest

from retinue.features.hooks.command import HookContext, find_command, run_command
from retinue.features.hooks.hook_table import HookTable, to_hook
from retinue.features.hooks.points import HookFailed, HookLate, HookSpec


def python(code, **fields):
    facts = {"name": "h", "point": "tool.approval.pre", "kind": "decision", **fields}
    return HookSpec(command=sys.executable, args=("-c", code), **facts)


def start_daemon(mark):
    """Code that starts a process of a session of its own, which bears this mark."""
    argv = f"[sys.executable, '-c', 'import time; time.sleep(60)', {mark!r}]"
    return f"import subprocess, sys, time; subprocess.Popen({argv}, start_new_session=True)"


async def wait_until_gone(mark):
    deadline = time.monotonic() + 30
    while any(mark.encode() in words for words in map(read_command_line, Path("/proc").glob("[0-9]*/cmdline"))):
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)


def read_command_line(path):
    try:
        return path.read_bytes().split(b"\0")
    except OSError:
        return []


@pytest.fixture
def place(tmp_path):
    return HookContext(tmp_path, tmp_path, dict(os.environ), limit_s=10)


async def test_answer_is_read(place):
    code = "import json, sys; print(json.dumps({'decision': 'deny', 'reason': json.load(sys.stdin)['toolName']}))"
    assert await run_command(python(code), {"toolName": "bash"}, place) == {"decision": "deny", "reason": "bash"}


async def test_large_payload_is_read_or_not(place):
    payload = {"result": "x" * 3_000_000}
    code = "import json, sys; print(len(json.load(sys.stdin)['result']))"
    assert await run_command(python(code), payload, place) == 3_000_000
    assert await run_command(python("pass"), payload, place) is None


@pytest.mark.attack("F8")
async def test_hanging_hook_and_its_children_end(place, tmp_path):
    mark = str(tmp_path / "mark")
    spec = python(f"{start_daemon(mark)}; time.sleep(60)")
    begun_s = time.monotonic()
    with pytest.raises(HookLate, match="did not finish within 1 s"):
        await run_command(spec, {}, HookContext(place.cwd, place.project, place.environment, limit_s=1))
    assert time.monotonic() - begun_s < 30
    await wait_until_gone(mark)


@pytest.mark.attack("F8")
async def test_daemon_of_a_hook_ends(place, tmp_path):
    mark = str(tmp_path / "mark")
    assert await run_command(python(start_daemon(mark)), {}, place) is None
    await wait_until_gone(mark)


@pytest.mark.attack("F8")
@pytest.mark.parametrize("blanks", [200_000, 300_000])
async def test_output_of_a_hook_is_bounded(place, blanks):
    asked = run_command(python(f"print(' ' * {blanks} + '{{}}')"), {}, place)
    if blanks < 262_144:
        assert await asked == {}
        return
    with pytest.raises(HookFailed, match="printed more than 262144 bytes"):
        await asked


@pytest.mark.attack("A14")
def test_command_is_not_the_projects(tmp_path):
    own = tmp_path / "bin"
    own.mkdir()
    fake = own / "check-it"
    fake.write_text("#!/bin/sh\n")
    fake.chmod(0o755)
    spec = HookSpec(name="h", point="agent.turn.start", command="check-it")
    inside = HookContext(tmp_path, tmp_path, {"PATH": f"{own}:bin:/usr/bin"})
    with pytest.raises(HookFailed, match="no program 'check-it' on the PATH"):
        find_command(spec, inside)
    outside = tmp_path / "project"
    outside.mkdir()
    assert find_command(spec, HookContext(outside, outside, {"PATH": str(own)})) == str(fake)


def test_relative_command_belongs_to_its_file(tmp_path):
    script = tmp_path / "check.sh"
    script.write_text("#!/bin/sh\n")
    script.chmod(0o755)
    project = tmp_path / "project"
    project.mkdir()
    spec = HookSpec(name="h", point="agent.turn.start", command="./check.sh", folder=str(tmp_path))
    assert find_command(spec, HookContext(project, project, {})) == str(script)


async def test_late_observer_is_told_once(place):
    warnings = []
    spec = python("import time; time.sleep(60)", point="llm.request.before", kind="observer")
    quick = HookContext(place.cwd, place.project, place.environment, limit_s=0.2)
    hook_table = HookTable([to_hook(spec, quick)], warnings.append)
    begun_s = time.monotonic()
    for _ in range(5):
        await hook_table.tell("llm.request.before", {})
    assert time.monotonic() - begun_s < 4
    assert warnings == ["hook 'h' at llm.request.before did not finish within 0.2 s"]


class Plain:
    """A hook in memory."""

    def __init__(self, name, answer, *, point="tool.approval.pre", priority=0, scope="global", is_own=True):
        self.name, self.point, self.kind = name, point, "decision"
        self.priority, self.scope, self.is_own = priority, scope, is_own
        self.answer, self.asked = answer, 0

    async def ask(self, payload):
        self.asked += 1
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@pytest.mark.attack("A12")
async def test_namesake_does_not_spare_a_guard():
    change = {"modifiedInput": {"path": "b"}}
    guard, namesake = Plain("guard", {"decision": "deny"}), Plain("guard", change, scope="session", is_own=False)
    hook_table = HookTable([guard, namesake], lambda text: None)
    first = await hook_table.decide("tool.approval.pre", {}, fit=lambda given: (given, []))
    assert (first.word, first.modified_input, guard.asked) == ("ask", {"path": "b"}, 0)
    second = await hook_table.decide("tool.approval.pre", {}, leaving_out=first.key)
    assert (second.word, guard.asked, namesake.asked) == ("deny", 1, 1)


@pytest.mark.spec("codingcode:38")
async def test_nearest_scope_is_asked_first():
    order = []

    class Noting(Plain):
        async def ask(self, payload):
            order.append(self.name)

    hooks = [Noting("g", None, priority=99), Noting("p", None, scope="project"), Noting("s", None, scope="session")]
    hooks.append(Noting("s9", None, scope="session", priority=9))
    await HookTable(hooks, order.append).decide("tool.approval.pre", {})
    assert order == ["s9", "s", "p", "g"]


@pytest.mark.attack("F8")
async def test_failed_guard_outweighs_permission():
    hooks = [Plain("broken", HookFailed("fell over"), priority=9), Plain("kind", {"decision": "allow"})]
    decision = await HookTable(hooks, str).decide("tool.approval.pre", {})
    assert (decision.word, decision.reason) == ("deny", "the hook 'broken' fell over")


@pytest.mark.attack("F8")
@pytest.mark.parametrize("word", ["allow", "continue"])
async def test_projects_permission_is_no_opinion(word):
    theirs = Plain("theirs", {"decision": word}, scope="project", is_own=False)
    assert await HookTable([theirs], str).decide("tool.approval.pre", {}) is None
    decision = await HookTable([theirs, Plain("mine", {"decision": "ask"})], str).decide("tool.approval.pre", {})
    assert (decision.word, decision.hook) == ("ask", "mine")
