import pytest

from retinue.core.events import RunFinished, ToolFinished, ToolStarted, TurnStarted
from retinue.core.messages import TextContent, ToolResultMessage
from retinue.core.run import Outcome, Reason, Status
from retinue.serve.progress import Progress


def show(*events):
    shown = []
    progress = Progress(shown.append, columns=80, model="mock/one", color=False)
    for event in events:
        progress(event)
    return "".join(shown)


def started(name, **arguments):
    return ToolStarted(run_id="r", call_id="1", name=name, arguments=arguments)


@pytest.mark.parametrize(
    ("event", "line"),
    [
        (started("read", path="a.py", offset=40), "  read a.py:40\n"),
        (started("grep", pattern="def x", path="src"), "  grep def x in src\n"),
        (started("bash", command="echo \x1b[31m"), "  bash echo \\x1b[31m\n"),
        (started("odd", n=1, m=2), "  odd n=1, m=2\n"),
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
