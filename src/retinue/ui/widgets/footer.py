"""The footer: where one is, which model thinks how hard, what it has used, how full its window is."""

from dataclasses import dataclass

from rich.text import Text
from textual.widgets import Static

from retinue.core.figures import format_cost, format_tokens
from retinue.ui.formats import clean_line, color_percent


@dataclass(frozen=True, slots=True)
class Facts:
    """What the footer shows."""

    folder: str = ""
    branch: str = ""
    model: str = ""
    thinking: str = "off"
    input: int = 0
    output: int = 0
    cost: float = 0.0
    percent: int | None = None
    window: int = 0
    compactions: int = 0
    status: str = ""
    """What a command or a feature wants to be seen, such as how many agents run."""


class StatusFooter(Static):
    """Two ends of one line."""

    DEFAULT_CSS = """
    StatusFooter { height: 1; padding: 0 2; color: $text-muted; }
    """

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id, markup=False)
        self._facts = Facts()

    def show(self, facts: Facts) -> None:
        """Show other facts."""
        if facts != self._facts:
            self._facts = facts
            self.refresh_line()

    def on_resize(self) -> None:
        """Fit into the new width."""
        self.refresh_line()

    def refresh_line(self) -> None:
        """Draw again; what matters least is left out first when it is narrow."""
        facts, width = self._facts, max(0, self.size.width)
        left = clean_line(facts.folder, 60) + (f" ({clean_line(facts.branch, 40)})" if facts.branch else "")
        right = self._draw_right()
        room = width - right.cell_len - 2
        if facts.status:
            left = f"{facts.status}  {left}" if room > 30 else facts.status
        if room < 8:
            right.truncate(width, overflow="ellipsis")
            self.update(right, layout=False)
            return
        line = Text(left)
        line.truncate(room, overflow="ellipsis")
        line.append(" " * max(2, width - line.cell_len - right.cell_len))
        self.update(line.append_text(right), layout=False)

    def _draw_right(self) -> Text:
        facts = self._facts
        text = Text()
        if facts.input or facts.output:
            text.append(f"↑{format_tokens(facts.input)} ↓{format_tokens(facts.output)} ")
        if cost := format_cost(facts.cost):
            text.append(f"{cost} ")
        if facts.percent is not None:
            color = color_percent(facts.percent)
            style = "dim" if color == "dim" else self.app.theme_variables.get(color, "")
            text.append(f"{facts.percent}%/{format_tokens(facts.window)} ", style=style)
        if facts.compactions:
            text.append(f"⇊{facts.compactions} ")
        text.append(clean_line(facts.model, 60), style="bold")
        if facts.thinking != "off":
            text.append(f" • {facts.thinking}")
        return text
