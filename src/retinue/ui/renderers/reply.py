"""A reply of the model: its thinking folded away, its words as a page."""

from rich.console import RenderableType
from rich.padding import Padding
from rich.text import Text
from textual.widgets import Static

from retinue.ui.blocks import ReplyBlock
from retinue.ui.formats import clean
from retinue.ui.renderers.base import BlockView
from retinue.ui.renderers.parts import split_parts
from retinue.ui.renderers.prose import render_markdown


class ReplyView(BlockView):
    """One reply, live or complete, in parts: while it grows, those that are complete are not drawn again."""

    DEFAULT_CSS = """
    ReplyView { padding: 0 1; margin: 0; layout: vertical; }
    ReplyView > .part { height: auto; width: 1fr; margin: 0 0 1 0; }
    ReplyView > .part.-close { margin: 0; }
    """
    block: ReplyBlock
    can_fold = True

    def __init__(self, block: ReplyBlock, *, is_open: bool = False) -> None:
        super().__init__(block, is_open=is_open)
        self._parts: list[Static] = []
        self._shown: list[tuple[str, str]] = []

    def draw(self) -> None:
        """Thinking is shown while nothing else is there yet, and when it is opened."""
        wanted = [("words", text) for text in split_parts(self.block.text)]
        wanted = [(kind, text) for kind, text in (self._find_thinking(), *wanted, self._find_end()) if text.strip()]
        fresh = [Static(classes="part", markup=False) for _ in wanted[len(self._parts) :]]
        self._parts += fresh
        for surplus in self._parts[len(wanted) :]:
            surplus.remove()
        del self._parts[len(wanted) :]
        for place, (part, (kind, text)) in enumerate(zip(self._parts, wanted, strict=True)):
            if self._shown[place : place + 1] != [(kind, text)]:
                part.update(self._draw_part(kind, text))
            part.set_class(kind in ("thought", "live") and place + 1 < len(wanted), "-close")
        self._shown = wanted
        if fresh:
            self.mount(*fresh)

    def redraw(self) -> None:
        """Draw all of it again: the colours have changed."""
        self._shown = []
        super().redraw()

    def _draw_part(self, kind: str, text: str) -> RenderableType:
        if kind == "words":
            return render_markdown(text, self.app)
        if kind == "error":
            return Text(f"✗ {clean(text)}", style=f"bold {self.app.theme_variables['error']}")
        if kind in ("thinking", "live"):
            return Padding(Text(text, style="dim italic"), (0, 0, 0, 2))
        return Text(text, style="dim")

    def _find_thinking(self) -> tuple[str, str]:
        thinking = clean(self.block.thinking).strip()
        if not thinking or self.is_open:
            return "thinking", thinking
        lines = thinking.split("\n")
        if self.block.is_live and not self.block.text:
            return "live", "\n".join(lines[-6:])
        return "thought", f"∴ thought for {len(lines)} line{'s' if len(lines) > 1 else ''}"

    def _find_end(self) -> tuple[str, str]:
        if self.block.error:
            return "error", self.block.error
        return "end", "■ stopped" if self.block.is_aborted else ""
