"""A reply of the model: collapsed thinking, and Markdown text that is drawn in parts."""

from rich.console import RenderableType
from rich.padding import Padding
from rich.text import Text
from textual.widgets import Static

from retinue.core.pattern import late_pattern
from retinue.ui.blocks import ReplyBlock
from retinue.ui.formats import clean
from retinue.ui.renderers.base import BlockView, render_markdown

SIZE = 3000
"""Approximate characters of a part: an amount that can be drawn many times a second."""
MOST_CHARS = 300_000
"""Longer replies are cut on screen."""
_PATIENCE = 4
"""A part without a good place to end may have this many times the size."""
_FENCE = late_pattern(r" {0,3}(`{3,}|~{3,})")


def split_parts(text: str) -> list[str]:
    """Split into parts. Where a part ends depends only on the text before it, so earlier parts never change."""
    parts, begin, at, fence = list[str](), 0, 0, ""
    cut = text[:MOST_CHARS]
    while at < len(cut):
        end = cut.find("\n", at)
        end = len(cut) if end < 0 else end + 1
        fence = _follow_fence(cut[at : min(end, at + 40)], fence)
        size = end - begin
        if size >= SIZE * _PATIENCE:
            # There is no good place to split: a long paragraph, or code, which then continues in a new fence.
            end = max(at, begin + SIZE * _PATIENCE) if end - at > SIZE else end
            parts.append(cut[begin:end])
            begin = end
        elif size >= SIZE and not fence and _ends_block(cut, end):
            parts.append(cut[begin:end])
            begin = end
        at = end
    if begin < len(cut):
        parts.append(cut[begin:])
    if len(text) > MOST_CHARS:
        parts.append(f"… {len(text) - MOST_CHARS} more characters")
    return parts


def _follow_fence(line: str, fence: str) -> str:
    """The code fence that is open after a line; empty outside of code."""
    found = _FENCE.match(line)
    if found is None:
        return fence
    if not fence:
        return found[1]
    return "" if found[1][0] == fence[0] and len(found[1]) >= len(fence) else fence


def _ends_block(text: str, end: int) -> bool:
    """Whether a blank line ends here and the text after it is not the continuation of a list."""
    return text[max(0, end - 2) : end] == "\n\n" and end < len(text) and not text[end].isspace()


class ReplyView(BlockView):
    """A streamed or complete reply in parts: while it grows, complete parts are not drawn again."""

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
        """Thinking is shown while there is nothing else yet, and when expanded."""
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
        """Redraw all parts because the theme has changed."""
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
