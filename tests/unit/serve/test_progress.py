import pytest

from retinue.core.events import (
    AttemptEnded,
    CallChanged,
    RunFinished,
    RunQueued,
    RunStarted,
    ToolFinished,
    ToolStarted,
    TurnStarted,
)
from retinue.core.messages import TextContent, ToolResultMessage
from retinue.core.run import Outcome, Reason, Run, Status
from retinue.serve.progress import Progress


def show(*events):
    shown = []
    progress = Progress(shown.append, columns=80, model="mock/one", color=False)
    for event in events:
        progress(event)
    return "".join(shown)


def started(name, **arguments):
    return ToolStarted(run_id="r", call_id="1", name=name, arguments=arguments)


CHANGED = CallChanged(run_id="r", call_id="1", name="bash", arguments={"command": "ls"}, by=["fix\x1b[1m"])


@pytest.mark.parametrize(
    ("event", "line"),
    [
        (started("read", path="a.py", offset=40), "  read a.py:40\n"),
        (started("grep", pattern="def x", path="src"), "  grep def x in src\n"),
        (started("bash", command="echo \x1b[31m"), "  bash echo \\x1b[31m\n"),
        (started("odd", n=1, m=2), "  odd n=1, m=2\n"),
        (CHANGED, "  ! changed by fix\\x1b[1m: ls\n"),
    ],
)
def test_each_call_is_one_safe_line(event, line):
    assert line in show(event)


def test_failed_call_says_why():
    result = ToolResultMessage("1", "read", [TextContent("no such\nfile")], True, 0)
    assert "  ! read: no such file\n" in show(ToolFinished(run_id="r", result=result))


def test_summary_is_left_at_the_end():
    outcome = Outcome(Status.COMPLETED, Reason.DONE)
    shown = show(TurnStarted(run_id="r", turn=1), RunFinished(run_id="r", outcome=outcome))
    assert shown.endswith("mock/one · 1 turn · 0 tokens · 0.0 s\n")


def test_crew_is_shown_at_start_and_end():
    run = Run(id="c", parent_id="r", depth=1, agent="Explore", description="a look")
    shown = []
    progress = Progress(shown.append, columns=80, model="mock/one", color=False)
    progress.tell_subagent(RunQueued(run_id="c", run=run, request={}))
    progress.tell_subagent(RunStarted(run_id="c"))
    progress(AttemptEnded(run_id="r"))
    progress.tick()
    progress.tell_subagent(RunFinished(run_id="c", outcome=Outcome(Status.FAILED, Reason.ERROR, error="no luck")))
    text = "".join(shown)
    assert "  Explore a look\n" in text and "waiting for 1 agent " in text
    assert "  ✗ Explore a look: no luck\n" in text
