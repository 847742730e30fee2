"""Renders runs as rows of a list: their order, names, activity and figures. Must not know widgets or the clock."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from rich.text import Text

from retinue.core.figures import count_tokens, format_duration, format_tokens
from retinue.core.run import Reason, Run, Status
from retinue.ui.conversation_blocks import NOTHING, CurrentActivity, describe_activity
from retinue.ui.formats import SPINNER, clean_line, color_percent, find_percent

RICH_COLUMNS = 88
_LEAST_WORDS = 24
"""Minimum columns for name and activity of a run; figures are left out until there is room."""
_RANKS = {Status.RUNNING: 0, Status.WAITING: 1, Status.QUEUED: 1}
_WRAPPED = (Reason.TURN_LIMIT_WRAPPED, Reason.LENGTH)


@dataclass(frozen=True, slots=True)
class RowOptions:
    """Everything besides the runs that decides how they are drawn."""

    width: int
    now_ms: int
    frame: int = 0
    max_depth: int = 4
    find_window: Callable[[str], int] = lambda run_id: 0
    activity: Callable[[str], CurrentActivity] = lambda run_id: NOTHING
    colors: dict[str, str] = field(default_factory=dict)
    """Theme colours by name."""
    mode: str = "auto"
    """`rich` with the kind of agent and all figures, `compact`, or `auto` for what fits."""

    def color(self, name: str) -> str:
        return self.colors.get(name, "")

    @property
    def is_rich(self) -> bool:
        return self.mode == "rich" or (self.mode == "auto" and self.width >= RICH_COLUMNS)


def order_runs(runs: Sequence[Run]) -> list[Run]:
    """Running ones, then queued ones, each child after its parent; then finished ones, the last to finish first."""
    known = {run.id for run in runs}
    below: dict[str, list[Run]] = {}
    for run in sorted(runs, key=lambda run: run.started_ms or run.queued_ms):
        below.setdefault(run.parent_id if run.parent_id in known else "", []).append(run)
    ordered: list[Run] = []

    def add(parent_id: str) -> None:
        for run in below.get(parent_id, ()):
            ordered.append(run)
            add(run.id)

    add("")
    return sorted(ordered, key=lambda run: (_RANKS.get(run.status, 2), -run.finished_ms if run.status.is_final else 0))


def name_run(run: Run) -> str:
    """The description of a run; without one, the kind of agent."""
    return clean_line(run.description or run.agent, 80)


def render_heading(runs: Sequence[Run], options: RowOptions, hint: str = "") -> Text:
    """`● Agents 2 running · 1 queued · 3 finished`; the dot is filled while something runs."""
    line = Text()
    line.append("● " if any(run.status is Status.RUNNING for run in runs) else "○ ", style=options.color("accent"))
    line.append("Agents", style="bold")
    counts = {word: 0 for word in ("running", "waiting", "queued", "finished")}
    for run in runs:
        counts["finished" if run.status.is_final else str(run.status)] += 1
    facts = [f"{count} {word}" for word, count in counts.items() if count]
    depth = max((run.depth for run in runs), default=1)
    facts += [f"depth {depth}/{options.max_depth}"] if options.is_rich and depth > 1 else []
    line.append(f" {' · '.join([*facts, *([hint] if hint else [])])}", style="dim")
    line.truncate(options.width, overflow="ellipsis")
    return line


def render_row(run: Run, options: RowOptions, *, is_chosen: bool = False, is_orphan: bool = False) -> Text:
    """Sign, name, kind of agent, what it does now, and figures; everything that does not fit is shortened."""
    sign, color = find_sign(run, options.frame)
    line = Text("❯ " if is_chosen else "  ")
    # Only running ones are below their parents.
    is_inner = run.depth > 1 and run.status is Status.RUNNING
    line.append("  " * min(run.depth - 2, 3) + "└ " if is_inner else "", style="dim")
    line.append(f"{sign} ", style=options.color(color) or color)
    name = Text(name_run(run), style="bold" if is_chosen else "")
    about = _render_about(run, options, is_orphan=is_orphan)
    kind = Text(f"  {clean_line(run.agent, 40)}" if options.is_rich and run.description else "", style="dim")
    room = options.width - line.cell_len
    widths = (True, False) if options.is_rich else (False,)
    kinds = [*(render_figures(run, options, is_rich=is_rich) for is_rich in widths), _render_time(run, options), Text()]
    figures = next(each for each in kinds if room - each.cell_len >= _LEAST_WORDS or not each)
    room -= figures.cell_len
    if kind.cell_len + about.cell_len + name.cell_len <= room:
        about = kind.append_text(about)
    # Name and activity share what is left, and each may have what the other does not need.
    about.truncate(max(room - name.cell_len, room // 2), overflow="ellipsis")
    name.truncate(max(0, room - about.cell_len), overflow="ellipsis")
    line.append_text(name).append_text(about).append_text(figures)
    line.truncate(options.width, overflow="ellipsis")
    return line


def _render_about(run: Run, options: RowOptions, *, is_orphan: bool) -> Text:
    about = Text(style="dim")
    if run.questions:
        about.append(" · waiting for an answer", style=f"not dim {options.color('warning')}".strip())
    elif run.status is Status.RUNNING:
        about.append(f" · {describe_activity(run, options.activity(run.id))}")
    elif run.status is not Status.COMPLETED:
        about.append(f" · {name_status(run)}")
    if is_orphan:
        about.append(" ⚠ orphan", style=f"not dim {options.color('warning')}".strip())
    if run.outcome is not None and run.outcome.error and run.status is Status.FAILED:
        error = f" error: {clean_line(run.outcome.error, 120)}"
        about.append(error, style=f"not dim {options.color('error')}".strip())
    return about


def _render_time(run: Run, options: RowOptions) -> Text:
    if not run.started_ms or run.status is Status.QUEUED:
        return Text()
    end_ms = run.finished_ms if run.status.is_final else options.now_ms
    return Text(f" · {format_duration(end_ms - run.started_ms)}", style="dim")


def render_figures(run: Run, options: RowOptions, *, is_rich: bool = True) -> Text:
    """` · on box-7 · ↻5≤30 · 7 tools · 12.3s · 33.8k token 41% ⇊1`; without `is_rich`, only time and tokens."""
    text = Text(style="dim")
    limit = run.invocation.get("maxTurns")
    if is_rich and run.machine:
        text.append(f" · on {clean_line(run.machine, 40)}")
    if is_rich and run.turns:
        text.append(f" · ↻{run.turns}{f'≤{limit}' if isinstance(limit, int) and limit else ''}")
    if is_rich and run.tool_uses:
        text.append(f" · {run.tool_uses} tool{'s' if run.tool_uses > 1 else ''}")
    text.append_text(_render_time(run, options))
    if tokens := count_tokens(run.usage):
        text.append(f" · {format_tokens(tokens)} token")
        percent = find_percent(run.context_tokens, options.find_window(run.id))
        if percent is not None:
            color = color_percent(percent)
            text.append(f" {percent}%", style="dim" if color == "dim" else f"not dim {options.color(color)}".strip())
    if is_rich and run.compactions:
        text.append(f" ⇊{run.compactions}")
    return text


def find_sign(run: Run, frame: int) -> tuple[str, str]:
    """The sign of a run and the name of its colour."""
    if run.questions:
        return "?", "warning"
    if run.status is Status.RUNNING:
        return SPINNER[frame % len(SPINNER)], "accent"
    if run.status in (Status.QUEUED, Status.WAITING):
        return "◦", "dim" if run.status is Status.QUEUED else "warning"
    if run.status is Status.COMPLETED:
        is_wrapped = run.outcome is not None and run.outcome.reason in _WRAPPED
        return "✓", "warning" if is_wrapped else "success"
    return ("■", "dim") if name_status(run) == "stopped" else ("✗", "error")


def name_status(run: Run) -> str:
    """The status of a run; a run stopped by a limit is called aborted."""
    is_aborted = run.outcome is not None and run.outcome.reason not in (Reason.USER, Reason.PARENT)
    return "aborted" if run.status is Status.STOPPED and is_aborted else str(run.status)
