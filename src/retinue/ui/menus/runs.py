"""`/agents` → Running agents, and Scheduled jobs: lists both, opens a run, cancels a job."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from retinue.core.figures import format_duration
from retinue.core.run import Run, Status
from retinue.ui.agent_rows import RowOptions, find_sign, name_run, order_runs, render_figures
from retinue.ui.conversation_blocks import NOTHING, CurrentActivity, describe_activity
from retinue.ui.formats import clean_line
from retinue.ui.menus.base import Menu
from retinue.ui.screens.picker import PickerRow
from retinue.ui.screens.viewer import RunViewer


def title_runs(runs: Sequence[Run]) -> str:
    """`Running agents (3) — 2 running, 1 done`."""
    running = sum(run.status is Status.RUNNING for run in runs)
    done = sum(run.status.is_final for run in runs)
    return f"Running agents ({len(runs)}) — {running} running, {done} done"


def draw_run(run: Run, now_ms: int, activity: CurrentActivity = NOTHING) -> PickerRow:
    """A row with description, agent and progress."""
    sign, _ = find_sign(run, 0)
    figures = render_figures(run, RowOptions(200, now_ms)).plain.removeprefix(" · ")
    error = run.outcome.error if run.outcome is not None else ""
    now = describe_activity(run, activity) if run.status is Status.RUNNING else clean_line(error, 120) if error else ""
    facts = [run.agent if run.description else "", figures, "queued" if run.status is Status.QUEUED else now]
    return PickerRow(run.id, clean_line(name_run(run), 40), " · ".join(fact for fact in facts if fact), sign)


class RunsMenu(Menu):
    async def run(self) -> None:
        chosen: str | None = ""
        while chosen is not None:
            now_ms = self.app.now_ms()
            runs = order_runs(self.app.link.crew.session_runs.runs)
            activity = self.app.link.subagent_streams.activity
            rows = [draw_run(run, now_ms, activity(run.id)) for run in runs]
            chosen = await self.choose(title_runs(runs), rows, chosen=chosen)
            found = self.app.link.crew.session_runs.find(chosen) if chosen else None
            if found is not None:
                await self.app.ask(RunViewer(found))


_MARKS = {"error": "!", "running": "⋯"}
_DETAILS = ("id", "schedule", "scheduleType", "subagent_type", "model", "thinking", "max_turns", "isolation")


def mark_job(job: Mapping[str, Any]) -> str:
    """`✓` will start, `!` last run failed, `⋯` running, `✗` disabled."""
    if not job.get("enabled"):
        return "✗"
    return _MARKS.get(str(job.get("lastStatus", "")), "✓")


def draw_job(job: Mapping[str, Any], now: datetime) -> PickerRow:
    """The row's key is the job's id, so that jobs that look alike stay distinct."""
    facts = [
        str(job.get("schedule", "")),
        f"[{job.get('subagent_type', '')}]",
        f"next {tell_when(job.get('nextRun'), now) if job.get('enabled') else 'never'}",
        f"last {tell_when(job.get('lastRun'), now)}",
        f"runs {job.get('runCount', 0)}",
    ]
    return PickerRow(str(job.get("id", "")), str(job.get("name", "")), "  ".join(facts), mark_job(job))


def tell_when(text: object, now: datetime) -> str:
    """A relative time such as `in 5m 0s` or `2h 3m ago`; `never` if there is none."""
    try:
        moment = datetime.fromisoformat(str(text))
    except ValueError:
        return "never"
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    distance_ms = (moment - now).total_seconds() * 1000
    shown = format_duration(abs(distance_ms) // 1000 * 1000).replace(".0s", "s")
    return f"in {shown}" if distance_ms >= 0 else f"{shown} ago"


def describe_job(job: Mapping[str, Any]) -> str:
    lines = [f"{name:<14}{job[name]}" for name in _DETAILS if name in job]
    for name, key in (("next", "nextRun"), ("last", "lastRun"), ("last ended", "lastStatus"), ("created", "createdAt")):
        if key in job:
            lines.append(f"{name:<14}{job[key]}")
    prompt = str(job.get("prompt", ""))
    return "\n".join([*lines, "", prompt if len(prompt) <= 300 else f"{prompt[:300]}…"])


class JobsMenu(Menu):
    async def run(self) -> None:
        """Show the menu until the user goes back or no job is left."""
        chosen: str | None = ""
        while chosen is not None:
            jobs, problems = await self.attempt(self.app.link.crew.list_jobs) or ([], [])
            if problems:
                self.tell(problems[0], is_bad=True)
            if not jobs:
                self.tell("this session has no scheduled jobs; `retinue schedules` lists those of all sessions")
                return
            now = datetime.fromtimestamp(self.app.now_ms() / 1000, UTC)
            title = f"Scheduled jobs ({len(jobs)})"
            hint = "✓ scheduled  ⋯ running  ! failed  ✗ disabled"
            chosen = await self.choose(title, [draw_job(job, now) for job in jobs], chosen=chosen, hint=hint)
            found = next((job for job in jobs if job.get("id") == chosen), None)
            if found is not None:
                await self._offer(found)

    async def _offer(self, job: Mapping[str, Any]) -> None:
        rows = [PickerRow("back", "Back"), PickerRow("cancel", "Cancel this job", "it will not run again")]
        if await self.choose(str(job.get("name", "")), rows, about=describe_job(job)) == "cancel":
            ident = str(job.get("id", ""))
            is_gone = await self.attempt(lambda: self.app.link.crew.cancel_job(ident))
            if is_gone is not None:
                self.tell("cancelled" if is_gone else "the job no longer exists")
