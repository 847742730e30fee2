"""SVG charts for the HTML export: a timeline of all agents and their token usage. Colours come from the style sheet."""

from collections.abc import Sequence

from retinue.core.figures import count_tokens, format_cost, format_duration, format_tokens
from retinue.views.export.conversation import escape
from retinue.views.report import ConversationReport, SessionReport, TimeSpan

WIDTH = 1000
NAMES = 220
ROW = 22
_TICKS = (0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200, 86400)


def draw_timeline(story: SessionReport) -> str:
    """Draw one row per agent with its waiting, model and tool time."""
    rows = [chapter for chapter in order_chapters(story) if chapter.spans]
    if not rows:
        return ""
    begin = min(chapter.start_ms for chapter in rows)
    length = max(1, max(chapter.end_ms for chapter in rows) - begin)
    scale = (WIDTH - NAMES - 10) / length
    height = ROW * (len(rows) + 1) + 6
    parts = [f'<svg class="timeline" viewBox="0 0 {WIDTH} {height}" role="img" aria-label="Timeline of all agents">']
    parts += _draw_ticks(length, scale, height)
    for index, chapter in enumerate(rows):
        top = ROW * (index + 1)
        name = f"{'· ' * chapter.depth}{chapter.agent} {chapter.title}"
        parts.append(f'<a href="#{escape(chapter.id)}"><text x="4" y="{top + 14}">{escape(_cut(name, 34))}</text></a>')
        first = NAMES + (chapter.start_ms - begin) * scale
        span = max(1.0, (chapter.end_ms - chapter.start_ms) * scale)
        parts.append(f'<rect class="life" x="{first:.1f}" y="{top + 9}" width="{span:.1f}" height="3"/>')
        parts += [_draw_span(each, begin, scale, top) for each in chapter.spans]
    return "\n".join([*parts, "</svg>"])


def _draw_span(span: TimeSpan, begin: int, scale: float, top: int) -> str:
    length = span.end_ms - span.start_ms
    left, width = NAMES + (span.start_ms - begin) * scale, max(0.8, length * scale)
    title = f"{span.kind} {span.label}: {format_duration(length)}"
    return (
        f'<rect class="{span.kind}" x="{left:.1f}" y="{top + 3}" width="{width:.1f}" height="15" rx="1">'
        f"<title>{escape(title)}</title></rect>"
    )


def _draw_ticks(length_ms: int, scale: float, height: int) -> list[str]:
    seconds = length_ms / 1000
    step = next((tick for tick in _TICKS if seconds / tick <= 10), _TICKS[-1])
    parts: list[str] = []
    at = 0.0
    while at <= seconds and len(parts) < 200:
        left = NAMES + at * 1000 * scale
        parts.append(f'<line class="tick" x1="{left:.1f}" x2="{left:.1f}" y1="{ROW}" y2="{height}"/>')
        parts.append(f'<text class="tick" x="{left + 2:.1f}" y="14">{escape(format_duration(at * 1000))}</text>')
        at += step
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
        parts.append(f'<text x="4" y="{top + 15}">{escape(_cut(name, 34))}</text>')
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


def order_chapters(story: SessionReport) -> list[ConversationReport]:
    """Return the tree of runs as a list, each run after its parent."""
    below = story.map_children()
    ordered: list[ConversationReport] = []
    stack = [story.main]
    while stack:
        chapter = stack.pop()
        ordered.append(chapter)
        stack.extend(reversed(below.pop(chapter.id, [])))
    return ordered


def _count(chapter: ConversationReport) -> int:
    usage = chapter.usage
    return usage.input + usage.output + usage.cache_read + usage.cache_write


def _cut(text: str, limit: int) -> str:
    line = " ".join(text.split())
    return line if len(line) <= limit else f"{line[: limit - 1]}…"
