"""Notification of finished runs: a box with statistics and the start of each result."""

from collections.abc import Iterator
from typing import Any

from rich.console import RenderableType
from rich.padding import Padding
from rich.text import Text

from retinue.core.figures import count_noun, format_duration, format_tokens
from retinue.core.pattern import late_pattern
from retinue.core.receipt import describe_verdict
from retinue.ui.blocks import ReportBlock
from retinue.ui.formats import clean, clean_line, cut_words, fold_middle
from retinue.ui.renderers.base import BlockView, render_markdown, stack

_FOLDED_LINES, _FOLDED_CHARS = 4, 320
_CUT = late_pattern(r"\s*\S*\n\[cut here; \d+ more characters\]")
"""Where the notification was cut, with the last word, which may be half."""
_SIGNS = {
    **dict.fromkeys(("completed", "finished", "done"), ("✓", "success")),
    "steered": ("✓", "warning"),
    "stopped": ("■", "warning"),
}


def find_report_sign(status: str) -> tuple[str, str]:
    """The sign and colour name of a run's final status, as in the list of runs."""
    return _SIGNS.get(status, ("✗", "error"))


class ReportView(BlockView):
    DEFAULT_CSS = """
    ReportView { padding: 0 1; border: round $foreground 30%; }
    """
    block: ReportBlock
    can_fold = True

    def draw(self) -> None:
        parts: list[RenderableType] = []
        for run in self.block.runs:
            parts += [self._draw_head(run), *(Padding(part, (0, 0, 0, 2)) for part in self._draw_preview(run))]
        self.update(stack(*parts))

    def _draw_head(self, run: dict[str, Any]) -> Text:
        status = str(run.get("status", ""))
        sign, color = find_report_sign("error" if run.get("error") and status != "stopped" else status)
        head = Text()
        head.append(f"{sign} ", style=self.app.theme_variables.get(color, ""))
        head.append(clean_line(str(run.get("description", "")), 120), style="bold")
        facts = [clean_line(status, 40)]
        if isinstance(run.get("turnCount"), int):
            facts.append(f"↻{run['turnCount']}")
        if isinstance(run.get("toolUses"), int):
            facts.append(count_noun(run["toolUses"], "tool"))
        if isinstance(run.get("totalTokens"), int):
            facts.append(f"{format_tokens(run['totalTokens'])} token")
        if isinstance(run.get("durationMs"), int | float):
            facts.append(format_duration(run["durationMs"]))
        if run.get("branch"):
            facts.append(f"branch {clean_line(str(run['branch']), 60)}")
        if run.get("verification") in ("verified", "failed"):
            facts.append(describe_verdict(run["verification"]))
        head.append("  " + " · ".join(facts), style="dim not bold")
        return head

    def _draw_preview(self, run: dict[str, Any]) -> Iterator[RenderableType]:
        """The result, or the error and the result so far; when expanded, also where the rest is."""
        error, said = clean(str(run.get("error") or "")).strip(), str(run.get("resultPreview") or "").strip()
        if error:
            shown = error if self.is_open else fold_middle(error, _FOLDED_LINES, 0)[0]
            yield Text(shown, style=self.app.theme_variables.get("text-error", "red"))
        if said and (self.is_open or not error):
            said = _CUT.sub("…", said)
            yield render_markdown(said if self.is_open else fold_words(said), self.app)
        if (self.is_open or error) and (place := _tell_place(run)):
            yield Text(place, style="dim")


def fold_words(text: str) -> str:
    """The first lines of a text, cut after a word."""
    lines = text.split("\n")
    shown = cut_words("\n".join(lines[:_FOLDED_LINES]).rstrip(), _FOLDED_CHARS)
    return shown if len(lines) <= _FOLDED_LINES or shown.endswith("…") else f"{shown} …"


def _tell_place(run: dict[str, Any]) -> str:
    """Where the whole result is, and how to resume the run."""
    file = clean_line(str(run.get("outputFile") or ""), 200)
    lines = [f"transcript: {file}"] if file else []
    return "\n".join([*lines, "open it in the list of agents, or ask the agent to resume it"])
