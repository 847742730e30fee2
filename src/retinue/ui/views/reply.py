"""A reply of the model: its thinking folded away, its words as a page."""

from rich.console import RenderableType
from rich.padding import Padding
from rich.text import Text

from retinue.ui.blocks import ReplyBlock
from retinue.ui.formats import clean
from retinue.ui.views.base import BlockView
from retinue.ui.views.prose import render_markdown, stack


class ReplyView(BlockView):
    """One reply, live or complete."""

    DEFAULT_CSS = """
    ReplyView { padding: 0 1; }
    """
    block: ReplyBlock
    can_fold = True

    def draw(self) -> None:
        """Thinking is shown while nothing else is there yet, and when it is opened."""
        block = self.block
        is_dark = self.app.current_theme.dark
        words = render_markdown(block.text, code_theme="ansi_dark" if is_dark else "ansi_light") if block.text else None
        self.update(stack(self._draw_thinking(), words, self._draw_end()))

    def _draw_thinking(self) -> RenderableType | None:
        thinking = clean(self.block.thinking).strip()
        if not thinking:
            return None
        lines = thinking.split("\n")
        if self.is_open:
            return Padding(Text(thinking, style="dim italic"), (0, 0, 1, 2))
        if self.block.is_live and not self.block.text:
            return Padding(Text("\n".join(lines[-6:]), style="dim italic"), (0, 0, 0, 2))
        return Text(f"∴ thought for {len(lines)} lines", style="dim")

    def _draw_end(self) -> RenderableType | None:
        if self.block.error:
            return Text(f"✗ {clean(self.block.error)}", style=f"bold {self.app.theme_variables['error']}")
        if self.block.is_aborted:
            return Text("■ stopped", style="dim")
        return None
