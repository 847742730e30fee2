from datetime import UTC, datetime

import pytest

from retinue.core.run import Outcome, Reason, Run, Status
from retinue.ui.agent_rows import RowOptions, find_sign, name_status, render_row
from retinue.ui.menus.kinds import draw_kind, list_deeds
from retinue.ui.menus.runs import describe_job, draw_job, draw_run, mark_job, tell_when, title_runs
from retinue.ui.renderers.report import find_report_sign
from retinue.ui.screens.picker import PickerRow

NOW = datetime(2026, 1, 1, tzinfo=UTC)
ROW = {"name": "a", "source": "project", "enabled": True, "readonly": True, "model": "haiku", "description": "does"}


@pytest.mark.parametrize(
    ("kind", "is_enabled", "deeds"),
    [
        ("builtin", True, ["eject", "disable"]),
        ("builtin", False, []),
        ("overridden", True, ["edit", "disable", "reset", "delete"]),
        ("overridden", False, ["enable", "edit", "reset", "delete"]),
        ("custom", True, ["edit", "disable", "delete"]),
        ("custom", False, ["enable", "edit", "delete"]),
    ],
)
def test_kinds_have_their_deeds(kind, is_enabled, deeds):
    assert list_deeds(kind, is_enabled=is_enabled) == deeds


def test_marks_tell_the_source():
    rows = [ROW, {**ROW, "source": "user"}, {**ROW, "source": "builtin"}, {**ROW, "enabled": False}]
    assert [draw_kind(row).mark for row in rows] == ["•", "◦", "", "✕"]
    assert draw_kind(ROW).note == "does · read-only · haiku"


def test_jobs_are_marked_by_fate():
    jobs = [
        {"enabled": True},
        {"enabled": True, "lastStatus": "success"},
        {"enabled": True, "lastStatus": "error"},
        {"enabled": True, "lastStatus": "running"},
        {"enabled": False, "lastStatus": "success"},
    ]
    assert [mark_job(job) for job in jobs] == ["✓", "✓", "!", "⋯", "✗"]


def test_job_is_one_row():
    job = {"id": "x", "name": "nightly", "schedule": "5m", "subagent_type": "Plan", "enabled": True, "runCount": 2}
    moments = {"nextRun": "2026-01-01T00:05:00.000Z", "lastRun": "2025-12-31T22:00:00Z"}
    note = "5m  [Plan]  next in 5m 0s  last 2h 0m ago  runs 2"
    assert draw_job({**job, **moments}, NOW) == PickerRow("x", "nightly", note, "✓")
    assert "[Plan]  next never  last never" in draw_job({**job, "enabled": False, **{"runCount": 0}}, NOW).note


def test_odd_moments_are_never():
    assert [tell_when(text, NOW) for text in (None, "", "soon", "2026-01-01T00:00:03")] == ["never"] * 3 + ["in 3s"]


def test_long_prompts_are_cut():
    assert describe_job({"id": "x", "prompt": "p" * 400}).endswith("\n\n" + "p" * 300 + "…")


def test_runs_are_counted():
    done = Run(id="1", parent_id="0", depth=1, agent="Plan", description="think", status=Status.FAILED, turns=2)
    done.outcome = Outcome(Status.FAILED, Reason.ERROR, error="no\nkey")
    works = Run(id="2", parent_id="0", depth=1, agent="Explore", description="look", status=Status.RUNNING)
    assert title_runs([done, works]) == "Running agents (2) — 1 running, 1 done"
    assert draw_run(done, 0) == PickerRow("1", "think", "Plan · ↻2 · no key", "✗")
    assert draw_run(works, 0).note == "Explore · thinking…"


@pytest.mark.parametrize(
    ("status", "reason", "sign", "word"),
    [
        (Status.STOPPED, Reason.USER, ("■", "dim"), "stopped"),
        (Status.STOPPED, Reason.PARENT, ("■", "dim"), "stopped"),
        (Status.STOPPED, Reason.TURN_LIMIT, ("✗", "error"), "aborted"),
        (Status.STOPPED, Reason.WALL_TIMEOUT, ("✗", "error"), "aborted"),
        (Status.FAILED, Reason.ERROR, ("✗", "error"), "failed"),
        (Status.INTERRUPTED, Reason.CRASH, ("✗", "error"), "interrupted"),
        (Status.COMPLETED, Reason.DONE, ("✓", "success"), "completed"),
        (Status.COMPLETED, Reason.TURN_LIMIT_WRAPPED, ("✓", "warning"), "completed"),
    ],
)
def test_aborted_is_not_stopped(status, reason, sign, word):
    run = Run(id="r", parent_id="m", depth=1, agent="Explore", description="look", status=status)
    run.outcome = Outcome(status, reason)
    assert (find_sign(run, 0), name_status(run)) == (sign, word)


@pytest.mark.parametrize(
    ("status", "sign"),
    [("completed", "✓"), ("steered", "✓"), ("stopped", "■"), ("aborted", "✗"), ("error", "✗"), ("", "✗")],
)
def test_reports_have_the_same_signs(status, sign):
    assert find_report_sign(status)[0] == sign


def test_run_names_its_worker():
    run = Run(id="r", parent_id="m", depth=1, agent="Explore", description="look", status=Status.RUNNING)
    run.worker, run.started_ms = "box-7", 1000
    assert draw_run(run, 3500).note == "Explore · on box-7 · 2.5s · thinking…"
    assert render_row(run, RowOptions(90, 3500)).plain == "  ⠋ look  Explore · thinking… · on box-7 · 2.5s"
