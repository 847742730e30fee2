import pytest

from retinue.core.run import Outcome, Reason, Run, Status
from retinue.ui.renderers.tool import (
    AgentHeading,
    describe_agent,
    describe_call,
    describe_cost,
    describe_end,
    split_end,
)

USAGE = {"input": 1000, "output": 200, "cacheRead": 0, "cacheWrite": 0, "cost": 0.01, "turns": 3}


def test_telling_arguments_are_chosen():
    calls = [
        ("bash", {"command": "ls"}),
        ("grep", {"pattern": "x", "path": "src"}),
        ("read", {"path": "a.py", "offset": 5}),
        ("steer_subagent", {"agent_id": "1", "message": "go on"}),
        ("odd", {"value": [1]}),
    ]
    assert [describe_call(*call) for call in calls] == ["$ ls", "x in src", "a.py:5", "1", ""]


def test_badges_say_what_is_special():
    asked = {
        "subagent_type": "Explore",
        "description": "find it",
        "model": "haiku",
        "thinking": "high",
        "isolated": True,
        "isolation": "worktree",
        "schedule": "5m",
    }
    badges = ("haiku", "thinking: high", "isolated", "worktree", "schedule: 5m")
    assert describe_agent("Agent", asked, None) == AgentHeading("Explore", badges, "find it")


def test_what_came_of_it_wins():
    known = {"displayName": "Scout", "description": "real", "modelName": "opus", "tags": ["max turns: 5"]}
    asked = {"subagent_type": "explore", "description": "asked", "model": "haiku", "thinking": "low", "resume": "1"}
    assert describe_agent("Agent", asked, known) == AgentHeading("Scout", ("opus", "max turns: 5", "resume"), "real")


def test_foreground_calls_name_their_task():
    asked = {"agent": "explorer", "task": "look", "sessionId": "s1"}
    assert describe_agent("subagent", asked, None) == AgentHeading("explorer", ("session s1",), "look")
    assert describe_agent("dispatch_agent", {"agent": "plan", "prompt": "think"}, 3) == AgentHeading(
        "plan", (), "think"
    )
    assert describe_agent("read", {"path": "x"}, None) is None


def test_ends_are_one_line():
    items = [{"type": "toolCall", "name": "read", "args": {"path": "a"}}, {"type": "text", "text": "x"}]
    ends = [
        {"status": "background", "agentId": "abc"},
        {"status": "background", "agentId": "abc", "isQueued": True},
        {"status": "scheduled", "jobId": "j", "nextRun": "soon"},
        {"streaming": {"displayItems": items, "turnCount": 2}},
        {"status": "background"},
        None,
    ]
    assert [describe_end(end) for end in ends] == [
        "Running in background (ID: abc)",
        "Queued in background (ID: abc)",
        "Scheduled (ID: j), next soon; cancel it in /agents",
        "↻2 · 1 tool · read a",
        "",
        "",
    ]


def test_background_call_says_how_it_ended():
    def find_run(status, reason=Reason.DONE, error=""):
        times = {"started_ms": 1000, "finished_ms": 13_000, "turns": 3, "tool_uses": 1}
        outcome = Outcome(status, reason, error=error)
        fields = {"id": "a", "parent_id": "m", "depth": 1, "agent": "x", "description": "d", **times}
        return lambda run_id: Run(status=status, outcome=outcome, **fields)

    details = {"status": "background", "agentId": "a"}
    assert [
        describe_end(details, find_run(Status.COMPLETED)),
        describe_end(details, find_run(Status.FAILED, Reason.ERROR, "no key")),
        describe_end(details, find_run(Status.STOPPED, Reason.USER)),
        describe_end(details, find_run(Status.QUEUED)),
    ] == [
        "✓ finished 12.0s · ↻3 · 1 tool",
        "✗ failed 12.0s · ↻3 · 1 tool · no key",
        "■ stopped 12.0s · ↻3 · 1 tool",
        "Queued in background (ID: a)",
    ]


def test_costs_are_short():
    assert describe_cost({"results": [{"usage": USAGE}]}) == "↻3 · 1.2k token · $0.010"
    assert (describe_cost({"turns": 4}), describe_cost({"results": []}), describe_cost("x")) == ("↻4", "", "")


@pytest.mark.parametrize(
    ("output", "is_failed", "parts"),
    [
        ("one\ntwo\n", False, ("one\ntwo\n", "exit 0")),
        ("one\n\n\nCommand exited with code 2", True, ("one\n", "exit 2")),
        ("x\n\nCommand exited with code 137 (SIGKILL)", True, ("x", "exit 137 (SIGKILL)")),
        ("x\n\nCommand timed out after 3 seconds", True, ("x", "timed out after 3 seconds")),
        (
            "x\n\nCommand aborted (interrupted by the user after 3.2 s)",
            True,
            ("x", "interrupted by the user after 3.2 s"),
        ),
        ("Command aborted (interrupted after 0.1 s)", True, ("", "interrupted after 0.1 s")),
        ('[Denied] Tool "bash" was denied: no', True, ('[Denied] Tool "bash" was denied: no', "")),
    ],
)
def test_end_of_a_command_is_found(output, is_failed, parts):
    assert split_end(output, is_failed=is_failed) == parts
