"""The status lines of the main screen: what the agent is doing, and the footer."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.text import Text
from textual.widgets import Static

from retinue.core.events import RetryScheduled
from retinue.core.figures import count_noun, format_cost, format_duration, format_limit, format_tokens
from retinue.ui.formats import FRAME_S, SPINNER, clean_line, color_percent, cut_words, find_percent
from retinue.ui.state import State

if TYPE_CHECKING:
    from retinue.ui.app import RetinueApp

_PHASES = {"compacting": "summarising the conversation", "waiting": "waiting for subagents"}


_LEAST_MODEL = 12
"""Columns that the model's name needs beside a status message."""


class WorkingLine(Static):
    """One line while the agent works or waits for a retry, else hidden."""

    app: "RetinueApp"

    DEFAULT_CSS = """
    WorkingLine {
        height: 1; padding: 0 2; display: none; text-wrap: nowrap; text-overflow: ellipsis;
    }
    WorkingLine.-busy { display: block; }
    """
    _retry: RetryScheduled | None = None
    _due_ms = 0
    """When the retry begins."""

    def show(self, state: State, now_ms: int, scope: str) -> None:
        """Draw the line; `scope` says which key stops what."""
        limits = self.app.link.crew.limits if self.app.link.is_open else []
        self.set_class(state.is_busy or bool(limits), "-busy")
        if limits:
            self.update(self._draw_limits(limits, now_ms), layout=False)
            return
        if not state.is_busy:
            return
        frame = SPINNER[int(now_ms / 1000 / FRAME_S) % len(SPINNER)]
        words = _PHASES.get(state.phase, state.phase)
        if state.phase == "working" and state.tool:
            words = f"running {clean_line(state.tool, 40)}"
        if (retry := state.talk.retry) is not None:
            if retry is not self._retry:
                self._retry, self._due_ms = retry, now_ms + retry.delay_ms
            self.update(self._draw_retry(retry, now_ms, frame), layout=False)
            return
        line = Text()
        line.append(f"{frame} ", style=self.app.theme_variables.get("accent", ""))
        line.append(words)
        if state.started_ms:
            line.append(f" · {format_duration(max(0, now_ms - state.started_ms))}", style="dim")
        line.append(f" · {scope}", style="dim")
        self.update(line, layout=False)

    def _draw_limits(self, limits: Sequence[tuple[str, int, int]], now_ms: int) -> Text:
        """`anthropic: limit until 14:05, 12 agents waiting · f7: use the fallback · esc: stop`; no key: wait."""
        facts = [
            f"{format_limit(clean_line(provider, 40), until_ms, now_ms)}, {count_noun(count, 'agent')} waiting"
            for provider, until_ms, count in limits
        ]
        show = self.app.keys.show
        keys = f" · {show('app.limit.fallback')}: use the fallback · {show('app.interrupt')}: stop"
        return Text.assemble(("; ".join(facts), self.app.theme_variables.get("text-warning", "")), (keys, "dim"))

    def _draw_retry(self, retry: RetryScheduled, now_ms: int, frame: str) -> Text:
        """`Overloaded. Trying again in 7 s (2 of 5) · esc: stop`; a long error is shortened."""
        left_s = math.ceil(max(0, self._due_ms - now_ms) / 1000)
        when = f" in {left_s} s" if left_s else ""
        rest = f" Trying again{when} ({retry.attempt} of {retry.max_attempts})"
        stop = f" · {self.app.keys.show('app.interrupt')}: stop"
        room = self.size.width - cell_len(f"{frame} {rest}{stop}")
        error = cut_words(clean_line(retry.error), max(16, room - 1))
        error = error if error.endswith((".", "!", "…")) else f"{error}."
        color = self.app.theme_variables.get("text-warning", "")
        return Text.assemble((f"{frame} {error}{rest}", color), (stop, "dim"))


@dataclass(frozen=True, slots=True)
class FooterFacts:
    folder: str = ""
    branch: str = ""
    model: str = ""
    thinking: str = "off"
    input: int = 0
    output: int = 0
    cached: int = 0
    """Input tokens that were read from the provider's cache."""
    cost: float = 0.0
    percent: int | None = None
    window: int = 0
    approvals: str = "never"
    status: str = ""
    """A status message, for example about a key or the number of agents."""


def find_facts(app: "RetinueApp") -> FooterFacts:
    """The current facts for the footer."""
    link = app.link
    if not link.is_open:
        return FooterFacts(status="starting")
    usage, model = link.usage, link.crew.model
    return FooterFacts(
        folder=app.shorten(Path.cwd()),
        branch=link.branch,
        model=model.ref,
        thinking=link.crew.selection.thinking,
        input=usage.input + usage.cache_write,
        output=usage.output,
        cached=usage.cache_read,
        cost=usage.cost.total,
        percent=find_percent(link.state.context_tokens, model.context_window),
        window=model.context_window,
        approvals=link.crew.approvals,
    )


class StatusFooter(Static):
    """Directory, model, thinking level, usage and context fill level."""

    DEFAULT_CSS = """
    StatusFooter { height: 1; padding: 0 2; color: $text-muted; }
    """

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id, markup=False)
        self.facts = FooterFacts()

    def show(self, facts: FooterFacts) -> None:
        if facts != self.facts:
            self.facts = facts
            self.refresh_line()

    def on_resize(self) -> None:
        self.refresh_line()

    def refresh_line(self) -> None:
        """Redraw; on a narrow screen the least important parts are left out, but never the status and the approvals."""
        facts, width = self.facts, max(0, self.size.width)
        status = clean_line(facts.status, 200)
        left = clean_line(facts.folder, 60)
        needed = cell_len(status) + 2 if status else 0
        parts, mode = self._draw_parts(), self._draw_approvals()
        while len(parts) > 1 and needed + sum(part.cell_len for part in (*parts, mode)) > width:
            del parts[0]
        *parts, model = parts
        if needed:
            space = width - needed - mode.cell_len
            model.truncate(space, overflow="ellipsis") if space > _LEAST_MODEL else model.truncate(0)
        right = Text.assemble(*parts, mode, model)
        room = width - right.cell_len - 2
        if facts.branch:
            left = _join_branch(left, clean_line(facts.branch, 40), room - needed)
        if status:
            left = f"{status}  {left}" if room - needed > 10 else status
        if room < 8 and not status:
            right.truncate(width, overflow="ellipsis")
            self.update(right, layout=False)
            return
        line = Text(left)
        line.truncate(max(1, room), overflow="ellipsis")
        line.append(" " * max(2, width - line.cell_len - right.cell_len))
        self.update(line.append_text(right), layout=False)

    def _draw_parts(self) -> list[Text]:
        """The parts on the right, least important first, the model last."""
        facts = self.facts
        parts = []
        if facts.input or facts.output:
            parts.append(Text(f"↑{format_tokens(facts.input)} ↓{format_tokens(facts.output)} "))
        if share := find_percent(facts.cached, facts.cached + facts.input):
            parts.insert(0, Text(f"cache {share}% "))
        if cost := format_cost(facts.cost):
            parts.append(Text(f"{cost} "))
        if facts.percent is not None:
            color = color_percent(facts.percent)
            # The footer is already drawn in a muted colour.
            style = "" if color == "dim" else self.app.theme_variables.get(color, "")
            parts.append(Text(f"{facts.percent}%/{format_tokens(facts.window)} ", style=style))
        model = Text(clean_line(facts.model, 60), style="bold")
        if facts.thinking != "off":
            model.append(f" • {facts.thinking}", style="not bold")
        return [*parts, model]

    def _draw_approvals(self) -> Text:
        mode = self.facts.approvals
        style = self.app.theme_variables.get("warning", "")
        return Text("" if mode == "never" else f"approvals: {mode} ", style=style)


def _join_branch(folder: str, branch: str, room: int) -> str:
    """`folder (branch)`; where there is too little room, the folder loses its beginning first."""
    branch = f" ({branch})"
    lack = cell_len(folder + branch) - room
    if lack <= 0:
        return folder + branch
    name = f"…{folder[lack + 1 :]}"
    return name + branch if len(name) > 8 else folder
