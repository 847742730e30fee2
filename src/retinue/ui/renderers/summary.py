"""What stands for the conversation before it."""

from rich.text import Text

from retinue.core.figures import format_tokens
from retinue.ui.blocks import SummaryBlock
from retinue.ui.renderers.base import BlockView
from retinue.ui.renderers.prose import render_markdown, stack


class SummaryView(BlockView):
    """A compaction, or a branch that was left: one line, and the summary when it is opened."""

    DEFAULT_CSS = """
    SummaryView { padding: 0 1; color: $text-muted; border-top: dashed $foreground 30%; }
    """
    block: SummaryBlock
    can_fold = True

    def draw(self) -> None:
        """Folded at first: it is for the model."""
        block = self.block
        if block.kind == "branch":
            head = "⑂ another branch was left here"
        else:
            tokens = f" ({format_tokens(block.tokens_before)} tokens)" if block.tokens_before else ""
            head = f"⇊ the conversation before this was summarised{tokens}"
        words = render_markdown(block.summary, self.app) if self.is_open else None
        self.update(stack(Text(head), words))
