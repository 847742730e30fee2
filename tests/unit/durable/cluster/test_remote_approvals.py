import asyncio

import msgspec
import pytest

from retinue.core.messages import ToolCall
from retinue.core.run import Outcome, Reason, Status
from retinue.core.tool import Effect, ToolResult
from retinue.durable.cluster.approval import MAX_TOLD, ApprovalDecision, ApprovalRequest, RemoteVerdict, SentResult
from retinue.durable.cluster.approval_judge import ApprovalJudge
from retinue.durable.cluster.remote_approvals import RemoteApprovalFeature, RemoteApprovals
from retinue.engine.questions import PendingQuestions
from retinue.engine.rights import RevokedTools, RevokedToolsHook
from retinue.engine.run_config import Origin
from retinue.features.approvals.gate import ApprovalFeature, GatePorts, RunRules
from retinue.features.approvals.rules import Rule
from retinue.features.hooks.feature import StopReview
from retinue.features.hooks.hook_table import HookTable
from retinue.models.script_file import parse_script
from retinue.models.scripted import ScriptedModel
from retinue.tools.registry import ToolOptions, build_tools
from tests.run_setup import build_setup

TOOLS = build_tools(ToolOptions())


def make_setup(folder, *features, hooks=()):
    model = ScriptedModel(parse_script([{"text": "x"}]))
    return build_setup("r", cwd=folder, model=model, tools=TOOLS, hooks=hooks, features=features)


async def open_court(folder, *rules):
    hook_table = HookTable([], print)
    ports = GatePorts(PendingQuestions(lambda event: None), "", False, hook_table.decide, hook_table.tell)
    approving = ApprovalFeature(RunRules(rules, "open"), ports)

    async def open_below(origin):
        return make_setup(folder, approving)

    return ApprovalJudge(await approving.enter(make_setup(folder)), open_below)


def join(court):
    """A worker's approvals that a court answers at once, and the cases it got."""
    brought = []

    async def submit(case):
        brought.append(case)
        again = msgspec.json.decode(msgspec.json.encode(case), type=ApprovalRequest)
        verdict = RemoteVerdict(key=case.key, ruling=await court.judge(again))
        approvals.take(msgspec.json.decode(msgspec.json.encode(verdict)))

    approvals = RemoteApprovals(submit)
    approvals.open(())
    return approvals, brought


async def call(setup, name, **arguments):
    for hook in setup.hooks:
        if (answer := await hook.before(ToolCall("c1", name, arguments), TOOLS[name])) is not None:
            return answer.content[0].text
    return None


async def test_rules_at_face_decide(tmp_path):
    face, there = tmp_path / "face", tmp_path / "there"
    court = await open_court(face, Rule(action="deny", tools=("write",), patterns=("*.lock",), reason="no locks"))
    approvals, brought = join(court)
    setup = await RemoteApprovalFeature(approvals, wants=court.wants).enter(make_setup(there))
    refused = await call(setup, "write", path="uv.lock", content="")
    passed = await call(setup, "write", path="a.txt", content="")
    assert court.wants == {"call": True}
    assert (refused, passed) == ('[Denied] Tool "write" was denied: no locks', None)
    assert [case.call.name for case in brought] == ["write", "write"]


@pytest.mark.parametrize(("path", "is_allowed"), [("src/a.py", True), ("src/../b.py", False), ("{there}/src/a", True)])
async def test_allowed_is_what_it_really_is(tmp_path, path, is_allowed):
    face, there = tmp_path / "face", tmp_path / "there"
    allow = Rule(action="allow", tools=("write",), patterns=("src/*",), priority=5)
    court = await open_court(face, allow, Rule(action="deny", tools=("write",)))
    approvals, _ = join(court)
    setup = await RemoteApprovalFeature(approvals, wants=court.wants).enter(make_setup(there))
    refused = await call(setup, "write", path=path.format(there=there), content="")
    assert (refused is None) == is_allowed


async def test_failing_judge_refuses(tmp_path):
    class Broken:
        async def before(self, call, tool):
            raise KeyError("x")

    court = ApprovalJudge(make_setup(tmp_path, hooks=(Broken(),)))
    approvals, _ = join(court)
    setup = await RemoteApprovalFeature(approvals, wants=court.wants).enter(make_setup(tmp_path))
    assert court.wants == {"call": True, "result": True}
    assert await call(setup, "ls") == "approval failed: KeyError: \"'x'\""


async def test_nothing_wanted_asks_nothing(tmp_path):
    court = ApprovalJudge(make_setup(tmp_path, hooks=(RevokedToolsHook(RevokedTools(), "r"),)))
    approvals, brought = join(court)
    setup = await RemoteApprovalFeature(approvals, wants=approvals.wants).enter(make_setup(tmp_path))
    outcome = Outcome(Status.COMPLETED, Reason.DONE)
    assert (await call(setup, "ls"), await setup.reviewers[0].review(outcome)) == (None, None)
    assert (court.wants, ApprovalJudge(setup).wants, brought) == ({}, {}, [])


async def test_late_rules_count_from_next_call(tmp_path):
    court = await open_court(tmp_path, Rule(action="deny", tools=("write",), reason="not now"))
    approvals, brought = join(court)
    setup = await RemoteApprovalFeature(approvals, wants=approvals.wants).enter(make_setup(tmp_path))
    below = await approvals.surround(Origin(run_id="", agent="a", surface="fleet")).enter(make_setup(tmp_path))
    before = await call(setup, "write", path="a.txt", content="")
    approvals.awaken(court.wants, is_on=True)
    after = await call(setup, "write", path="a.txt", content="")
    assert (before, after) == (None, '[Denied] Tool "write" was denied: not now')
    assert [case.kind for case in brought] == ["call"]
    assert ApprovalJudge(below).wants == {"call": True, "step": True, "stop": True}
    assert await call(below, "ls") is None
    assert ([case.kind for case in brought[1:]], ApprovalJudge(below).wants) == (["enter", "call"], {"call": True})


class Ending(StopReview):
    """One who is asked about the end of a run alone, as a hook of an agent's own file may be."""

    def __init__(self):
        self.heard = []

    async def review(self, outcome):
        self.heard.append(outcome.text)
        return "once more"


@pytest.mark.parametrize("is_called", [True, False])
async def test_late_hooks_of_runs_below_are_asked(tmp_path, is_called):
    ending, told = Ending(), []

    async def open_below(origin):
        return make_setup(tmp_path).change(reviewers=(ending,))

    court = ApprovalJudge(make_setup(tmp_path), open_below)
    approvals, brought = join(court)
    approvals.on_change = lambda: told.append(ApprovalJudge(below).wants)
    below = await approvals.surround(Origin(run_id="", agent="a", surface="fleet")).enter(make_setup(tmp_path))
    approvals.awaken({}, is_on=True)
    assert set(ApprovalJudge(below).wants) == {"call", "step", "stop"}
    calls = [await call(below, "ls") for _ in range(2 * is_called)]
    said = await below.reviewers[0].review(Outcome(Status.COMPLETED, Reason.DONE, text="Done."))
    assert (calls, said, ending.heard) == ([None, None][: 2 * is_called], "once more", ["Done."])
    assert ([case.kind for case in brought], told) == (["enter", "stop"], [{"stop": True}])


def make_case(key, call_id, **arguments):
    called = {"id": call_id, "name": "bash", "effect": "execute", "arguments": arguments}
    return msgspec.convert({"key": key, "kind": "call", "call": called}, type=ApprovalRequest)


async def test_late_yes_is_used_once():
    brought = []

    async def submit(case):
        brought.append(case.key)

    approvals, first = RemoteApprovals(submit), make_case("k1", "c1", command="a")
    late = RemoteVerdict(key="k1", ruling=ApprovalDecision(), digest=first.digest, call_id="c1")
    approvals.take(msgspec.to_builtins(late))
    approvals.open(())
    used = await approvals.ask(make_case("k2", "c2", command="a"))
    for case in (make_case("k3", "c3", command="a"), make_case("k4", "c4", command="b")):
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(approvals.ask(case), 0.01)
    assert (used, brought) == (ApprovalDecision(), ["k3", "k4"])


async def test_yes_on_record_is_used_up():
    async def submit(case):
        raise LookupError(case.key)

    approvals, first = RemoteApprovals(submit), make_case("k1", "c1", command="a")
    approvals.take(
        msgspec.to_builtins(RemoteVerdict(key="k1", ruling=ApprovalDecision(), digest=first.digest, call_id="c1"))
    )
    approvals.open(["c1"])
    with pytest.raises(LookupError):
        await approvals.ask(make_case("k2", "c2", command="a"))


def test_long_results_are_cut():
    given = SentResult.of(ToolResult.of("x" * (MAX_TOLD + 5), is_error=True), MAX_TOLD)
    assert (len(given.content[0].text), given.is_error) == (MAX_TOLD + len("\n[cut here]"), True)
    assert make_case("k", "c").call.effect is Effect.EXECUTE
