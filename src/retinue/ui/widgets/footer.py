"""The footer: directory, model, thinking level, usage and context fill level."""

from dataclasses import dataclass

from rich.cells import cell_len
from rich.text import Text
from textual.widgets import Static

from retinue.core.figures import format_cost, format_tokens
from retinue.ui.formats import clean_line, color_percent


@dataclass(frozen=True, slots=True)
class FooterFacts:
    folder: str = ""
    model: str = ""
    thinking: str = "off"
    input: int = 0
    output: int = 0
    cost: float = 0.0
    percent: int | None = None
    window: int = 0
    status: str = ""
    """A status message, for example about a key or the number of agents."""


class StatusFooter(Static):
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
        """Redraw; on a narrow screen the least important parts are left out, but never the status."""
        facts, width = self.facts, max(0, self.size.width)
        status = clean_line(facts.status, 200)
        left = clean_line(facts.folder, 60)
        needed = cell_len(status) + 2 if status else 0
        parts = self._draw_parts()
        while parts and needed + sum(part.cell_len for part in parts) > width and (needed or len(parts) > 1):
            del parts[0]
        right = Text.assemble(*parts)
        room = width - right.cell_len - 2
        if status:
            left = f"{status}  {left}" if room - needed > 10 else status
        if room < 8 and not status:
            right.truncate(width, overflow="ellipsis")
            self.update(right, layout=False)
            return
        line = Text(left)
        line.truncate(max(0, room), overflow="ellipsis")
        line.append(" " * max(2, width - line.cell_len - right.cell_len))
        self.update(line.append_text(right), layout=False)

    def _draw_parts(self) -> list[Text]:
        """The parts on the right, least important first, the model last."""
        facts = self.facts
        parts = []
        if facts.input or facts.output:
            parts.append(Text(f"↑{format_tokens(facts.input)} ↓{format_tokens(facts.output)} "))
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
