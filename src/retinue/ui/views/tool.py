"""A tool call: what it is about in one line, its result below."""

from rich.console import RenderableType
from rich.padding import Padding
from rich.text import Text

from retinue.ui.blocks import ToolBlock
from retinue.ui.formats import clean, clean_line, fold_middle, format_duration
from retinue.ui.views.base import BlockView
from retinue.ui.views.prose import stack
from retinue.ui.views.toolwords import describe_call

_SIGNS = {"waiting": "◦", "running": "●", "done": "✓", "failed": "✗"}
_COLORS = {"waiting": "text-muted", "running": "accent", "done": "success", "failed": "error"}
_FOLDED_LINES = 4


class ToolView(BlockView):
    """One call, live or complete."""

    DEFAULT_CSS = """
    ToolView { padding: 0 1; }
    """
    block: ToolBlock
    can_fold = True

    def draw(self) -> None:
        """The call, then as much of the result as is open."""
        block, variables = self.block, self.app.theme_variables
        head = Text()
        head.append(f"{_SIGNS[block.status]} ", style=variables.get(_COLORS[block.status], ""))
        head.append(clean_line(block.name, 60), style="bold")
        about = describe_call(block.name, block.arguments)
        if about:
            head.append(f" {clean_line(about, 300)}")
        if block.duration_ms is not None and block.duration_ms >= 1000:
            head.append(f"  {format_duration(block.duration_ms)}", style="dim")
        self.update(stack(head, self._draw_diff() or self._draw_output()))

    def _draw_diff(self) -> RenderableType | None:
        details = self.block.details
        diff = details.get("diff") if isinstance(details, dict) else None
        if not isinstance(diff, str) or not diff.strip():
            return None
        shown = clean(diff) if self.is_open else fold_middle(clean(diff), 14, 6)[0]
        text = Text()
        for line in shown.split("\n"):
            style = "green" if line.startswith("+") else "red" if line.startswith("-") else "dim"
            text.append(f"{line}\n", style=style)
        text.rstrip()
        return Padding(text, (0, 0, 0, 2))

    def _draw_output(self) -> RenderableType | None:
        output = clean(self.block.output).strip("\n")
        if self.block.images:
            output = f"{output}\n[{self.block.images} image(s)]".lstrip("\n")
        if not output:
            return None
        if self.is_open:
            shown = fold_middle(output, 400, 100)[0]
        else:
            tail = self.block.status == "running"
            shown = fold_middle(output, 0 if tail else _FOLDED_LINES, _FOLDED_LINES if tail else 0)[0]
            shown = "\n".join(line[:400] for line in shown.split("\n"))
        style = "red" if self.block.status == "failed" else "dim"
        return Padding(Text(shown, style=style), (0, 0, 0, 2))
