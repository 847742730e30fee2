"""`/agents` → Running agents: lists all runs of the session and opens their viewer."""

from collections.abc import Sequence

from retinue.core.run import Run, Status
from retinue.ui.formats import clean_line
from retinue.ui.menus.base import Menu
from retinue.ui.screens.picker import PickerRow
from retinue.ui.screens.viewer import RunViewer
from retinue.ui.talk import NOTHING, Glimpse, describe_activity
from retinue.ui.tree import Outlook, find_sign, render_figures

_RANKS = {Status.RUNNING: 0, Status.QUEUED: 1}


def title_runs(runs: Sequence[Run]) -> str:
    """`Running agents (3) — 2 running, 1 done`."""
    running = sum(run.status is Status.RUNNING for run in runs)
    done = sum(run.status.is_final for run in runs)
    return f"Running agents ({len(runs)}) — {running} running, {done} done"


def draw_run(run: Run, now_ms: int, glimpse: Glimpse = NOTHING) -> PickerRow:
    """A row with agent, description and progress."""
    sign, _ = find_sign(run, 0)
    figures = render_figures(run, Outlook(200, now_ms)).plain.removeprefix(" · ")
    error = run.outcome.error if run.outcome is not None else ""
    now = describe_activity(run, glimpse) if run.status is Status.RUNNING else clean_line(error, 120) if error else ""
    facts = [run.description, figures, "queued" if run.status is Status.QUEUED else now]
    return PickerRow(run.id, run.agent, " · ".join(fact for fact in facts if fact), sign)


class RunsMenu(Menu):
    async def run(self) -> None:
        chosen: str | None = ""
        while chosen is not None:
            now_ms = self.app.now_ms()
            runs = sorted(self.app.link.crew.lookout.runs, key=lambda run: _RANKS.get(run.status, 2))
            glimpse = self.app.link.overheard.glimpse
            rows = [draw_run(run, now_ms, glimpse(run.id)) for run in runs]
            chosen = await self.choose(title_runs(runs), rows, chosen=chosen)
            found = self.app.link.crew.lookout.find(chosen) if chosen else None
            if found is not None:
                await self.app.ask(RunViewer(found))
