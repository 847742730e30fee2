"""Renders runs as lines of a tree with their progress. Must not know widgets or the clock."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from rich.text import Text

from retinue.core.figures import format_duration, format_tokens
from retinue.core.run import Reason, Run, Status
from retinue.ui.conversation_blocks import NOTHING, CurrentActivity, describe_activity
from retinue.ui.formats import SPINNER, clean_line, color_percent, find_percent

MOST_LINES = 12
RICH_COLUMNS = 88
_LEAST_ABOUT = 16
"""Minimum columns for the description of a run on a narrow screen."""
_LEAST_FIGURES = 8
"""Minimum columns for figures; with less room they are left out."""
_RANKS = {Status.RUNNING: 0, Status.QUEUED: 1}
_WRAPPED = (Reason.TURN_LIMIT_WRAPPED, Reason.LENGTH)


@dataclass(frozen=True, slots=True)
class TreeOptions:
    """Everything besides the runs that decides how they are drawn."""

    width: int
    now_ms: int
    frame: int = 0
    max_depth: int = 4
    find_window: Callable[[str], int] = lambda run_id: 0
    glimpse: Callable[[str], CurrentActivity] = lambda run_id: NOTHING
    colors: dict[str, str] = field(default_factory=dict)
    """Theme colours by name."""
    mode: str = "auto"
    """`rich`, `compact`, or `auto` for what fits."""
    most_lines: int = MOST_LINES
    """Includes the heading."""

    def color(self, name: str) -> str:
        return self.colors.get(name, "")


@dataclass(frozen=True, slots=True)
class _Row:
    run: Run
    prefix: str
    is_last: bool
    is_orphan: bool


def render_tree(runs: Sequence[Run], outlook: TreeOptions) -> list[Text]:
    """The heading and the rows, at most `most_lines`; empty without runs or room."""
    most = outlook.most_lines
    if not runs or outlook.width < 6 or most < 2:
        return []
    rows = _plan(runs)
    is_rich = outlook.mode == "rich" or (outlook.mode == "auto" and outlook.width >= RICH_COLUMNS)
    if is_rich and outlook.mode == "auto" and _count_lines(rows, is_rich=True) + 1 > most:
        is_rich = False
    hidden = _count_lines(rows, is_rich=is_rich) + 1 - most
    # Draw only visible rows: there may be hundreds of runs, drawn twelve times a second.
    lines = _render_rows(rows[:most], outlook, is_rich=is_rich)
    if hidden > 0:
        lines = [
            *lines[: most - 2],
            Text(f"└─ +{hidden + 1} more {'lines' if is_rich else 'agents'} hidden", style="dim"),
        ]
    made = [_render_heading(runs, outlook, is_rich=is_rich), *lines]
    for line in made:
        line.truncate(outlook.width, overflow="ellipsis")
    return made


def choose_runs(runs: Sequence[Run], mode: str) -> list[Run]:
    """The runs to list: all, those in the background with their parents, or none."""
    if mode == "off":
        return []
    parents = {run.parent_id for run in runs if run.is_background}
    return [run for run in runs if mode == "all" or run.is_background or run.id in parents]


def _plan(runs: Sequence[Run]) -> list[_Row]:
    known = {run.id for run in runs}
    below: dict[str, list[Run]] = {}
    for run in runs:
        below.setdefault(run.parent_id if run.parent_id in known else "", []).append(run)
    rows: list[_Row] = []

    def add(parent_id: str, prefix: str) -> None:
        siblings = sorted(below.get(parent_id, ()), key=_rank)
        for index, run in enumerate(siblings):
            is_last = index == len(siblings) - 1
            rows.append(_Row(run, prefix, is_last, not parent_id and run.depth > 1))
            add(run.id, prefix + ("   " if is_last else "│  "))

    add("", "")
    return rows


def _rank(run: Run) -> tuple[int, int]:
    return _RANKS.get(run.status, 2), run.started_ms or run.queued_ms


def _render_heading(runs: Sequence[Run], outlook: TreeOptions, *, is_rich: bool) -> Text:
    running = sum(run.status is Status.RUNNING for run in runs)
    queued = sum(run.status is Status.QUEUED for run in runs)
    line = Text()
    line.append("● " if running else "○ ", style=outlook.color("accent"))
    line.append("Agents", style="bold")
    if is_rich:
        depth = max(run.depth for run in runs)
        facts = f" {running} running · {queued} queued · depth {depth}/{outlook.max_depth}"
        line.append(facts, style="dim")
    elif queued:
        line.append(f" {queued} queued", style="dim")
    return line


def _render_rows(rows: Sequence[_Row], outlook: TreeOptions, *, is_rich: bool) -> list[Text]:
    lines = []
    for row in rows:
        lines.append(_render_row(row, outlook))
        if is_rich and row.run.status is Status.RUNNING:
            bar = "   " if row.is_last else "│  "
            doing = describe_activity(row.run, outlook.glimpse(row.run.id))
            lines.append(Text(f"{row.prefix}{bar}⎿ {doing}", style="dim"))
    return lines


def _count_lines(rows: Sequence[_Row], *, is_rich: bool) -> int:
    return len(rows) + (sum(row.run.status is Status.RUNNING for row in rows) if is_rich else 0)


def _render_row(row: _Row, outlook: TreeOptions) -> Text:
    run = row.run
    sign, color = find_sign(run, outlook.frame)
    line = Text()
    line.append(f"{row.prefix}{'└─' if row.is_last else '├─'} ", style="dim")
    line.append(f"{sign} ", style=outlook.color(color) or color)
    line.append(clean_line(run.agent, 40), style="bold")
    figures = render_figures(run, outlook)
    about = Text(f"  {clean_line(run.description, 80)}")
    room = outlook.width - line.cell_len
    if room - min(about.cell_len, _LEAST_ABOUT) >= _LEAST_FIGURES:
        # The description is shortened in favour of the figures, but not below _LEAST_ABOUT.
        about.truncate(max(_LEAST_ABOUT, room - figures.cell_len), overflow="ellipsis")
        about.append_text(figures)
    line.append_text(about)
    if row.is_orphan:
        line.append(" ⚠ orphan", style=outlook.color("warning"))
    if run.outcome is not None and run.outcome.error and run.status is Status.FAILED:
        line.append(f" error: {clean_line(run.outcome.error, 120)}", style=outlook.color("error"))
    return line


def render_figures(run: Run, outlook: TreeOptions) -> Text:
    """` · ↻5≤30 · 7 tools · 12.3s · 33.8k token 41% ⇊1`; ` · on box-7` before it for a run on another machine."""
    text = Text(style="dim")
    if run.machine:
        text.append(f" · on {clean_line(run.machine, 40)}")
    limit = run.invocation.get("maxTurns")
    if run.turns:
        text.append(f" · ↻{run.turns}{f'≤{limit}' if isinstance(limit, int) and limit else ''}")
    if run.tool_uses:
        text.append(f" · {run.tool_uses} tool{'s' if run.tool_uses > 1 else ''}")
    if run.started_ms:
        text.append(f" · {format_duration((run.finished_ms or outlook.now_ms) - run.started_ms)}")
    tokens = run.usage.total_tokens
    if tokens:
        text.append(f" · {format_tokens(tokens)} token")
        percent = find_percent(run.context_tokens, outlook.find_window(run.id))
        if percent is not None:
            color = color_percent(percent)
            text.append(f" {percent}%", style="dim" if color == "dim" else f"not dim {outlook.color(color)}".strip())
    if run.compactions:
        text.append(f" ⇊{run.compactions}")
    return text


def find_sign(run: Run, frame: int) -> tuple[str, str]:
    """The sign of a run and the name of its colour."""
    if run.status is Status.RUNNING:
        return SPINNER[frame % len(SPINNER)], "accent"
    if run.status is Status.QUEUED:
        return "◦", "dim"
    if run.status is Status.COMPLETED:
        is_wrapped = run.outcome is not None and run.outcome.reason in _WRAPPED
        return "✓", "warning" if is_wrapped else "success"
    return ("■", "dim") if name_status(run) == "stopped" else ("✗", "error")


def name_status(run: Run) -> str:
    """The status of a run; a run stopped by a limit is called aborted."""
    is_aborted = run.outcome is not None and run.outcome.reason not in (Reason.USER, Reason.PARENT)
    return "aborted" if run.status is Status.STOPPED and is_aborted else str(run.status)


class FinishedRuns:
    """Decides how long finished runs stay visible: a success briefly, a failure longer.

    A round is a reply of the main agent that called tools: by then the finished run has been visible for a while.
    """

    SUCCESS = (1, 30_000)
    FAILURE = (2, 120_000)

    def __init__(self) -> None:
        self._ended: dict[str, tuple[int, int]] = {}

    def choose(self, runs: Sequence[Run], rounds: int, now_ms: int) -> list[Run]:
        """The runs to show: unfinished ones, recently finished ones, and their ancestors."""
        shown = {run.id for run in runs if not run.status.is_final or self._lingers(run, rounds, now_ms)}
        by_id = {run.id: run for run in runs}
        for run in runs:
            parent = by_id.get(run.parent_id) if run.id in shown else None
            while parent is not None and parent.id not in shown:
                shown.add(parent.id)
                parent = by_id.get(parent.parent_id)
        self._ended = {run_id: end for run_id, end in self._ended.items() if run_id in by_id}
        return [run for run in runs if run.id in shown]

    def _lingers(self, run: Run, rounds: int, now_ms: int) -> bool:
        seen_round, ended_ms = self._ended.setdefault(run.id, (rounds, run.finished_ms or now_ms))
        most_rounds, most_ms = self.SUCCESS if run.status is Status.COMPLETED else self.FAILURE
        return rounds - seen_round < most_rounds and now_ms - ended_ms < most_ms
