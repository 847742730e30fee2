"""A tool call: what it is about in one line, its result below."""

from rich.console import RenderableType
from rich.padding import Padding
from rich.text import Text

from retinue.core.figures import format_duration
from retinue.ui.blocks import ToolBlock
from retinue.ui.formats import clean, clean_line, fold_middle
from retinue.ui.renderers.base import BlockView
from retinue.ui.renderers.prose import stack
from retinue.ui.renderers.toolwords import AgentHeading, describe_agent, describe_call, describe_cost, describe_end

_SIGNS = {"waiting": "◦", "running": "●", "done": "✓", "failed": "✗"}
_COLORS = {"waiting": "secondary", "running": "accent", "done": "success", "failed": "error"}
_FOLDED_LINES = 4
_AGENT_LINES = 20
"""Of an agent's answer, at its beginning and at its end: the whole of it is in the viewer."""


class ToolView(BlockView):
    """One call, live or complete."""

    DEFAULT_CSS = """
    ToolView { padding: 0 1; }
    """
    block: ToolBlock
    can_fold = True

    def draw(self) -> None:
        """The call, then as much of the result as is open."""
        block = self.block
        call = describe_agent(block.name, block.arguments, block.details)
        if call is not None:
            self.update(stack(self._draw_agent(call), self._draw_end() or self._draw_output(_AGENT_LINES)))
            return
        head = Text()
        head.append(f"{_SIGNS[block.status]} ", style=self._find_color())
        head.append(clean_line(block.name, 60), style="bold")
        about = describe_call(block.name, block.arguments)
        if about:
            head.append(f" {clean_line(about, 300)}")
        self._append_time(head)
        self.update(stack(head, self._draw_diff() or self._draw_output()))

    def _draw_agent(self, call: AgentHeading) -> Text:
        head = Text()
        head.append("▸ ", style=self._find_color())
        head.append(clean_line(call.name, 60), style="bold")
        for badge in call.badges:
            head.append(f"  {badge}", style=self.app.theme_variables.get("secondary", "dim"))
        if call.about:
            head.append(f"  {clean_line(call.about, 200)}")
        if self.block.status in ("done", "failed") and (used := describe_cost(self.block.details)):
            head.append(f"  {used}", style="dim")
        self._append_time(head)
        return head

    def _draw_end(self) -> RenderableType | None:
        """What became of it in a line, where its text is for the model."""
        if self.block.status == "failed" or (self.is_open and self.block.status == "done"):
            return None
        words = describe_end(self.block.details)
        return Padding(Text(f"⎿  {words}", style="dim"), (0, 0, 0, 2)) if words else None

    def _append_time(self, head: Text) -> None:
        if self.block.changes:
            head.append(f"  {clean_line(self.block.changes, 120)}", style="dim")
        if self.block.duration_ms is not None and self.block.duration_ms >= 1000:
            head.append(f"  {format_duration(self.block.duration_ms)}", style="dim")

    def _find_color(self) -> str:
        return self.app.theme_variables.get(_COLORS[self.block.status], "")

    def _draw_diff(self) -> RenderableType | None:
        details = self.block.details
        diff = details.get("diff") if isinstance(details, dict) else None
        if not isinstance(diff, str) or not diff.strip():
            return None
        shown = clean(diff) if self.is_open else fold_middle(clean(diff), 14, 6)[0]
        colors = self.app.theme_variables
        text = Text()
        for line in shown.split("\n"):
            name = "success" if line.startswith("+") else "error" if line.startswith("-") else ""
            text.append(f"{line}\n", style=colors.get(name, "dim"))
        text.rstrip()
        return Padding(text, (0, 0, 0, 2))

    def _draw_output(self, most: int = 0) -> RenderableType | None:
        """The result; of a long one the beginning and, opened, the end. `most`: lines of each end."""
        output = clean(self.block.output).strip("\n")
        if self.block.images:
            output = f"{output}\n[{self.block.images} image(s)]".lstrip("\n")
        if not output:
            return None
        if self.is_open:
            shown = fold_middle(output, most or 400, most or 100)[0]
        else:
            tail = self.block.status == "running"
            shown = fold_middle(output, 0 if tail else _FOLDED_LINES, _FOLDED_LINES if tail else 0)[0]
            shown = "\n".join(line[:400] for line in shown.split("\n"))
        style = self.app.theme_variables.get("text-error", "red") if self.block.status == "failed" else "dim"
        return Padding(Text(shown, style=style), (0, 0, 0, 2))
