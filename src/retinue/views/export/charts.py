"""SVG charts for the HTML export: a timeline of all agents and their token usage. Colours come from the style sheet."""

from collections.abc import Sequence
from itertools import pairwise

from retinue.core.figures import count_tokens, format_cost, format_duration, format_tokens
from retinue.views.export.conversation import cut_line, escape
from retinue.views.report import ConversationReport, SessionReport, TimeSpan

WIDTH = 1000
NAMES = 220
ROW = 22
IDLE_MS = 10_000
"""Longer times in which no agent works are drawn as a break."""
BREAK = 52
_LABEL = 60
_TICKS = (0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200, 86400)


def draw_timeline(report: SessionReport) -> str:
    """Draw one row per agent with its waiting, model and tool time."""
    rows = [chapter for chapter in order_chapters(report) if chapter.spans]
    if not rows:
        return ""
    axis = TimeAxis([span for chapter in rows for span in chapter.spans])
    height = ROW * (len(rows) + 1) + 16
    parts = [f'<svg class="timeline" viewBox="0 0 {WIDTH} {height}" role="img" aria-label="Timeline of all agents">']
    parts += [*_draw_ticks(axis, height), *_draw_breaks(axis, height)]
    for index, chapter in enumerate(rows):
        top = ROW * (index + 1)
        name = f"{'· ' * chapter.depth}{chapter.agent} {chapter.title}"
        parts.append(
            f'<a href="#{escape(chapter.id)}"><text x="4" y="{top + 14}">{escape(cut_line(name, 34))}</text></a>'
        )
        first = axis.place(chapter.start_ms)
        span = max(1.0, axis.place(chapter.end_ms) - first)
        parts.append(f'<rect class="life" x="{first:.1f}" y="{top + 9}" width="{span:.1f}" height="3"/>')
        parts += [_draw_span(each, axis, top) for each in chapter.spans]
    return "\n".join([*parts, "</svg>"])


class TimeAxis:
    """Places times on the drawing; idle times longer than IDLE_MS have a fixed width."""

    def __init__(self, spans: Sequence[TimeSpan]) -> None:
        self.parts: list[tuple[int, int]] = []
        """The times with work, in order, as start and end."""
        for start, end in sorted((span.start_ms, span.end_ms) for span in spans):
            if self.parts and start - self.parts[-1][1] <= IDLE_MS:
                self.parts[-1] = self.parts[-1][0], max(end, self.parts[-1][1])
            else:
                self.parts.append((start, end))
        room, gaps = WIDTH - NAMES - 10, len(self.parts) - 1
        self.gap = min(BREAK, room / 2 / gaps) if gaps else 0.0
        self.worked_ms = max(1, sum(end - start for start, end in self.parts))
        self._scale = (room - gaps * self.gap) / self.worked_ms

    @property
    def begin_ms(self) -> int:
        return self.parts[0][0]

    def place(self, at_ms: float) -> float:
        """The horizontal position of a time."""
        left = float(NAMES)
        for start, end in self.parts:
            if at_ms <= end:
                return left + max(0, at_ms - start) * self._scale
            left += (end - start) * self._scale + self.gap
        return left - self.gap


def _draw_span(span: TimeSpan, axis: TimeAxis, top: int) -> str:
    length, left = span.end_ms - span.start_ms, axis.place(span.start_ms)
    width = max(0.8, axis.place(span.end_ms) - left)
    title = f"{span.kind} {span.label}: {format_duration(length)}"
    return (
        f'<rect class="{span.kind}" x="{left:.1f}" y="{top + 3}" width="{width:.1f}" height="15" rx="1">'
        f"<title>{escape(title)}</title></rect>"
    )


def _draw_ticks(axis: TimeAxis, height: int) -> list[str]:
    """Draw the time since the beginning, at the start of each part and at round times in it."""
    seconds = axis.worked_ms / 1000
    step = 1000 * next((tick for tick in _TICKS if seconds / tick <= 10), _TICKS[-1])
    parts: list[str] = []
    free = 0.0
    for start, end in axis.parts:
        first = start - axis.begin_ms
        count = int((end - axis.begin_ms) // step - first // step)
        for at in (first, *((first // step + number) * step for number in range(1, min(count, 100) + 1))):
            left = axis.place(axis.begin_ms + at)
            parts.append(f'<line class="tick" x1="{left:.1f}" x2="{left:.1f}" y1="{ROW}" y2="{height}"/>')
            if free <= left < WIDTH - _LABEL:
                free = left + _LABEL
                parts.append(f'<text class="tick" x="{left + 2:.1f}" y="14">{escape(format_duration(at))}</text>')
    return parts


def _draw_breaks(axis: TimeAxis, height: int) -> list[str]:
    parts: list[str] = []
    for (_, end), (start, _) in pairwise(axis.parts):
        left, length = axis.place(end), format_duration(start - end)
        parts.append(
            f'<rect class="idle" x="{left:.1f}" y="{ROW}" width="{axis.gap:.1f}" height="{height - ROW}">'
            f"<title>{escape(f'idle for {length}')}</title></rect>"
        )
        if axis.gap == BREAK:
            middle = left + BREAK / 2
            parts.append(f'<text class="idle" x="{middle:.1f}" y="{height - 4}">{escape(f"{length} idle")}</text>')
    return parts


def draw_bars(chapters: Sequence[ConversationReport]) -> str:
    """Draw tokens and cost of each agent, highest usage first."""
    rows = sorted((chapter for chapter in chapters if _count(chapter)), key=_count, reverse=True)
    if not rows:
        return ""
    most = _count(rows[0])
    scale = (WIDTH - NAMES - 190) / most
    parts = [
        f'<svg class="bars" viewBox="0 0 {WIDTH} {ROW * len(rows) + 6}" role="img" aria-label="Tokens of each agent">'
    ]
    for index, chapter in enumerate(rows):
        top, left = ROW * index, float(NAMES)
        name = f"{chapter.agent} {chapter.title}"
        parts.append(f'<text x="4" y="{top + 15}">{escape(cut_line(name, 34))}</text>')
        usage = chapter.usage
        for kind, count in (
            ("cached", usage.cache_read + usage.cache_write),
            ("input", usage.input),
            ("output", usage.output),
        ):
            width = count * scale
            if width > 0:
                title = f"{kind}: {count} tokens"
                parts.append(
                    f'<rect class="{kind}" x="{left:.1f}" y="{top + 4}" width="{max(width, 0.5):.1f}" height="14">'
                    f"<title>{escape(title)}</title></rect>"
                )
                left += width
        told = " · ".join(filter(None, (f"{format_tokens(count_tokens(usage))} tokens", format_cost(usage.cost.total))))
        parts.append(f'<text class="figure" x="{left + 6:.1f}" y="{top + 15}">{escape(told)}</text>')
    return "\n".join([*parts, "</svg>"])


def order_chapters(report: SessionReport) -> list[ConversationReport]:
    """Return the tree of runs as a list, each run after its parent."""
    below = report.map_children()
    ordered: list[ConversationReport] = []
    stack = [report.main]
    while stack:
        chapter = stack.pop()
        ordered.append(chapter)
        stack.extend(reversed(below.pop(chapter.id, [])))
    return ordered


def _count(chapter: ConversationReport) -> int:
    usage = chapter.usage
    return usage.input + usage.output + usage.cache_read + usage.cache_write
