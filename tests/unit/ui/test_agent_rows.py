import pytest

from retinue.core.messages import Usage
from retinue.core.run import Outcome, Reason, Run, Status
from retinue.ui.agent_rows import RowOptions, order_runs, render_heading, render_row
from retinue.ui.conversation_blocks import CurrentActivity

ABOUT = "review the diff of the branch before it is merged"


def make(name, status=Status.RUNNING, at=1, parent="", depth=1, **facts):
    facts = {"finished_ms": at + 100 if status.is_final else 0, "queued_ms": at, **facts}
    facts |= {} if status is Status.QUEUED else {"started_ms": at}
    return Run(id=name, parent_id=parent, depth=depth, agent="Explore", description=name, status=status, **facts)


def draw(run, width, mode="auto"):
    activity = lambda run_id: CurrentActivity(("read",), "", "src/a/long/path.py")  # noqa: E731
    return render_row(run, RowOptions(width, 5001, activity=activity, mode=mode)).plain


@pytest.mark.parametrize("turn", [0, 3, 6])
def test_order_is_by_state_then_family(turn):
    runs = [
        make("second", at=20),
        make("first", at=10),
        make("below first", at=30, parent="first", depth=2),
        make("waits below first", Status.QUEUED, at=5, parent="first", depth=2),
        make("waits", Status.QUEUED, at=7),
        make("done early", Status.COMPLETED, at=1, parent="second", depth=2),
        make("done late", Status.FAILED, at=2),
    ]
    names = [run.id for run in order_runs([*runs[turn:], *runs[:turn]])]
    assert names[:3] == ["first", "below first", "second"]
    assert (sorted(names[3:5]), names[5:]) == (["waits", "waits below first"], ["done late", "done early"])


def test_words_give_way_to_figures():
    run = make(ABOUT, turns=3, tool_uses=7, usage=Usage(8000, 1000, 500))
    assert [draw(run, width) for width in (140, 90, 70, 36, 20)] == [
        f"  ⠋ {ABOUT}  Explore · reading src/a/long/path.py · ↻3 · 7 tools · 5.0s · 9.0k token",
        "  ⠋ review the diff of the br… · reading src/a/long/pa… · ↻3 · 7 tools · 5.0s · 9.0k token",
        "  ⠋ review the diff of the… · reading src/a/long/… · 5.0s · 9.0k token",
        "  ⠋ review the d… · reading … · 5.0s",
        "  ⠋ review … · read…",
    ]


def test_rows_tell_state_and_depth():
    failed = make("ask", Status.FAILED, outcome=Outcome(Status.FAILED, Reason.ERROR, error="no\nkey"))
    assert draw(failed, 80) == "  ✗ ask · failed error: no key · 0.1s"
    assert draw(make("wait", Status.QUEUED, parent="a", depth=3), 80) == "  ◦ wait · queued"
    assert draw(make("go", parent="a", depth=3), 80) == "    └ ⠋ go · reading src/a/long/path.py · 5.0s"
    row = render_row(make("x", Status.COMPLETED, depth=2), RowOptions(80, 5), is_chosen=True, is_orphan=True)
    assert row.plain == "❯ ✓ x ⚠ orphan · 0.1s"


def test_heading_counts_states():
    runs = [make("a"), make("b", Status.QUEUED, parent="a", depth=2), make("c", Status.STOPPED)]
    assert render_heading(runs, RowOptions(90, 0)).plain == "● Agents 1 running · 1 queued · 1 finished · depth 2/4"
    assert render_heading(runs[2:], RowOptions(60, 0), "↓: select").plain == "○ Agents 1 finished · ↓: select"
